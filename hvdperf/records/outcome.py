"""The outcome of a comparison, and its parts: a failure, a cause, a breakdown; and what launches of
Horovod did by themselves, for the terminal, the page, nights and the history. Plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from statistics import median
from typing import Any, Protocol, TypeVar

from hvdperf.json_records import Figures, Number
from hvdperf.plan.arms import Arm, BlockKind, Workload
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.records.fingerprint import ranges
from hvdperf.records.rounds import Launch, Round, Turns, is_disturbed
from hvdperf.stats import Interval
from hvdperf.verdict import Judgement, Verdict, is_precise
from hvdperf.worker.protocol import Phase
from hvdperf.worker.strategies import Strategy


@dataclass(frozen=True)
class Failure:
    """A launch that failed. rank: None if no single rank can be named. host: the rank's; "" if it
    is that of the session. tail: the end of its stderr, by lines. started: False if a slot was
    gone, so that nothing was started; this is no fault of the stack. of_user: whether the user's
    own network or data raised the error, which is no fault of the stack either. of_node: whether
    the machine or the user's environment is at fault."""

    arm: str
    rank: int | None
    phase: str
    cause: str
    tail: Sequence[str] = ()
    started: bool = True
    host: str = ""
    of_user: bool = False
    of_node: bool = False

    def __str__(self) -> str:
        if not self.started:
            return f"{self.arm}: not started: {self.cause}"
        who = f"rank {self.rank}" if self.rank is not None else "the launch"
        who += f" on {self.host}" if self.host else ""
        return f"{self.arm}: {who} failed in phase '{self.phase}': {self.cause}"


@dataclass(frozen=True)
class Cause(Figures):
    """A term that takes longer, and whose it is.

    term: "" if it is not known. rank: the only rank at fault. ranks: several ranks at fault, but
    not all. Without either, all ranks take longer alike. host: the host whose ranks they all are;
    "" if they are not. share: the extra time / the time of the step, of wall time / that of the
    training, or / that of that phase of the start; for memory, the growth of ln(resident set).
    """

    term: str = ""
    rank: int | None = None
    share: Number = 0.0
    ranks: tuple[int, ...] = ()
    host: str = ""

    @property
    def at_fault(self) -> tuple[int, ...]:
        """The ranks at fault; () if all ranks take longer alike."""
        return self.ranks if self.rank is None else (self.rank,)

    @property
    def whose(self) -> str:
        """The ranks at fault, in words."""
        if not self.at_fault:
            return "all ranks"
        if self.host:
            return f"host {self.host} ({listed(self.at_fault)})"
        return listed(self.at_fault)

    def __str__(self) -> str:
        # Without a reference, and of ranks that alone have the term, no share is known.
        share = f" (+{100 * self.share:.0f} %)" if 0 < self.share < math.inf else ""
        return f"{self.term} of {self.whose}{share}"


@dataclass(frozen=True)
class Attribution(Cause):
    """The cause of a growth, the largest one if there are several. also: the other causes, the
    larger ones first. of_reference: whether the reference is the slower side."""

    also: tuple[Cause, ...] = ()
    of_reference: bool = False

    def __str__(self) -> str:
        if not self.term:
            return "not attributed"
        return f"attributed to {'; also to '.join(map(str, self.causes))}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """All causes, the first of which is this one; () if none is known."""
        return (Cause(**fields_of(self, Cause)), *self.also) if self.term else ()


def fields_of(record: Any, kind: type) -> dict[str, Any]:
    """Return by name those fields of a record that it inherits from this base class."""
    return {field.name: getattr(record, field.name) for field in fields(kind)}


def listed(ranks: Sequence[int]) -> str:
    """Return ranks in words, such as `ranks 0, 2-3`."""
    return f"rank{'s' * (len(ranks) > 1)} {ranges(ranks, ', ')}"


@dataclass(frozen=True)
class Detection:
    """The reported verdict and the attribution of an injected fault. reported: the verdict on the
    faulty arm itself."""

    reported: Verdict
    attribution: Attribution


@dataclass(frozen=True)
class FixedCost:
    """The cost t = a + b k. a_seconds: for any number of steps k. b_seconds: for each step."""

    a_seconds: float
    b_seconds: float


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for. lag_seconds: its delay behind the median of the other
    ranks, in the median step. share: share of the steps in which it is the last."""

    rank: int
    lag_seconds: float
    share: float


