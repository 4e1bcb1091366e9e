"""What holds of the statistics and the rules whatever is observed."""

import math
from itertools import pairwise

import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hvdperf.stats import bound_depth, hodges_lehmann, spread, walsh_averages
from hvdperf.verdict import Band, Ceiling, Floor, Verdict, decide, judge, worst

# On a grid of 1/1024 sums and halves are exact, so that what should be equal is.
GRID = st.integers(-2048, 2048).map(lambda number: number / 1024)
SERIES = st.lists(GRID, min_size=1, max_size=24)
LONG = st.lists(GRID, min_size=6, max_size=24)
ALPHAS = st.sampled_from([0.01, 0.025, 0.05, 0.1])
RATIOS = st.floats(0.3, 3.0)
# From the worst verdict on a figure to the best.
RANK = {Verdict.FAIL: 0, Verdict.INCONCLUSIVE: 1, Verdict.PASS: 2}
ANY = settings(deadline=None, max_examples=150)


@st.composite
def floors(draw):
    """One margin, or two as of a regression: whoever passes from 0.95 may fail below 0.98."""
    pass_from, gap = draw(RATIOS), draw(st.sampled_from([0.0, 0.03]))
    return Floor(pass_from + gap, pass_from)


@st.composite
def bands(draw):
    low, high = sorted((draw(RATIOS), draw(RATIOS)))
    return Band(low, high)


RULES = st.one_of(floors(), bands(), RATIOS.map(Ceiling))


def figure_of(judgement):
    assert judgement.figure is not None
    return judgement.figure


# Statistics ------------------------------------------------------------------------------------


@ANY
@given(SERIES, ALPHAS, GRID)
def test_a_shift_shifts_the_interval(values, alpha, shift):
    plain = hodges_lehmann(values, alpha)
    moved = hodges_lehmann([value + shift for value in values], alpha)
    assert moved.estimate == plain.estimate + shift
    assert (moved.lower, moved.upper) == (plain.lower + shift, plain.upper + shift)


@ANY
@given(SERIES, ALPHAS)
def test_the_other_sign_turns_the_interval_round(values, alpha):
    plain = hodges_lehmann(values, alpha)
    turned = hodges_lehmann([-value for value in values], alpha)
    assert (turned.lower, turned.estimate, turned.upper) == (
        -plain.upper,
        -plain.estimate,
        -plain.lower,
    )


