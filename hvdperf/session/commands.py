"""The commands that list what can be measured, and that propose thresholds."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

from hvdperf.cli import Commands, add_command, complain
from hvdperf.columns import Columns, wrapped
from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.models.registry import NETWORKS
from hvdperf.paths import ROOT, cases
from hvdperf.plan.faults import TRIALS, Fault
from hvdperf.plan.options import installed_networks
from hvdperf.plan.profile import PROFILES, load_profile
from hvdperf.plan.thresholds import WITHOUT_THRESHOLD, load_thresholds
from hvdperf.records.archive import read_session
from hvdperf.session.dry_run import dry_run
from hvdperf.session.proposed_thresholds import propose
from hvdperf.verdict import Band, Ceiling, Rule


def add_to(commands: Commands) -> None:
    """Add the commands list and thresholds."""
    add = add_command(commands, "list", "List networks, profiles, cases or faults.")
    lists = add.add_subparsers(required=True, metavar="WHAT")
    for name, run, description in (
        ("networks", list_networks, "List the networks, by the names for --models."),
        ("profiles", list_profiles, "List the profiles, by the names for --profile."),
        ("faults", list_faults, "List the faults for --inject, and the fault cases."),
    ):
        add_command(lists, name, description).set_defaults(command=run)
    cases = add_command(lists, "cases", "List the cases that `pytest perf/` would measure.")
    _add_options_of_a_session(cases, "--profile", "--models", "--np")
    cases.set_defaults(command=list_cases)

    add = add_command(commands, "thresholds", "Propose, check and compare thresholds.")
    tasks = add.add_subparsers(required=True, metavar="TASK")
    task = add_command(
        tasks,
        "propose",
        "Propose thresholds for machines like this one, from the rounds of all given sessions "
        "together: 32 of a case or more, of an unchanged build. The file begins with the number of "
        "false FAILs a year that they mean.",
    )
    task.add_argument(
        "sessions",
        type=Path,
        nargs="+",
        metavar="SESSION",
        help="Use the rounds of these sessions, a directory of results/runs.",
    )
    task.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="Write to this new file, which --thresholds takes. Default: stdout.",
    )
    task.set_defaults(command=propose_thresholds)

    task = add_command(
        tasks,
        "check",
        "Say which file of thresholds counts here, and which cases of a profile it has no line "
        "for. Exit status: 1 if there is such a case.",
    )
    _add_options_of_a_session(task, "--profile", "--models", "--np", "--thresholds")
    task.set_defaults(command=check_thresholds)

    task = add_command(tasks, "diff", "Show what a file of thresholds tightens or loosens.")
    task.add_argument(
        "old",
        type=Path,
        metavar="OLD",
        help="Compare this file, such as ci/thresholds/gpu-a100.toml, ...",
    )
    task.add_argument("new", type=Path, metavar="NEW", help="... with this one.")
    task.set_defaults(command=diff_thresholds)


def _add_options_of_a_session(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options that are handed on to pytest."""
    group = parser.add_argument_group("the session, as for pytest perf/")
    for name in names:
        metavar, text = _OF_A_SESSION[name]
        group.add_argument(name, metavar=metavar, help=text)


# Options that are handed on to pytest: what stands for the value, and the help.
_OF_A_SESSION = {
    "--profile": ("NAME", "Take the cases of this profile. Default: default."),
    "--models": ("A,B", "Take these networks. Default: those of the profile."),
    "--np": ("N", "Take N slots. Default: all GPUs, or else all cores."),
    "--thresholds": ("FILE", "Check this file. Default: that of machines like this one."),
}


def propose_thresholds(arguments: argparse.Namespace) -> int:
    path: Path | None = arguments.out
    if path is not None and os.path.lexists(path):
        raise UserError(f"--out {path}: already exists; give the name of a new file")
    proposal = propose([read_session(directory) for directory in arguments.sessions])
    if proposal.left_out:
        complain(f"left out: {proposal.left_out}")
    if path is None:
        print(proposal.text, end="")
        return 0
    try:
        write_whole(path, proposal.text)
    except OSError as error:
        raise UserError(f"--out {path}: {error.strerror}") from None
    return 0


