"""What gates say over nights, by simulated nights that the suite itself judges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.gate_of_nights import LOOKS, QUIET, A, B, Condition, found, judged, without_loss
from hvdperf.interim import judge_rounds, next_look
from hvdperf.verdict import REGRESSION, Verdict


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("condition", [QUIET, A, B], ids=["quiet", "A", "B"])
def test_a_night_of_all_cases_is_judged_as_the_suite_judges_each(
    condition: Condition, looks: tuple[int, ...]
) -> None:
    generator = np.random.default_rng(3)
    turns = condition.turns(condition.of_nights(40, 0.03, generator), looks[-1], generator)
    nights = judged(turns, looks, condition.noise)
    for at, rows in enumerate(turns.tolist()):
        count = 0
        while True:
            count = next_look(count, looks, early=True)
            one = judge_rounds(rows[:count], REGRESSION, looks, condition.noise)
            if one.verdict is not Verdict.INCONCLUSIVE or count == looks[-1]:
                break
        assert (nights.verdicts[at], nights.rounds[at]) == (one.verdict, count)
        assert one.figure is not None
        if one.verdict is Verdict.FAIL:
            assert math.exp(nights.upper[at]) == pytest.approx(one.figure.upper)


@pytest.mark.parametrize("condition", [QUIET, A, replace(A, nights=0.01)], ids=str)
def test_years_without_a_loss_have_an_alarm_a_year_at_most(condition: Condition) -> None:
    rates = without_loss(condition, LOOKS[0], years=2)
    assert rates.alarms <= 2
    assert condition is QUIET or rates.fails > 100, "by one night each"


def test_half_the_speed_is_found_on_the_first_night_whatever_the_noise() -> None:
    for condition in (QUIET, A, B):
        assert found(condition, LOOKS[0], 0.5, 100)[0] == 1


def test_a_quiet_machine_finds_a_sixth_at_once_and_a_twentieth_within_three_nights() -> None:
    for looks in LOOKS:
        assert found(QUIET, looks, 0.15, 200)[0] > 0.99
        assert found(QUIET, looks, 0.05, 400)[1] > 0.98
