"""What was measured: blocks, launches, rounds, and the one observation that a round yields.

Plain data with the arithmetic that turns clocks into ratios. No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Any

from harness import collectives, disturbance, runs, speedup
from harness.collectives import Series, StepTimes
from harness.disturbance import Disturbance, Usage
from harness.marks import Marks
from harness.plan import Arm, BlockKind, Comparison, Question, Schedule, Side, Work

# Turns that a round needs beside those that other programs disturbed.
FEWEST_SOUND = 2


@dataclass(frozen=True)
class Block:
    """One block of one launch, as every rank's own clock saw it.

    turn numbers the sets of a launch, visit the places in which the arms of a round take theirs
    (harness.walk), so that blocks of different arms taken back to back can be paired. ranks holds
    harness.worker.loop.run_block's result, by process rank. usage: of the host's CPUs meanwhile;
    None where it was not read.
    """

    kind: BlockKind
    turn: int
    steps: int
    ranks: Sequence[Mapping[str, Any]]
    visit: int = 0
    usage: Usage | None = None

    @property
    def seconds(self) -> float:
        """The slowest rank's: the job has not done its steps before that."""
        return max(float(rank["seconds"]) for rank in self.ranks)

    @property
    def samples(self) -> int:
        """Really consumed, by all ranks."""
        return sum(int(rank["samples"]) for rank in self.ranks)

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    def inside_seconds(self, rank: int) -> float:
        """Of a step of that rank, from its batch on."""
        return float(self.ranks[rank]["inside_seconds"]) / self.steps


@dataclass
class Launch:
    """One start of an arm: its start-up, its blocks, collective operations or run, and the evidence
    that they are sound.

    run holds harness.worker.run.run's result, by process rank. Of a launch that is to be accounted
    for: marks, once it has ended; met_run, as run, of steps before which all ranks meet; timeline,
    what Horovod recorded of a launch beside this one (Trainer.timeline).
    """

    arm: Arm
    round: int
    startup_seconds: Sequence[Mapping[str, float]] = ()
    facts: Sequence[Mapping[str, Any]] = ()
    warm_up: list[Block] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    run: Sequence[Mapping[str, Any]] = ()
    evidence: Sequence[Mapping[str, Any]] = ()
    correctness: Sequence[Mapping[str, Any]] = ()
    marks: Marks | None = None
    met_run: Sequence[Mapping[str, Any]] = ()
    timeline: Sequence[Mapping[str, Any]] = ()

    @property
    def timed_seconds(self) -> float:
        """Of its blocks, its collective operations, or its run."""
        of_run = max((float(rank["seconds"]) for rank in self.run), default=0.0)
        of_series = sum(sum(series.repeats) for series in self.series)
        return of_run + of_series + sum(block.seconds for block in self.blocks)

    def of_kind(self, kind: BlockKind) -> list[Block]:
        return [block for block in self.blocks if block.kind is kind]


@dataclass
class Round:
    """Every arm of a workload once, under like conditions. disturbance: what others did meanwhile;
    None where no blocks were timed, or nothing was read."""

    number: int
    schedule: Schedule
    launches: dict[Arm, Launch] = field(default_factory=dict)
    disturbance: Disturbance | None = None


def observation(comparison: Comparison, measured: Round) -> float:
    """ln(speed of the candidate / speed of the reference / ideal ratio) of one round; of a start-up
    ln(seconds); of a run what harness.runs says; of collective operations, and of a step's bound,
    what harness.collectives does.

    Where the arms took turns, the median over the turns' own ratios, so that what slowed both
    cancels; otherwise the ratio of the two launches' medians. Raises KeyError if a side was not
    measured in that round, ValueError if it has no figure.
    """
    return median(observed(comparison, measured))


def measures(comparison: Comparison, measured: Round) -> bool:
    """Returns whether the round was taken for a figure of that comparison, too: it has launches of
    both arms, with the kinds of blocks that are compared."""
    if any(arm not in measured.launches for arm in comparison.arms):
        return False
    return comparison.question.work is not Work.BLOCKS or all(
        measured.launches[side.arm].of_kind(side.kind) for side in comparison.sides
    )


def observed(comparison: Comparison, measured: Round, disturbed: bool = False) -> list[float]:
    """Returns the round's observation turn by turn, where arms took turns, without the turns that
    other programs disturbed; nothing where that leaves too few. Otherwise the one value.
    disturbed: with those turns. Raises as `observation` does."""
    if not takes_turns(comparison, measured.schedule):
        return [_single_value(comparison, measured)]
    pairs = _pairs(comparison, measured)
    if not pairs:
        raise KeyError(f"{comparison.name}: no turn in which both sides were measured")
    sound = [pair for pair in pairs if disturbed or not is_disturbed(pair)]
    if len(sound) < min(FEWEST_SOUND, len(pairs)):
        return []
    return [_log_ratio(pair) - math.log(comparison.ideal_ratio) for pair in sound]


