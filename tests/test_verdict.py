import math
import random
from statistics import median

import pytest

from hvdperf.stats import Interval, hodges_lehmann
from hvdperf.verdict import (
    REGRESSION,
    Band,
    Ceiling,
    Floor,
    Judgement,
    Verdict,
    as_ratio,
    confidence,
    decide,
    judge,
    longer_side,
    smallest_detectable_effect,
    worst,
)


def logs(*ratios):
    return [math.log(ratio) for ratio in ratios]


def decided(rule, lower, upper):
    """By bounds that may both pass and fail it."""
    figure = Interval(1.0, lower, upper, 0.025, 8)
    return decide(rule, figure, figure)


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (0.90, 0.95, Verdict.PASS),
        (0.95, 0.99, Verdict.PASS),
        (0.80, 0.89, Verdict.FAIL),
        (0.80, 0.90, Verdict.INCONCLUSIVE),
        (0.85, 0.95, Verdict.INCONCLUSIVE),
        (-math.inf, math.inf, Verdict.INCONCLUSIVE),
    ],
)
def test_a_floor_is_decided_by_the_bounds(lower, upper, verdict):
    assert decided(Floor.at(0.9), lower, upper) is verdict


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (0.96, 1.02, Verdict.PASS),
        (0.95, 1.02, Verdict.PASS),
        (0.94, 0.979, Verdict.FAIL),
        (0.94, 0.98, Verdict.INCONCLUSIVE),
        (0.94, 1.02, Verdict.INCONCLUSIVE),
        # Both hold: not worse than 0.95 for certain, worse than 0.98 for certain. It did regress.
        (0.96, 0.97, Verdict.FAIL),
    ],
)
def test_a_regression_has_two_margins(lower, upper, verdict):
    assert decided(REGRESSION, lower, upper) is verdict


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (0.96, 1.04, Verdict.PASS),
        (0.95, 1.05, Verdict.PASS),
        (0.90, 0.94, Verdict.FAIL),
        (1.06, 1.20, Verdict.FAIL),
        (0.94, 1.00, Verdict.INCONCLUSIVE),
        (1.00, 1.06, Verdict.INCONCLUSIVE),
        (0.90, 1.10, Verdict.INCONCLUSIVE),
    ],
)
def test_equivalence_needs_both_one_sided_tests(lower, upper, verdict):
    assert decided(Band(0.95, 1.05), lower, upper) is verdict


def test_the_error_rates_are_those_of_the_rules():
    assert Floor.at(0.9).alpha == 0.025
    assert Band(0.95, 1.05).alpha == 0.05


def test_an_interval_covers_what_neither_of_its_ends_may_miss():
    below = [math.log(0.7 + 0.01 * step) for step in range(8)]
    floor, band = judge(below, Floor.at(0.75), 0.0118), judge(below, Band(0.72, 1.4), 0.0236)
    assert floor.figure is not None
    assert band.figure is not None
    assert confidence(floor.figure, floor.rule, 0.0118) == pytest.approx(1 - 0.025 - 0.0118)
    # It did not pass, so both ends are those that may FAIL it.
    assert confidence(band.figure, band.rule, 0.0236) == pytest.approx(1 - 2 * 0.0236)
    assert confidence(floor.figure, floor.rule, None) == pytest.approx(0.95)


def test_rules_say_what_they_ask():
    assert str(Floor.at(0.9)) == ">= 0.9"
    assert str(Band(0.95, 1.0526)) == "0.95 to 1.05"


def test_the_limit_of_a_figure_is_the_one_that_decides():
    rule = Floor(0.98, 0.95, 0.025)
    below, between = (Interval(x, x - 0.01, x + 0.01, 0.025, 8) for x in (0.9, 0.97))
    assert rule.limit(below) == rule.fail_below
    assert rule.limit(between) == rule.limit(None) == rule.pass_from


def test_bounds_of_logarithms_become_bounds_of_ratios():
    ratio = as_ratio(Interval(0.0, math.log(0.5), math.log(4.0), 0.025, 7))
    assert (ratio.estimate, ratio.lower, ratio.upper) == pytest.approx((1.0, 0.5, 4.0))
    assert (ratio.alpha, ratio.observations) == (0.025, 7)


def test_six_rounds_above_the_floor_pass():
    judgement = judge(logs(0.91, 0.92, 0.93, 0.94, 0.95, 0.96), Floor.at(0.9))
    assert judgement.verdict is Verdict.PASS
    assert judgement.rounds == 6
    assert judgement.reason == ""
    assert judgement.figure is not None
    assert judgement.figure.lower == pytest.approx(0.91)
    assert judgement.figure.upper == pytest.approx(0.96)


def test_six_rounds_below_the_floor_fail():
    judgement = judge(logs(0.81, 0.82, 0.83, 0.84, 0.85, 0.86), Floor.at(0.9))
    assert judgement.verdict is Verdict.FAIL


def test_rounds_on_both_sides_of_the_floor_are_inconclusive():
    judgement = judge(logs(0.85, 0.95, 0.85, 0.95, 0.85, 0.95), Floor.at(0.9))
    assert judgement.verdict is Verdict.INCONCLUSIVE


def test_one_bad_round_of_twelve_does_not_undo_a_pass():
    ratios = [0.95, 0.951, 0.952, 0.953, 0.954, 0.955, 0.956, 0.957, 0.958, 0.959, 0.96, 0.7]
    assert judge(logs(*ratios), Floor.at(0.9)).verdict is Verdict.PASS


