"""Lasting changes of a line."""

from __future__ import annotations

import math
import random

import pytest

from hvdperf.timeline.lines import LEAST_CHANGE, steps


def line(count: int, noise: float, changes: dict[int, float], seed: int) -> list[float]:
    made = random.Random(seed)
    factors = [
        math.prod(factor for at, factor in changes.items() if index >= at) for index in range(count)
    ]
    return [1000.0 * factor * math.exp(made.gauss(0, noise)) for factor in factors]


@pytest.mark.parametrize("seed", range(20))
def test_an_unchanged_line_has_no_step(seed: int) -> None:
    assert steps(line(365, 0.03, {}, seed)) == []


def test_single_bad_nights_are_no_step() -> None:
    figures = line(100, 0.01, {}, 2)
    for index in (30, 31, 70):
        figures[index] *= 0.7
    assert steps(figures) == []


def test_four_nights_show_a_step_behind_many_others() -> None:
    assert steps(line(60, 0.005, {56: 0.95}, 3)) != []
    assert steps(line(60, 0.005, {58: 0.95}, 3)) == [], "two nights may be bad by chance"


def test_a_change_too_small_to_matter_is_none() -> None:
    assert steps(line(300, 0.001, {150: 1 - LEAST_CHANGE / 2}, 4)) == []


@pytest.mark.parametrize(("at", "until"), [(90, 120), (200, 260), (150, 164), (300, 330)])
def test_a_change_that_was_repaired_is_still_known(at: int, until: int) -> None:
    found = steps(line(365, 0.01, {at: 0.9, until: 1 / 0.9}, 5))
    assert [each.at for each in found] == pytest.approx([at, until], abs=3)
    assert found[0].until == found[1].at


@pytest.mark.parametrize("seen", range(130, 365, 50))
def test_what_was_found_stays_found_with_later_nights(seen: int) -> None:
    whole = line(365, 0.01, {90: 0.95, 120: 1 / 0.95, 250: 0.9}, 6)
    then = [each.at for each in steps(whole[:seen])]
    assert [each.at for each in steps(whole)][: len(then)] == pytest.approx(then, abs=3)


@pytest.mark.parametrize("seed", range(3))
def test_a_repair_takes_no_night_from_the_list_and_leaves_two_changes(seed: int) -> None:
    whole = line(110, 0.01, {60: 0.9, 70: 1 / 0.9}, seed)
    for seen in range(64, 110):
        found = steps(whole[:seen])
        assert abs(found[0].at - 60) <= 2, seen
        assert found[0].change < 0.96, seen
    assert [each.at for each in found] == pytest.approx([60, 70], abs=2)
    assert [each.change for each in found] == pytest.approx([0.9, 1 / 0.9], abs=0.015)


def correlated(count: int, noise: float, correlation: float, seed: int) -> list[float]:
    """Return a line of which each night resembles the one before it."""
    made = random.Random(seed)
    values = [made.gauss(0, noise)]
    while len(values) < count:
        own = made.gauss(0, noise * math.sqrt(1 - correlation**2))
        values.append(correlation * values[-1] + own)
    return [1000.0 * math.exp(value) for value in values]


@pytest.mark.parametrize("seed", range(48, 58))
def test_nights_that_resemble_the_one_before_are_no_change(seed: int) -> None:
    """Two of these lines had changes while nights counted as independent."""
    assert steps(correlated(365, 0.03, 0.3, seed)) == []


def test_figures_that_never_vary_are_read() -> None:
    assert steps([100.0] * 60) == []
    (found,) = steps([100.0] * 30 + [90.0] * 30)
    assert found.at == 30
    assert found.change == pytest.approx(0.9)


@pytest.mark.parametrize(("at", "change"), [(120, 0.97), (120, 0.95), (11, 0.9), (120, 1.05)])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_found_with_its_size(at: int, change: float, seed: int) -> None:
    (found,) = steps(line(at + 80, 0.01, {at: change}, seed))
    assert abs(found.at - at) <= 2
    assert found.lower < change < found.upper
    assert found.change == pytest.approx(change, abs=0.006)


def test_a_few_nights_say_nothing() -> None:
    assert all(steps([100.0, 50.0] * count) == [] for count in range(4))
