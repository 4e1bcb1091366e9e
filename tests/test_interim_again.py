"""The rule in use against one that was written independently, on random sessions."""

import math

import numpy as np
import pytest
import scipy.stats

from hvdperf.interim import (
    EARLY_LOOKS,
    confidence_of_verdicts,
    early_interval,
    early_shift,
    judge_pair,
    judge_rounds,
    looks_after,
    next_look,
)
from hvdperf.stats import turn_correlation, turns_worth
from hvdperf.verdict import REGRESSION, Band, Ceiling, Floor, Noise, Verdict
from tests.support.rule_again import correlation_again, early_bounds, exact_bounds, verdict_again

RULES = (Floor.at(0.9), REGRESSION, Band(0.9, 1.1111), Ceiling(1.1))
LOOKS = ((8,), (8, 12), (8, 12, 24), (12,))
SESSIONS = 200


def session(generator, most_rounds):
    """A session's rounds, whose turns are ragged, and what is known of its machine."""
    rounds = int(generator.integers(1, most_rounds + 1))
    fewest, most = ((4, 4), (1, 8), (1, 2), (1, 1))[generator.choice(4, p=(0.5, 0.3, 0.1, 0.1))]
    turn_sd = generator.choice((0.02, 0.04, 0.1, 0.2))
    launch_sd = generator.choice((0.0, 0.015, 0.1))
    centre = generator.uniform(-0.3, 0.3)
    rows = [
        (centre + launch_sd * generator.normal() + turn_sd * generator.normal(size=turns)).tolist()
        for turns in generator.integers(fewest, most + 1, rounds)
    ]
    return rows, Noise(generator.choice((0.02, 0.05)), generator.uniform(0, 0.6))


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_both_say_the_same_of_random_sessions(rule, looks, forced):
    generator = np.random.default_rng([looks[0], len(looks), forced, RULES.index(rule)])
    said = set()
    for _ in range(SESSIONS):
        rows, noise = session(generator, looks[-1] if looks[-1] < 24 else 16)
        found = judge_rounds(rows, rule, looks, noise, forced).verdict
        again = verdict_again(rows, rule, looks, noise.launch_sd, noise.correlation, forced)
        assert found is again, (rows, noise)
        said.add((found, len(rows)))
    assert {rounds for verdict, rounds in said if verdict is Verdict.PASS} & set(EARLY_LOOKS)
    failed = {rounds for verdict, rounds in said if verdict is Verdict.FAIL}
    assert failed
    assert min(failed) >= looks[0]


@pytest.mark.parametrize(
    ("rounds", "early", "look"),
    [(2, True, 3), (3, True, 4), (6, True, 8), (3, False, 8), (8, False, 12), (12, True, 12)],
)
def test_the_next_look_is_one_with_more_rounds(rounds, early, look):
    assert next_look(rounds, (8, 12), early) == look


@pytest.mark.parametrize(
    ("turns", "noise", "told"), [(2, Noise(), True), (1, Noise(), False), (2, None, False)]
)
def test_what_an_early_look_needs_is_told_where_there_can_be_one(turns, noise, told):
    reason = judge_rounds([[0.1] * turns] * 2, Floor.at(0.9), (8,), noise).reason
    assert (f"a PASS needs {EARLY_LOOKS[0]}" in reason) is told


def test_both_say_the_same_after_24_rounds():
    generator = np.random.default_rng(24)
    for _ in range(60):
        figures = generator.normal(generator.normal(0, 0.05), 0.1, (24, 1)).tolist()
        for rule in RULES:
            found = judge_rounds(figures, rule, (8, 12, 24), Noise()).verdict
            assert found is verdict_again(figures, rule, (8, 12, 24), 0.05, 0.0, forced=False)


