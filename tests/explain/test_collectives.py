"""From the times of collective operations to the collective overhead and the bound of a step."""

from __future__ import annotations

import math

import pytest

from hvdperf.explain import collectives
from hvdperf.plan.arms import Collective, Transfer
from hvdperf.plan.questions import at_gradient_sizes, overlap, sweep
from hvdperf.records.rounds import Series
from hvdperf.work.blocks import turns_of
from tests.support.rounds import (
    BARE_2,
    HOROVOD_2,
    WORKLOAD,
    exchanging_round,
    observation,
    series,
    series_report,
)

SMALL, LARGE = Transfer(Collective.ALLREDUCE, (64,)), Transfer(Collective.ALLREDUCE, (4096,))


# The tax ---------------------------------------------------------------------------------------


def test_the_tax_is_the_geometric_mean_over_sizes_of_medians_over_turns():
    bare = [series(1.0, size, turn) for turn in range(3) for size in (SMALL, LARGE)]
    ours = [series(ratio, SMALL, turn) for turn, ratio in enumerate((7.0, 9.0, 8.0))]
    ours += [series(ratio, LARGE, turn) for turn, ratio in enumerate((2.0, 1.0, 50.0))]
    assert collectives.collective_overhead(ours, bare, Collective.ALLREDUCE) == pytest.approx(4.0)


def test_only_what_ran_in_the_same_turn_is_compared():
    ours = [series(2.0, SMALL, 0), series(90.0, SMALL, 1)]
    assert collectives.collective_overhead(
        ours, [series(1.0, SMALL, 0)], Collective.ALLREDUCE
    ) == pytest.approx(2.0)


def test_other_operations_are_left_out():
    gather = Transfer(Collective.ALLGATHER, (64,))
    ours = [series(2.0, SMALL), series(50.0, gather)]
    bare = [series(1.0, SMALL), series(1.0, gather)]
    assert collectives.collective_overhead(ours, bare, Collective.ALLREDUCE) == pytest.approx(2.0)
    assert list(collectives.paired(ours, bare, Collective.ALLGATHER)) == [gather]


def test_sizes_are_in_their_order():
    both = [series(1.0, LARGE), series(1.0, SMALL)]
    assert list(collectives.paired(both, both, Collective.ALLREDUCE)) == [SMALL, LARGE]


def test_without_a_bare_transport_there_is_no_tax():
    missing = [Series(SMALL, 0, [series_report([], problem="no mpi4py")] * 2)]
    with pytest.raises(ValueError, match="no collective operation was measured"):
        collectives.collective_overhead([series(1.0, SMALL)], missing, Collective.ALLREDUCE)


@pytest.mark.parametrize("asked", [*sweep(WORKLOAD, 2), at_gradient_sizes(WORKLOAD, 2)], ids=str)
def test_a_round_gives_the_logarithm_of_the_tax(asked):
    assert math.exp(observation(asked, exchanging_round(asked, 3.5))) == pytest.approx(3.5)


# The bound of a step ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "nothing_hidden", "all_hidden"),
    [
        (collectives.StepTimes(full=0.04, local=0.03, exchange=0.01), 1.0, 4 / 3),
        (collectives.StepTimes(full=0.03, local=0.03, exchange=0.01), 0.75, 1.0),
        (collectives.StepTimes(full=0.03, local=0.01, exchange=0.03), 0.75, 1.0),
        (collectives.StepTimes(full=0.015, local=0.01, exchange=0.03), 0.375, 0.5),
    ],
)
def test_a_step_lies_between_its_longer_part_and_both(times, nothing_hidden, all_hidden):
    assert times.of_nothing_hidden == pytest.approx(nothing_hidden)
    assert times.of_all_hidden == pytest.approx(all_hidden)


def test_a_round_gives_the_logarithm_of_a_step_that_hides_nothing():
    asked = overlap(WORKLOAD, 2)
    measured = exchanging_round(asked, 1.25)
    assert math.exp(observation(asked, measured)) == pytest.approx(1.25)
    (first, *_) = collectives.step_times(measured.of(HOROVOD_2), measured.of(BARE_2))
    assert first == pytest.approx((0.05, 0.03, 0.01))


def test_a_turn_that_lacks_a_part_bounds_nothing():
    measured = exchanging_round(overlap(WORKLOAD, 2), 1.25)
    horovod, bare = measured.of(HOROVOD_2), measured.of(BARE_2)
    del turns_of(bare).series[0]
    turns_of(horovod).blocks = [
        b for b in horovod.blocks if not (b.turn == 1 and b.kind.value == "local")
    ]
    assert len(collectives.step_times(horovod, bare)) == 1


# Evidence --------------------------------------------------------------------------------------


def test_a_sound_series_has_no_problem():
    assert collectives.invalid_reasons("resnet_50_s bare@2", 2, [series(0.1)]) == []


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ([[0.1]], "1 of 2 ranks reported"),
        ([[0.1], [0.0]], "rank 1 reported a time that is not positive and finite"),
        ([[math.nan], [0.1]], "rank 0 reported a time that is not positive and finite"),
        ([[], [0.1]], "rank 0 reported a time that is not positive and finite"),
        ([[0.1, 0.1], [0.1]], "ranks repeated it different numbers of times"),
    ],
)
def test_what_is_wrong_with_a_series_is_told(seconds, said):
    measured = Series(SMALL, 3, list(map(series_report, seconds)))
    found = collectives.invalid_reasons("sweep horovod@2", 2, [measured])
    assert any(said in problem for problem in found)
    assert all("sweep horovod@2, allreduce of " in problem for problem in found)


def test_what_a_rank_says_of_its_result_is_told_with_the_rank():
    ranks = [series_report([0.1]), series_report([0.1], problem="number 0 is 3 instead of 2")]
    (found,) = collectives.invalid_reasons("sweep horovod@2", 2, [Series(SMALL, 3, ranks)])
    assert "rank 1: number 0 is 3 instead of 2" in found


def test_both_must_run_over_the_same_mpi():
    ours = [series(0.1)]
    assert collectives.library_mismatch(ours, [series(0.1)]) == ""
    told = collectives.library_mismatch(ours, [series(0.1, library="MPICH 4.2")])
    assert told.startswith("Horovod uses Open MPI v4.1.8, but mpi4py uses MPICH 4.2")
    assert collectives.library_mismatch([], []) == ""
