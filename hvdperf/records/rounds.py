"""Records of what was measured: blocks, launches, rounds. Plain data. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Annotated

import msgspec
from msgspec import Meta

from hvdperf.json_records import Count, Positive
from hvdperf.machine import disturbance
from hvdperf.machine.disturbance import Disturbance, Usage
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Transfer
from hvdperf.records.reports import (
    BlockReport,
    CollectiveReport,
    Correctness,
    Evidence,
    Metadata,
    RunReport,
    TimelineReport,
    Timestamps,
)


@dataclass(frozen=True)
class Block:
    """One timed block of one launch, by every rank's own clock.

    turn: number of the turn within the launch. visit: number of the visit in which the block was
    taken, counted over all arms (work/interleaving.py). Turn and visit show which blocks of two
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


class Run(msgspec.Struct, tag="run", tag_field="of"):
    """A training run. run: reports by process rank."""

    run: Sequence[RunReport]


class StampedRun(msgspec.Struct, tag="stamped run", tag_field="of"):
    """A training run with timestamps, and what divides its steps into their parts.

    run: reports by process rank. met_run: of a run with a meeting of all ranks before every step.
    warm_up, blocks: of whole steps and of parts of a step. timestamps: of the launch, set at its
    end. timeline: recorded by Horovod in another launch of the arm.
    """

    run: Sequence[RunReport]
    met_run: Sequence[RunReport] = ()
    warm_up: list[Block] = msgspec.field(default_factory=list)
    blocks: list[Block] = msgspec.field(default_factory=list)
    timestamps: Timestamps | None = None
    timeline: Sequence[TimelineReport] = ()


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
        return self.work.run if isinstance(self.work, Run | StampedRun) else ()

    @property
    def timed_seconds(self) -> float:
        """Seconds of its blocks, its collective operations and its run together."""
        of_run = max((rank.seconds for rank in self.run), default=0.0)
        of_series = sum(sum(series.repeats) for series in self.series)
        return of_run + of_series + sum(block.seconds for block in self.blocks)

    def of_kind(self, kind: BlockKind) -> list[Block]:
        return [block for block in self.blocks if block.kind is kind]


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
        min(
            product(ours[turn], theirs[turn]),
            key=lambda pair: abs(pair[0].visit - pair[1].visit),
        )
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
