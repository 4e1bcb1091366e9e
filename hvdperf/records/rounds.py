"""What ranks report, typed, and what a round measured: launches of all arms, with their blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from hvdperf.json_records import Count, Figures, Number, Positive
from hvdperf.machine import disturbance
from hvdperf.machine.disturbance import Disturbance, Usage
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Transfer


@dataclass(frozen=True)
class Metadata:
    """The group and the model as one process sees them after its start.

    world_size: number of replicas that the framework reports. transport: the way of reducing
    gradients: mpi or gloo under Horovod, the cross-device operation of a TensorFlow strategy, or
    none. parameters: number of trained weights. gradient_tensors, gradient_bytes: number and size
    of the gradients that a step exchanges, with the whole table of a sparse one; of a script, the
    rows of one replica's batch. These three are 0 if no model was built. other_exchanges: number of
    Horovod's operations in the graph of a step that do not reduce its gradients.
    peak_bytes: the largest resident set so far. device_peak_bytes: the most memory of its GPU that
    TensorFlow has given to tensors so far; 0 without a GPU.
    """

    rank: Count
    world_size: Positive
    transport: str
    parameters: Count = 0
    gradient_tensors: Count = 0
    gradient_bytes: Count = 0
    other_exchanges: Count = 0
    peak_bytes: Count = 0
    device_peak_bytes: Count = 0


@dataclass(frozen=True)
class BlockReport(Figures):
    """One timed block by the clock of one process (hvdperf/worker/steps.py).

    seconds: from the barrier before the first step to the loss of the last step. step_seconds,
    input_seconds: one per step; input_seconds is the wait for its batch. inside_seconds: of all
    steps, from the batch on. samples: consumed by this process. loss: of the last step.
    not_finite_at: the step since the start of the process at which the loss was not finite for the
    first time; None if it was finite throughout. resumed: how often a signal let the process go on
    that had been stopped.
    """

    seconds: Number
    step_seconds: Sequence[Number]
    input_seconds: Sequence[Number]
    inside_seconds: Number
    samples: Count
    loss: Number
    not_finite_at: Count | None = None
    resumed: Count = 0


@dataclass(frozen=True)
class CollectiveReport(Figures):
    """Repeats of a collective operation on one rank (hvdperf/worker/collectives.py).

    bytes: of all tensors together. tensors: number of tensors exchanged at once. seconds: one a
    repeat, from a barrier on. library: version of the MPI library in the process; None without one.
    problem: why the figures must not be used, in words; "" if they are sound.
    """

    bytes: Count
    tensors: Count
    seconds: Sequence[Number]
    library: str | None
    problem: str


@dataclass(frozen=True)
class Validation(Figures):
    """A pass over the validation data, with the same result on all processes. loss: mean of all
    samples. accuracy: share of right labels or words. samples: of all processes. chance_loss: loss
    of a uniform guess."""

    loss: Number
    accuracy: Number
    samples: Positive
    chance_loss: Number


@dataclass(frozen=True)
class RunReport(Figures):
    """A training run of one process (hvdperf/worker/steps.py).

    seconds: of the training, without its validation. steps: done; all ranks stop at the same one.
    epochs: steps over the steps of one pass over the data. samples: of this process. loss: of the
    last step. memory: rows of [steps, bytes of the resident set]. timestamps: one row a step of
    [begun, had its batch, ended], in seconds since the run began; empty unless asked for; earlier
    sessions have another time before the last one. curve: rows of [steps, mean loss since the row
    before], and in earlier sessions the learning rate; empty in a run with timestamps. validation:
    None without one. samples_of_a_pass: number of samples that this process reads in a pass over
    the user's own data; None if that is not known, or for other data.
    """

    seconds: Number
    steps: Count
    epochs: Number
    samples: Count
    loss: Number
    memory: Sequence[Annotated[Sequence[int], Meta(min_length=2, max_length=2)]]
    timestamps: Sequence[Annotated[Sequence[float], Meta(min_length=3)]]
    curve: Sequence[Annotated[Sequence[Number], Meta(min_length=2)]]
    validation: Validation | None = None
    samples_of_a_pass: Positive | None = None


@dataclass(frozen=True)
class Evidence(Figures):
    """The report of one process after its last block, which shows whether the replicas trained
    together.

    world_size: number of replicas that the framework reports. learning_rate: at the end. digests:
    SHA-256 of the weights, one a replica of this process. data, data_wanted: id of the training
    data that the process has read, and of the session's (models.inputs.dataset_id); "" if it reads
    none. settings: of Horovod, NCCL, TensorFlow, OpenMP and XLA in the environment
    (worker.session_link.settings).
    """

    world_size: Positive
    learning_rate: Number
    digests: Sequence[str]
    data: str
    data_wanted: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Correctness(Figures):
    """The report of one process after a reproducible training of a second model. loss: of its first
    step, before the update. digests, samples: SHA-256 of the weights, and of the batches that they
    were trained on, one a replica of this process. irreproducible: why TensorFlow cannot repeat
    this training exactly, or ""; then there is nothing else."""

    loss: Number
    digests: Sequence[str]
    samples: Sequence[str] = ()
    irreproducible: str = ""


# Times of a launch: of its phases, by the ranks' clocks, and of its orders, by the session's. Ranks
# may run on other hosts, so clocks of two ranks must not be compared, except for the time of day,
# which is the session's: that of another host is corrected by an offset.


class Timestamp(NamedTuple):
    """The beginning of a phase. at: time of day, in epoch seconds. clock: the host's monotonic
    clock, in seconds from an arbitrary origin."""

    phase: str
    at: float
    clock: float


class Asked(NamedTuple):
    """An order. asked, answered: when it was given and when all ranks had answered, by the
    session's monotonic clock, in seconds since the launch."""

    op: str
    asked: float
    answered: float


