"""Finds the nights from which on a figure was lasting lower or higher than before.

A line is a figure a night. The line is split where the rank sums of the nights before and after
differ most (Pettitt, Applied Statistics 28, 1979), as long as the difference is significant and
large enough, and each part is split again (binary segmentation). Ranks make single bad nights
harmless. The significance is that of the Wilcoxon-Mann-Whitney test, exact for few nights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.stats import mannwhitneyu, norm

# A split needs a two-sided p below this. Every night asks anew about every night of every line, so
# the level is far below the usual ones; docs/nightly.md has the false alarms that it leaves.
SIGNIFICANT = 1e-5
# The smallest change that is reported, as a share: less is within what a machine does by itself.
LEAST_CHANGE = 0.02
# The fewest nights on either side of a split.
FEWEST = 3
# One-sided level of the bounds of a change.
_ALPHA = 0.025
# The number of splits among which the test chooses.
_CANDIDATES = 5
# Numbers of nights up to which the exact distribution is computed.
_EXACT_UP_TO = 8


@dataclass(frozen=True)
class Step:
    """A lasting change. at: index of the first night after it. change: ratio of the medians after
    and before, with lower and upper bound (95 %). p: of the test."""

    at: int
    change: float
    lower: float
    upper: float
    p: float


def steps(figures: Sequence[float], significant: float = SIGNIFICANT) -> list[Step]:
    """Return the lasting changes of a line, in the order of nights. figures: positive, one a night,
    without gaps."""
    values = np.log(np.asarray(figures, dtype=float))
    edges = _splits(values, 0, len(values), significant)
    bounds = [0, *edges, len(values)]
    found = []
    for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        step = _step(values[before:at], values[at:after], at)
        if step.p < significant and abs(math.log(step.change)) >= math.log1p(LEAST_CHANGE):
            found.append(step)
    return found


def _splits(values: np.ndarray, first: int, last: int, significant: float) -> list[int]:
    """Return the splits between two nights, ascending."""
    part = values[first:last]
    count = len(part)
    if count < 2 * FEWEST:
        return []
    ranks = np.empty(count)
    ranks[np.argsort(part, kind="stable")] = np.arange(1, count + 1)
    before = np.arange(1, count)
    sums = np.cumsum(ranks)[:-1]
    spread = np.sqrt(before * (count - before) * (count + 1) / 12)
    distances = np.abs(sums - before * (count + 1) / 2) / spread
    distances[: FEWEST - 1] = 0
    distances[count - FEWEST :] = 0
    # Near the ends the distance understates what the exact test sees, so it has the last word.
    likely = np.argsort(-distances)[:_CANDIDATES] + 1
    step = min((_step(part[:at], part[at:], int(at)) for at in likely), key=lambda each: each.p)
    at = step.at
    if step.p >= significant or abs(math.log(step.change)) < math.log1p(LEAST_CHANGE):
        return []
    middle = first + at
    return [
        *_splits(values, first, middle, significant),
        middle,
        *_splits(values, middle, last, significant),
    ]


def _step(before: np.ndarray, after: np.ndarray, at: int) -> Step:
    exact = min(len(before), len(after)) <= _EXACT_UP_TO
    p = mannwhitneyu(after, before, method="exact" if exact else "asymptotic").pvalue
    differences = np.sort(np.subtract.outer(after, before).ravel())
    # Moses: the bounds are order statistics of the differences between two nights.
    spread = math.sqrt(len(before) * len(after) * (len(before) + len(after) + 1) / 12)
    below = math.floor(len(differences) / 2 + norm.ppf(_ALPHA) * spread)
    low, high = (
        (float(differences[below]), float(differences[-below - 1]))
        if below >= 0
        else (-math.inf, math.inf)
    )
    return Step(
        at,
        math.exp(median(differences)),
        math.exp(low),
        math.exp(high) if high < math.inf else math.inf,
        float(p),
    )
