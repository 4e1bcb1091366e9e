"""The way from one speedup to the other, in figures and in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.explain.speedup import scaling_breakdown
from hvdperf.plan.arms import BlockKind, Term
from hvdperf.plan.questions import wall_time
from hvdperf.stats import Interval
from tests.support.rounds import WORKLOAD, change_reports
from tests.support.with_timestamps import COMPUTE, round_with_timestamps

WEAK, STRONG = wall_time(WORKLOAD, 2)


def rounds(comparison, count=6, **candidate):
    return [round_with_timestamps(comparison, number, **candidate) for number in range(count)]


def test_the_factors_multiply_to_the_efficiency_by_speed():
    found = scaling_breakdown(WEAK, rounds(WEAK, late=[0.0, 0.004], exchange=0.003))
    # 19 ms a step at 1; 19 and 23 ms without exchange, 26 ms with it.
    # What slows one rank does not count as contention.
    assert found.computation.estimate == pytest.approx(1.0)
    assert found.communication.estimate == pytest.approx(23 / 26)
    assert found.load_balance.estimate == pytest.approx(19 / 23)
    assert found.product.estimate == pytest.approx(19 / 26)
    assert found.efficiency.estimate == pytest.approx(19 / 26, rel=1e-3)
    assert found.late is not None
    assert found.late.rank == 1


def test_a_product_beside_the_interval_explains_nothing():
    measured = rounds(WEAK, exchange=0.003)
    assert scaling_breakdown(WEAK, measured).product.estimate == pytest.approx(19 / 22)
    for each in measured:
        change_reports(
            each.of(WEAK.candidate.arm), lambda rank, own: replace(own, seconds=1.2 * own.seconds)
        )
    assert not scaling_breakdown(WEAK, measured).explained


@pytest.mark.parametrize(
    ("lower", "upper", "explained"),
    [(0.9, 0.95, True), (0.91, 0.95, False), (0.7, 0.8, True), (0.7, 0.79, False)],
)
def test_intervals_that_touch_are_no_contradiction(lower, upper, explained):
    found = scaling_breakdown(WEAK, rounds(WEAK))
    factors, efficiency = (
        Interval(low, low, high, 0.025, 6) for low, high in ((0.8, 0.9), (lower, upper))
    )
    assert replace(found, product=factors, efficiency=efficiency).explained is explained


def test_terms_are_means_that_add_up():
    found = scaling_breakdown(STRONG, rounds(STRONG, exchange=0.003))
    assert found.candidate.steps == 20
    assert found.reference.steps == 40
    assert found.candidate.fixed.a_seconds == pytest.approx(3.5)
    assert found.candidate.terms["compute"] == pytest.approx(40 * COMPUTE)
    whole = sum(found.reference.terms.values())
    assert whole == pytest.approx(found.reference.wall_seconds)
    left_out = 20 * 0.022
    assert sum(found.candidate.terms.values()) - left_out == pytest.approx(
        found.candidate.wall_seconds
    )


def test_a_share_that_cannot_be_told_from_nothing_has_an_upper_bound() -> None:
    exchanges = (0.0, 0.002, -0.002, 0.001, -0.001, 0.0005, -0.0005)
    measured = [
        round_with_timestamps(WEAK, number, exchange=seconds)
        for number, seconds in enumerate(exchanges)
    ]
    below = scaling_breakdown(WEAK, measured).candidate.below
    assert list(below) == [Term.EXCHANGE.value], "the steps apply in every round"
    assert 0.0005 / 0.0195 < below[Term.EXCHANGE.value] < 0.002 / 0.021
    assert scaling_breakdown(WEAK, rounds(WEAK, exchange=0.003)).candidate.below == {}


def test_steps_that_do_not_divide_are_rounded_up():
    weak, strong = wall_time(WORKLOAD, 3)
    found = scaling_breakdown(strong, rounds(strong, exchange=0.003))
    taken = (found.candidate.steps, found.candidate.steps_of_run, found.reference.steps)
    assert taken == (14, 40, 40)
    assert found.candidate.training_seconds == pytest.approx(3.5 + 14 * 0.022)
    assert found.efficiency.estimate == pytest.approx(found.steady_state.estimate / 3)
    wall = found.reference.wall_seconds / found.candidate.wall_seconds
    assert found.end_to_end.estimate == pytest.approx(wall)
    assert scaling_breakdown(weak, rounds(weak)).end_to_end.estimate == pytest.approx(3.0)


def test_the_largest_residual_is_kept_with_its_sign():
    measured = [
        round_with_timestamps(WEAK, i, unexplained=left) for i, left in enumerate((0.02, -0.05, 0))
    ]
    spent = scaling_breakdown(WEAK, measured).candidate
    assert spent.residual == pytest.approx(-0.05 / spent.wall_seconds, rel=0.01)


def test_who_is_late_in_most_rounds_is_named():
    late, punctual = rounds(WEAK, 3, late=[0.01, 0.0]), rounds(WEAK, 2)
    named = scaling_breakdown(WEAK, [*late, *punctual]).late
    assert named is not None
    assert named.rank == 0
    assert named.lag_seconds == pytest.approx(0.01)
    assert named == scaling_breakdown(WEAK, late).late_where_met
    assert scaling_breakdown(WEAK, [*late[:2], *punctual]).late is None


def test_a_rank_whose_steps_take_longer_is_named():
    measured = rounds(WEAK)
    for each in measured:
        change_reports(
            each.of(WEAK.candidate.arm),
            lambda rank, own: replace(own, seconds=(1.0, 1.3)[rank] * own.seconds),
            lambda block: block.kind is BlockKind.LOCAL,
        )
    found = scaling_breakdown(WEAK, measured)
    assert found.slowest == 1
    assert found.load_balance.estimate == pytest.approx(1 / 1.3)


def test_work_that_a_rank_has_instead_of_another_is_no_contention():
    measured = rounds(WEAK)
    for each in measured:
        # Rank 0 has a tenth of the work, and rank 1 the rest.
        change_reports(
            each.of(WEAK.candidate.arm),
            lambda rank, own: replace(own, seconds=(0.1, 1.9)[rank] * own.seconds),
        )
    found = scaling_breakdown(WEAK, measured)
    assert found.computation.estimate == pytest.approx(1.0)
    assert found.load_balance.estimate == pytest.approx(1 / 1.9)