def test_five_rounds_far_above_the_floor_are_inconclusive_and_say_why():
    judgement = judge(logs(0.99, 0.99, 0.99, 0.99, 0.99), Floor.at(0.1))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "only 5 rounds: a 95 % interval needs at least 6" in judgement.reason


def test_five_rounds_suffice_for_equivalence():
    judgement = judge(logs(0.98, 0.99, 1.0, 1.01, 1.02), Band(0.95, 1.05))
    assert judgement.verdict is Verdict.PASS
    assert judge(logs(0.98, 0.99, 1.0, 1.01), Band(0.95, 1.05)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (0.4, 0.5, Verdict.PASS),
        (0.4, 0.51, Verdict.INCONCLUSIVE),
        (0.5, 0.6, Verdict.INCONCLUSIVE),
        (0.51, 0.6, Verdict.FAIL),
        (0.0, math.inf, Verdict.INCONCLUSIVE),
    ],
)
def test_a_time_must_not_be_above_its_ceiling(lower, upper, verdict):
    assert decided(Ceiling(0.5), lower, upper) is verdict
    assert str(Ceiling(0.5)) == "<= 0.5 s"


def test_a_true_difference_is_not_equivalent():
    judgement = judge(logs(1.10, 1.11, 1.12, 1.13, 1.14), Band(0.95, 1.05))
    assert judgement.verdict is Verdict.FAIL


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_invalid(bad):
    judgement = judge([*logs(0.99, 0.99, 0.99, 0.99, 0.99), bad], Floor.at(0.9))
    assert judgement.verdict is Verdict.INVALID
    assert judgement.figure is None
    assert "not finite" in judgement.reason


def test_no_round_at_all_is_invalid():
    assert judge([], Floor.at(0.9)) == Judgement(
        Verdict.INVALID, None, Floor.at(0.9), 0, "no observation", widened=1.0
    )


def test_an_efficiency_right_at_the_floor_is_seldom_failed():
    noise = random.Random(11)
    sessions = 1000
    failed = sum(
        judge([math.log(0.9) + noise.gauss(0, 0.06) for _ in range(12)], Floor.at(0.9)).verdict
        is Verdict.FAIL
        for _ in range(sessions)
    )
    # alpha is 0.025; three standard errors of a share of 1,000 are 0.015.
    assert failed / sessions <= 0.025 + 0.015


def test_a_clear_loss_is_nearly_always_failed():
    noise = random.Random(12)
    failed = sum(
        judge([math.log(0.8) + noise.gauss(0, 0.06) for _ in range(12)], Floor.at(0.9)).verdict
        is Verdict.FAIL
        for _ in range(200)
    )
    assert failed >= 190


def test_the_worst_verdict_decides():
    order = [
        Verdict.FAIL,
        Verdict.INVALID,
        Verdict.INCONCLUSIVE,
        Verdict.PASS,
        Verdict.INFO,
    ]
    for place, verdict in enumerate(order):
        assert worst(order[place:][::-1]) is verdict


def test_without_verdicts_nothing_was_judged():
    assert worst([]) is Verdict.INFO


def test_who_cannot_decide_says_how_far_the_interval_reaches():
    values = [math.log(ratio) for ratio in (0.90, 0.96, 0.99, 1.02, 1.05, 0.93)]
    undecided = judge(values, Floor.at(0.97))
    assert undecided.verdict is Verdict.INCONCLUSIVE
    # 0.975 [0.900, 1.050] of six rounds, whose bounds are the extremes.
    assert undecided.figure is not None
    side = longer_side(undecided.figure)
    assert side == pytest.approx(undecided.figure.estimate / 0.90 - 1)
    assert f"{100 * side:.1f} %" in undecided.reason
    assert longer_side(Interval(0.9, 0.0, math.inf, 0.025, 5)) == math.inf


def test_nine_of_ten_sessions_find_a_change_of_the_minimum_detectable_effect():
    """The effect is that of the median interval of sessions of this noise."""
    noise = random.Random(4)
    sessions = [[noise.gauss(0, 0.03) for _ in range(8)] for _ in range(2000)]
    figures = [as_ratio(hodges_lehmann(values, 0.025)) for values in sessions]
    effect = median(map(smallest_detectable_effect, figures))
    found = sum(figure.lower * (1 + effect) > 1 for figure in figures)
    assert 0.86 < found / len(figures) < 0.94
    assert smallest_detectable_effect(Interval(0.9, 0.0, math.inf, 0.025, 5)) == math.inf


@pytest.mark.parametrize("seed", range(20))
def test_what_is_farther_from_its_limit_than_the_interval_reaches_is_decided(seed):
    noise = random.Random(seed)
    values = [noise.gauss(0, 0.05) for _ in range(8)]
    figure = as_ratio(hodges_lehmann(values, 0.025))
    seen = longer_side(figure)
    assert judge(values, Floor.at(figure.estimate * (1 + 1.001 * seen))).verdict is Verdict.FAIL
    assert judge(values, Floor.at(figure.estimate / (1 + 1.001 * seen))).verdict is Verdict.PASS
    nearer = (figure.estimate * (1 + 0.999 * seen), figure.estimate / (1 + 0.999 * seen))
    assert Verdict.INCONCLUSIVE in {judge(values, Floor.at(limit)).verdict for limit in nearer}
