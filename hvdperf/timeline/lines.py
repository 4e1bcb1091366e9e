"""Lines, and their lasting changes and drifts. A line is a figure over the nights of a series, in
the order of dates.

A line is read as it grows: with every night, the nights since the last change are split where the
rank sums before and after differ most (Pettitt, Applied Statistics 28, 1979). If the difference is
significant and large enough, a change is kept there, and the next one is looked for behind it. So
what was found is not lost when it is repaired later. Ranks make single bad nights harmless. The
significance is that of the Wilcoxon-Mann-Whitney test, exact for few nights, and weaker the more
each night is like the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from hvdperf.records.outcome import Measure
from hvdperf.verdict import Verdict

# A split needs a two-sided p below this. Every night asks anew about every night of every line, so
# the level is far below the usual ones; docs/error_rates.md has the false alarms that it leaves.
SIGNIFICANT = 1e-5
# A change whose p was below this on any night is confirmed, and stays. One with more than
# _EXACT_UP_TO nights on each side has to be: a change that lasts gets ever more significant.
CONFIRMED = 1e-7
# The smallest change that is reported, as a share: less is within what a machine does by itself.
LEAST_CHANGE = 0.02
# The fewest nights on either side of a split.
FEWEST = 4
# One-sided level of the bounds of a change.
_ALPHA = 0.025
# Numbers of nights on one side up to which the exact distribution is computed. The normal
# approximation overstates the p of few nights by orders of magnitude: it takes back a clear change
# when a ninth night comes.
_EXACT_UP_TO = 24
# The number of splits among which the test chooses, and the distance in standard deviations below
# which none is asked for.
_CANDIDATES, _LEAST_DISTANCE = 5, 3.2


@dataclass(frozen=True)
class Line:
    """A figure along an axis.

    name: of the case, or of a throughput. model, world_size: of the case. at: index of the night of
    each figure, ascending. figures: positive. lower_is_better: whether the figure is a duration or
    a growth. verdicts: of the case; () for a throughput. is_gate: whether the figure compares the
    stack with the reference. measure: of launches by themselves; None for a case.
    """

    name: str
    model: str
    world_size: int
    at: tuple[int, ...]
    figures: tuple[float, ...]
    lower_is_better: bool = False
    verdicts: tuple[Verdict, ...] = ()
    is_gate: bool = False
    measure: Measure | None = None


@dataclass(frozen=True)
class Step:
    """A lasting change. at: index of the first night after it. until: index of the next change, or
    the number of nights. change: ratio of the medians after and before, with lower and upper bound
    (95 %). is_confirmed: whether p was below CONFIRMED on some night."""

    at: int
    until: int
    change: float
    lower: float
    upper: float
    is_confirmed: bool


class Standing(Enum):
    """Whether a finding makes its series FAIL, and why not; the one that needs somebody most comes
    first."""

    OPEN = "worse"
    MISSING = "no longer measured"
    SUSPECT = "worse on the last night alone"
    UNCONFIRMED = "worse, not confirmed yet"
    ACCEPTED = "worse, accepted"
    FASTER = "worse, as its network became faster"
    REPAIRED = "worse, repaired"
    BETTER = "better"


@dataclass(frozen=True)
class Change:
    """A lasting change of a line. step: in the line's own points. since: the date of the first
    night that has it. standing: set by by_line."""

    line: Line
    step: Step
    since: str
    standing: Standing = Standing.OPEN

    @property
    def at(self) -> int:
        """Return the index of the first night that has it."""
        return self.line.at[self.step.at]

    @property
    def is_worse(self) -> bool:
        return (self.step.change > 1) == self.line.lower_is_better

    @property
    def size(self) -> str:
        """Return the size with its interval, such as `-4.9 % (-5.6 to -4.1)`."""
        lower, upper = (100 * (each - 1) for each in (self.step.lower, self.step.upper))
        return f"{percent(self.step.change)} ({lower:+.1f} to {upper:+.1f})"


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def steps(figures: Sequence[float]) -> list[Step]:
    """Return the lasting changes of a line, in the order of nights. figures: positive, one a night,
    without gaps."""
    values = np.log(np.asarray(figures, dtype=float))
    edges = [0]
    kept: set[int] = set()
    for seen in range(2 * FEWEST, len(values) + 1):
        at = _split(values[:seen], edges, edges[-1], seen)
        if at is not None:
            edges.append(at)
        newest = edges[-1]
        if newest and newest not in kept and _p_at(values[:seen], edges) < CONFIRMED:
            kept.add(newest)
    return _refined(values, [*edges, len(values)], kept)


def _refined(values: np.ndarray, edges: list[int], kept: Set[int]) -> list[Step]:
    """Return the changes at these edges, moved to where all nights between their neighbours put
    them, without those that these nights do not confirm. kept: edges that were confirmed on some
    night; what came later takes none of them back and moves none far."""
    sure = []
    place = 1
    while place < len(edges) - 1:
        edge = edges[place]
        others = [*edges[:place], *edges[place + 1 :]]
        at = _split(values, others, edges[place - 1], edges[place + 1], CONFIRMED)
        if edge in kept and (at is None or abs(at - edge) > FEWEST):
            at = edge
        if at is None:
            del edges[place]
            continue
        edges[place] = at
        sure.append(edge in kept)
        place += 1
    return [_step(values, edges, place, sure[place - 1]) for place in range(1, len(edges) - 1)]


def _split(
    values: np.ndarray, edges: list[int], first: int, last: int, lasting: float = SIGNIFICANT
) -> int | None:
    """Return the split of the nights from first to before last; None if no split is significant and
    large enough. edges: the changes known so far. lasting: the p that one with more than
    _EXACT_UP_TO nights on each side needs."""
    part = values[first:last]
    count = len(part)
    if count < 2 * FEWEST:
        return None
    before = np.arange(1, count)
    sums = np.cumsum(_ordinals(part))[:-1]
    distances = np.abs(sums - before * (count + 1) / 2) / _spread(before, count)
    distances[: FEWEST - 1] = 0
    distances[count - FEWEST :] = 0
    if (distances < _least_distance(before, count)).all():
        return None
    # Near the ends the distance understates what the exact test sees, so it has the last word.
    likely = [int(at) + 1 for at in np.argsort(-distances)[:_CANDIDATES]]
    apart = {at: abs(_middle(part[at:]) - _middle(part[:at])) for at in likely}
    is_large = {at: apart[at] >= math.log1p(LEAST_CHANGE) for at in likely}
    # Sizes take a tenth of the time of exact tests.
    if not any(is_large.values()):
        return None
    # All of them in the same way: an exact p is smaller, and would draw the split to its side.
    fewest = min(min(at, count - at) for at in likely)
    exact_up_to = count if fewest <= _EXACT_UP_TO else 0
    summed = np.cumsum(_ranks(part))
    p, at = min((_p(float(summed[at - 1]), at, count - at, exact_up_to), at) for at in likely)
    level = lasting if min(at, count - at) > _EXACT_UP_TO else SIGNIFICANT
    if p >= level or not is_large[at]:
        return None
    correlation = _correlation(values, [*edges, first + at])
    return first + at if _corrected(p, correlation) < level else None


def _middle(values: np.ndarray) -> float:
    """Return the median, in a tenth of the time that numpy's takes for so few values."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _ordinals(values: np.ndarray) -> np.ndarray:
    """Return the place of each value from 1 on; of equal ones, the first has the lower place."""
    places = np.empty(len(values), dtype=int)
    places[np.argsort(values, kind="stable")] = np.arange(1, len(values) + 1)
    return places


