"""Measures releases of Horovod and TensorFlow, each in an environment of its own.

`hvdperf history backfill` fills the version matrix: it builds and measures the last Horovod with
every TensorFlow of which this machine has no result, so it may be stopped and restarted at any
time. `hvdperf history measure` measures one stack, also for `asv run`.

`hvdperf bisect` finds the release that changed a figure by comparing releases with each other, both
alive in one session of the suite. It uses no stored figure: the state of the machine affects both
releases alike.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hvdperf.columns import figure_text, wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import is_oversubscribed, local_offers, place
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, ROOT, cases, shown
from hvdperf.plan.comparisons import JudgedAs, Scaling
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Case, session_name
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.stats import Interval
from hvdperf.timeline import history
from hvdperf.timeline.history import Axis
from hvdperf.timeline.processes import run_session
from hvdperf.verdict import Verdict

# The profile of the history; and that of a bisection, which measures longest before it reports
# INCONCLUSIVE.
PROFILE, BISECTING = "history", "nightly"
# The matrix: the last Horovod, and of each TensorFlow line the last bug fix. Those before 2.14 need
# NumPy 1.24, which the suite's own SciPy does not work with. docs/reference/compatibility.md says
# which older Horovods build.
HOROVOD = "0.28.1"
TENSORFLOW = ("2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")


def parameters() -> tuple[list[str], list[str], list[int]]:
    """Return the values of asv's parameters: the networks, replicas and world sizes that the
    profile measures on this machine. Raises UserError if this machine cannot measure it."""
    machine = local_machine()
    session_plan = plan_session(Options(profile=PROFILE), machine, local_offers(machine))
    slots = session_plan.slots
    labels = [
        history.replica_label(
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
    return history.machine_label(fingerprint(machine, stack, Options().launcher, slots))


def measure(stack: Path, quiet: bool) -> history.RawResult:
    """Measure the throughput of a stack in one session. stack: its interpreter. quiet: as in
    `run_session`.

    Raises UserError if there was no session, or if it measured nothing soundly.
    """
    lost = f"nothing was measured of {stack}"
    results = history.MEASURED / stack.absolute().parent.parent.name
    arguments = [*cases(), f"--profile={PROFILE}", f"--stack={stack}"]
    directory = run_session(arguments, results, lost, quiet)
    with refusing(f"{lost}: {shown(directory)}: ", history.Refused):
        return history.extract(directory)


def missing(results: Sequence[history.RawResult], machine: str | None) -> list[str]:
    """Return the TensorFlow releases of which there is no result with HOROVOD. machine: label of
    the machine that measured; None for any."""
    measured = {
        result.version(Axis.TENSORFLOW)
        for result in results
        if machine in (None, result.machine) and result.version(Axis.HOROVOD) == HOROVOD
    }
    return [version for version in TENSORFLOW if version not in measured]


def fill(wanted: Sequence[str], say: Callable[[str], None], root: Path = history.RAW) -> None:
    """Build and measure HOROVOD with these TensorFlow releases. Raises UserError if a stack that
    was built could not be measured, or has other versions."""
    for number, tensorflow in enumerate(wanted, start=1):
        say(f"[{number} of {len(wanted)}] Horovod {HOROVOD}, TensorFlow {tensorflow}")
        try:
            interpreter = build(HOROVOD, tensorflow)
        except NotBuilt as error:
            say(f"  cannot be built: {error}")
            continue
        result = measure(interpreter, quiet=False)
        versions = [result.version(axis) for axis in Axis]
        if versions != [HOROVOD, tensorflow]:
            raise UserError(
                f"{interpreter} holds Horovod {versions[0]}, TensorFlow {versions[1]}; remove its "
                "environment to build it again"
            )
        history.keep(result, root)


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
    if done.returncode != 0:
        raise NotBuilt("make stack failed; see its output above")
    return Path(done.stdout.strip().splitlines()[-1])


# Bisection -------------------------------------------------------------------------------------

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

    @property
    def is_change(self) -> bool:
        return self in (Answer.SLOWER, Answer.FASTER)


@dataclass(frozen=True)
class Found:
    """The result of a search.

    answer: the last release compared with the first. If that is a change, changed is the oldest
    release that was found to have it, and unchanged the newest release before it that was found not
    to have it. unknown: the releases between these two, which are undecided.
    """

    answer: Answer
    unchanged: str
    changed: str
    unknown: Sequence[str] = ()


def bisect(releases: Sequence[str], compare: Callable[[str, str], Answer]) -> Found:
    """Return where the change from the first to the last release came. releases: at least two,
    oldest first.

    Each release is compared with the first one, so that no errors add up: first the last release,
    and then at most ceil(log2(n - 1)) of those between, if each gives an answer. If a release gives
    no answer, its neighbour is compared instead.
    """
    low, high = 0, len(releases) - 1
    sought = compare(releases[low], releases[high])
    unknown: set[int] = set()
    while sought.is_change:
        between = [place for place in range(low + 1, high) if place not in unknown]
        if not between:
            break
        middle = min(between, key=lambda place: abs(2 * place - low - high))
        answer = compare(releases[0], releases[middle])
        if answer is Answer.UNDECIDED:
            unknown.add(middle)
        elif answer is sought:
            high = middle
        else:
            low = middle
    return Found(sought, releases[low], releases[high], releases[low + 1 : high])


def conclusion(found: Found) -> str:
    """Return the result for people, in a sentence."""
    old, new, word = found.unchanged, found.changed, found.answer.value
    if found.answer is Answer.SAME:
        return f"{new} does not differ from {old}: there is no change to find"
    if not found.answer.is_change:
        return f"{new} compared with {old} is undecided, so no change can be found"
    if not found.unknown:
        return f"{new} is the release that is {word}; {old}, the one before, is not"
    return (
        f"{word} since {new} or a release between {old} and {new}; which one is unknown, because "
        f"these are undecided: {', '.join(found.unknown)}"
    )


@dataclass(frozen=True)
class BisectRequest:
    """A search for a TensorFlow release.

    which releases
        --from V: Start with this older release.
        --to V: End with this newer release.
        --at V: Use this Horovod release.

    what to measure
        --model NAME: Train this network, such as vgg_16_s.
        --np N: Train on N ranks.
        --budget MIN: Limit each session to MIN minutes. Default: set by the profile.
    """

    from_: str
    to: str
    model: str
    np: int
    at: str = HOROVOD
    budget_minutes: float | None = None


# The answer of a session with two stacks, the samples per second of the newer one over those of the
# older one, None if there is none, and the verdict's reason.
Result = tuple[Answer, Interval | None, str]


def bisect_releases(request: BisectRequest) -> int:
    """Find the TensorFlow release that changed the throughput. Releases are built, and each is
    compared with the --from release in a session of a few minutes."""
    # Bad input is refused before anything is built.
    releases = _checked(request)
    directory = history.GENERATED / "bisect" / session_name()
    results: list[str] = []

    def compare(older: str, newer: str) -> Answer:
        print(f"\nbisect: {newer} compared with {older}", flush=True)
        try:
            reference, candidate = (build(request.at, each) for each in (older, newer))
            place = directory / f"{older}-{newer}"
            answer, ratio, reason = side_by_side(request, candidate, reference, place)
        except NotBuilt as error:
            answer, ratio, reason = Answer.UNDECIDED, None, str(error)
        figure = f" {figure_text(ratio)}" if ratio else ""
        told = f" ({reason})" if reason else ""
        results.append(f"{older} -> {newer}:{figure} {answer.value}{told}")
        _print(f"bisect: {results[-1]}")
        return answer

    found = bisect(releases, compare)
    print(f"\nsessions are in {shown(directory)}")
    for text in (*results, conclusion(found)):
        _print(text)
    # The exit status is 1 if it is not known whether the last release differs from the first.
    return 1 if found.answer is Answer.UNDECIDED else 0


def _checked(request: BisectRequest) -> tuple[str, ...]:
    """Return the known releases from first to last, both included. Raises UserError if one of them
    is unknown, if the first is not the older one, or if this machine cannot measure what is asked
    for."""
    first, last = request.from_, request.to
    history.check_known(Axis.TENSORFLOW, "--from", first)
    history.check_known(Axis.TENSORFLOW, "--to", last)
    history.check_known(Axis.HOROVOD, "--at", request.at)
    place = history.order(Axis.TENSORFLOW)
    if place[first] >= place[last]:
        raise UserError(f"--from {first} --to {last}: the older release comes first")
    machine = local_machine()
    options = Options(
        profile=BISECTING,
        models=(request.model,),
        world_sizes=str(request.np),
        budget_minutes=request.budget_minutes,
        against=sys.executable,
    )
    plan_session(options, machine, local_offers(machine))
    return tuple(place)[place[first] : place[last] + 1]


def side_by_side(request: BisectRequest, candidate: Path, reference: Path, place: Path) -> Result:
    """Run one session, and return its result on the stacks of two interpreters. place: the
    directory for its results, which does not exist yet.

    Raises UserError if there was no session.
    """
    arguments = [
        CASE,
        f"--profile={BISECTING}",
        f"--stack={candidate}",
        f"--against={reference}",
        f"--models={request.model}",
        f"--world-sizes={request.np}",
    ]
    if request.budget_minutes is not None:
        arguments.append(f"--budget={request.budget_minutes:g}")
    lost = f"{candidate} was not compared with {reference}"
    return result_of(read_session(run_session(arguments, place, lost)), request)


def result_of(archive: Archive, request: BisectRequest) -> Result:
    """Return what a session says of the two stacks' throughput. Raises UserError if it has no such
    case."""
    cases = [
        case
        for case in archive.cases
        if case.judged_as is JudgedAs.REGRESSION
        and case.question.spec.scaling is Scaling.WEAK
        and (case.workload.model, case.world_size) == (request.model, request.np)
    ]
    if not cases:
        why = "".join(f"; {line}" for line in archive.left_out)
        raise UserError(
            f"{shown(archive.directory)}: no case compares {request.model} at {request.np} "
            f"replicas with another stack{why}"
        )
    return _answer(cases[0]), cases[0].figure, cases[0].reason


def _answer(case: Case) -> Answer:
    """Return the answer of a case that compares two stacks, in both directions. It is UNDECIDED for
    a figure whose interval does not contain 1 but does not meet the verdict's limits either,
    because this may be a part of the change."""
    figure = case.figure
    if figure is None or not case.is_sound:
        return Answer.UNDECIDED
    if case.verdict is Verdict.FAIL:
        return Answer.SLOWER
    if figure.lower > FASTER_FROM:
        return Answer.FASTER
    same = case.verdict is Verdict.PASS and figure.lower <= 1 <= figure.upper <= SAME_UP_TO
    return Answer.SAME if same else Answer.UNDECIDED


def _print(text: str) -> None:
    for line in wrapped(text):
        print(line, flush=True)
