"""The two speedups, why they differ, and what a run must be long enough for.

By speed, n replicas are so many times as fast as one as their samples per second say:
`n speed_n / speed_1`, speed being the average samples per second of a replica while it takes steps.
By time, as the wall time of the training says, from the beginning of its trace to the end of its
last step: `time_1 / time_n`. By job, as the whole of it does, from the launch to the end. Each
divided by n is an efficiency. Weak scaling takes as many steps on every replica; strong scaling
divides them among the replicas.

A training of k steps takes t = a + b k seconds: a is a fixed cost (trace, first step, broadcast,
warming up) that does not shrink with more replicas. Where the steps are divided, t = a + b k / n,
and a is all that is left of it in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hvdperf.plan.arms import Comparison, Question

# Phases of a start-up that belong to the training, not to the start of its processes.
FIXED = ("trace", "first step", "broadcast")
# How the reason begins where only a longer run says something.
TOO_SHORT = "too short a run"


class Training(NamedTuple):
    """What the ranks of one launch say: the seconds of each phase of their start, and their run
    (hvdperf.worker.training_run.run), with marks."""

    startup_seconds: Sequence[Mapping[str, float]]
    run: Sequence[Mapping[str, Any]]

    @property
    def steps(self) -> int:
        return int(self.run[0]["steps"])

    @property
    def fixed_seconds(self) -> float:
        """From the beginning of the trace until steps can be taken, on the slowest rank."""
        return max(sum(rank[phase] for phase in FIXED) for rank in self.startup_seconds)

    def seconds_of_steps(self, steps: int) -> float:
        """Until the slowest rank had done so many of them."""
        return max(float(rank["marks"][steps - 1][3]) for rank in self.run)

    def seconds(self, steps: int) -> float:
        """Of a training of so many steps, the start of the processes excluded."""
        return self.fixed_seconds + self.seconds_of_steps(steps)

    @property
    def samples_per_second(self) -> float:
        """Of an average replica, over all steps of the run."""
        samples = sum(int(rank["samples"]) for rank in self.run)
        return samples / len(self.run) / self.seconds_of_steps(self.steps)


@dataclass(frozen=True)
class FixedCost:
    """t = a + b k: a_seconds whatever the number of steps k, and b_seconds for each."""

    a_seconds: float
    b_seconds: float


def fixed_cost(training: Training) -> FixedCost:
    """From two lengths of a run, half of it and all of it. Raises ValueError below two steps."""
    whole = training.steps
    half = whole // 2
    if half < 1:
        raise ValueError(f"a run of {whole} steps has no two lengths")
    longer, shorter = training.seconds(whole), training.seconds(half)
    slope = (longer - shorter) / (whole - half)
    return FixedCost(longer - slope * whole, slope)


def steps_of_each(steps: int, world_size: int) -> int:
    """Of steps that are divided among replicas, how many each takes."""
    return max(1, math.ceil(steps / world_size))


def observation(comparison: Comparison, candidate: Training, reference: Training) -> float:
    """ln of the efficiency by wall time: of weak scaling time_1 / time_n for as many steps, of
    strong scaling time_1 / (n time_n) for steps that are divided."""
    return math.log(by_time(comparison, candidate, reference) / comparison.world_size)


def by_time(comparison: Comparison, candidate: Training, reference: Training) -> float:
    """The speedup by wall time."""
    n, steps = comparison.world_size, reference.steps
    if comparison.question is Question.WALL_WEAK:
        # n times the work.
        return n * reference.seconds(steps) / candidate.seconds(steps)
    return reference.seconds(steps) / candidate.seconds(steps_of_each(steps, n))


def by_speed(world_size: int, candidate: Training, reference: Training) -> float:
    """The speedup by samples per second; the same for both ways of scaling."""
    return world_size * candidate.samples_per_second / reference.samples_per_second


def by_job(
    comparison: Comparison,
    candidate: Training,
    reference: Training,
    wall_seconds: tuple[float, float],
) -> float:
    """The speedup by all that passed between launch and end; wall_seconds: of both."""
    n, steps = comparison.world_size, reference.steps
    ours, theirs = wall_seconds
    if comparison.question is Question.WALL_WEAK:
        return n * theirs / ours
    each = steps_of_each(steps, n)
    left_out = candidate.seconds_of_steps(candidate.steps) - candidate.seconds_of_steps(each)
    return theirs / (ours - left_out)


def shortest_work(
    a_reference: float, a_candidate: float, world_size: int, efficiency: float
) -> float:
    """The work of one replica, in seconds of steps, below which no strong scaling reaches that
    efficiency by time, for the fixed cost alone.

    Perfect scaling takes a_1 + W on one replica and a_n + W/n on n, so its efficiency is
    (a_1 + W) / (n a_n + W); with one a for both that is W < a (n E - 1) / (1 - E) (measurement.md).
    Seconds; infinite for an efficiency of 1 or more.
    """
    if efficiency >= 1:
        return math.inf
    return max(0.0, (world_size * a_candidate * efficiency - a_reference) / (1 - efficiency))


def refusal(efficiency: float, candidate: Training, reference: Training, world_size: int) -> str:
    """Why the run says nothing on that efficiency by time under strong scaling, in words, with the
    length it would need; empty if it does."""
    ours, theirs = fixed_cost(candidate), fixed_cost(reference)
    work = theirs.b_seconds * reference.steps
    needed = shortest_work(theirs.a_seconds, ours.a_seconds, world_size, efficiency)
    if work >= needed:
        return ""
    if math.isinf(needed):
        return f"{TOO_SHORT}, as any is for an efficiency by time of 1"
    steps = math.ceil(needed / theirs.b_seconds)
    seconds = candidate.seconds(steps_of_each(reference.steps, world_size))
    return (
        f"{TOO_SHORT}: of {seconds:.1f} s "
        f"{ours.a_seconds:.1f} s are fixed, so that even perfect scaling would not reach "
        f"{efficiency:.3g}; it takes {steps} steps ({needed:.0f} s on one replica) instead of "
        f"{reference.steps}"
    )


def fit_fixed_cost(world_sizes: Sequence[int], seconds: Sequence[float]) -> FixedCost:
    """a and b of t = a + b / n, from trainings of one amount of work on several world sizes, by
    least squares on relative residuals; b is then the work in seconds.

    Both are linear in 1/t: minimise the sum of (a / t + b / (n t) - 1)^2. Raises ValueError for
    fewer than two world sizes.
    """
    if len(set(world_sizes)) < 2 or len(world_sizes) != len(seconds):
        raise ValueError("a fixed cost takes a time at each of two world sizes or more")
    rows = [(1 / t, 1 / (n * t)) for n, t in zip(world_sizes, seconds, strict=True)]
    xx = sum(x * x for x, _ in rows)
    xy = sum(x * y for x, y in rows)
    yy = sum(y * y for _, y in rows)
    x1, y1 = sum(x for x, _ in rows), sum(y for _, y in rows)
    determinant = xx * yy - xy * xy
    return FixedCost((x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant)
