"""`hvdperf bisect`: finds the release that changed a figure by comparing releases with each other,
both alive in one session of the suite.

No stored figure is used: the state of the machine affects both releases alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from hvdperf.columns import figure_text, wrapped
from hvdperf.errors import UserError
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.paths import shown
from hvdperf.plan.comparisons import JudgedAs, Scaling
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Case, session_name
from hvdperf.stats import Interval
from hvdperf.timeline.processes import run_session
from hvdperf.timeline.releases import raw
from hvdperf.timeline.releases.backfill import NotBuilt, build
from hvdperf.verdict import Verdict

# The profile that measures longest before it reports INCONCLUSIVE.
PROFILE = "nightly"
CASE = "perf/test_scaling.py::test_weak_scaling"
# A session reports FAIL if a release is more than 2 % slower, and PASS if it is less than 5 %
# slower, each with about 94 % confidence. These are the limits in the other direction: a release is
# faster if the lower bound is above FASTER_FROM, and not faster if the upper bound does not exceed
# SAME_UP_TO.
FASTER_FROM = 1.02
SAME_UP_TO = 1 / 0.95


class Answer(Enum):
    """The result of comparing the newer of two releases with the older one."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "the same"
    UNDECIDED = "undecided"
    NOT_BUILT = "not built"

    @property
    def is_change(self) -> bool:
        return self in (Answer.SLOWER, Answer.FASTER)

    @property
    def is_known(self) -> bool:
        return self is Answer.SAME or self.is_change


Compare = Callable[[str, str], Answer]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    answer: the last release compared with the first. If that is a change, changed is the oldest
    release that was found to have it, and unchanged the newest release before it that was found not
    to have it. unknown: the releases between these two without an answer, each with the reason.
    """

    answer: Answer
    unchanged: str
    changed: str
    unknown: Mapping[str, Answer] = field(default_factory=dict)


def bisect(releases: Sequence[str], compare: Compare) -> Found:
    """Return where the change from the first to the last release came. releases: at least two,
    oldest first.

    Each release is compared with the first one, so that no errors add up: first the last release,
    and then at most ceil(log2(n - 1)) of those between, if each gives an answer. If a release gives
    no answer, its neighbour is compared instead.
    """
    low, high = 0, len(releases) - 1
    sought = compare(releases[low], releases[high])
    unknown: dict[int, Answer] = {}
    while sought.is_change:
        between = [place for place in range(low + 1, high) if place not in unknown]
        if not between:
            break
        middle = min(between, key=lambda place: abs(2 * place - low - high))
        answer = compare(releases[0], releases[middle])
        if not answer.is_known:
            unknown[middle] = answer
        elif answer is sought:
            high = middle
        else:
            low = middle
    return Found(
        sought,
        releases[low],
        releases[high],
        {releases[place]: unknown[place] for place in sorted(unknown) if low < place < high},
    )


def conclusion(found: Found) -> str:
    """Return the result for people, in one or two sentences."""
    old, new = found.unchanged, found.changed
    if not found.answer.is_change:
        said = {
            Answer.SAME: f"{new} does not differ from {old}: there is no change to find",
            Answer.UNDECIDED: f"{new} compared with {old} is undecided, so no change can be found",
            Answer.NOT_BUILT: f"{new} cannot be compared with {old}: one of them cannot be built",
        }
        return said[found.answer]
    word = found.answer.value
    if not found.unknown:
        return f"{new} is the release that is {word}; {old}, the one before, is not"
    why = ", ".join(f"{release} is {answer.value}" for release, answer in found.unknown.items())
    return (
        f"{word} since {new} or a release between {old} and {new}; which one is unknown, "
        f"because {why}"
    )


@dataclass(frozen=True)
class Asked:
    """The input of a search. along: the package whose releases are searched. at: the version of the
    other package. budget_minutes: of each session; None for the profile's."""

    along: raw.Axis
    at: str
    model: str
    world_size: int
    budget_minutes: float | None = None


# The answer of a session with two stacks, the samples per second of the newer one over those of the
# older one, None if there is none, and the verdict's reason.
Result = tuple[Answer, Interval | None, str]