def takes_turns(comparison: Comparison, schedule: Schedule) -> bool:
    """Returns whether a round has a ratio for every turn: its two sides are timed block by block,
    one right after the other."""
    together = (
        schedule is Schedule.ALTERNATE or comparison.candidate.arm == comparison.reference.arm
    )
    return comparison.question.work is Work.BLOCKS and together


def _single_value(comparison: Comparison, measured: Round) -> float:
    question = comparison.question
    launches = [measured.launches[side.arm] for side in comparison.sides]
    if question.is_wall:
        return speedup.observation(comparison, *map(training, launches))
    if question.work.is_run:
        return runs.observation(comparison, *(launch.run for launch in launches))
    if question.work is Work.STARTUP:
        ours, theirs = (startup_seconds(comparison, launch) for launch in launches)
        # Of two stacks a speed.
        return math.log(theirs / ours) if comparison.is_against else math.log(ours)
    if question.work is Work.COLLECTIVES:
        return _of_collectives(comparison, *launches)
    speeds = [median_speed(_blocks(side, measured)) for side in comparison.sides]
    return math.log(speeds[0] / speeds[1]) - math.log(comparison.ideal_ratio)


def _pairs(comparison: Comparison, measured: Round) -> list[tuple[Block, Block]]:
    """Returns the candidate's block and the reference's, a turn each. Raises KeyError if a side was
    not measured in that round."""
    return back_to_back(*(_blocks(side, measured) for side in comparison.sides))


def _log_ratio(pair: tuple[Block, Block]) -> float:
    ours, theirs = pair
    return math.log(ours.samples_per_second / theirs.samples_per_second)


def back_to_back(
    candidate: Sequence[Block], reference: Sequence[Block]
) -> list[tuple[Block, Block]]:
    """Of every turn in which both were measured, the two blocks taken closest to each other."""
    ours, theirs = _by_turn(candidate), _by_turn(reference)
    return [
        min(
            product(ours[turn], theirs[turn]),
            key=lambda pair: abs(pair[0].visit - pair[1].visit),
        )
        for turn in sorted(ours.keys() & theirs.keys())
    ]


def is_disturbed(blocks: Sequence[Block]) -> bool:
    """Whether other programs took so much of the cores during these blocks, usually a pair, that
    they cannot be compared."""
    return disturbance.is_disturbed([block.usage for block in blocks])


def _by_turn(blocks: Iterable[Block]) -> dict[int, list[Block]]:
    turns: dict[int, list[Block]] = {}
    for block in blocks:
        turns.setdefault(block.turn, []).append(block)
    return turns


def training(launch: Launch) -> speedup.Training:
    """What of a marked launch a speedup by time is taken from."""
    return speedup.Training(launch.startup_seconds, launch.run)


def _of_collectives(comparison: Comparison, horovod: Launch, bare: Launch) -> float:
    if comparison.question is Question.FRAMEWORK_TAX:
        tax = collectives.framework_tax(horovod.series, bare.series, comparison.collective)
        return math.log(tax)
    return median(math.log(turn.of_nothing_hidden) for turn in step_times(horovod, bare))


def step_times(horovod: Launch, bare: Launch) -> list[StepTimes]:
    """Of every turn in which a step was measured with its exchange, without it, and the exchange
    alone through the bare transport."""
    exchange = {series.turn: series.seconds for series in bare.series if series.repeats}
    return [
        StepTimes(full.seconds / full.steps, local.seconds / local.steps, exchange[full.turn])
        for full, local in back_to_back(*map(horovod.of_kind, (BlockKind.FULL, BlockKind.LOCAL)))
        if full.turn in exchange
    ]


def startup_seconds(comparison: Comparison, launch: Launch) -> float:
    """What the slowest rank took for the phase; for the trace, per gradient tensor."""
    phase = comparison.question.phase
    seconds = max(rank[phase] for rank in launch.startup_seconds)
    tensors = int(launch.facts[0]["gradient_tensors"])
    return seconds / tensors if comparison.question is Question.STARTUP_TRACE else seconds


def _blocks(side: Side, measured: Round) -> list[Block]:
    blocks = measured.launches[side.arm].of_kind(side.kind)
    if not blocks:
        raise KeyError(f"{side.arm.name}: no block of kind {side.kind.value}")
    return blocks


def median_speed(blocks: Iterable[Block]) -> float:
    """Samples per second of a typical block."""
    return median(block.samples_per_second for block in blocks)


def settled(seconds: Sequence[float], tolerance: float = 0.1) -> bool:
    """Whether a warm-up is over: the last of at least three blocks is not faster than all before it
    by more than the tolerance. A block that is slower was disturbed: no warm-up slows down."""
    return len(seconds) >= 3 and (1 + tolerance) * seconds[-1] >= min(seconds[:-1])
