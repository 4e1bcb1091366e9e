"""Paired statistics: numbers in, numbers out.

The estimate is Hodges and Lehmann's (1963). The bounds invert Wilcoxon's signed-rank test
(Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3.2 and 3.3): they are order
statistics of the Walsh averages, with exact tail probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from hvdperf.json_records import Figures, Number

# Standard deviation / median absolute deviation of a normal distribution.
SD_OF_MAD = 1.4826


class NotMeasurable(ValueError):
    """The observations contain something that is not a finite number, or there are none."""


@dataclass(frozen=True)
class Interval(Figures):
    """An estimate with one-sided bounds, each missed with a probability of at most alpha.

    (lower, upper) is a two-sided interval of confidence 1 - 2 alpha. With too few observations for
    alpha the bounds are infinite. observations: number of observations.
    """

    NULL = math.inf  # an upper bound

    estimate: float
    lower: float
    upper: Number
    alpha: float
    observations: int

    def widened(self, factor: float) -> Interval:
        """Return the interval with bounds that are farther from the estimate by the factor."""
        if factor == 1:
            return self
        below, above = self.estimate - self.lower, self.upper - self.estimate
        lower, upper = self.estimate - factor * below, self.estimate + factor * above
        return replace(self, lower=lower, upper=upper)

    def apart(self, half: float) -> Interval:
        """Return the interval of the sum with an independent deviation around 0, of which a bound
        at this level is `half` away (Zou and Donner, Statistics in Medicine 27, 2008)."""
        if half == 0:
            return self
        below, above = self.estimate - self.lower, self.upper - self.estimate
        lower = self.estimate - math.hypot(below, half)
        return replace(self, lower=lower, upper=self.estimate + math.hypot(above, half))


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return that quantile of Student's t distribution."""
    from scipy.special import stdtrit  # imported here, because the import takes a while

    return float(stdtrit(freedom, probability))


def walsh_averages(values: Sequence[float]) -> list[float]:
    """Return all n (n + 1) / 2 means of two observations, ascending; a pair may be one observation
    with itself."""
    n = len(values)
    return sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))


@cache
def signed_rank_counts(n: int) -> tuple[int, ...]:
    """Return the numbers of sign patterns of n observations with a signed-rank sum of t = 0, 1, ...

    Of all 2^n patterns this is the exact number of subsets of the ranks 1..n with sum t.
    """
    counts = [1]
    for rank in range(1, n + 1):
        longer = counts + [0] * rank
        for total, ways in enumerate(counts):
            longer[total + rank] += ways
        counts = longer
    return tuple(counts)


@cache
def bound_depth(n: int, alpha: float) -> int:
    """Return the number of Walsh averages that a bound of error rate alpha leaves out on its side,
    plus one.

    It is the largest d with P(T < d) <= alpha for the signed-rank sum T of n observations. It is 0
    if even the extreme average has a higher error rate (n < 6 at 0.025, n < 5 at 0.05).
    """
    if not alpha < 1:
        raise ValueError(f"alpha must be below 1, not {alpha}")
    return _depth(signed_rank_counts(n), alpha * 2**n)


def fewest_bounded(alpha: float) -> int:
    """Return the fewest observations with finite exact bounds at that level."""
    return next(n for n in range(1, 100) if bound_depth(n, alpha) > 0)


def _depth(ways: Sequence[int], allowed: float) -> int:
    """Return the largest d for which the first d of `ways` add up to no more than `allowed`."""
    tail = 0
    for depth, count in enumerate(ways):
        tail += count
        if tail > allowed:
            return depth
    return len(ways)


def hodges_lehmann(values: Sequence[float], alpha: float) -> Interval:
    """Return the Hodges-Lehmann estimate of the observations' centre with exact one-sided bounds.

    Raises NotMeasurable if there is no observation, or one that is not finite.
    """
    if not values:
        raise NotMeasurable("no observation")
    bad = [value for value in values if not math.isfinite(value)]
    if bad:
        raise NotMeasurable(f"{len(bad)} of {len(values)} observations are not finite: {bad[0]}")
    averages = walsh_averages(values)
    depth = bound_depth(len(values), alpha)
    lower, upper = (averages[depth - 1], averages[-depth]) if depth else (-math.inf, math.inf)
    return Interval(median(averages), lower, upper, alpha, len(values))


@cache
def rank_sum_counts(m: int, n: int) -> tuple[int, ...]:
    """Return the exact numbers of arrangements of m and n observations with u = 0, 1, ... m n pairs
    in which the observation of the first series is the larger one (Mann and Whitney 1947)."""
    if m == 0 or n == 0:
        return (1,)
    # The largest of all is of the first series, and larger than all n of the second, or it is not.
    counts = [0] * (m * n + 1)
    for u, ways in enumerate(rank_sum_counts(m - 1, n)):
        counts[u + n] += ways
    for u, ways in enumerate(rank_sum_counts(m, n - 1)):
        counts[u] += ways
    return tuple(counts)


def shift(ours: Sequence[float], theirs: Sequence[float], alpha: float) -> Interval:
    """Return the Hodges-Lehmann estimate of how far the centre of `ours` lies above that of
    `theirs`, of two independent series.

    The exact bounds invert Wilcoxon's rank-sum test (Hollander, Wolfe and Chicken, 4.2 and 4.3).
    With too few observations for alpha the bounds are infinite. Raises NotMeasurable if a series is
    empty, or holds a value that is not finite.
    """
    if not ours or not theirs:
        raise NotMeasurable("no observation")
    if not all(map(math.isfinite, (*ours, *theirs))):
        raise NotMeasurable("an observation is not finite")
    m, n = len(ours), len(theirs)
    apart = sorted(a - b for a in ours for b in theirs)
    allowed = alpha * math.comb(m + n, m)
    depth = _depth(rank_sum_counts(m, n), allowed)
    lower, upper = (apart[depth - 1], apart[-depth]) if depth else (-math.inf, math.inf)
    return Interval(median(apart), lower, upper, alpha, m + n)


def spread(values: Sequence[float]) -> float:
    """Return a robust standard deviation: 1.4826 times the median absolute deviation from the
    median."""
    centre = median(values)
    return SD_OF_MAD * median(abs(value - centre) for value in values)