class ClockOffset(NamedTuple):
    """By how much a host's time of day is ahead of the session's, in seconds. uncertainty: half of
    the shortest round trip by which it was measured; 0 on the session's own host."""

    seconds: float = 0.0
    uncertainty: float = 0.0


@dataclass(frozen=True)
class Timestamps(Figures):
    """The times of one launch, from before its launcher was started until it had ended.

    launched_at, ended_at: time of day, in epoch seconds; ended_at is NaN before the end. ranks: by
    rank, one timestamp per phase, in their order, with the session's time of day. offsets: by rank,
    what was subtracted from it. asked: the orders, in their order; the last one is `close`, which
    is answered when all ranks have left and, if they leave the group, the launcher has ended.
    """

    launched_at: float
    ended_at: Number
    ranks: Sequence[Sequence[Timestamp]]
    asked: Sequence[Asked]
    offsets: Sequence[ClockOffset] = ()


@dataclass(frozen=True)
class Block:
    """One timed block of one launch, by every rank's own clock.

    turn: number of the turn within the launch. visit: number of the visit in which the block was
    taken, counted over all arms (work/blocks.py). Turn and visit show which blocks of two
    arms were taken back to back. ranks: by process rank. usage: use of the host's CPUs meanwhile;
    None if it was not read.
    """

    kind: BlockKind
    turn: Count
    steps: Positive
    ranks: Annotated[Sequence[BlockReport], Meta(min_length=1)]
    visit: Count = 0
    usage: Usage | None = None

    @property
    def seconds(self) -> float:
        """Seconds of the slowest rank, because the steps are not done before it has done them."""
        return max(rank.seconds for rank in self.ranks)

    @property
    def samples(self) -> int:
        """Number of samples that all ranks together consumed."""
        return sum(rank.samples for rank in self.ranks)

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    def inside_seconds(self, rank: int) -> float:
        """Return the mean seconds of a step of that rank, from its batch on."""
        return self.ranks[rank].inside_seconds / self.steps


@dataclass(frozen=True)
class Series:
    """Several repeats of a transfer in a row, as timed by every rank's own clock.

    turn: number of the turn. A series of Horovod is paired with bare MPI's of the same
    turn, because the two are taken back to back. ranks: by rank.
    """

    transfer: Transfer
    turn: Count
    ranks: Annotated[Sequence[CollectiveReport], Meta(min_length=1)]

    @property
    def size_bytes(self) -> int:
        """The size of the whole buffer, all tensors together."""
        return self.ranks[0].bytes

    @property
    def repeats(self) -> list[float]:
        """Seconds of each repeat on the slowest rank."""
        # Not strict: explain/collectives.py reports ranks with different numbers of repeats.
        repeats = zip(*(rank.seconds for rank in self.ranks), strict=False)
        return [max(repeat) for repeat in repeats]

    @property
    def seconds(self) -> float:
        """Seconds of the median repeat; not a number if there is none."""
        return median(self.repeats) if self.repeats else math.nan


class Turns(msgspec.Struct, tag="turns", tag_field="of"):
    """The blocks of a launch, in turns with those of other launches, and the transfers between
    them, if there are any. warm_up: blocks before the first turn."""

    warm_up: list[Block] = msgspec.field(default_factory=list)
    blocks: list[Block] = msgspec.field(default_factory=list)
    series: list[Series] = msgspec.field(default_factory=list)

    @property
    def timed_seconds(self) -> float:
        """Seconds that were timed; all others count as idle."""
        of_series = sum(sum(series.repeats) for series in self.series)
        return of_series + sum(block.seconds for block in self.blocks)