def bisect_command(first: str, last: str, asked: Asked) -> int:
    """Search from the first release to the last, and print every step. Return the exit status: 0,
    or 1 if it is not known whether the last release differs from the first.

    Raises UserError for bad input, before anything is built, and if a session cannot be run.
    """
    releases = between(asked.along, first, last)
    check(asked)
    directory = raw.GENERATED / "bisect" / session_name()
    results: list[str] = []

    def built(release: str) -> Path:
        stack = {asked.along: release, asked.along.other: asked.at}
        return build(stack[raw.Axis.HOROVOD], stack[raw.Axis.TENSORFLOW])

    def compare(older: str, newer: str) -> Answer:
        print(f"\nbisect: {newer} compared with {older}", flush=True)
        try:
            reference, candidate = map(built, (older, newer))
            answer, ratio, reason = measure(
                asked, candidate, reference, directory / f"{older}-{newer}"
            )
        except NotBuilt as error:
            answer, ratio, reason = Answer.NOT_BUILT, None, str(error)
        figure = f" {figure_text(ratio)}" if ratio else ""
        told = f" ({reason})" if reason else ""
        results.append(f"{older} -> {newer}:{figure} {answer.value}{told}")
        _print(f"bisect: {results[-1]}")
        return answer

    found = bisect(releases, compare)
    print(f"\nsessions are in {shown(directory)}")
    for text in (*results, conclusion(found)):
        _print(text)
    return 0 if found.answer.is_known else 1


def between(axis: raw.Axis, first: str, last: str) -> tuple[str, ...]:
    """Return the known releases from first to last, both included. Raises UserError if one of them
    is unknown, or if the first is not the older one."""
    raw.check_known(axis, "--from", first)
    raw.check_known(axis, "--to", last)
    place = raw.order(axis)
    if place[first] >= place[last]:
        raise UserError(f"--from {first} --to {last}: the older release comes first")
    return tuple(place)[place[first] : place[last] + 1]


def check(asked: Asked) -> None:
    """Check everything else that can be wrong with the input. Raises UserError."""
    raw.check_known(asked.along.other, "--at", asked.at)
    machine = local_machine()
    offers = local_offers(machine)
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


def measure(asked: Asked, candidate: Path, reference: Path, place: Path) -> Result:
    """Run one session, and return its result on the stacks of two interpreters. place: the
    directory for its results, which does not exist yet.

    Raises UserError if there was no session.
    """
    arguments = [
        CASE,
        f"--profile={PROFILE}",
        f"--stack={candidate}",
        f"--against={reference}",
        f"--models={asked.model}",
        f"--world-sizes={asked.world_size}",
    ]
    if asked.budget_minutes is not None:
        arguments.append(f"--budget={asked.budget_minutes:g}")
    lost = f"{candidate} was not compared with {reference}"
    return result_of(read_session(run_session(arguments, place, lost)), asked)


def result_of(archive: Archive, asked: Asked) -> Result:
    """Return what a session says of the two stacks' throughput. Raises UserError if it has no such
    case."""
    cases = [
        case
        for case in archive.cases
        if case.judged_as is JudgedAs.REGRESSION
        and case.question.spec.scaling is Scaling.WEAK
        and (case.workload.model, case.world_size) == (asked.model, asked.world_size)
    ]
    if not cases:
        why = "".join(f"; {line}" for line in archive.left_out)
        raise UserError(
            f"{shown(archive.directory)}: no case compares {asked.model} at {asked.world_size} "
            f"replicas with another stack{why}"
        )
    return answer_of(cases[0]), cases[0].figure, cases[0].reason


def answer_of(case: Case) -> Answer:
    """Return the answer of a case that compares two stacks, in both directions. It is UNDECIDED for
    a figure whose interval does not contain 1 but does not meet the verdict's limits either,
    because this may be a part of the change."""
    if case.figure is None or not case.is_sound:
        return Answer.UNDECIDED
    if case.verdict is Verdict.FAIL:
        return Answer.SLOWER
    if case.figure.lower > FASTER_FROM:
        return Answer.FASTER
    bounds = case.figure
    same = case.verdict is Verdict.PASS and bounds.lower <= 1 <= bounds.upper <= SAME_UP_TO
    return Answer.SAME if same else Answer.UNDECIDED


def _print(text: str) -> None:
    for line in wrapped(text):
        print(line, flush=True)
