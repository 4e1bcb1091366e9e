"""Finds the nights from which on a figure was lasting lower or higher than before.

A line is a figure a night. It is read as it grows: with every night, the nights since the last
change are split where the rank sums before and after differ most (Pettitt, Applied Statistics 28,
1979). If the difference is significant and large enough, a change is kept there, and the next one
is looked for behind it. So what was found is not lost when it is repaired later. Ranks make single
bad nights harmless. The significance is that of the Wilcoxon-Mann-Whitney test, exact for few
nights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.stats import mannwhitneyu, norm

# A split needs a two-sided p below this. Every night asks anew about every night of every line, so
# the level is far below the usual ones; docs/error_rates.md has the false alarms that it leaves.
SIGNIFICANT = 1e-5
# What many nights have to confirm, because a change that lasts gets ever more significant.
CONFIRMED = 1e-7
# The smallest change that is reported, as a share: less is within what a machine does by itself.
LEAST_CHANGE = 0.02
# The fewest nights on either side of a split.
FEWEST = 4
# One-sided level of the bounds of a change.
_ALPHA = 0.025
# Numbers of nights up to which the exact distribution is computed.
_EXACT_UP_TO = 8
# The number of splits among which the test chooses, and the distance in standard deviations below
# which none is significant.
_CANDIDATES, _LEAST_DISTANCE = 5, 3.2


@dataclass(frozen=True)
class Step:
    """A lasting change. at: index of the first night after it. until: index of the next change, or
    the number of nights. change: ratio of the medians after and before, with lower and upper bound
    (95 %). p: of the test."""

    at: int
    until: int
    change: float
    lower: float
    upper: float
    p: float


def steps(figures: Sequence[float]) -> list[Step]:
    """Return the lasting changes of a line, in the order of nights. figures: positive, one a night,
    without gaps."""
    values = np.log(np.asarray(figures, dtype=float))
    edges = [0]
    for seen in range(2 * FEWEST, len(values) + 1):
        at = _split(values[edges[-1] : seen])
        if at is not None:
            edges.append(edges[-1] + at)
    return _refined(values, [*edges, len(values)])


def _refined(values: np.ndarray, edges: list[int]) -> list[Step]:
    """Return the changes at these edges, moved to where all nights between their neighbours put
    them, without those that these nights do not confirm."""
    found: list[Step] = []
    place = 1
    while place < len(edges) - 1:
        first, last = edges[place - 1], edges[place + 1]
        at = _split(values[first:last], CONFIRMED)
        if at is None:
            del edges[place]
            continue
        edges[place] = first + at
        place += 1
    for before, at, after in zip(edges, edges[1:], edges[2:], strict=False):
        step = _step(values[before:at], values[at:after])
        found.append(Step(at, after, *step))
    return found


def _split(part: np.ndarray, lasting: float = SIGNIFICANT) -> int | None:
    """Return the split of these nights; None if no split is significant and large enough. lasting:
    the level for a split with more than _EXACT_UP_TO nights on either side."""
    count = len(part)
    if count < 2 * FEWEST:
        return None
    ranks = np.empty(count)
    ranks[np.argsort(part, kind="stable")] = np.arange(1, count + 1)
    before = np.arange(1, count)
    sums = np.cumsum(ranks)[:-1]
    spread = np.sqrt(before * (count - before) * (count + 1) / 12)
    distances = np.abs(sums - before * (count + 1) / 2) / spread
    distances[: FEWEST - 1] = 0
    distances[count - FEWEST :] = 0
    if distances.max() < _LEAST_DISTANCE:
        return None
    # Near the ends the distance understates what the exact test sees, so it has the last word.
    likely = np.argsort(-distances)[:_CANDIDATES] + 1
    p, at = min((_p(part[:at], part[at:]), int(at)) for at in likely)
    change = abs(float(np.median(part[at:]) - np.median(part[:at])))
    level = lasting if min(at, count - at) > _EXACT_UP_TO else SIGNIFICANT
    return at if p < level and change >= math.log1p(LEAST_CHANGE) else None


def _p(before: np.ndarray, after: np.ndarray) -> float:
    exact = min(len(before), len(after)) <= _EXACT_UP_TO
    return float(mannwhitneyu(after, before, method="exact" if exact else "asymptotic").pvalue)


def _step(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float, float]:
    """Return the change with its bounds, and its p."""
    differences = np.sort(np.subtract.outer(after, before).ravel())
    # Moses: the bounds are order statistics of the differences between two nights.
    spread = math.sqrt(len(before) * len(after) * (len(before) + len(after) + 1) / 12)
    below = math.floor(len(differences) / 2 + norm.ppf(_ALPHA) * spread)
    low, high = (
        (math.exp(differences[below]), math.exp(differences[-below - 1]))
        if below >= 0
        else (0.0, math.inf)
    )
    return math.exp(median(differences)), low, high, _p(before, after)
