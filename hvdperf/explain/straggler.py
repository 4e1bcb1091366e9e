"""Finds the straggler, and how long the other ranks wait for it, from the times at which the ranks
were ready.

Arithmetic on the timestamps of a run (worker/steps.py): a rank is ready for its step when
it has its batch. Each rank's times count from a common barrier, so the clocks of several hosts need
not agree. A drift of 10 microseconds a second is far below the smallest lag that is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median, stdev

from hvdperf.records.outcome import Straggler

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
# Where steps are still more alike, a run cannot tell a rank that is always late from one that is
# late for a while.
MOST_CORRELATED = 0.98


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
    by the mean of all steps, which follow each other like an autoregressive process of the first
    order.
    """
    count = min(STRETCHES, len(lags))
    ends = [len(lags) * number // count for number in range(count + 1)]
    stretches = [median(lags[begin:end]) for begin, end in pairwise(ends)]
    chance = CHANCE / ranks
    return _is_above_0(stretches, 0.0, chance) and _is_above_0(lags, _correlation(lags), chance)


def _correlation(values: Sequence[float]) -> float:
    """Return the correlation of neighbouring values, as high as it may well be: one that is
    underestimated would name ranks that are late by turns."""
    count, mean = len(values), fmean(values)
    apart = [value - mean for value in values]
    whole = sum(value * value for value in apart)
    if count < 3 or whole == 0.0:
        return 0.0
    found = sum(a * b for a, b in pairwise(apart)) / whole
    # The estimate is too low by so much (Kendall 1954), and its standard error (Bartlett 1946).
    likely = found + (1 + 3 * found) / count
    error = math.sqrt(max(1 - likely * likely, 0.0) / count)
    return min(max(likely + ERRORS * error, 0.0), MOST_CORRELATED)


def _is_above_0(values: Sequence[float], correlation: float, chance: float) -> bool:
    """Return whether the mean of values is above 0, by a t-test.

    correlation: of neighbouring values (autoregressive process of the first order). Then the mean
    varies more, the values about it vary less, and there are fewer degrees of freedom (Bayley and
    Hammersley 1946).
    """
    from scipy.special import stdtr  # imported here, because the import takes a while

    count = len(values)
    if count < 2:
        return False
    mean, deviation = fmean(values), stdev(values)
    if deviation <= 1e-9 * abs(mean):
        return mean > 0.0
    r = correlation
    # Variance of the mean, as a share of that of the process.
    of_mean = ((1 + r) / (1 - r) - 2 * r * (1 - r**count) / (count * (1 - r) ** 2)) / count
    within = (1 - of_mean) * count / (count - 1)
    error = deviation * math.sqrt(of_mean / within)
    freedom = max(1.0, (count - 1) * (1 - r * r) / (1 + r * r))
    return float(stdtr(freedom, -mean / error)) <= chance


def beyond_chance(times: int, trials: int, ranks: int) -> bool:
    """Return whether a given rank is picked in at least `times` of the trials with a probability of
    at most CHANCE, if every trial picks each rank with the same probability."""
    from scipy.special import bdtrc  # imported here, because the import takes a while

    return ranks > 1 and float(bdtrc(times - 1, trials, 1 / ranks)) <= CHANCE
