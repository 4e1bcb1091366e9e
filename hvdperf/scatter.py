"""The scatter of the figures of one comparison: within a launch, and from launch to launch.

Numbers in, numbers out. A row holds the ln ratios of the turns of one round, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

Row = Sequence[float]

# Upper limit of the correlation of turns. A higher one would require more rounds than any session
# takes.
MOST_CORRELATED = 0.6
# The variance of a median / that of a mean, at the usual number of turns of a launch.
OF_A_MEDIAN = 1.25


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