def _spread(before: np.ndarray, count: int) -> np.ndarray:
    """Return the standard deviation of the rank sum of the first `before` of `count` nights."""
    return np.asarray(np.sqrt(before * (count - before) * (count + 1) / 12))


def _least_distance(before: np.ndarray, count: int) -> np.ndarray:
    """Return the distance, in standard deviations, below which the rank sum of the first `before`
    of `count` nights is not asked for its p, at least _LEAST_DISTANCE. Of the exact test, a p of
    SIGNIFICANT is the nearer, the fewer nights are on one side; this is a little below all of
    them."""
    few = np.clip(np.minimum(before, count - before), 1, None)
    return np.asarray(np.maximum(_LEAST_DISTANCE, -ndtri(SIGNIFICANT / 2) - 1 / 6 - 4.2 / few))


def rank_test(before: np.ndarray, after: np.ndarray) -> float:
    """Return the two-sided p that both groups have the same values (Mann and Whitney's test)."""
    ranks = _ranks(np.concatenate((before, after)))[: len(before)]
    return _p(float(ranks.sum()), len(before), len(after), _EXACT_UP_TO)


def _p(rank_sum: float, before: int, after: int, exact_up_to: int) -> float:
    """Return the p of rank_test. rank_sum: of the first of both groups. before, after: how many
    values they have."""
    few, many = sorted((before, after))
    pairs = few * many
    won = rank_sum - before * (before + 1) / 2
    extreme = min(won, pairs - won)
    if few <= exact_up_to:
        return min(1.0, 2 * float(_tail(few, many)[min(math.ceil(extreme), pairs // 2)]))
    distance = (pairs / 2 - extreme - 0.5) / math.sqrt(pairs * (few + many + 1) / 12)
    return min(1.0, 2 * float(ndtr(-distance)))


def _p_at(values: np.ndarray, edges: Sequence[int]) -> float:
    """Return the p of the newest change, with the nights so far."""
    p = rank_test(values[edges[-2] : edges[-1]], values[edges[-1] :])
    return _corrected(p, _correlation(values, edges))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value from 1 on; equal values share the mean of their ranks."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    ranks = np.empty(len(values))
    ranks[order] = np.arange(1, len(values) + 1)
    if (ordered[1:] == ordered[:-1]).any():
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        shared: np.ndarray = np.cumsum(counts) - (counts - 1) / 2
        return shared[place]
    return ranks


@lru_cache(maxsize=4096)
def _tail(few: int, many: int) -> np.ndarray:
    """Return the probability that so many or fewer of all pairs of two groups are won by one of
    them, up to half of the pairs (Mann and Whitney, Annals of Mathematical Statistics 18, 1947).

    The arrangements by won pairs are the coefficients of the product of (1 - q^(many + i)) /
    (1 - q^i) for i from 1 to few. scipy's own exact test takes 20 times as long.
    """
    counts = np.zeros(few * many // 2 + 1)
    counts[0] = 1
    for i in range(1, few + 1):
        counts[many + i :] -= counts[: -(many + i)].copy()
        rows = np.zeros(len(counts) + -len(counts) % i)
        rows[: len(counts)] = counts
        counts = np.cumsum(rows.reshape(-1, i), axis=0).ravel()[: len(counts)]
    return np.cumsum(counts) / math.comb(few + many, few)


def _correlation(values: np.ndarray, edges: Iterable[int]) -> float:
    """Return the correlation of the ranks of each night and the next, 0 or more. edges: the changes
    of the line, which must not count as such."""
    cuts = sorted({*edges, len(values)} - {0})
    rest = np.concatenate([part - np.median(part) for part in np.split(values, cuts)[:-1]])
    ranks = _ranks(rest) - (len(rest) + 1) / 2
    # Figures that are all equal between changes have no ranks.
    return max(0.0, float(ranks[:-1] @ ranks[1:]) / (float(ranks @ ranks) or 1.0))


def _corrected(p: float, correlation: float) -> float:
    """Return the p of nights with this correlation (Bayley and Hammersley, JRSS Suppl. 8, 1946):
    they say as much as (1 - correlation) / (1 + correlation) times as many independent ones."""
    distance = -ndtri(p / 2) * math.sqrt((1 - correlation) / (1 + correlation))
    return float(2 * ndtr(-distance))


def _step(values: np.ndarray, edges: Sequence[int], place: int, is_confirmed: bool) -> Step:
    """Return the change at edges[place], with its bounds. is_confirmed: by an earlier night."""
    first, at, last = edges[place - 1 : place + 2]
    before, after = values[first:at], values[at:last]
    correlation = _correlation(values, edges)
    differences = np.sort(np.subtract.outer(after, before).ravel())
    # Moses: the bounds are order statistics of the differences between two nights.
    spread = math.sqrt(len(before) * len(after) * (len(before) + len(after) + 1) / 12)
    spread *= math.sqrt((1 + correlation) / (1 - correlation))
    below = math.floor(len(differences) / 2 + ndtri(_ALPHA) * spread)
    low, high = (
        (math.exp(differences[below]), math.exp(differences[-below - 1]))
        if below >= 0
        else (0.0, math.inf)
    )
    p = _corrected(rank_test(before, after), correlation)
    size = math.exp(median(differences))
    return Step(at, last, size, low, high, is_confirmed or p < CONFIRMED)


# Drifts ------------------------------------------------------------------------------------------

# The smallest loss a night, in ln, and in total that is a drift: seasons of 2 % stay below it. The
# fewest nights that one takes.
LEAST_RATE, LEAST_DRIFT, SHORTEST = 0.0006, 0.03, 8
# A drift explains a line better than steps by so much, in units of the information criterion. Steps
# are as many as there may be.
_BETTER, _MOST_STEPS = 2.0, 3


class Ramp(NamedTuple):
    """A drift: level up to the night `first`, then linear up to `last`, and level again. rate: a
    night, in ln."""

    first: int
    last: int
    rate: float

    def shape(self, nights: np.ndarray) -> np.ndarray:
        """Return the number of nights of the drift up to each of these nights."""
        return np.asarray(np.clip(nights - self.first, 0, self.last - self.first))

    @property
    def change(self) -> float:
        """Return the ratio of what is after it to what was before."""
        return math.exp(self.rate * (self.last - self.first))


def drift(values: np.ndarray) -> Ramp | None:
    """Return the drift for the worse that explains a line better than steps; None without one.
    values: ln of the figures, higher for better.

    The Bayesian information criterion (Schwarz, Annals of Statistics 6, 1978) compares both: n ln
    of the mean square of what is left, and ln n for each parameter.
    """
    count = len(values)
    if count < 2 * SHORTEST:
        return None

    def criterion(left: float, parameters: int) -> float:
        return count * math.log(max(left, 1e-12) / count) + parameters * math.log(count)

    nights = np.arange(count)
    apart = values - values.mean()
    fits = []
    for first in range(count - SHORTEST):
        ends = np.arange(first + SHORTEST, count)
        shapes = np.minimum(np.maximum(nights - first, 0), (ends - first)[:, None]).astype(float)
        shapes -= shapes.mean(axis=1, keepdims=True)
        products, squares = shapes @ apart, (shapes * shapes).sum(axis=1)
        left = apart @ apart - products**2 / squares
        # One that goes on has no last night to choose.
        for at in {int(np.argmin(left)), len(ends) - 1}:
            parameters = 3 if at == len(ends) - 1 else 4
            ramp = Ramp(first, int(ends[at]), float(products[at] / squares[at]))
            fits.append((criterion(float(left[at]), parameters), ramp))
    best, ramp = min(fits)
    if ramp.rate > -LEAST_RATE or ramp.change > math.exp(-LEAST_DRIFT):
        return None
    steps_left = enumerate(_left_by_steps(values))
    of_steps = min(criterion(left, 2 * number + 1) for number, left in steps_left)
    return ramp if of_steps - best > _BETTER else None


def _left_by_steps(values: np.ndarray) -> list[float]:
    """Return the sums of squares that the best steps leave: none, one, up to _MOST_STEPS."""
    sums, squares = (np.concatenate(([0.0], np.cumsum(each))) for each in (values, values**2))
    places = np.arange(len(sums))
    counts = np.maximum(places - places[:, None], 1)
    # Of the nights from one place to before another.
    left = squares - squares[:, None] - (sums - sums[:, None]) ** 2 / counts
    left[places[:, None] >= places] = math.inf
    best, found = left[0], [float(left[0, -1])]
    for _ in range(_MOST_STEPS):
        best = (best[:, None] + left).min(axis=0)
        found.append(float(best[-1]))
    return found