def test_early_bounds_are_the_same():
    generator = np.random.default_rng(3)
    for _ in range(300):
        rows, noise = session(generator, 7)
        again = early_bounds(rows, 0.005, noise.launch_sd, noise.correlation)
        found = early_interval(rows, 0.005, noise)
        assert (found is None) == (again is None)
        if found is not None:
            bounds = math.log(found.lower), math.log(found.upper)
            assert bounds == pytest.approx(again, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rounds", [8, 12])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_each_bound_that_is_shown_is_at_the_level_at_which_it_decides(rule, rounds):
    generator = np.random.default_rng(rounds)
    for _ in range(20):
        figures = generator.normal(0.3, 0.1, rounds)
        judged = judge_rounds(figures[:, None].tolist(), rule, (8, 12), Noise())
        to_pass = rule.alpha
        to_fail = rule.alpha if rounds == 12 else 0.0118 * rule.alpha / 0.025
        passing, failing = (exact_bounds(figures, level) for level in (to_pass, to_fail))
        if isinstance(rule, Floor):
            shown = passing[0], failing[1]
        elif isinstance(rule, Ceiling):
            shown = failing[0], passing[1]
        else:
            shown = passing if judged.verdict is Verdict.PASS else failing
        assert judged.figure is not None
        assert judged.fail_alpha == pytest.approx(to_fail)
        assert (judged.figure.lower, judged.figure.upper) == pytest.approx(np.exp(shown))


def test_the_correlation_of_turns_is_the_same():
    generator = np.random.default_rng(5)
    for _ in range(300):
        comparisons = [session(generator, 8)[0] for _ in range(4)]
        assert turn_correlation(comparisons) == pytest.approx(correlation_again(comparisons))


@pytest.mark.parametrize("turn_sd", [0.02, 0.038, 0.1, 0.2])
@pytest.mark.parametrize("tau0", [0.02, 0.05])
def test_turns_are_as_many_as_the_formula_says(turn_sd, tau0):
    expected = min(8, round(1.12 * turn_sd / tau0 * math.sqrt(16.0 / 2.65)))
    assert turns_worth(turn_sd, tau0, 16.0, 2.65, most=8) == expected


@pytest.mark.parametrize("looks", [(8,), (8, 12), (8, 12, 24), (8, 12, 24, 48)])
def test_verdicts_hold_with_the_confidence_that_is_told(looks):
    """A figure exactly on its limit PASSes at one of the looks no more often than is told. Early
    looks may add half a point (docs/error_rates.md)."""
    values = np.random.default_rng(5).normal(size=(4000, looks[-1]))
    passed = np.zeros(len(values), bool)
    for look in looks:
        tested = scipy.stats.wilcoxon(values[:, :look], alternative="greater", axis=1)
        passed |= tested.pvalue <= 0.025
    told = 1 - confidence_of_verdicts(looks)
    assert told - 0.02 < np.mean(passed) + 0.005 < told + 0.005


def test_a_correlation_of_rounds_of_0_6_doubles_how_far_a_shift_may_be_off():
    rows = [[0.0, 0.1], [0.05, 0.0], [0.1, 0.05], [0.0, 0.0], [0.1, 0.1], [0.05, 0.1]]
    reached = []
    for noise in (Noise(), Noise(of_rounds=0.6)):
        found = early_shift((rows, noise), (rows, noise), 0.025)
        assert found is not None
        reached.append(math.log(found.upper))
    assert reached[1] == pytest.approx(2 * reached[0])


@pytest.mark.parametrize("forced", [False, True])
def test_from_the_first_full_look_on_a_pair_is_judged_like_any_comparison(forced):
    generator = np.random.default_rng(6)
    for _ in range(100):
        rows = generator.normal(generator.normal(0, 0.1), 0.1, (8, 3)).tolist()
        found = judge_pair(rows, RULES[2], (8, 12), Noise(0.0), forced)
        assert found == judge_rounds(rows, RULES[2], (8, 12), Noise(0.0), forced)


def test_looks_of_resumed_sessions_count():
    assert looks_after(11, (8, 12)) == (8, 12)
    assert looks_after(12, (8, 12)) == (8, 12, 24)
    assert confidence_of_verdicts((8,), rounds=40) == confidence_of_verdicts((8, 16, 32))
    assert confidence_of_verdicts((8, 12), resumed=1) == confidence_of_verdicts((8, 12, 24))
    assert confidence_of_verdicts((8, 12), rounds=3) == confidence_of_verdicts((8, 12))
