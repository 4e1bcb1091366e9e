"""The speedups, the fixed cost that makes them differ, and the run length that they need.

The speedup by speed is `n speed_n / speed_1`; speed is the average samples per second of a replica
while it takes steps. The speedup by time is `time_1 / time_n` for the same work; time is the wall
time of the training, from the beginning of its trace to the end of its last step. The speedup by
job is the same from the launch to the end. Each divided by n is an efficiency. Weak scaling takes
as many steps on every replica; strong scaling divides them among the replicas.

A training of k steps takes t = a + b k seconds: a is a fixed cost (trace, first step, broadcast,
warming up) that does not shrink with more replicas. If the steps are divided, t = a + b k / n, and
in the end only a is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.records.outcome import FixedCost
from hvdperf.records.rounds import Launch, RunReport

# Phases of a start-up that belong to the training, not to the start of its processes.
FIXED = ("trace", "first step", "broadcast")
TOO_SHORT = "the run is too short"


class Training(NamedTuple):
    """The reports of one launch's ranks. startup_seconds: the seconds of each phase of the start,
    by rank. run: a run with timestamps, by rank."""

    startup_seconds: Sequence[Mapping[str, float]]
    run: Sequence[RunReport]

    @property
    def steps(self) -> int:
        return self.run[0].steps

    @property
    def fixed_seconds(self) -> float:
        """Seconds from the beginning of the trace until steps can be taken, on the slowest rank."""
        return max(sum(rank[phase] for phase in FIXED) for rank in self.startup_seconds)

    def seconds_of_steps(self, steps: int) -> float:
        """Return the seconds of the run until the slowest rank had done `steps` steps."""
        return max(rank.timestamps[steps - 1][3] for rank in self.run)

    def seconds(self, steps: int) -> float:
        """Return the seconds of a training of `steps` steps, without the start of the processes."""
        return self.fixed_seconds + self.seconds_of_steps(steps)

    @property
    def samples_per_second(self) -> float:
        """Samples per second of an average replica, over all steps of the run."""
        samples = sum(rank.samples for rank in self.run)
        return samples / len(self.run) / self.seconds_of_steps(self.steps)


def training(launch: Launch) -> Training:
    """Return the part of a launch with timestamps from which a speedup by time is computed."""
    return Training(launch.startup_seconds, launch.run)


def divides_steps(comparison: Comparison) -> bool:
    """Return whether the replicas divide the steps of a training."""
    return comparison.question is Question.WALL_TIME_STRONG


def fixed_cost(training: Training) -> FixedCost:
    """Return the cost from two lengths of a run: half of it and all of it. Raises ValueError for
    fewer than two steps."""
    whole = training.steps
    half = whole // 2
    if half < 1:
        raise ValueError(f"a run of {whole} steps has no two lengths")
    longer, shorter = training.seconds(whole), training.seconds(half)
    slope = (longer - shorter) / (whole - half)
    return FixedCost(longer - slope * whole, slope)


def steps_of_each(steps: int, world_size: int) -> int:
    """Return how many steps each replica takes if `steps` steps are divided among replicas."""
    return max(1, math.ceil(steps / world_size))


def observation(comparison: Comparison, candidate: Training, reference: Training) -> float:
    """Return ln of the efficiency by wall time: of weak scaling time_1 / time_n for as many steps,
    of strong scaling time_1 / (n time_n) for steps that are divided."""
    return math.log(by_time(comparison, candidate, reference) / comparison.world_size)


def by_time(comparison: Comparison, candidate: Training, reference: Training) -> float:
    """Return the speedup by wall time."""
    n, steps = comparison.world_size, reference.steps
    if not divides_steps(comparison):
        # Weak scaling does n times the work.
        return n * reference.seconds(steps) / candidate.seconds(steps)
    return reference.seconds(steps) / candidate.seconds(steps_of_each(steps, n))


def by_speed(world_size: int, candidate: Training, reference: Training) -> float:
    """Return the speedup by samples per second; it is the same for both ways of scaling."""
    return world_size * candidate.samples_per_second / reference.samples_per_second


def by_job(
    comparison: Comparison,
    candidate: Training,
    reference: Training,
    wall_seconds: tuple[float, float],
) -> float:
    """Return the speedup by the time from launch to end. wall_seconds: that of both sides."""
    n, steps = comparison.world_size, reference.steps
    ours, theirs = wall_seconds
    if not divides_steps(comparison):
        return n * theirs / ours
    each = steps_of_each(steps, n)
    left_out = candidate.seconds_of_steps(candidate.steps) - candidate.seconds_of_steps(each)
    return theirs / (ours - left_out)


def shortest_work(
    a_reference: float, a_candidate: float, world_size: int, efficiency: float
) -> float:
    """Return the work on one replica, in seconds of steps, below which strong scaling cannot reach
    that efficiency by time, because of the fixed cost alone.

    Perfect scaling takes a_1 + W on one replica and a_n + W/n on n. Its efficiency is thus (a_1 +
    W) / (n a_n + W); with one a for both it is below E if W < a (n E - 1) / (1 - E)
    (docs/time_breakdown.md). Return infinity for an efficiency of 1 or more.
    """
    if efficiency >= 1:
        return math.inf
    return max(0.0, (world_size * a_candidate * efficiency - a_reference) / (1 - efficiency))


def refusal(efficiency: float, candidate: Training, reference: Training, world_size: int) -> str:
    """Return why the run is too short to show that efficiency by time under strong scaling, with
    the length that it would need; return "" if it is long enough."""
    ours, theirs = fixed_cost(candidate), fixed_cost(reference)
    work = theirs.b_seconds * reference.steps
    needed = shortest_work(theirs.a_seconds, ours.a_seconds, world_size, efficiency)
    if work >= needed:
        return ""
    if math.isinf(needed):
        return f"{TOO_SHORT}: no run is long enough for an efficiency by time of 1"
    steps = math.ceil(needed / theirs.b_seconds)
    seconds = candidate.seconds(steps_of_each(reference.steps, world_size))
    return (
        f"{TOO_SHORT}: {ours.a_seconds:.1f} s of its {seconds:.1f} s are fixed cost, so even "
        f"perfect scaling would stay below {efficiency:.3g}; measure {steps} steps "
        f"({needed:.0f} s on one replica) instead of {reference.steps}"
    )


def fit_fixed_cost(world_sizes: Sequence[int], seconds: Sequence[float]) -> FixedCost:
    """Return a and b of t = a + b / n, from trainings of one amount of work on several world sizes,
    by least squares on relative residuals. b is then the whole work, in seconds on one replica.

    The fit minimises the sum of (a / t + b / (n t) - 1)^2, whose terms are linear in a and b.
    Raises ValueError for fewer than two world sizes, or if `seconds` has another length.
    """
    if len(set(world_sizes)) < 2 or len(world_sizes) != len(seconds):
        raise ValueError("a fixed cost needs a time at each of two or more world sizes")
    rows = [(1 / t, 1 / (n * t)) for n, t in zip(world_sizes, seconds, strict=True)]
    xx = sum(x * x for x, _ in rows)
    xy = sum(x * y for x, y in rows)
    yy = sum(y * y for _, y in rows)
    x1, y1 = sum(x for x, _ in rows), sum(y for _, y in rows)
    determinant = xx * yy - xy * xy
    return FixedCost((x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant)