def check_thresholds(arguments: argparse.Namespace) -> int:
    planned = dry_run(given(arguments, "profile", "models", "np", "thresholds"))
    print("\n".join(wrapped(f"thresholds: {planned.thresholds}")))
    if planned.without_threshold:
        missing = ", ".join(planned.without_threshold)
        print("\n".join(wrapped(f"{WITHOUT_THRESHOLD}: {missing}")))
        return 1
    print("every case has a threshold")
    return 0


def given(arguments: argparse.Namespace, *names: str) -> list[str]:
    """Return those of these options that were given, for a pytest in another directory."""
    values = {name: getattr(arguments, name) for name in names}
    return [
        f"--{name.replace('_', '-')}={from_here(name, value)}"
        for name, value in values.items()
        if value is not None
    ]


def from_here(name: str, value: str) -> str:
    """Return the value of an option as a process in another directory understands it. A profile is
    a path only if it ends with .toml; else a directory beside could be taken for it."""
    is_path = value.endswith(".toml") if name == "profile" else os.path.exists(value)
    return os.path.abspath(value) if is_path else value


def diff_thresholds(arguments: argparse.Namespace) -> int:
    """Print each pattern whose rule differs; return 0."""
    old, new = (
        {"/".join(line.pattern): line.rule for line in load_thresholds(path).lines}
        for path in (arguments.old, arguments.new)
    )
    table = Columns(("pattern", -44), ("old", 14), ("new", 14), (" ", 0))
    rows = [
        (name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    if not rows:
        print("the same thresholds")
        return 0
    print(table.header)
    for name, before, after in rows:
        told = (str(rule) if rule is not None else "-" for rule in (before, after))
        print(table.row(name, *told, f" {_direction(before, after)}"))
    return 0


def _direction(old: Rule | None, new: Rule | None) -> str:
    """Return whether the new rule asks for more than the old one."""
    if old is None or new is None:
        return "new" if old is None else "removed"
    if type(old) is not type(new):
        return "changed"
    tighter = _strictness(new) > _strictness(old)
    return "tighter" if tighter else "looser"


def _strictness(rule: Rule) -> float:
    if isinstance(rule, Band):
        return -math.log(rule.high / rule.low)
    return -rule.at_most if isinstance(rule, Ceiling) else rule.pass_from


def list_networks(_: argparse.Namespace) -> int:
    table = Columns(
        ("network", -18), ("input", 5), ("gradients", 9), (" task, and tensors of an allreduce", 0)
    )
    installed_networks()
    print(table.header)
    for each in NETWORKS.values():
        task = f" {each.task.value}, {each.traffic.value}"
        print(table.row(each.name, each.input_size, each.gradient_tensors, task))
    return 0


def list_profiles(_: argparse.Namespace) -> int:
    table = Columns(("profile", -10), ("time", 8), ("looks", -10), ("networks", 0))
    print(table.header)
    for path in sorted(PROFILES.glob("*.toml")):
        profile = load_profile(path)
        looks = ", ".join(map(str, profile.sampling.looks))
        print(table.row(profile.name, profile.duration, looks, ", ".join(profile.models)))
    return 0


def list_faults(_: argparse.Namespace) -> int:
    print("--inject KIND:KEY=VALUE,...; every kind also takes model= and world_size=")
    for kind, keys in Fault.KINDS.items():
        print(f"  {kind:<8} {', '.join(f'{key}=' for key in keys)}".rstrip())
    print("cases of perf/test_trust.py")
    for name, trial in TRIALS.items():
        print(f"  {name:<8} {trial.fault or 'no fault'}: {trial.verdict.value}")
    return 0


def list_cases(arguments: argparse.Namespace) -> int:
    """List the cases that pytest collects with these options; return pytest's exit status."""
    options = given(arguments, "profile", "models", "np")
    command = [sys.executable, "-m", "pytest", *cases(), "--collect-only", "-q", *options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
