"""Finds rare long steps, which a median hides: how often, how much longer, and on which rank they
begin.

Plain arithmetic on what was measured. No I/O.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median

from hvdperf.plan.arms import BlockKind
from hvdperf.records.rounds import Block, BlockReport, Launch, is_disturbed
from hvdperf.stats import spread

# A step is long if it takes this many times the median, and lies this many standard deviations
# above it.
FACTOR = 2.0
DEVIATIONS = 8.0
# Long steps are told from this number on, and from this share of the time on.
FEWEST = 3
WORTH_A_WORD = 0.02
# The first steps of a run may be long without being rare (the fixed cost shows them).
FIRST_STEPS = 5
# A rank is named if this share of the long steps begins on it.
MOSTLY = 0.8


@dataclass(frozen=True)
class LongSteps:
    """Rare long steps. rank: on which they begin; None if that cannot be told. count: number of
    long steps; steps: of all steps. extra_seconds: their mean extra time. share: their extra time /
    the time of all steps."""

    rank: int | None
    count: int
    steps: int
    extra_seconds: float
    share: float

    def __str__(self) -> str:
        whose = "a step" if self.rank is None else f"a step of rank {self.rank}"
        return (
            f"{whose} in {self.steps / self.count:.0f} takes {self.extra_seconds:.2g} s longer "
            f"({100 * self.share:.0f} % of the time)"
        )


# Steps of a launch by rank: of each step its seconds, and those of it that the rank spends before
# it meets the others.
Steps = Sequence[Sequence[tuple[float, float]]]


def long_steps(launches: Sequence[Launch]) -> LongSteps | None:
    """Return the rare long steps of launches of an arm; None if there are too few to be told.
    Blocks that other programs disturbed are left out."""
    found = [_begun_on(steps) for launch in launches if (steps := _steps(launch, BlockKind.FULL))]
    events = [event for of_launch in found for event in of_launch[0]]
    taken, seconds = sum(each[1] for each in found), sum(each[2] for each in found)
    least = _least([extra for _, extra in events])
    events = [event for event in events if event[1] >= least]
    extra = [event[1] for event in events]
    if len(events) < FEWEST or sum(extra) < WORTH_A_WORD * seconds:
        return None
    # In a single one of several launches, it is what happened to that launch.
    if len(found) > 1 and sum(any(own >= least for _, own in each[0]) for each in found) < 2:
        return None
    rank = _mostly(event[0] for event in events)
    if rank is None:
        # In steps without exchange, no rank waits for another one.
        rank = _mostly(
            rank
            for launch in launches
            for rank, own in enumerate(_steps(launch, BlockKind.LOCAL))
            for extra_seconds in excess([seconds for seconds, _ in own])
            if extra_seconds >= least
        )
    return LongSteps(rank, len(events), taken, fmean(extra), sum(extra) / seconds)


def _least(extra: Sequence[float]) -> float:
    """Return the least extra seconds of the long steps that are reported together. Half of all
    extra time is in steps with a certain excess or less; a step with less than half of that excess
    is another matter, such as what other programs do."""
    rising = sorted(extra)
    middle = bisect_left(list(accumulate(rising)), sum(rising) / 2)
    return rising[middle] / 2 if rising else 0.0


def excess(seconds: Sequence[float]) -> list[float]:
    """Return for each step by how many seconds it exceeds the median if it is long, and else 0."""
    if not seconds:
        return []
    middle = median(seconds)
    limit = max(FACTOR * middle, middle + DEVIATIONS * spread(seconds))
    return [own - middle if own > limit else 0.0 for own in seconds]


def usual_sum(seconds: Sequence[float]) -> float:
    """Return the sum of all steps' seconds, without the extra time of long steps."""
    return sum(seconds) - sum(excess(seconds))


def usual_seconds(report: BlockReport) -> float:
    """Return a rank's seconds of a block, without the extra time of long steps."""
    return report.seconds - sum(excess(report.step_seconds))


def usual_inside(block: Block, rank: int) -> float:
    """Return the mean seconds of a step from its batch on, without the extra time of long steps."""
    own = block.ranks[rank]
    waited = excess(own.input_seconds)
    longer = sum(
        max(0.0, whole - of_input)
        for whole, of_input in zip(excess(own.step_seconds), waited, strict=False)
    )
    # A step that is long before its batch is not long inside.
    return max(own.inside_seconds - longer, 0.0) / block.steps or block.inside_seconds(rank)


def _begun_on(ranks: Steps) -> tuple[list[tuple[int | None, float]], int, float]:
    """Return the long steps, the number of all steps, and their seconds. Of each long step: the
    rank on which it begins, and its extra seconds."""
    longer = [excess([seconds for seconds, _ in own]) for own in ranks]
    usual = [median(before for _, before in own) for own in ranks]
    events: list[tuple[int | None, float]] = []
    for number in range(len(ranks[0])):
        extra = max(own[number] for own in longer)
        if extra <= 0.0:
            continue
        before = [own[number][1] - usually for own, usually in zip(ranks, usual, strict=True)]
        first = before.index(max(before))
        alone = len(ranks) == 1 or before[first] >= extra / 2
        events.append((first if alone else None, extra))
    slowest = max(sum(seconds for seconds, _ in own) for own in ranks)
    return events, len(ranks[0]), slowest


def _steps(launch: Launch, kind: BlockKind) -> Steps:
    """Return the steps of a launch, of its run with timestamps if it has one, else of its
    blocks; [] without any."""
    runs = [rank.timestamps[FIRST_STEPS:] for rank in launch.run]
    if kind is BlockKind.FULL and runs and all(len(own) > 1 for own in runs):
        return [
            [(after[3] - last[3], after[1] - last[3]) for last, after in pairwise(own)]
            for own in runs
        ]
    blocks = [
        block for block in launch.of_kind(kind) if _is_whole(block) and not is_disturbed([block])
    ]
    if not blocks:
        return []
    return [
        [step for block in blocks for step in _of_block(block.ranks[rank])]
        for rank in range(min(len(block.ranks) for block in blocks))
    ]


def _of_block(report: BlockReport) -> list[tuple[float, float]]:
    """Return a rank's steps of a block. The time between its steps is only known of all of them
    together; it counts to the longest step, where it matters if that step is long."""
    steps = list(zip(report.step_seconds, report.input_seconds, strict=True))
    between = sum(report.step_seconds) - sum(report.input_seconds) - report.inside_seconds
    longest = max(range(len(steps)), key=lambda number: steps[number][0])
    seconds, waited = steps[longest]
    steps[longest] = seconds, min(seconds, waited + max(0.0, between))
    return steps


def _is_whole(block: Block) -> bool:
    """Return whether every rank reported a finite time of every step, and of its input."""
    return all(
        len(rank.step_seconds) == len(rank.input_seconds) == block.steps
        and all(map(math.isfinite, (*rank.step_seconds, *rank.input_seconds)))
        for rank in block.ranks
    )


def _mostly(ranks: Iterable[int | None]) -> int | None:
    """Return the rank of most of the long steps, or None."""
    found = list(ranks)
    most = max(found, key=found.count, default=None)
    return most if found and found.count(most) >= MOSTLY * len(found) else None
