"""Finds the straggler, and how long the other ranks wait for it, from the times at which the ranks
were ready.

Arithmetic on the timestamps of a run (worker/training_run.py): a rank is ready for its step when
it has its batch. Each rank's times count from a common barrier, so the clocks of several hosts need
not agree. A drift of 10 microseconds a second is far below the smallest lag that is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev

# Timestamps of one rank in seconds, one row per step: begun, had its batch, had met the others,
# ended.
StepTimestamps = Sequence[Sequence[float]]
# Significance level for naming a straggler.
CHANCE = 0.001
# A lag below this share of a step is not worth a name.
SHARE_OF_A_STEP = 0.02
# Stretches of a run whose typical lags are compared. The lags of neighbouring steps are alike, but
# those of stretches much less so.
STRETCHES = 8
# Standard errors by which the correlation of neighbouring steps may be higher than its estimate.
ERRORS = 2


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for. lag_seconds: its delay behind the median of the other
    ranks, in the median step. share: share of the steps in which it is the last."""

    rank: int
    lag_seconds: float
    share: float


def waits(
    ranks: Sequence[StepTimestamps], met: bool, computing: Sequence[float] = ()
) -> list[list[float]]:
    """Return how long each rank waits for the last one, in seconds: one row per rank, one column
    per step.

    computing: seconds that each rank computes before it exchanges; with them, a rank is ready when
    it has computed, else when it has its batch.

    met: whether the ranks met before every step. A meeting measures each rank's wait; the shortest
    one is the duration of the meeting itself, and is subtracted. Without meetings, a wait is the
    time from a rank's being ready until the last rank is.
    """
    if met:
        meetings = [[step[2] - step[1] for step in timestamps] for timestamps in ranks]
        shortest = [min(step) for step in zip(*meetings, strict=True)]
        return [[a - b for a, b in zip(own, shortest, strict=True)] for own in meetings]
    takes = computing or [0.0] * len(ranks)
    ready = [
        [step[1] + own for step in timestamps] for timestamps, own in zip(ranks, takes, strict=True)
    ]
    last = [max(step) for step in zip(*ready, strict=True)]
    return [[b - a for a, b in zip(own, last, strict=True)] for own in ready]


def straggler(waited: Sequence[Sequence[float]], step_seconds: float) -> Straggler | None:
    """Return the rank that is last in more steps than chance allows (`beyond_chance`), lags by at
    least SHARE_OF_A_STEP, and does so throughout the run; return None if there is none. waited: as
    from `waits`."""
    if len(waited) < 2:
        return None
    steps = list(zip(*waited, strict=True))
    lasts = [step.index(min(step)) for step in steps]
    rank = max(range(len(waited)), key=lasts.count)
    times = lasts.count(rank)
    if not beyond_chance(times, len(steps), len(waited)):
        return None
    lags = [
        median(other for i, other in enumerate(step) if i != rank) - step[rank] for step in steps
    ]
    lag = median(lags)
    if lag < SHARE_OF_A_STEP * step_seconds or not _lasts(lags, len(waited)):
        return None
    return Straggler(rank, lag, times / len(steps))


def _lasts(lags: Sequence[float], ranks: int) -> bool:
    """Return whether the lag of one of several ranks is above 0 throughout a run, though who is
    late may drift.

    It is tested twice, each time at CHANCE for all ranks: by the medians of STRETCHES (t-test), and
    by the mean of all steps, of which so many count as independent as their correlation with the
    next step leaves (an autoregressive process of the first order).
    """
    count = min(STRETCHES, len(lags))
    ends = [len(lags) * number // count for number in range(count + 1)]
    stretches = [median(lags[begin:end]) for begin, end in pairwise(ends)]
    chance = CHANCE / ranks
    return _is_above_0(stretches, count, chance) and _is_above_0(lags, _independent(lags), chance)


def _independent(values: Sequence[float]) -> float:
    """Return how many independent values bound the mean as well as these do, at least.

    The correlation is taken as high as it may well be: one that is underestimated would name ranks
    that are late by turns.
    """
    count, mean = len(values), fmean(values)
    apart = [value - mean for value in values]
    whole = sum(value * value for value in apart)
    if count < 3 or whole == 0.0:
        return count
    found = sum(a * b for a, b in pairwise(apart)) / whole
    # The estimate is too low by so much (Kendall 1954), and its standard error (Bartlett 1946).
    likely = found + (1 + 3 * found) / count
    error = math.sqrt(max(1 - likely * likely, 0.0) / count)
    correlated = min(max(likely + ERRORS * error, 0.0), 1 - 1 / count)
    return count * (1 - correlated) / (1 + correlated)


def _is_above_0(values: Sequence[float], count: float, chance: float) -> bool:
    """Return whether the mean is above 0, by a t-test of so many independent values."""
    from scipy.special import stdtr  # imported here, because the import takes a while

    if len(values) < 2:
        return False
    mean, deviation = fmean(values), stdev(values)
    if deviation <= 1e-9 * abs(mean):
        return mean > 0.0
    if count <= 1.0:
        return False
    return float(stdtr(count - 1, -mean * math.sqrt(count) / deviation)) <= chance


def beyond_chance(times: int, trials: int, ranks: int) -> bool:
    """Return whether a given rank is picked in at least `times` of the trials with a probability of
    at most CHANCE, if every trial picks each rank with the same probability."""
    from scipy.special import bdtrc  # imported here, because the import takes a while

    return ranks > 1 and float(bdtrc(times - 1, trials, 1 / ranks)) <= CHANCE
