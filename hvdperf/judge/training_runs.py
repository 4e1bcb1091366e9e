"""Figures of training runs: convergence, work in a fixed time, growth of memory.

Plain arithmetic on the ranks' reports of a run (worker/training_run.py). No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple

from hvdperf.measure.reports import RunReport
from hvdperf.plan.arms import Arm
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.question import LaunchMode

# Share of an endurance run that is left out, because caches, arenas and queues fill up first.
SETTLING_SHARE = 1 / 3
STEPS_OF_GROWTH = 1000
# This share of the loss of a uniform guess is added to both compared losses.
NOTHING_TO_LEARN = 0.01

Reports = Sequence[RunReport]


def observation(comparison: Comparison, candidate: Reports, reference: Reports) -> float:
    """Return the natural logarithm of the comparison's figure in one round, from both sides'
    reports. Raises ValueError if the sides did not validate on the same number of samples."""
    question = comparison.question
    if question.mode is LaunchMode.ENDURANCE:
        return max(growth(rank.memory) for rank in candidate)
    if question.mode is LaunchMode.TIME:
        ratio = math.log(samples_per_second(candidate) / samples_per_second(reference))
        return ratio - math.log(comparison.ideal_ratio)
    ours, theirs = candidate[0].validation, reference[0].validation
    if ours is None or theirs is None:
        raise ValueError("a run was not validated")
    if ours.samples != theirs.samples:
        raise ValueError(f"validated on {ours.samples} and on {theirs.samples} samples")
    if question.spec.metric == "loss":
        # Two networks with losses near 0 have both learned everything, so neither is better.
        nothing = NOTHING_TO_LEARN * ours.chance_loss
        return math.log((ours.loss + nothing) / (theirs.loss + nothing))
    # Both sides get half a sample more, because an accuracy of 0 has no logarithm.
    half = 0.5 / ours.samples
    return math.log((ours.accuracy + half) / (theirs.accuracy + half))


def samples_per_second(ranks: Reports) -> float:
    """Return samples per second by the slowest rank's own time, because a run lasts longer than
    asked: its ranks vote on its end only every few steps."""
    return samples(ranks) / max(rank.seconds for rank in ranks)


def samples(ranks: Reports) -> int:
    """Return the number of samples that all ranks together trained on."""
    return sum(rank.samples for rank in ranks)


def growth(memory: Sequence[Sequence[float]]) -> float:
    """Return the growth of ln(resident set) in STEPS_OF_GROWTH steps. memory: rows of [steps,
    bytes].

    It is the median of the slopes between any two readings (Theil 1950; Sen 1968). The first
    SETTLING_SHARE of the run is left out. Raises ValueError if fewer than three readings remain.
    """
    last = memory[-1][0] if memory else 0
    settled = [(step, math.log(size)) for step, size in memory if step >= SETTLING_SHARE * last]
    if len(settled) < 3:
        raise ValueError(f"{len(settled)} readings of memory are too few for a slope")
    from scipy.stats import theilslopes  # imported here, because the import takes seconds

    steps, sizes = zip(*settled, strict=True)
    return STEPS_OF_GROWTH * float(theilslopes(sizes, steps).slope)


def invalid_reasons(arm: Arm, ranks: Reports) -> list[str]:
    """Return why a run is invalid, one text per reason: a missing rank, ranks that stopped at
    different steps, samples that were not consumed, losses that are not finite."""
    found = []
    if len(ranks) != arm.processes:
        found.append(f"{arm.name}: {len(ranks)} of {arm.processes} ranks reported their run")
    steps = sorted({rank.steps for rank in ranks})
    if len(steps) > 1:
        found.append(f"{arm.name}: ranks stopped at different steps: {steps}")
    expected = steps[0] * arm.workload.batch * arm.world_size
    if samples(ranks) != expected:
        found.append(f"{arm.name}: {samples(ranks)} samples were consumed instead of {expected}")
    for number, rank in enumerate(ranks):
        figures = [rank.loss, *(astuple(rank.validation) if rank.validation else ())]
        if not all(math.isfinite(figure) for figure in figures):
            by = next((int(row[0]) for row in rank.curve if not math.isfinite(row[1])), rank.steps)
            found.append(f"{arm.name}: rank {number}: the loss is not finite by step {by}")
    return found