@ANY
@given(SERIES, ALPHAS, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_another_unit_is_another_unit_of_the_interval(values, alpha, factor):
    plain = hodges_lehmann(values, alpha)
    scaled = hodges_lehmann([factor * value for value in values], alpha)
    assert (scaled.lower, scaled.upper) == (factor * plain.lower, factor * plain.upper)
    assert spread([factor * value for value in values]) == pytest.approx(factor * spread(values))


@ANY
@given(st.data(), SERIES, ALPHAS)
def test_the_order_of_rounds_does_not_matter(data, values, alpha):
    shuffled = data.draw(st.permutations(values))
    assert hodges_lehmann(shuffled, alpha) == hodges_lehmann(values, alpha)
    assert spread(shuffled) == spread(values)


@ANY
@given(SERIES, ALPHAS)
def test_the_interval_lies_within_the_observations_or_bounds_nothing(values, alpha):
    interval = hodges_lehmann(values, alpha)
    assert min(values) <= interval.estimate <= max(values)
    assert interval.lower <= interval.estimate <= interval.upper
    assert math.isinf(interval.lower) == math.isinf(interval.upper)
    if math.isfinite(interval.lower):
        assert min(values) <= interval.lower <= interval.upper <= max(values)


@ANY
@given(SERIES)
def test_a_smaller_error_rate_never_narrows_the_interval(values):
    intervals = [hodges_lehmann(values, alpha) for alpha in (0.01, 0.025, 0.05, 0.1)]
    assert [found.lower for found in intervals] == sorted(found.lower for found in intervals)
    uppers = [found.upper for found in intervals]
    assert uppers == sorted(uppers, reverse=True)


@ANY
@given(st.data(), SERIES, ALPHAS)
def test_no_observation_can_rise_and_lower_a_bound(data, values, alpha):
    raised = list(values)
    raised[data.draw(st.integers(0, len(values) - 1))] += data.draw(GRID.map(abs))
    plain, higher = hodges_lehmann(values, alpha), hodges_lehmann(raised, alpha)
    assert higher.lower >= plain.lower
    assert higher.estimate >= plain.estimate
    assert higher.upper >= plain.upper


@ANY
@given(LONG, st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_one_wild_round_of_twelve_cannot_move_both_bounds_out(values, wild):
    assume(len(values) >= 12)
    interval = hodges_lehmann([*values[:-1], wild], 0.025)
    assert interval.lower <= max(values[:-1])
    assert interval.upper >= min(values[:-1])


@ANY
@given(st.lists(st.floats(), min_size=1, max_size=12), ALPHAS)
def test_whatever_is_observed_there_is_a_figure_or_a_reason(values, alpha):
    judgement = judge(values, Floor(0.98, 0.95, alpha))
    if judgement.verdict is Verdict.INVALID:
        assert judgement.figure is None
        assert judgement.reason
    else:
        assert all(map(math.isfinite, values))
        assert math.isfinite(figure_of(judgement).estimate)
    if all(abs(value) < 700 for value in values):
        assert judgement.verdict in RANK


@pytest.mark.parametrize("wild", [710.0, 1.7e308])
def test_a_ratio_that_no_number_holds_is_invalid(wild):
    judgement = judge([wild] * 6, Floor.at(0.9))
    assert judgement.verdict is Verdict.INVALID
    assert "the ratio exp(" in judgement.reason


# Against scipy's exact distribution ------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.025, 0.05])
@pytest.mark.parametrize("n", range(5, 25))
def test_bounds_are_where_scipys_exact_test_begins_to_reject(n, alpha):
    """Just inside of a bound the test does not reject that centre, just outside it does."""
    # Walsh averages that are all different, so that there are no ties: sums of powers of 1.3.
    values = [1.3**power - 5 for power in range(n)]
    averages = walsh_averages(values)
    step = min(b - a for a, b in pairwise(averages)) / 4
    assert step > 1e-6
    interval = hodges_lehmann(values, alpha)
    if bound_depth(n, alpha) == 0:
        assert (interval.lower, interval.upper) == (-math.inf, math.inf)
        assert 0.5**n > alpha
        return
    for bound, alternative, inside in (
        (interval.lower, "greater", step),
        (interval.upper, "less", -step),
    ):
        p = {
            side: scipy.stats.wilcoxon(
                [value - (bound + side * inside) for value in values],
                alternative=alternative,
                method="exact",
            ).pvalue
            for side in (1, -1)
        }
        assert p[-1] <= alpha < p[1]


# Verdicts --------------------------------------------------------------------------------------


@ANY
@given(st.data(), LONG, floors() | RATIOS.map(Ceiling))
def test_a_better_series_never_gets_a_worse_verdict(data, values, rule):
    sign = -1 if isinstance(rule, Ceiling) else 1
    better = [value + sign * data.draw(GRID.map(abs)) for value in values]
    # Where the margins differ, a series may both fail and pass: FAIL it is, until it is better.
    assert RANK[judge(better, rule).verdict] >= RANK[judge(values, rule).verdict]


@ANY
@given(LONG, bands(), st.floats(1.0, 2.0))
def test_a_wider_band_is_never_harder_to_pass(values, band, factor):
    wider = Band(band.low / factor, band.high * factor)
    if judge(values, band).verdict is Verdict.PASS:
        assert judge(values, wider).verdict is Verdict.PASS
    if judge(values, wider).verdict is Verdict.FAIL:
        assert judge(values, band).verdict is Verdict.FAIL


@ANY
@given(LONG, bands())
def test_parity_does_not_depend_on_which_side_is_the_reference(values, band):
    turned = Band(1 / band.high, 1 / band.low)
    # Reciprocals are rounded: an interval that ends at the band's edge may go either way.
    edges = {band.low, band.high}
    figure = figure_of(judge(values, band))
    assume(all(abs(b / e - 1) > 1e-9 for b in (figure.lower, figure.upper) for e in edges))
    other = judge([-value for value in values], turned)
    assert other.verdict is judge(values, band).verdict


@ANY
@given(SERIES, RULES)
def test_a_judgement_tells_the_figure_and_the_rule_it_rests_on(values, rule):
    judgement = judge(values, rule)
    figure = figure_of(judgement)
    assert judgement.rule == rule
    assert judgement.rounds == len(values) == figure.observations
    assert figure.estimate == math.exp(hodges_lehmann(values, rule.alpha).estimate)
    assert judgement.verdict is decide(rule, figure, figure)
    explained = math.isinf(figure.upper) or judgement.verdict is Verdict.INCONCLUSIVE
    assert bool(judgement.reason) == explained


@ANY
@given(st.lists(st.sampled_from(list(Verdict)), min_size=1), st.sampled_from(list(Verdict)))
def test_one_more_verdict_never_makes_the_worst_one_better(verdicts, more):
    order = list(Verdict)
    both = worst([*verdicts, more])
    assert order.index(both) == min(order.index(worst(verdicts)), order.index(more))
