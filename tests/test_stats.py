import math
import random
from statistics import fmean, median

import pytest
import scipy.stats

from hvdperf.stats import (
    Interval,
    NotMeasurable,
    bound_depth,
    fewest_bounded,
    hodges_lehmann,
    launch_variance,
    shift,
    spread,
    walsh_averages,
)


def test_walsh_averages_of_three_by_hand():
    assert walsh_averages([4.0, 0.0, 1.0]) == [0.0, 0.5, 1.0, 2.0, 2.5, 4.0]


def test_an_alpha_of_one_is_refused():
    with pytest.raises(ValueError, match="alpha must be below 1"):
        bound_depth(4, 1.0)


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


def test_the_variance_between_launches_is_what_their_turns_do_not_explain():
    noise = random.Random(7)
    found = []
    for _ in range(1000):
        launches = [noise.gauss(0.0, 0.02) for _ in range(8)]
        found.append(launch_variance([[noise.gauss(x, 0.02) for _ in range(5)] for x in launches]))
    assert fmean(found) == pytest.approx(0.02**2, rel=0.1)


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


@pytest.mark.parametrize(("alpha", "fewest"), [(0.5, 1), (0.49, 2), (0.05, 5), (0.025, 6)])
def test_the_fewest_observations_with_bounds_are_those_whose_signs_may_all_be_alike(
    alpha: float, fewest: int
) -> None:
    """All n have the same sign by chance once in 2^n."""
    assert fewest_bounded(alpha) == fewest
    assert 0.5**fewest <= alpha < 0.5 ** (fewest - 1)
