"""The two speedups, the fixed cost that tells them apart, and runs that are too short; and the way
from one speedup to the other, in figures and in words."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hvdperf.explain.speedup import (
    end_to_end_speedup,
    fixed_cost,
    physical,
    refusal,
    scaling_breakdown,
    shortest_work,
    steady_state_speedup,
    steps_of_each,
    training_speedup,
)
from hvdperf.plan.arms import BlockKind, Term
from hvdperf.plan.questions import wall_time
from hvdperf.records.rounds import Launch, Run
from hvdperf.stats import Interval
from tests.support.rounds import (
    HOROVOD_1,
    HOROVOD_2,
    WORKLOAD,
    change_reports,
    observation,
    run_report,
)
from tests.support.with_timestamps import (
    APPLY,
    BETWEEN,
    COMPUTE,
    INPUT,
    round_with_timestamps,
    with_timestamps,
)

WEAK, STRONG = wall_time(WORKLOAD, 2)
FIXED_S = 3.5  # trace, first step and broadcast of tests.support.with_timestamps
STEP_S = BETWEEN + INPUT + COMPUTE + APPLY


def test_steps_that_are_slow_at_first_are_a_fixed_cost():
    cost = fixed_cost(with_timestamps(HOROVOD_1, steps=100, slow_first=0.7))
    assert cost.a_seconds == pytest.approx(FIXED_S + 0.7)
    assert cost.b_seconds == pytest.approx(STEP_S)


def test_one_step_has_no_two_lengths():
    with pytest.raises(ValueError, match="a run of 1 steps has no two lengths"):
        fixed_cost(with_timestamps(HOROVOD_1, steps=1))


def test_speed_says_nothing_of_the_fixed_cost_and_time_does():
    ours, theirs = (with_timestamps(arm, steps=100) for arm in (HOROVOD_2, HOROVOD_1))
    assert steady_state_speedup(2, ours, theirs) == pytest.approx(2.0)
    assert training_speedup(WEAK, ours, theirs) == pytest.approx(2.0)
    work = 100 * STEP_S
    assert training_speedup(STRONG, ours, theirs) == pytest.approx(
        (FIXED_S + work) / (FIXED_S + work / 2)
    )


@pytest.mark.parametrize(("replicas", "taken"), [(2, 20), (3, 14)])
def test_the_observation_is_the_efficiency_by_time(replicas, taken):
    """Each replica takes a part of 40 steps, which is rounded up."""
    weak, strong = wall_time(WORKLOAD, replicas)
    alone, slower = FIXED_S + 40 * STEP_S, STEP_S + 0.003
    ratio = math.exp(observation(strong, round_with_timestamps(strong, exchange=0.003)))
    assert ratio == pytest.approx(alone / (FIXED_S + taken * slower) / replicas)
    ratio = math.exp(observation(weak, round_with_timestamps(weak, exchange=0.003)))
    assert ratio == pytest.approx(alone / (FIXED_S + 40 * slower))


def test_of_the_whole_run_the_steps_that_a_part_lacks_are_left_out():
    weak, strong = wall_time(WORKLOAD, 3)
    ours, theirs = (with_timestamps(replace(HOROVOD_2, world_size=n)) for n in (3, 1))
    wall = (8.0, 7.0)
    assert end_to_end_speedup(weak, ours, theirs, wall) == pytest.approx(3 * 7 / 8)
    assert end_to_end_speedup(strong, ours, theirs, wall) == pytest.approx(7 / (8 - 26 * STEP_S))


def of_steps(steps: int, fixed: float, step: float) -> Launch:
    """Of one rank, whose every step takes the same time."""
    start = {"import": 9.0, "trace": fixed, "first step": 0.0, "broadcast": 0.0}
    timestamps = [[k * step, k * step, (k + 1) * step] for k in range(steps)]
    reports = [replace(run_report(steps), timestamps=timestamps)]
    return Launch(HOROVOD_1, 0, startup_seconds=[start], work=Run(reports))


@pytest.mark.parametrize("steps", [2, 3, 7, 100])
def test_the_fixed_cost_is_what_two_lengths_of_a_run_have_in_common(steps):
    cost = fixed_cost(of_steps(steps, fixed=0.5, step=0.125))
    assert (cost.a_seconds, cost.b_seconds) == (0.5, 0.125)


@pytest.mark.parametrize(("fixed", "refused"), [(0.5, False), (0.5078125, True)])
def test_a_run_of_exactly_the_shortest_work_is_long_enough(fixed, refused):
    # For an efficiency of 3/4 of two replicas it is twice the fixed cost; here the steps take 1 s.
    trained = of_steps(8, fixed, step=0.125)
    assert bool(refusal(0.75, trained, trained, world_size=2)) is refused


def test_steps_are_divided_so_that_none_is_left_out():
    assert [steps_of_each(500, n) for n in (1, 2, 3, 32, 1000)] == [500, 250, 167, 16, 1]


def test_below_the_shortest_work_perfect_scaling_misses_the_efficiency():
    """W = a (n E - 1) / (1 - E), as of one fixed cost for both."""
    for a, n, wanted in ((9.0, 32, 0.9), (2.5, 2, 0.6), (1.0, 8, 0.5)):
        work = shortest_work(a, a, n, wanted)
        assert work == pytest.approx(a * (n * wanted - 1) / (1 - wanted))
        assert (a + work) / (n * (a + work / n)) == pytest.approx(wanted)
    assert shortest_work(2.0, 2.0, 2, 0.5) == 0.0
    assert shortest_work(2.0, 2.0, 2, 1.0) == math.inf


def test_a_run_that_is_too_short_is_refused_with_the_length_it_needs():
    ours, theirs = (with_timestamps(arm, steps=40) for arm in (HOROVOD_2, HOROVOD_1))
    needed = math.ceil(shortest_work(FIXED_S, FIXED_S, 2, 0.8) / STEP_S)
    said = refusal(0.8, ours, theirs, world_size=2)
    assert said.startswith("the run is too short: 3.5 s of its 3.9 s are fixed cost, so even")
    assert f"measure {needed} steps" in said
    assert said.endswith("instead of 40")
    long = [with_timestamps(arm, steps=needed) for arm in (HOROVOD_2, HOROVOD_1)]
    assert refusal(0.8, long[0], long[1], world_size=2) == ""
    assert "the run is too short: no run is long enough" in refusal(1.0, ours, theirs, world_size=2)


def test_what_a_part_of_the_steps_lacks_is_taken_from_the_parts_beside_it() -> None:
    sound: dict[str, float] = {
        Term.INPUT: 5.0,
        Term.COMPUTE: 6.0,
        Term.APPLY: 2.0,
        Term.EXCHANGE: 0.0,
    }
    assert physical(sound) == sound
    found = physical({**sound, Term.EXCHANGE: -2.0})
    assert found == {Term.INPUT: 5.0, Term.COMPUTE: 4.5, Term.APPLY: 1.5, Term.EXCHANGE: 0.0}
    nothing = physical({**sound, Term.EXCHANGE: -9.0})
    assert list(nothing.values()) == [5.0, 0.0, 0.0, 0.0]


# The breakdown -----------------------------------------------------------------------------------


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
    assert scaling_breakdown(WEAK, [*late[:2], *punctual]).late is None


def test_a_rank_whose_steps_take_longer_unbalances_the_load():
    measured = rounds(WEAK)
    for each in measured:
        change_reports(
            each.of(WEAK.candidate.arm),
            lambda rank, own: replace(own, seconds=(1.0, 1.3)[rank] * own.seconds),
            lambda block: block.kind is BlockKind.LOCAL,
        )
    assert scaling_breakdown(WEAK, measured).load_balance.estimate == pytest.approx(1 / 1.3)


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