class Run(msgspec.Struct, tag="run", tag_field="of"):
    """A training run. run: reports by process rank."""

    run: Sequence[RunReport]

    @property
    def timed_seconds(self) -> float:
        """Seconds of the slowest rank."""
        return max((rank.seconds for rank in self.run), default=0.0)


class StampedRun(Run, tag="stamped run", tag_field="of"):
    """A training run with timestamps, and what divides its steps into their parts.

    warm_up, blocks: of whole steps and of parts of a step. timestamps: of the launch, set at its
    end.
    """

    warm_up: list[Block] = msgspec.field(default_factory=list)
    blocks: list[Block] = msgspec.field(default_factory=list)
    timestamps: Timestamps | None = None

    @property
    def timed_seconds(self) -> float:
        return super().timed_seconds + sum(block.seconds for block in self.blocks)


@dataclass
class Launch:
    """One start of an arm: its start-up, its work, and the evidence that these are sound. Each list
    of reports is by process rank.

    startup_seconds: of each phase of the start-up. work: what the kind of work (hvdperf/work) has
    reported; None for a start-up, which is all of its work, and for a launch that has not begun it.
    """

    arm: Arm
    round: Count
    startup_seconds: Sequence[Mapping[str, float]] = ()
    metadata: Sequence[Metadata] = ()
    work: Turns | Run | StampedRun | None = None
    evidence: Sequence[Evidence] = ()
    correctness: Sequence[Correctness] = ()

    @property
    def warm_up(self) -> Sequence[Block]:
        """The blocks before those that count; () if its work has none."""
        return self.work.warm_up if isinstance(self.work, Turns | StampedRun) else ()

    @property
    def blocks(self) -> Sequence[Block]:
        """The timed blocks; () if its work has none."""
        return self.work.blocks if isinstance(self.work, Turns | StampedRun) else ()

    @property
    def series(self) -> Sequence[Series]:
        """The timed transfers; () if its work has none."""
        return self.work.series if isinstance(self.work, Turns) else ()

    @property
    def run(self) -> Sequence[RunReport]:
        """The reports of its training run; () if its work has none."""
        return self.work.run if isinstance(self.work, Run) else ()

    @property
    def timed_seconds(self) -> float:
        """Seconds of its work that were timed."""
        return self.work.timed_seconds if self.work is not None else 0.0

    def of_kind(self, kind: BlockKind) -> list[Block]:
        return [block for block in self.blocks if block.kind is kind]


# The launches of candidate and reference in one round.
Pair = tuple[Launch, Launch]


@dataclass
class Round:
    """Every arm of a workload once, under like conditions. disturbance: by other programs; None if
    no block was timed, or if the CPU usage was not read."""

    number: Count
    schedule: Schedule
    launches: list[Launch] = field(default_factory=list)
    disturbance: Disturbance | None = None

    def has(self, arm: Arm) -> bool:
        """Return whether the arm was launched in this round."""
        return any(launch.arm == arm for launch in self.launches)

    def of(self, arm: Arm) -> Launch:
        """Return the launch of that arm. Raises KeyError if there is none."""
        for launch in self.launches:
            if launch.arm == arm:
                return launch
        raise KeyError(f"{arm.name} was not launched in round {self.number}")


def back_to_back(
    candidate: Sequence[Block], reference: Sequence[Block]
) -> list[tuple[Block, Block]]:
    """Return the two blocks taken closest to each other, for every turn that both sides have."""
    ours, theirs = _by_turn(candidate), _by_turn(reference)
    return [
        min(product(ours[turn], theirs[turn]), key=lambda pair: abs(pair[0].visit - pair[1].visit))
        for turn in sorted(ours.keys() & theirs.keys())
    ]


def is_disturbed(blocks: Sequence[Block]) -> bool:
    """Return whether other programs took too much of the cores for a comparison of these blocks,
    usually a pair."""
    return disturbance.is_disturbed([block.usage for block in blocks])


def _by_turn(blocks: Iterable[Block]) -> dict[int, list[Block]]:
    turns: dict[int, list[Block]] = {}
    for block in blocks:
        turns.setdefault(block.turn, []).append(block)
    return turns


def median_speed(blocks: Iterable[Block]) -> float:
    """Return the samples per second of a typical block."""
    return median(block.samples_per_second for block in blocks)
