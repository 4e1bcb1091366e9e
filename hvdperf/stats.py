"""Paired statistics, and the scatter of figures within a launch and from launch to launch: numbers
in, numbers out.

The estimate is Hodges and Lehmann's (1963). The bounds invert Wilcoxon's signed-rank test
(Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3.2 and 3.3): they are order
statistics of the Walsh averages, with exact tail probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import fmean, median

from hvdperf.json_records import Figures, Number

# Standard deviation / median absolute deviation of a normal distribution.
SD_OF_MAD = 1.4826
# Upper limit of the correlation of turns. A higher one would require more rounds than any session
# takes.
MOST_CORRELATED = 0.6
# The variance of a median / that of a mean, at the usual number of turns of a launch.
OF_A_MEDIAN = 1.25

# The ln ratios of the turns of one round, in their order.
Row = Sequence[float]


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


# Scatter ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundMoments:
    """Sums from which the correlation of neighbouring rounds is estimated.

    products: of the deviations of neighbouring rounds from the mean of their comparison, plus the
    squares over the number of rounds, because the deviations of R independent rounds correlate by
    -1/R. squares: of the deviations. pairs: independent pairs of rounds; comparisons of one network
    share theirs.
    """

    products: float = 0.0
    squares: float = 0.0
    pairs: int = 0

    def __add__(self, other: RoundMoments) -> RoundMoments:
        return RoundMoments(
            self.products + other.products,
            self.squares + other.squares,
            self.pairs + other.pairs,
        )

    @property
    def correlation(self) -> float:
        """Return the correlation, limited to MOST_CORRELATED; 0 unless it is more than two standard
        errors (1 / sqrt(pairs)) above 0."""
        if self.squares == 0 or self.pairs == 0:
            return 0.0
        found = self.products / self.squares
        return min(found, MOST_CORRELATED) if found > 2 / math.sqrt(self.pairs) else 0.0


def round_moments(comparisons: Sequence[Sequence[Row]]) -> RoundMoments:
    """Return the moments of the rounds of comparisons that share their launches."""
    products = squares = 0.0
    for rows in comparisons:
        values = [median(row) for row in rows]
        if len(values) < 2:
            continue
        mean, of_one = fmean(values), _squares(values)
        products += sum((one - mean) * (other - mean) for one, other in pairwise(values))
        products += of_one / len(values)
        squares += of_one
    pairs = max((len(rows) - 1 for rows in comparisons), default=0)
    return RoundMoments(products, squares, max(pairs, 0))


def turns_freedom(rows: Sequence[Row]) -> int:
    """Return the degrees of freedom that the variance of turns within launches has."""
    return sum(len(row) - 1 for row in rows)


def turn_variance(rows: Sequence[Row]) -> float:
    """Return the variance of a turn about the mean of its launch, pooled; 0 without freedom."""
    freedom = turns_freedom(rows)
    return sum(_squares(row) for row in rows) / freedom if freedom > 0 else 0.0


def mean_of_inverse(rows: Sequence[Row]) -> float:
    """Return the mean of 1 / (number of turns) over the rounds."""
    return fmean(1 / len(row) for row in rows)


def round_variance(rows: Sequence[Row]) -> float:
    """Return the variance of the rounds' medians; needs two rounds at least."""
    return _squares([median(row) for row in rows]) / (len(rows) - 1)


def launch_variance(rows: Sequence[Row]) -> float:
    """Return the variance of the rounds beyond the part that their turns explain: an unbiased
    estimate of the variance between launches, which can be negative."""
    explained = OF_A_MEDIAN * turn_variance(rows) * mean_of_inverse(rows)
    return round_variance(rows) - explained


def turn_correlation(comparisons: Sequence[Sequence[Row]]) -> float:
    """Return the correlation of consecutive turns, pooled over comparisons, limited to 0 ...
    MOST_CORRELATED.

    The deviations of T uncorrelated turns from their mean correlate by -1/T, so 1/T is added.
    """
    rows = [row for comparison in comparisons for row in comparison if len(row) > 1]
    squares = sum(map(_squares, rows))
    if squares == 0:
        return 0.0
    products = sum(
        (one - mean) * (other - mean)
        for row in rows
        for mean in [fmean(row)]
        for one, other in pairwise(row)
    )
    unbiased = products / squares + 1 / fmean(map(len, rows))
    return min(max(unbiased, 0.0), MOST_CORRELATED)


def turns_worth(
    turn_sd: float, launch_sd: float, apart_seconds: float, turn_seconds: float, most: int
) -> int:
    """Return the number of turns of a launch, up to `most`, with which a verdict takes the least
    time.

    The cheaper a turn is beside the rest of a round, and the more turns vary beside launches, the
    higher is the number. apart_seconds: time of a round without its turns.
    """
    worth = 1.12 * turn_sd / launch_sd * math.sqrt(max(apart_seconds, 0.0) / turn_seconds)
    return min(most, round(worth))


def _squares(row: Row) -> float:
    mean = fmean(row)
    return sum((value - mean) ** 2 for value in row)