@dataclass(frozen=True)
class Spent:
    """The time that one side's training of `steps` steps took.

    wall_seconds: of this training. training_seconds: the same from the trace to the last step.
    terms: seconds of each term (hvdperf.plan.arms) of an average rank of the run, which took
    steps_of_run; none is below 0. residual: the largest of all rounds, as a share of
    the wall time. fixed: fixed cost. below: of terms that cannot be told from 0, the upper bound,
    as a share of the steps' time.
    """

    steps: int
    steps_of_run: int
    wall_seconds: float
    training_seconds: float
    terms: Mapping[str, float]
    residual: float
    fixed: FixedCost
    below: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ScalingBreakdown:
    """The breakdown over all rounds.

    steady_state, training, end_to_end: speedups. computation, communication, load_balance: the
    factors of the steady-state efficiency, from blocks, with the names of POP's efficiency
    hierarchy (https://pop-coe.eu/node/69); product: of all three. efficiency: the same from the
    runs. These five are without the extra time of rare long steps.
    late: the straggler of most rounds.
    """

    world_size: int
    steady_state: Interval
    training: Interval
    end_to_end: Interval
    computation: Interval
    communication: Interval
    load_balance: Interval
    product: Interval
    efficiency: Interval
    candidate: Spent
    reference: Spent
    late: Straggler | None

    @property
    def explained(self) -> bool:
        """Return whether the factors explain the efficiency: the intervals of their product and of
        the efficiency overlap."""
        return (
            self.efficiency.lower <= self.product.upper
            and self.product.lower <= self.efficiency.upper
        )


@dataclass(frozen=True)
class Conclusion(Figures):
    """A comparison with its judgement, without the rounds that it rests on.

    observations: ln of the figure, one per round. failure: the launch that failed, if one did.
    threshold_line: a line for the file of thresholds, if it has none. breakdown: of a case on wall
    time. detection: reported verdict and attribution of an injected fault. taken_over: whether its
    rounds were measured before the session was resumed. cause: of a FAIL with a figure.
    """

    comparison: Comparison
    judgement: Judgement
    observations: tuple[Number, ...] = ()
    failure: Failure | None = None
    threshold_line: str = ""
    breakdown: ScalingBreakdown | None = None
    detection: Detection | None = None
    taken_over: bool = False
    cause: Attribution | None = None

    @property
    def passed(self) -> bool:
        return self.judgement.verdict is Verdict.PASS

    @property
    def is_undecided(self) -> bool:
        """Return whether more rounds may decide the case."""
        return self.judgement.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)

    def needs_rounds(self, precision: float) -> bool:
        """Return whether more rounds may decide the case; or, if precision is asked for, bring its
        interval to at most that share on either side."""
        if not precision:
            return self.is_undecided
        ended = self.failure is not None or self.judgement.verdict is Verdict.INVALID
        pair = self.comparison.judged_as is JudgedAs.AA_PAIR
        return not (ended or pair or is_precise(self.judgement.figure, precision))

    @property
    def is_sound(self) -> bool:
        """Return whether the figure was measured with sound evidence, be it good or bad.

        An INVALID case is sound only if nothing but its threshold was missing. A case is not sound
        if a launch failed, if it is INFO or NOT RUN, or if other programs disturbed all of
        its rounds, which leaves no observation."""
        verdict = self.judgement.verdict
        shown_only = verdict in (Verdict.INFO, Verdict.NOT_RUN)
        if not self.observations or self.judgement.figure is None or self.failure or shown_only:
            return False
        return verdict is not Verdict.INVALID or bool(self.threshold_line)

    @property
    def reported(self) -> Verdict:
        """Verdict on the candidate itself. The judgement of a fault case says whether this verdict
        is the expected one."""
        return self.detection.reported if self.detection is not None else self.judgement.verdict


