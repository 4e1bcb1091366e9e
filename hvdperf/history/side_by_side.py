"""`hvdperf bisect`: finds the release that changed a figure by comparing releases with each other,
both alive in one session of the suite.

No stored figure is used: the state of the machine affects both releases alike.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hvdperf.columns import wrapped
from hvdperf.errors import UserError
from hvdperf.history import places
from hvdperf.history.backfill import NotBuilt, build
from hvdperf.history.bisect import Answer, bisect, conclusion
from hvdperf.history.measure import is_without_session
from hvdperf.history.releases import Axis, order
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.paths import ROOT, shown
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.plan.options import Options
from hvdperf.plan.question import Question
from hvdperf.plan.session_plan import plan_session
from hvdperf.results.archive import Archive, read_session
from hvdperf.results.documents import Case, session_name
from hvdperf.session.terminal.cases import figure_text
from hvdperf.stats import Interval
from hvdperf.verdict import Verdict

# The profile that measures longest before it reports INCONCLUSIVE.
PROFILE = "nightly"
CASE = "perf/test_scaling.py::test_weak_scaling"
# A session reports FAIL if a release is more than 2 % slower with 97.5 % confidence, and PASS if it
# is less than 5 % slower with 97.5 % confidence. These are the same limits in the other direction:
# a release is faster if the lower bound is above the first, and not if the upper bound does not
# exceed the second.
FASTER_FROM = 1.02
SAME_UP_TO = 1 / 0.95


@dataclass(frozen=True)
class Asked:
    """The input of a search. along: the package whose releases are searched. at: the version of the
    other package. budget_minutes: of each session; None for the profile's."""

    along: Axis
    at: str
    model: str
    world_size: int
    budget_minutes: float | None = None

    def stack(self, release: str) -> dict[Axis, str]:
        return {self.along: release, self.along.other: self.at}


@dataclass(frozen=True)
class Result:
    """The result of one session with two stacks. figure: samples per second of the newer stack over
    those of the older one; None if there is none. reason: the verdict's reason, or why a stack
    cannot be built."""

    answer: Answer
    figure: Interval | None = None
    reason: str = ""


def bisect_command(first: str, last: str, asked: Asked) -> int:
    """Search from the first release to the last, and print every step. Return the exit status: 0,
    or 1 if it is not known whether the last release differs from the first.

    Raises UserError for bad input, before anything is built, and if a session cannot be run.
    """
    releases = between(asked.along, first, last)
    check(asked)
    steps = Steps(asked, places.GENERATED / "bisect" / session_name())
    found = bisect(releases, steps.compare)
    print(f"\nsessions are in {shown(steps.directory)}")
    for text in (*steps.told, conclusion(found)):
        _tell(text)
    return 0 if found.answer.is_known else 1


def between(axis: Axis, first: str, last: str) -> tuple[str, ...]:
    """Return the known releases from first to last, both included. Raises UserError if one of them
    is unknown, or if the first is not the older one."""
    _known(axis, "--from", first)
    _known(axis, "--to", last)
    place = order(axis)
    if place[first] >= place[last]:
        raise UserError(f"--from {first} --to {last}: the older release comes first")
    return tuple(place)[place[first] : place[last] + 1]


def check(asked: Asked) -> None:
    """Check everything else that can be wrong with the input. Raises UserError."""
    _known(asked.along.other, "--at", asked.at)
    machine = local_machine()
    offers = local_offers(machine, None, False)
    if not 1 <= asked.world_size <= len(offers):
        raise UserError(f"--np {asked.world_size}: this machine has {len(offers)} slots")
    options = Options(
        profile=PROFILE,
        models=asked.model,
        world_sizes=str(asked.world_size),
        budget_minutes=asked.budget_minutes,
        against=sys.executable,
    )
    plan_session(options, machine, offers)


def _known(axis: Axis, option: str, version: str) -> None:
    if version not in order(axis):
        raise UserError(
            f"{option} {version}: known releases of {axis.value} are {', '.join(order(axis))} "
            "(hvdperf/history/releases.toml)"
        )


class Steps:
    """The comparisons of a search. directory: holds the results of each comparison's session, in a
    directory of its own. told: one line for each comparison."""

    def __init__(self, asked: Asked, directory: Path) -> None:
        self.directory = directory
        self.told: list[str] = []
        self._asked = asked

    def compare(self, older: str, newer: str) -> Answer:
        """Build the stacks that are not there, measure both, and note the result. Raises UserError
        if there was no session."""
        print(f"\nbisect: {newer} compared with {older}", flush=True)
        try:
            reference, candidate = map(self._built, (older, newer))
        except NotBuilt as error:
            result = Result(Answer.NOT_BUILT, reason=str(error))
        else:
            place = self.directory / f"{older}-{newer}"
            result = measure(self._asked, candidate, reference, place)
        figure = f" {figure_text(result.figure).strip()}" if result.figure else ""
        reason = f" ({result.reason})" if result.reason else ""
        self.told.append(f"{older} -> {newer}:{figure} {result.answer.value}{reason}")
        _tell(f"bisect: {self.told[-1]}")
        return result.answer

    def _built(self, release: str) -> Path:
        stack = self._asked.stack(release)
        return build(stack[Axis.HOROVOD], stack[Axis.TENSORFLOW])


def measure(asked: Asked, candidate: Path, reference: Path, place: Path) -> Result:
    """Run one session, and return its result on the stacks of two interpreters. place: the
    directory for its results, which does not exist yet.

    Raises UserError if there was no session.
    """
    command = [
        *(sys.executable, "-m", "pytest", CASE),
        f"--profile={PROFILE}",
        f"--stack={candidate}",
        f"--against={reference}",
        f"--models={asked.model}",
        f"--world-sizes={asked.world_size}",
        f"--results={place}",
    ]
    if asked.budget_minutes is not None:
        command.append(f"--budget={asked.budget_minutes:g}")
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    sessions = sorted(place.glob("runs/*"))
    if is_without_session(status) or not sessions:
        raise UserError(
            f"{candidate} was not compared with {reference}: pytest ended with status {status}; "
            "see its output above"
        )
    return result_of(read_session(sessions[-1]), asked)


def result_of(archive: Archive, asked: Asked) -> Result:
    """Return what a session says of the two stacks' throughput. Raises UserError if it has no such
    case."""
    cases = [
        case
        for case in archive.cases
        if case.judged_as is JudgedAs.REGRESSION
        and case.question is Question.WEAK_SCALING
        and (case.workload.model, case.world_size) == (asked.model, asked.world_size)
    ]
    if not cases:
        why = "".join(f"; {line}" for line in archive.left_out)
        raise UserError(
            f"{shown(archive.directory)}: no case compares {asked.model} at {asked.world_size} "
            f"replicas with another stack{why}"
        )
    return Result(answer_of(cases[0]), cases[0].figure, cases[0].reason)


def answer_of(case: Case) -> Answer:
    """Return the answer of a case that compares two stacks, in both directions. A figure that
    differs from 1 with 97.5 % confidence, but by less than the verdict's limits, may be a part of
    the change that is looked for: it is undecided."""
    if case.figure is None or not case.is_sound:
        return Answer.UNDECIDED
    if case.verdict is Verdict.FAIL:
        return Answer.SLOWER
    if case.figure.lower > FASTER_FROM:
        return Answer.FASTER
    bounds = case.figure
    same = case.verdict is Verdict.PASS and bounds.lower <= 1 <= bounds.upper <= SAME_UP_TO
    return Answer.SAME if same else Answer.UNDECIDED


def _tell(text: str) -> None:
    for line in wrapped(text):
        print(line, flush=True)
