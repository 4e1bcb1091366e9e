"""The commands that look before measuring: what can be measured, whether this machine is fit, and
which thresholds count or could be proposed."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from hvdperf import cli, columns, files, paths
from hvdperf.errors import UserError, refusing
from hvdperf.launch import launchers
from hvdperf.machine.fitness import Check, judged
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.machine.stack import NO_MPIRUN, Stack, probe
from hvdperf.models.registry import NETWORKS
from hvdperf.plan.options import DATA_DIR, Options
from hvdperf.plan.profile import PROFILES, load_profile
from hvdperf.plan.questions import FAULT_CASES, Fault
from hvdperf.plan.session_plan import plan_session
from hvdperf.plan.settings import settings_lines
from hvdperf.records.archive import read_session
from hvdperf.session import control, ending, proposals


def propose_thresholds(*sessions: Path, out: Path | None = None) -> int:
    """Propose limits for machines like this one, from at least eight sessions of an unchanged
    build. Together they are expected to cause 0.2 false FAILs a year; the first line of the file
    has the number.

    SESSION ...: Use the rounds of these sessions, directories under results/runs.
    --out FILE: Write to this new file, which --thresholds takes. Default: stdout.
    """
    if out is not None and os.path.lexists(out):
        raise UserError(f"--out {out}: already exists; give the name of a new file")
    text, left_out = proposals.proposal([read_session(directory) for directory in sessions])
    if left_out:
        cli.complain(f"left out: {left_out}")
    if out is None:
        print(text, end="")
        return 0
    with refusing(f"--out {out}: ", OSError):
        files.write_whole(out, text)
    return 0


def from_here(name: str, value: str) -> str:
    """Return the value of an option as a process in another directory understands it. A profile is
    a path only if it ends with .toml; else a directory beside could be taken for it."""
    is_path = value.endswith(".toml") if name == "profile" else os.path.exists(value)
    return os.path.abspath(value) if is_path else value


def list_networks() -> int:
    """List the network names that --models accepts."""
    table = columns.Columns(("network", -18), ("input", 5), ("gradients", 9), (" task", 0))
    print(table.header)
    for each in NETWORKS.values():
        print(table.row(each.name, each.input_size, each.gradient_tensors, f" {each.task.value}"))
    return 0


def list_profiles() -> int:
    """List the profile names that --profile accepts."""
    table = columns.Columns(("profile", -11), ("time", 8), ("looks", -10), ("networks", 0))
    print(table.header)
    for path in sorted(PROFILES.glob("*.toml")):
        profile = load_profile(path)
        looks = ", ".join(map(str, profile.sampling.looks))
        print(table.row(profile.name, profile.duration, looks, ", ".join(profile.models)))
    return 0


def list_faults() -> int:
    """List the faults for --inject, and the fault cases."""
    print("--inject KIND:KEY=VALUE,...; every kind also takes model= and world_size=")
    for kind, keys in Fault.KINDS.items():
        print(f"  {kind:<8} {', '.join(f'{key}=' for key in keys)}".rstrip())
    print("cases of perf/test_trust.py")
    for name, case in FAULT_CASES.items():
        print(f"  {name:<8} {case.fault or 'no fault'}: {case.verdict.value}")
    return 0


_INDENT = 24
# Versions of Keras that Horovod knows, and where it is said what works with which one.
KNOWN_TO_HOROVOD, FACTS = "2.", "docs/reference/compatibility.md"
# What fails with another one, although its last release builds and starts.
UNKNOWN_TO_HOROVOD = (
    "hvd.DistributedGradientTape in a loop (AttributeError: 'Variable' object has no attribute "
    "'ref'); hvd.DistributedOptimizer in model.fit (the ranks have different weights after "
    "training)"
)


def doctor(
    *,
    profile: str = Options.profile,
    data_dir: str = "",
    thresholds: str = "",
    results: Path = paths.RESULTS,
) -> int:
    """Check whether this machine is ready for measurements, and show fixes if not. Cores, load,
    GPUs, the installed stack, data and limits are checked. Exit status: 0 if the machine is ready,
    {ending.UNFIT} if not.

    what to check
        --profile NAME: Check this profile. Default: default.
        --data-dir DIR: Check the data sets in this directory. Default: as in `pytest perf/`.
        --thresholds FILE: Check this file. Default: the one for machines like this.
        --results DIR: Check that there is room for results here. Default: results.
    """
    data_dir = data_dir or os.environ.get(DATA_DIR, "")
    options = Options(profile=profile, data_dir=data_dir, thresholds=thresholds)
    checks = []
    for check in _checks(options, results):
        checks.append(check)
        for line in _lines(check):
            print(line, flush=True)
    wrong = [check.name for check in checks if check.problem]
    print(f"not ready to measure: {', '.join(wrong)}" if wrong else "ready to measure")
    return ending.UNFIT if wrong else 0


def _lines(check: Check) -> Iterator[str]:
    """Return the value, and below it the problem and its fix."""
    mark = "FIX" if check.problem else "note" if check.note else "ok"
    texts = [check.value, *[check.note] * bool(check.note)]
    if check.problem:
        texts += [f"problem: {check.problem}", f"fix: {check.fix}"]
    first, *more = (line for text in texts for line in _wrapped(text))
    yield f"{mark:<6}{check.name:<{_INDENT - 6}}{first}"
    for line in more:
        yield f"{'':<{_INDENT}}{line}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, columns.WIDTH - _INDENT, break_on_hyphens=False) or [""]


def _checks(options: Options, results: Path) -> Iterator[Check]:
    yield from control.local_preflight(results)
    try:
        stack = probe(sys.executable, paths.CACHE)
    except UserError as error:
        yield Check("stack", "broken", *_split(str(error)))
        return
    built = ", ".join(stack.horovod_flags)
    versions = f"TensorFlow {stack.tensorflow}, Keras {stack.keras}, Horovod {stack.horovod}"
    mpirun = "no mpirun" if stack.mpirun_version == NO_MPIRUN else stack.mpirun_version
    yield Check("stack", f"{versions} ({built}), {mpirun}", note=_launcher(stack))
    yield check_of_scripts(stack)
    yield from _planned(options)


def _launcher(stack: Stack) -> str:
    """Return why the usual launcher cannot start ranks, and what can, in words; "" if it can."""
    try:
        launchers.check_can_start(Options().launcher, stack)
    except UserError as error:
        return str(error)
    return ""


def check_of_scripts(stack: Stack) -> Check:
    """Return whether the usual scripts with Horovod train, as far as its version of Keras says. The
    suite's own training needs nothing of what they use, so the machine is fit to measure in any
    case."""
    name = "your scripts"
    # The horovodrun of a stack starts ranks only with --gloo if it does not know its MPI.
    how = "by horovodrun --gloo, " if launchers.problem_of_mpirun(stack) else ""
    if stack.keras.startswith(KNOWN_TO_HOROVOD):
        return Check(name, f"{how}gradients are exchanged in loops and in model.fit")
    release = ".".join(stack.tensorflow.split(".")[:2])
    install = "" if stack.has_tf_keras else f"install tf-keras~={release}.0 and "
    return Check(
        name,
        f"{how}under Keras {stack.keras}, your own scripts cannot use {UNKNOWN_TO_HOROVOD}",
        note=f"fix: {install}set TF_USE_LEGACY_KERAS=1; then see {FACTS}; hvdperf's own networks "
        "are not affected",
    )


def _split(message: str) -> tuple[str, str]:
    """Split the message of a UserError into what is wrong and what to do."""
    problem, _, fix = message.partition("; ")
    return problem, fix or "correct it"


def _planned(options: Options) -> Iterator[Check]:
    """Return the checks of data and thresholds, from the plan of a session that is not run."""
    machine = local_machine()
    try:
        plan = plan_session(options, machine, local_offers(machine))
    except UserError as error:
        yield Check("plan", "refused", *_split(str(error)))
        return
    settings = settings_lines(options.launcher, len(machine.gpus))
    yield Check("profile, data", plan.work)
    yield Check("settings", ", ".join(settings) or "none that affects results")
    yield judged(
        "thresholds",
        f"{plan.thresholds.path.name}: {plan.thresholds.label}",
        bool(plan.thresholds.lines),
        "no limits for this machine",
        "measure, and paste the lines that the session prints, or see `hvdperf thresholds propose`",
    )


COMMANDS: Mapping[str, cli.Command] = {
    "list": cli.Group(
        "List networks, profiles or faults.",
        "WHAT",
        {
            "networks": list_networks,
            "profiles": list_profiles,
            "faults": list_faults,
        },
    ),
    "thresholds": cli.Group(
        "Get limits for your own machine from its sessions.",
        "TASK",
        {"propose": propose_thresholds},
    ),
    "doctor": doctor,
}