@dataclass(frozen=True)
class Outcome(Conclusion):
    """A comparison with its judgement and everything that the judgement rests on.

    rounds: that measure the comparison. While a session runs, they also have the launches of other
    comparisons.
    """

    rounds: tuple[Round, ...] = ()


class Measured(Protocol):
    """A comparison with its rounds: an Outcome, or a Case."""

    @property
    def comparison(self) -> Comparison: ...
    @property
    def rounds(self) -> tuple[Round, ...]: ...
    @property
    def is_sound(self) -> bool: ...


Kind = TypeVar("Kind", bound=Measured)


def each_launch(cases: Iterable[Kind]) -> Iterator[tuple[Kind, Round, Launch]]:
    """Yield each launch of the cases once, with the first case that rests on it and its round. The
    cases of a round group share launches."""
    known = set()
    for case in cases:
        comparison = case.comparison
        for measured in case.rounds:
            for launch in measured.launches:
                key = comparison.round_group, measured.number, launch.arm
                if key not in known and launch.arm in comparison.arms:
                    known.add(key)
                    yield case, measured, launch


class Measure(Enum):
    """What a launch by itself is judged by over time. The value is the unit, in words."""

    SPEED = "samples/s"
    START = "seconds of a start"
    MEMORY = "bytes of memory"
    DEVICE_MEMORY = "bytes of GPU memory"

    def of(self, launch: Launch) -> float | None:
        """Return the figure of a launch; None if it has none.

        SPEED: of all replicas together, the median of the blocks that other programs did not
        disturb. START: of the slowest rank, from the launch to the broadcast, of launches that do
        nothing else: others start side by side, and the more of them, the longer each takes.
        MEMORY, DEVICE_MEMORY: the peak of the rank with the most, before the first block: what
        blocks a launch takes depends on the cases that are still undecided.
        """
        if self is Measure.START:
            ranks = launch.startup_seconds if launch.work is None else ()
            whole = all(Phase.BROADCAST.value in rank for rank in ranks)
            return max(sum(rank.values()) for rank in ranks) if ranks and whole else None
        if not isinstance(launch.work, Turns):
            return None
        if self is Measure.SPEED:
            speeds = [
                block.samples_per_second
                for block in launch.of_kind(BlockKind.FULL)
                if block.seconds > 0 and not is_disturbed([block])
            ]
            return median(speeds) if speeds else None
        taken = [
            rank.peak_bytes if self is Measure.MEMORY else rank.device_peak_bytes
            for rank in launch.metadata
        ]
        # 0 without a GPU.
        return float(max(taken, default=0)) or None


def throughputs(cases: Iterable[Measured]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the samples per second of all replicas together, by workload and world size, as
    `figures_of_launches` does."""
    return figures_of_launches(cases, Measure.SPEED)


def figures_of_launches(
    cases: Iterable[Measured], measure: Measure
) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the figures of launches by themselves, by workload and world size.

    A launch counts only if it is of Horovod with all defaults on the session's own stack, and if
    its case is sound. A launch that several cases share counts once.

    There is one value a launch, in the order of rounds. If several kinds of rounds have launches of
    their own, the values follow kind by kind."""
    counted = [case for case in cases if case.is_sound]
    found: dict[tuple[Workload, int], list[tuple[str, str, int, float]]] = {}
    for case, measured, launch in each_launch(counted):
        workload, work, topic = case.comparison.round_group
        # A recipe may change the workload.
        plain = Arm(workload, Strategy.HOROVOD, launch.arm.world_size)
        is_default = launch.arm == plain and workload.learning_rate == "constant"
        figure = measure.of(launch) if is_default else None
        if figure is not None:
            place = work, topic, measured.number
            found.setdefault((workload, launch.arm.world_size), []).append((*place, figure))
    return {key: tuple(figure for *_, figure in sorted(each)) for key, each in found.items()}
