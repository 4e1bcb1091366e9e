"""Lasting changes of a line."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from hvdperf.timeline import lines
from hvdperf.timeline.lines import SIGNIFICANT, rank_test, steps


def figures(seed: int) -> list[float]:
    """Return a line with changes, wild nights, nights that are like the last one, and ties."""
    noise = random.Random(seed)
    correlation, level, last = noise.choice((0.0, 0.5)), 0.0, 0.0
    digits, count = noise.choice((1, 2, 12)), noise.choice((12, 120, 400))
    found = []
    for _ in range(count):
        level += noise.choice((-0.1, -0.05, 0.04)) if noise.random() < 0.015 else 0.0
        last = correlation * last + noise.gauss(0, 0.01)
        wild = -abs(noise.gauss(0, 0.2)) if noise.random() < 0.02 else 0.0
        found.append(round(100 * math.exp(level + last + wild), digits))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_no_split_is_lost_by_looking_at_all_nights_together(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = figures(seed)
    fast = steps(line)
    monkeypatch.setattr(lines, "_far", lambda values, level: np.ones(len(values) + 1, dtype=bool))
    assert steps(line) == fast


@pytest.mark.parametrize("few", [4, 5, 6, 7, 8, 9, 10, 12, 16, 24])
@pytest.mark.parametrize("more", [0, 1, 2, 5, 10, 20, 50, 150, 350])
def test_no_split_that_is_left_out_as_too_near_is_significant(few: int, more: int) -> None:
    count = 2 * few + more
    spread = math.sqrt(few * (count - few) * (count + 1) / 12)
    least = float(lines._least_distance(np.array([few]), count, SIGNIFICANT)[0])
    # The largest distance below the limit: so many pairs are won by the first group.
    won = max(0, math.floor(few * (count - few) / 2 - least * spread) + 1)
    values = np.arange(count, dtype=float)
    rank_sum = won + few * (few + 1) // 2
    first = of_rank_sum(few, count, rank_sum)
    chosen = np.isin(values + 1, first)
    assert rank_test(values[chosen], values[~chosen]) >= SIGNIFICANT


def of_rank_sum(few: int, count: int, rank_sum: int) -> list[int]:
    """Return so many ranks up to `count` that have this sum, the last ones as high as they can."""
    found: list[int] = []
    for left in range(few, 0, -1):
        below = (left - 1) * left // 2
        highest = (found[-1] if found else count + 1) - 1
        found.append(min(highest, rank_sum - below))
        rank_sum -= found[-1]
    return found


def test_a_change_is_found_where_the_splits_are_looked_at_in_several_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise = random.Random(1)
    line = [math.exp(noise.gauss(-0.05 * (at >= 70), 0.01)) for at in range(140)]
    whole = steps(line)
    assert [step.at for step in whole] == [70]
    lines._twice.cache_clear()
    monkeypatch.setattr(lines, "_AT_ONCE", 32)
    assert steps(line) == whole
    lines._twice.cache_clear()
