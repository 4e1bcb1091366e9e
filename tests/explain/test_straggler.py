"""Who keeps the others waiting is named, with its lag; chance is not."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from statistics import fmean, variance

import pytest

from hvdperf.explain.time_breakdown import (
    CHANCE,
    MOST_CORRELATED,
    _correlation,
    _is_above_0,
    beyond_chance,
    straggler,
    waits,
)
from tests.support.with_timestamps import step_timestamps


@pytest.mark.parametrize("met", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_late_is_named_with_its_lag(ranks, met):
    late = [0.0] * ranks
    late[1] = 0.05
    rows = step_timestamps(100, late, met=met)
    named = straggler(waits(rows, met), step_seconds=0.07)
    assert named is not None
    assert (named.rank, named.share) == (1, 1.0)
    assert named.lag_seconds == pytest.approx(0.05)


def test_the_others_wait_for_it_and_it_for_nobody():
    waited = waits(step_timestamps(10, [0.0, 0.03, 0.01]), met=False)
    assert [sum(own) for own in waited] == pytest.approx([0.3, 0.0, 0.2])
    assert waits(step_timestamps(10, [0.0, 0.03, 0.01], met=True), met=True)[0] == pytest.approx(
        [0.03] * 10
    )


def test_one_rank_waits_for_nobody():
    assert straggler(waits(step_timestamps(10, [0.0]), met=False), 0.02) is None


def test_who_is_last_by_chance_is_not_named():
    noise = random.Random(1)
    named = 0
    for _ in range(1000):
        steps = [[noise.gauss(0.01, 0.003) for _ in range(4)] for _ in range(100)]
        waited = [[max(step) - step[rank] for step in steps] for rank in range(4)]
        named += straggler(waited, step_seconds=0.02) is not None
    assert named <= 10, "four ranks, each with a tail of 0.001"


def test_a_lag_of_next_to_nothing_has_no_name():
    waited = waits(step_timestamps(100, [0.0, 0.001]), met=False)
    assert straggler(waited, step_seconds=0.1) is None
    assert straggler(waited, step_seconds=0.02) is not None


def test_a_rank_that_is_late_now_and_then_is_not_the_typical_one():
    late = [step_timestamps(1, [0.0, 0.05 if step % 5 == 0 else 0.0]) for step in range(100)]
    rows = [[step[rank][0] for step in late] for rank in (0, 1)]
    assert straggler(waits(rows, met=False), step_seconds=0.02) is None


def drifting(seed: int, ar: float, lag: float = 0.0, steps: int = 200, ranks: int = 2):
    """Return waits of ranks whose lateness drifts: an autoregressive process of the first order,
    with a standard deviation of 3 ms. lag: of rank 0 in every step."""
    noise = random.Random(seed)
    ready = []
    for rank in range(ranks):
        own = noise.gauss(0.0, 1.0)
        row = []
        for _ in range(steps):
            row.append(0.003 * own + (lag if rank == 0 else 0.0))
            own = ar * own + math.sqrt(1 - ar * ar) * noise.gauss(0.0, 1.0)
        ready.append(row)
    last = [max(step) for step in zip(*ready, strict=True)]
    return [[b - a for a, b in zip(row, last, strict=True)] for row in ready]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("ar", [0.0, 0.5, 0.95])
def test_who_is_late_now_one_and_then_another_is_not_named(ar, ranks):
    named = [straggler(drifting(seed, ar, ranks=ranks), step_seconds=0.02) for seed in range(200)]
    assert sum(each is not None for each in named) <= 3


@pytest.mark.parametrize("ar", [0.0, 0.5])
def test_who_is_late_throughout_is_named_though_all_drift(ar):
    named = [straggler(drifting(seed, ar, lag=0.006), step_seconds=0.02) for seed in range(100)]
    assert sum(each is not None and each.rank == 0 for each in named) >= 95


@pytest.mark.parametrize(("late", "named"), [(7, True), (6, False)])
def test_who_is_late_in_seven_eighths_of_a_run_is_named_and_in_six_is_not(
    late: int, named: bool
) -> None:
    """Two of the eight stretches without a lag leave a t of 4.6, and 4.8 are needed."""
    rows = step_timestamps(500 * late, [0.01, 0.0])
    on_time = step_timestamps(500 * (8 - late), [0.0, 0.0])
    joined = [first + rest for first, rest in zip(rows, on_time, strict=True)]
    assert (straggler(waits(joined, met=False), step_seconds=0.02) is not None) is named


def test_the_correlation_of_lags_is_taken_two_standard_errors_above_its_estimate() -> None:
    values = [1.0, 1.0, -1.0, -1.0] * 4
    # Eight neighbours are alike, and seven are opposite.
    estimate = 1 / 16
    likely = estimate + (1 + 3 * estimate) / 16
    assert _correlation(values) == pytest.approx(likely + 2 * math.sqrt((1 - likely**2) / 16))
    assert _correlation([value + 5.0 for value in values]) == pytest.approx(_correlation(values))
    assert _correlation([float(step) for step in range(500)]) == MOST_CORRELATED
    assert _correlation([1.0, -1.0] * 50) == 0.0
    assert _correlation([3.0] * 50) == _correlation([1.0, 2.0]) == 0.0


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_mean_of_values_that_follow_each_other_is_tested_by_what_they_are_worth(
    correlation: float,
) -> None:
    """The variance of the mean by summing all covariances, and the degrees of freedom of Bayley and
    Hammersley for the variance."""
    from scipy.stats import t

    values = [0.5, 1.5, 2.5, 0.5, 3.0, 1.0, -0.5, 2.0, 1.0, 0.0]
    count = len(values)
    pairs = ((i, j) for i in range(count) for j in range(count))
    of_mean = sum(correlation ** abs(i - j) for i, j in pairs) / count**2
    sample = variance(values) * (count - 1) / count / (1 - of_mean)
    square = correlation * correlation
    freedom = max(1.0, (count - 1) * (1 - square) / (1 + square))
    chance = float(t.sf(fmean(values) / math.sqrt(of_mean * sample), freedom))
    assert _is_above_0(values, correlation, chance * 1.001)
    assert not _is_above_0(values, correlation, chance * 0.999)


@pytest.mark.parametrize("trials", [1, 12, 144, 1000])
@pytest.mark.parametrize("ranks", [2, 3, 256])
def test_chance_is_the_exact_binomial_tail(trials, ranks):
    of_all = Fraction(CHANCE) * ranks**trials
    for times in {0, 1, trials // ranks, trials // ranks + 1, trials // 2 + 1, trials}:
        ways = [
            math.comb(trials, k) * (ranks - 1) ** (trials - k) for k in range(times, trials + 1)
        ]
        assert beyond_chance(times, trials, ranks) == (sum(ways) <= of_all)


def test_one_rank_alone_is_last_by_no_chance():
    assert not beyond_chance(1000, 1000, 1)
