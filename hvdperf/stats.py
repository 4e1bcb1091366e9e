"""Paired statistics: numbers in, numbers out.

The estimate is Hodges and Lehmann's (1963), the bounds are those of Wilcoxon's signed-rank test
inverted (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3.2 and 3.3): order
statistics of the Walsh averages, with exact tail probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

# Of a normal distribution, standard deviation / median absolute deviation.
SD_OF_MAD = 1.4826


class NotMeasurable(ValueError):
    """The observations contain something that is not a finite number, or there are none."""


@dataclass(frozen=True)
class Interval:
    """An estimate with one-sided bounds, each missed with a probability of at most alpha.

    (lower, upper) is a two-sided interval of confidence 1 - 2 alpha. With too few observations
    for alpha the bounds are infinite: nothing can be said at that error rate.
    """

    estimate: float
    lower: float
    upper: float
    alpha: float
    observations: int


def walsh_averages(values: Sequence[float]) -> list[float]:
    """All n (n + 1) / 2 means of two observations, each with itself included, ascending."""
    n = len(values)
    return sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))


@cache
def signed_rank_counts(n: int) -> tuple[int, ...]:
    """Of the 2^n sign patterns of n observations, how many have a signed-rank sum of t = 0, 1, ...

    Counted exactly: the ways to choose a subset of the ranks 1..n with sum t.
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
    """How many Walsh averages a bound of error rate alpha may leave out on its side, plus one.

    The largest d with P(T < d) <= alpha for the signed-rank sum T of n observations; 0 if even
    the extreme average is not safe enough (n < 6 at 0.025, n < 5 at 0.05).
    """
    if not alpha < 1:
        raise ValueError(f"alpha must be below 1, not {alpha}")
    return _depth(signed_rank_counts(n), alpha * 2**n)


def fewest_bounded(alpha: float) -> int:
    """The fewest observations that the exact bounds at that level bound at all."""
    return next(n for n in range(1, 100) if bound_depth(n, alpha) > 0)


def _depth(ways: Sequence[int], allowed: float) -> int:
    """The largest d of which d ways from the left on are no more than allowed, all together."""
    tail = 0
    for depth, count in enumerate(ways):
        tail += count
        if tail > allowed:
            return depth
    return len(ways)


def hodges_lehmann(values: Sequence[float], alpha: float) -> Interval:
    """The Hodges-Lehmann estimate of the observations' centre with exact one-sided bounds.

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
    """Of the arrangements of m and n observations, how many have u = 0, 1, ... m n pairs in which
    the first is the larger one (Mann and Whitney 1947): counted exactly."""
    if m == 0 or n == 0:
        return (1,)
    # The largest of all belongs to the first, and is larger than n of the second, or it does not.
    counts = [0] * (m * n + 1)
    for u, ways in enumerate(rank_sum_counts(m - 1, n)):
        counts[u + n] += ways
    for u, ways in enumerate(rank_sum_counts(m, n - 1)):
        counts[u] += ways
    return tuple(counts)


def shift(ours: Sequence[float], theirs: Sequence[float], alpha: float) -> Interval:
    """The Hodges-Lehmann estimate of how far our centre lies above theirs, of two independent
    series, with the exact bounds of Wilcoxon's rank-sum test inverted (Hollander, Wolfe and
    Chicken, 4.2 and 4.3). Infinite bounds where there are too few for alpha.

    Raises NotMeasurable if one of them is empty, or holds something that is not finite.
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
    """A robust standard deviation: 1.4826 times the median absolute deviation from the median."""
    centre = median(values)
    return SD_OF_MAD * median(abs(value - centre) for value in values)
