"""Fills the version matrix: measures every combination of a Horovod and a TensorFlow release on
this machine, or records why it cannot be built. One stack alone is measured for `asv run`.

A back-fill may be stopped and restarted at any time, because it skips what has been measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from hvdperf.columns import Columns, wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import is_oversubscribed, local_offers, place
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, ROOT, cases, shown
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.timeline.processes import run_session
from hvdperf.timeline.releases import raw

PROFILE = "history"


# The default versions: the last Horovod, and of each TensorFlow line the last bug fix. Those before
# 2.14 need NumPy 1.24, which the suite's own SciPy does not work with. Horovod 0.28.0 builds with
# all of these; results/not-built records why older ones do not.
HOROVOD = ("0.28.1",)
TENSORFLOW = ("2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")

Say = Callable[[str], None]


def parameters() -> tuple[list[str], list[str], list[int]]:
    """Return the values of asv's parameters: the networks, replicas and world sizes that the
    profile measures on this machine. Raises UserError if this machine cannot measure it."""
    machine = local_machine()
    session_plan = plan_session(Options(profile=PROFILE), machine, local_offers(machine))
    slots = session_plan.slots
    labels = [
        raw.replica_label(
            session_plan.data[workload.dataset].identity,
            len(slots[0].cores),
            bool(machine.gpus),
            workload,
        )
        for workload in session_plan.workloads
    ]
    return (
        [workload.model for workload in session_plan.workloads],
        list(dict.fromkeys(labels)),
        [size for size in session_plan.world_sizes if not is_oversubscribed(slots, size)],
    )


def this_machine() -> str:
    """Return the label of this machine for sessions with everything at its default."""
    machine = local_machine()
    stack = probe(sys.executable, CACHE)
    slots = place(local_offers(machine))
    return raw.machine_label(fingerprint(machine, stack, Options().launcher, slots))


def measure(stack: Path, quiet: bool) -> raw.RawResult:
    """Measure the throughput of a stack in one session. stack: its interpreter. quiet: as in
    `run_session`.

    Raises UserError if there was no session, or if it measured nothing soundly.
    """
    lost = f"nothing was measured of {stack}"
    results = raw.MEASURED / stack.absolute().parent.parent.name
    arguments = [*cases(), f"--profile={PROFILE}", f"--stack={stack}"]
    directory = run_session(arguments, results, lost, quiet)
    with refusing(f"{lost}: {shown(directory)}: ", raw.Refused):
        return raw.extract(directory)


class State(Enum):
    """The state of a combination of versions on one machine."""

    MEASURED = "measured"
    NOT_BUILT = "cannot be built"
    MISSING = "not measured yet"


@dataclass(frozen=True)
class Combination:
    horovod: str
    tensorflow: str
    state: State
    reason: str = ""

    @property
    def name(self) -> str:
        return f"Horovod {self.horovod}, TensorFlow {self.tensorflow}"


def combinations(
    results: Sequence[raw.RawResult],
    machine: str | None,
    horovod: Sequence[str] = HOROVOD,
    tensorflow: Sequence[str] = TENSORFLOW,
    not_built: Path = raw.NOT_BUILT,
) -> Iterator[Combination]:
    """Yield every combination of versions with its state, oldest first. machine: label of the
    machine that measured; None for any."""
    there = {
        tuple(map(result.version, raw.Axis))
        for result in results
        if machine in (None, result.machine)
    }
    for ours in sorted(horovod, key=raw.order(raw.Axis.HOROVOD).__getitem__):
        for theirs in sorted(tensorflow, key=raw.order(raw.Axis.TENSORFLOW).__getitem__):
            record = not_built / f"horovod-{ours}-tensorflow-{theirs}.json"
            if (ours, theirs) in there:
                yield Combination(ours, theirs, State.MEASURED)
            elif record.exists():
                yield Combination(ours, theirs, State.NOT_BUILT, reason_in(record))
            else:
                yield Combination(ours, theirs, State.MISSING)


def reason_in(record: Path) -> str:
    """Return why a combination cannot be built, with the compiler that was used."""
    try:
        document = json.loads(record.read_text())
        return f"{document['reason']} ({document['compiler']})"
    except (OSError, ValueError, LookupError, TypeError):
        return "for a reason that cannot be read; remove the file to try again"


def fill(
    wanted: Sequence[Combination], say: Say, root: Path = raw.RAW, again: bool = False
) -> list[Combination]:
    """Build and measure the missing combinations; return all wanted ones with their new states.

    again: also try combinations that could not be built before. Raises UserError if a stack that
    was built could not be measured, or has other versions.
    """
    done = []
    for number, combination in enumerate(wanted, start=1):
        say(f"[{number} of {len(wanted)}] {combination.name}: {combination.state.value}")
        if combination.state is State.MISSING or (again and combination.state is State.NOT_BUILT):
            try:
                _measure(combination, root)
                combination = replace(combination, state=State.MEASURED)
            except NotBuilt as error:
                say(f"  cannot be built: {error}")
                combination = replace(combination, state=State.NOT_BUILT, reason=str(error))
        done.append(combination)
    return done


def _measure(combination: Combination, root: Path) -> None:
    """Build a stack, measure it, and keep the raw result. Raises NotBuilt or UserError."""
    interpreter = build(combination.horovod, combination.tensorflow)
    result = measure(interpreter, quiet=False)
    found = tuple(map(result.version, raw.Axis))
    if found != (combination.horovod, combination.tensorflow):
        raise UserError(
            f"{interpreter} holds Horovod {found[0]} and TensorFlow {found[1]}, not "
            f"{combination.name}; remove its environment to build it again"
        )
    raw.keep(result, root)


class NotBuilt(Exception):
    """A stack that cannot be built; the message is the reason."""


def build(horovod: str, tensorflow: str) -> Path:
    """Return the interpreter of a stack with these versions, which `make stack` builds if needed.
    Raises NotBuilt."""
    done = subprocess.run(
        ["make", "--no-print-directory", "stack", f"TF={tensorflow}", f"HOROVOD={horovod}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return Path(lines[-1])
    record = raw.NOT_BUILT / f"horovod-{horovod}-tensorflow-{tensorflow}.json"
    raise NotBuilt(
        reason_in(record) if record.exists() else "make stack failed; see its output above"
    )


def table(combinations: Sequence[Combination]) -> list[str]:
    """Return the matrix for people, one row a Horovod release, and below it why combinations cannot
    be built."""
    words = {State.MEASURED: "measured", State.NOT_BUILT: "-", State.MISSING: "missing"}
    rows: dict[str, dict[str, str]] = {}
    for each in combinations:
        rows.setdefault(each.horovod, {})[each.tensorflow] = words[each.state]
    of_first = next(iter(rows.values()))
    matrix = Columns(("Horovod", -9), *((f"TF {column}", 11) for column in of_first))
    lines = [matrix.header, *(matrix.row(name, *row.values()) for name, row in rows.items())]
    for each in combinations:
        if each.state is State.NOT_BUILT:
            lines += wrapped(f"{each.name}: cannot be built: {each.reason}")
    return lines
