import math
import random
from statistics import median

import pytest
import scipy.stats

from hvdperf.stats import (
    Interval,
    NotMeasurable,
    bound_depth,
    fewest_bounded,
    hodges_lehmann,
    shift,
    signed_rank_counts,
    spread,
    walsh_averages,
)


def test_walsh_averages_of_three_by_hand():
    assert walsh_averages([4.0, 0.0, 1.0]) == [0.0, 0.5, 1.0, 2.0, 2.5, 4.0]


def test_signed_rank_counts_of_three_by_hand():
    # Subsets of {1, 2, 3} by sum: {}, 1, 2, 3 and 1+2, 1+3, 2+3, 1+2+3.
    assert signed_rank_counts(3) == (1, 1, 1, 2, 1, 1, 1)


@pytest.mark.parametrize(
    ("n", "alpha", "depth"),
    [(5, 0.025, 0), (6, 0.025, 1), (4, 0.05, 0), (5, 0.05, 1), (8, 0.025, 4), (12, 0.025, 14)],
)
def test_bound_depth_agrees_with_published_tables(n, alpha, depth):
    # Critical values of the signed-rank sum (one-sided) are depth - 1: 3 for n = 8, 13 for n = 12.
    assert bound_depth(n, alpha) == depth


@pytest.mark.parametrize("n", range(1, 25))
@pytest.mark.parametrize("alpha", [0.025, 0.05])
def test_bound_depth_is_the_largest_that_keeps_the_error_rate(n, alpha):
    depth = bound_depth(n, alpha)
    counts = signed_rank_counts(n)
    assert sum(counts[:depth]) / 2**n <= alpha
    assert sum(counts[: depth + 1]) / 2**n > alpha


def test_an_alpha_of_one_is_refused():
    with pytest.raises(ValueError, match="alpha must be below 1"):
        bound_depth(4, 1.0)


def test_the_bounds_miss_the_truth_as_often_as_they_say():
    n, sessions, noise = 8, 4000, random.Random(7)
    intervals = [
        hodges_lehmann([noise.gauss(0.0, 1.0) for _ in range(n)], alpha=0.025)
        for _ in range(sessions)
    ]
    exact = 5 / 256  # P(T < 4) for n = 8
    tolerance = 3 * math.sqrt(exact * (1 - exact) / sessions)
    too_high = sum(interval.lower > 0 for interval in intervals) / sessions
    too_low = sum(interval.upper < 0 for interval in intervals) / sessions
    assert too_high == pytest.approx(exact, abs=tolerance)
    assert too_low == pytest.approx(exact, abs=tolerance)


def test_six_observations_by_hand():
    interval = hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0, 9.0], alpha=0.025)
    # The extreme Walsh averages are the extreme observations; 21 averages, the 11th is 3.5.
    assert (interval.lower, interval.estimate, interval.upper) == (1.0, 3.5, 9.0)
    assert (interval.alpha, interval.observations) == (0.025, 6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_observation_that_is_not_finite_is_not_measurable(bad):
    with pytest.raises(NotMeasurable, match=r"1 of 3 observations are not finite"):
        hodges_lehmann([0.1, bad, 0.2], 0.025)


def test_no_observation_is_not_measurable():
    with pytest.raises(NotMeasurable, match="no observation"):
        hodges_lehmann([], 0.025)


def test_spread_by_hand():
    # median 3, absolute deviations 2 1 0 1 97, their median 1
    assert spread([1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(1.4826)


def test_spread_estimates_a_standard_deviation():
    noise = random.Random(3)
    assert spread([noise.gauss(5.0, 0.2) for _ in range(5000)]) == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (6, 6), (6, 12), (24, 6)])
def test_a_shift_has_the_bounds_of_the_exact_rank_sum_test(m, n):
    """The largest depth d with P(U < d) <= alpha, U Mann and Whitney's, as scipy has it."""
    noise = random.Random(m * n)
    ours = [noise.gauss(0.1, 1.0) for _ in range(m)]
    theirs = [noise.gauss(0.0, 1.0) for _ in range(n)]
    found = shift(ours, theirs, 0.025)
    apart = sorted(a - b for a in ours for b in theirs)
    assert found.estimate == pytest.approx(median(apart))
    depth = apart.index(found.lower) + 1
    assert found.upper == apart[-depth]
    for delta, rejected in ((apart[depth - 1] - 1e-9, True), (apart[depth - 1] + 1e-9, False)):
        test = scipy.stats.mannwhitneyu(
            [value - delta for value in ours], theirs, alternative="greater", method="exact"
        )
        assert (test.pvalue <= 0.025) == rejected


def test_bounds_are_widened_by_a_factor_of_their_distance_from_the_estimate():
    wide = Interval(1.0, 0.5, 1.25, 0.025, 6).widened(4.0)
    assert (wide.estimate, wide.lower, wide.upper) == (1.0, -1.0, 2.0)


def test_a_shift_of_few_bounds_nothing_and_of_none_is_none():
    assert shift([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.025).upper == math.inf
    assert math.isfinite(shift([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], 0.025).upper)
    assert shift([1.0, 2.0, 3.0], [1.0, 2.0], 0.025).observations == 5
    for ours, theirs in (([], [1.0]), ([1.0], []), ([math.nan], [1.0])):
        with pytest.raises(NotMeasurable):
            shift(ours, theirs, 0.025)


def test_a_shift_misses_the_truth_as_rarely_as_it_says():
    noise = random.Random(7)
    missed = 0
    for _ in range(2000):
        ours, theirs = ([noise.gauss(0, 1) for _ in range(6)] for _ in range(2))
        found = shift(ours, theirs, 0.025)
        missed += found.lower > 0
    assert missed <= 71, "2.5 % of 2,000 and three standard deviations"


@pytest.mark.parametrize(("alpha", "fewest"), [(0.5, 1), (0.49, 2), (0.05, 5), (0.025, 6)])
def test_the_fewest_observations_with_bounds_are_those_whose_signs_may_all_be_alike(
    alpha: float, fewest: int
) -> None:
    """All n have the same sign by chance once in 2^n."""
    assert fewest_bounded(alpha) == fewest
    assert 0.5**fewest <= alpha < 0.5 ** (fewest - 1)
