"""The one observation that a round yields, for each question.

Plain arithmetic on what was measured. No I/O.
"""

from __future__ import annotations

import math
from statistics import median

from hvdperf.judge import collectives, speedup, training_runs
from hvdperf.judge.collectives import StepTimes
from hvdperf.plan.arms import BlockKind, Schedule, Side
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.question import LaunchMode
from hvdperf.records.rounds import Block, Launch, Round, back_to_back, is_disturbed, median_speed

# The fewest turns of a round that other programs must not have disturbed.
FEWEST_SOUND = 2


def measures(comparison: Comparison, measured: Round) -> bool:
    """Return whether the round measures that comparison: it has launches of both arms, with the
    compared kinds of blocks."""
    if any(not measured.has(arm) for arm in comparison.arms):
        return False
    return comparison.question.mode is not LaunchMode.BLOCKS or all(
        measured.of(side.arm).of_kind(side.kind) for side in comparison.sides
    )


def observation(comparison: Comparison, measured: Round) -> float:
    """Return ln(speed of the candidate / speed of the reference / ideal ratio) of one round.

    For a start-up it is ln(seconds), or ln of the ratio of speeds of two stacks.
    judge/training_runs.py defines it for runs, judge/speedup.py for wall time, and
    judge/collectives.py for collective operations and a step's bound. If the arms took turns, it is
    the median of the turns' ratios, in which a slowdown of both sides cancels. If not, it is the
    ratio of the two launches' medians. Raises KeyError if a side was not measured in that round,
    ValueError if it has no figure.
    """
    return median(observed(comparison, measured))


def observed(comparison: Comparison, measured: Round, disturbed: bool = False) -> list[float]:
    """Return the observations of a round: one per turn if the arms took turns, else one. Turns that
    other programs disturbed are left out; if too few are left, return []. disturbed: keep disturbed
    turns. Raises as `observation` does."""
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
    """Return whether a round has a ratio for every turn: its two sides are timed block by block,
    one right after the other."""
    together = schedule is Schedule.ALTERNATE or comparison.is_of_one_arm
    return comparison.question.mode is LaunchMode.BLOCKS and together


def _single_value(comparison: Comparison, measured: Round) -> float:
    question = comparison.question
    launches = [measured.of(side.arm) for side in comparison.sides]
    if question.mode is LaunchMode.WALL_TIME:
        return speedup.observation(comparison, *map(training, launches))
    if question.mode.is_run:
        return training_runs.observation(comparison, *(launch.run for launch in launches))
    if question.mode is LaunchMode.STARTUP:
        ours, theirs = (startup_seconds(comparison, launch) for launch in launches)
        # Two stacks are compared by their speed.
        return math.log(ours) if comparison.is_of_one_arm else math.log(theirs / ours)
    if question.mode is LaunchMode.COLLECTIVES:
        return _of_collectives(comparison, *launches)
    speeds = [median_speed(_blocks(side, measured)) for side in comparison.sides]
    return math.log(speeds[0] / speeds[1]) - math.log(comparison.ideal_ratio)


def _pairs(comparison: Comparison, measured: Round) -> list[tuple[Block, Block]]:
    """Return the candidate's block and the reference's, for every turn. Raises KeyError if a side
    was not measured in that round."""
    return back_to_back(*(_blocks(side, measured) for side in comparison.sides))


def _log_ratio(pair: tuple[Block, Block]) -> float:
    ours, theirs = pair
    return math.log(ours.samples_per_second / theirs.samples_per_second)


def training(launch: Launch) -> speedup.Training:
    """Return the part of a launch with timestamps from which a speedup by time is computed."""
    return speedup.Training(launch.startup_seconds, launch.run)


def _of_collectives(comparison: Comparison, horovod: Launch, bare: Launch) -> float:
    if not comparison.question.spec.times_steps:
        overhead = collectives.collective_overhead(
            horovod.series, bare.series, comparison.collective
        )
        return math.log(overhead)
    return median(math.log(turn.of_nothing_hidden) for turn in step_times(horovod, bare))


def step_times(horovod: Launch, bare: Launch) -> list[StepTimes]:
    """Return the step times of every turn in which a step was timed with its exchange and without
    it, and the exchange alone through bare MPI."""
    exchange = {series.turn: series.seconds for series in bare.series if series.repeats}
    return [
        StepTimes(full.seconds / full.steps, local.seconds / local.steps, exchange[full.turn])
        for full, local in back_to_back(*map(horovod.of_kind, (BlockKind.FULL, BlockKind.LOCAL)))
        if full.turn in exchange
    ]


def startup_seconds(comparison: Comparison, launch: Launch) -> float:
    """Return the seconds that the slowest rank took for the phase; for the trace, per gradient
    tensor."""
    phase = comparison.question.spec.phase
    seconds = max(rank[phase] for rank in launch.startup_seconds)
    tensors = launch.metadata[0].gradient_tensors
    return seconds / tensors if comparison.question.spec.per_tensor else seconds


def _blocks(side: Side, measured: Round) -> list[Block]:
    blocks = measured.of(side.arm).of_kind(side.kind)
    if not blocks:
        raise KeyError(f"{side.arm.name}: no block of kind {side.kind.value}")
    return blocks
