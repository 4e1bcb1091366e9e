import math
import random
from dataclasses import replace
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
    is_precise,
    judge,
    longer_side,
    must_be,
    rounds_until_precise,
    smallest_detectable_effect,
    worst,
)


def logs(*ratios):
    return [math.log(ratio) for ratio in ratios]


FLOOR, BAND, CEILING = Floor.at(0.9), Band(0.95, 1.05), Ceiling(0.5)
PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("rule", "lower", "upper", "verdict"),
    [
        (FLOOR, 0.90, 0.95, PASS),
        (FLOOR, 0.80, 0.89, FAIL),
        (FLOOR, 0.80, 0.90, INCONCLUSIVE),
        (FLOOR, 0.85, 0.95, INCONCLUSIVE),
        (FLOOR, -math.inf, math.inf, INCONCLUSIVE),
        (REGRESSION, 0.95, 1.02, PASS),
        (REGRESSION, 0.94, 0.979, FAIL),
        (REGRESSION, 0.94, 0.98, INCONCLUSIVE),
        # Both hold: not worse than 0.95 for certain, worse than 0.98 for certain. It did regress.
        (REGRESSION, 0.96, 0.97, FAIL),
        (BAND, 0.95, 1.05, PASS),
        (BAND, 0.90, 0.94, FAIL),
        (BAND, 1.06, 1.20, FAIL),
        (BAND, 0.94, 1.00, INCONCLUSIVE),
        (BAND, 1.00, 1.06, INCONCLUSIVE),
        (CEILING, 0.4, 0.5, PASS),
        (CEILING, 0.4, 0.51, INCONCLUSIVE),
        (CEILING, 0.5, 0.6, INCONCLUSIVE),
        (CEILING, 0.51, 0.6, FAIL),
        (CEILING, 0.0, math.inf, INCONCLUSIVE),
    ],
)
def test_a_rule_is_decided_by_the_bounds(rule, lower, upper, verdict):
    figure = Interval(1.0, lower, upper, 0.025, 8)
    assert decide(rule, figure, figure) is verdict


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
    assert str(CEILING) == "<= 0.5 s"


def test_the_limit_of_a_figure_is_the_one_that_decides():
    rule = Floor(0.98, 0.95, 0.025)
    below, between = (Interval(x, x - 0.01, x + 0.01, 0.025, 8) for x in (0.9, 0.97))
    assert rule.limit(below) == rule.fail_below
    assert rule.limit(between) == rule.limit(None) == rule.pass_from
    told = [must_be(Judgement(FAIL, each, rule, 8)) for each in (below, between)]
    assert told == ["not < 0.98", ">= 0.95"]


def test_five_rounds_far_above_the_floor_are_inconclusive_and_say_why():
    judgement = judge(logs(0.99, 0.99, 0.99, 0.99, 0.99), Floor.at(0.1))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "only 5 rounds: a 95 % interval needs at least 6" in judgement.reason


def test_no_round_at_all_is_invalid():
    assert judge([], Floor.at(0.9)) == Judgement(
        Verdict.INVALID, None, Floor.at(0.9), 0, "no observation", widened=1.0
    )


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


def test_an_interval_twice_as_long_as_wanted_takes_four_times_the_rounds():
    figure = Interval(1.0, 0.95, 1.1, 0.025, 8)
    assert rounds_until_precise(figure, 8, 0.05) == pytest.approx(32)
    assert rounds_until_precise(None, 8, 0.05) == math.inf
    precise = [is_precise(figure, 0.11), is_precise(figure, 0.09), is_precise(None, 0.11)]
    assert precise == [True, False, False]
    unbounded = replace(figure, lower=0.0, upper=math.inf)
    effects = [
        Judgement(PASS, each, FLOOR, 8).detectable_effect for each in (figure, unbounded, None)
    ]
    assert effects == [pytest.approx(0.15), None, None]


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
