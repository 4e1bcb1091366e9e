import math
from dataclasses import replace

import pytest

from hvdperf.plan.arms import BlockKind, Schedule
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import communication, parity, startup, strong_scaling, weak_scaling
from hvdperf.records.rounds import (
    Block,
    Launch,
    Metadata,
    Round,
    Series,
    StampedRun,
    Turns,
    back_to_back,
    median_speed,
)
from hvdperf.work.blocks import settled, turns_of
from hvdperf.work.collectives import REPEATS_MAX, SERIES_SECONDS, affordable_repeats
from tests.support.rounds import (
    GRADIENTS,
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    WORKLOAD,
    block,
    observation,
    one_round,
    rank_report,
    run_report,
    series_report,
)

FULL = BlockKind.FULL


def launched(arm, seconds, kind=FULL):
    blocks = [block(arm, value, kind, turn) for turn, value in enumerate(seconds)]
    return Launch(arm, 0, work=Turns(blocks=blocks))


def test_a_block_takes_as_long_as_its_slowest_rank():
    ranks = [rank_report(0.8, 320), rank_report(1.25, 320), rank_report(1.0, 320)]
    measured = Block(FULL, 0, 10, ranks)
    assert measured.seconds == 1.25
    assert measured.samples == 960
    assert measured.samples_per_second == 960 / 1.25
    assert measured.inside_seconds(1) == pytest.approx(0.9 * 1.25 / 10)
    series = Series(GRADIENTS, 0, [series_report([0.25, 0.5]), series_report([0.5, 0.25])])
    stamped = Launch(
        HOROVOD_2, 0, work=StampedRun([run_report(seconds=4.0)], blocks=[measured] * 2)
    )
    assert stamped.timed_seconds == 4.0 + 2 * 1.25
    turns = Launch(HOROVOD_2, 0, work=Turns(blocks=[measured] * 2, series=[series]))
    assert turns.timed_seconds == 2 * 1.25 + 1.0


def test_blocks_of_one_kind_are_found_among_others():
    mixed = Launch(
        HOROVOD_2, 0, work=Turns(blocks=[block(HOROVOD_2), block(HOROVOD_2, kind=BlockKind.LOCAL)])
    )
    assert mixed.of_kind(BlockKind.LOCAL) == mixed.blocks[1:]
    assert mixed.of_kind(BlockKind.SPLIT) == []


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("ask", [weak_scaling, strong_scaling, communication, parity])
def test_an_observation_is_the_logarithm_of_the_ratio_over_its_ideal(ask, schedule):
    comparison = ask(WORKLOAD, 2)
    measured = one_round(comparison, 0.9, schedule=schedule)
    assert observation(comparison, measured) == pytest.approx(math.log(0.9))


