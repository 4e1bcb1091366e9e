"""The figures of docs/error_rates.md on throughputs that fall, from fewer years."""

from __future__ import annotations

import pytest

from bench import falls_of_nodes
from bench.falls import CONDITIONS, SLOWED, Condition, at_most, false_events, found

# They simulate years of nights.
pytestmark = pytest.mark.long

QUIET, DIFFERING = Condition(0.015), Condition(0.03)


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_a_year_of_nights_on_which_nothing_has_changed_falls_once_at_most(
    condition: Condition,
) -> None:
    events, nights = false_events(condition, 3)
    assert events <= 3
    assert nights <= 12


@pytest.mark.parametrize("slowed", SLOWED.values(), ids=SLOWED)
def test_half_the_speed_is_found_on_the_first_night(slowed: tuple[tuple[str, int], ...]) -> None:
    assert found(DIFFERING, slowed, 0.5, 5) == (1, 1)


@pytest.mark.parametrize("slowed", ["all", "one network"])
def test_a_sixth_less_is_found_on_the_first_night(slowed: str) -> None:
    first, _ = found(DIFFERING, SLOWED[slowed], 0.85, 10)
    assert first >= 0.8


@pytest.mark.parametrize("slowed", ["all", "one network"])
def test_a_twentieth_less_is_found_within_three_nights(slowed: str) -> None:
    _, three = found(QUIET, SLOWED[slowed], 0.95, 10)
    assert three >= 0.7


def test_none_in_twenty_years_is_no_proof_of_none() -> None:
    assert at_most(0, 20) == pytest.approx(0.15, abs=0.01)


def test_a_node_that_loses_a_sixth_is_found_within_three_nights() -> None:
    _, three = falls_of_nodes.found(Condition(0.01), falls_of_nodes.Event(1, 0.85, 30), 3)
    assert three == 1


def test_a_year_of_nodes_on_which_nothing_has_changed_falls_once_at_most() -> None:
    assert falls_of_nodes.false_events(Condition(0.01), 1) <= 1