def test_of_a_turn_the_blocks_taken_closest_to_each_other_are_compared():
    # Horovod was visited twice in each of two turns; the machine was slow in the second half of
    # the first and in the first half of the second.
    seconds = {0: 1.0, 2: 4.0, 3: 4.0, 5: 1.0}
    horovod = [
        replace(block(HOROVOD_2, value, turn=visit // 3), visit=visit)
        for visit, value in seconds.items()
    ]
    mirrored = [
        replace(block(MIRRORED_2, value, turn=turn), visit=visit)
        for turn, visit, value in ((0, 1, 2.0), (1, 4, 2.0), (2, 6, 9.0))
    ]
    near = [replace(mirrored[0], visit=-1), mirrored[1]]
    assert back_to_back(near, horovod) == [(near[0], horovod[0]), (near[1], horovod[2])]
    assert back_to_back(horovod, mirrored[2:]) == []
    comparison = parity(WORKLOAD, 2)
    launches = [
        Launch(HOROVOD_2, 0, work=Turns(blocks=horovod)),
        Launch(MIRRORED_2, 0, work=Turns(blocks=mirrored[:1])),
    ]
    # As close to either: the first.
    measured = Round(0, Schedule.ALTERNATE, launches)
    assert observation(comparison, measured) == pytest.approx(math.log(2.0))


def two_arms(schedule):
    """Mirrored doubles its speed from turn to turn, Horovod halves it, save in one turn."""
    return Round(
        0,
        schedule,
        [
            launched(HOROVOD_2, [1.0, 2.0, 4.0]),
            launched(MIRRORED_2, [1.0, 8.0, 2.0]),
        ],
    )


def test_arms_that_take_turns_are_compared_within_each_turn():
    # Ratios of the turns: 1, 4 and 1/2. The ratio of the medians would be 1.
    measured = two_arms(Schedule.ALTERNATE)
    turns_of(measured.of(MIRRORED_2)).blocks.reverse()  # whatever order they were written in
    assert observation(parity(WORKLOAD, 2), measured) == pytest.approx(math.log(1.0))
    turns_of(measured.of(HOROVOD_2)).blocks.pop(0)
    assert observation(parity(WORKLOAD, 2), measured) == pytest.approx(
        (math.log(4.0) + math.log(0.5)) / 2
    )


def test_arms_that_run_apart_are_compared_by_their_medians():
    measured = two_arms(Schedule.FRESH)
    turns_of(measured.of(HOROVOD_2)).blocks.pop(0)
    # Medians of the speeds: (320 + 160) / 2 and 320.
    assert observation(parity(WORKLOAD, 2), measured) == pytest.approx(math.log(0.75))


def test_two_kinds_of_one_arm_are_paired_in_either_schedule():
    for schedule in Schedule:
        one = launched(HOROVOD_2, [1.0, 4.0, 2.0])
        turns_of(one).blocks += launched(HOROVOD_2, [2.0, 1.0, 2.0], BlockKind.LOCAL).blocks
        measured = Round(0, schedule, [one])
        # Turns: 2, 1/4, 1. Medians apart would give 320 / 320 = 1 too, so take one away.
        turns_of(one).blocks.pop(2)
        logs = (math.log(2.0) + math.log(0.25)) / 2
        assert observation(communication(WORKLOAD, 2), measured) == pytest.approx(logs)


def test_the_ideal_of_n_replicas_is_n_times_one():
    measured = Round(
        0,
        Schedule.ALTERNATE,
        [launched(HOROVOD_1, [1.0]), launched(HOROVOD_2, [1.0])],
    )
    comparison = weak_scaling(WORKLOAD, 2)
    assert observation(comparison, measured) == pytest.approx(0.0)
    assert observation(replace(comparison, ideal_ratio=1.0), measured) == pytest.approx(math.log(2))


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("missing", [HOROVOD_1, HOROVOD_2])
def test_a_side_that_was_not_measured_is_an_error(schedule, missing):
    comparison = weak_scaling(WORKLOAD, 2)
    measured = one_round(comparison, 0.9, schedule=schedule)
    turns_of(measured.of(missing)).blocks.clear()
    with pytest.raises(KeyError, match="no block of kind full"):
        observation(comparison, measured)
    measured.launches.remove(measured.of(missing))
    with pytest.raises(KeyError, match="was not launched in round 0"):
        observation(comparison, measured)


def test_sides_that_share_no_turn_are_an_error():
    comparison = weak_scaling(WORKLOAD, 2)
    measured = one_round(comparison, 0.9, turns=2)
    turns_of(measured.of(HOROVOD_1)).blocks.pop(0)
    turns_of(measured.of(HOROVOD_2)).blocks.pop(1)
    with pytest.raises(KeyError, match="no turn"):
        observation(comparison, measured)


def test_the_median_speed_is_of_speeds():
    speeds = [block(HOROVOD_1, seconds) for seconds in (1.0, 2.0, 100.0)]
    assert median_speed(speeds) == 160.0


@pytest.mark.parametrize(
    ("seconds", "over"),
    [
        ([], False),
        ([1.0, 1.0], False),
        ([9.0, 1.0, 1.09], True),
        ([9.0, 1.09, 1.0], True),
        ([9.0, 1.11, 1.0], False),
        ([9.0, 1.11, 1.0, 1.0], True),
        # One that was disturbed, whichever it is.
        ([9.0, 1.0, 2.0], True),
        ([9.0, 1.0, 2.0, 1.0], True),
    ],
)
def test_a_warm_up_is_over_when_the_last_of_three_blocks_is_no_faster(seconds, over):
    assert settled(seconds) is over


def test_a_start_up_is_that_of_the_slowest_rank():
    launch = Launch(
        HOROVOD_2,
        0,
        startup_seconds=[{"init": 0.2, "trace": 2.0}, {"init": 0.5, "trace": 1.0}],
        metadata=[Metadata(rank, 2, "mpi", gradient_tensors=50) for rank in range(2)],
    )
    measured = Round(0, Schedule.FRESH, [launch])
    asked = {comparison.question: comparison for comparison in startup(WORKLOAD, 2)}
    seconds = {
        question: math.exp(observation(asked[question], measured))
        for question in (Question.STARTUP_INIT, Question.STARTUP_TRACE)
    }
    assert seconds[Question.STARTUP_INIT] == pytest.approx(0.5)
    assert seconds[Question.STARTUP_TRACE] == pytest.approx(2.0 / 50)


# Collective operations -------------------------------------------------------------------------


def test_a_repeat_takes_as_long_as_on_its_slowest_rank():
    ranks = [series_report([1.0, 5.0, 2.0]), series_report([3.0, 4.0, 1.0])]
    measured = Series(GRADIENTS, 0, ranks)
    assert measured.repeats == [3.0, 5.0, 2.0]
    assert measured.seconds == 3.0


def test_a_series_without_times_takes_no_time_that_is_a_number():
    assert math.isnan(Series(GRADIENTS, 0, [series_report([])] * 2).seconds)


@pytest.mark.parametrize(
    ("seconds", "repeats"),
    [(1e-5, REPEATS_MAX), (SERIES_SECONDS / 4.5, 4), (SERIES_SECONDS, 1), (3.0, 1)],
)
def test_what_takes_long_is_repeated_less(seconds, repeats):
    first = Series(GRADIENTS, 0, [series_report([9.0, seconds])] * 2)
    assert affordable_repeats(first) == repeats


def test_what_could_not_be_measured_is_asked_for_once_more():
    assert affordable_repeats(Series(GRADIENTS, 0, [series_report([])] * 2)) == 1
