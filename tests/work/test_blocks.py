import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.plan.arms import Arm, BlockKind, Schedule, Side
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
)
from hvdperf.work.blocks import Blocks, Pair, Visit, settled, turns_of, walk
from hvdperf.work.collectives import REPEATS_MAX, SERIES_SECONDS, affordable_repeats
from hvdperf.worker.strategies import Strategy
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
    usage,
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


@pytest.mark.parametrize(
    ("turns", "disturbed", "seen"), [(3, 1, 2), (3, 2, 0), (1, 0, 1), (1, 1, 0)]
)
def test_two_turns_that_nobody_disturbed_or_the_only_one_are_enough(turns, disturbed, seen):
    comparison = parity(WORKLOAD, 2)
    measured = one_round(comparison, 0.9, turns=turns)
    for made in measured.launches:
        for place in range(disturbed):
            turns_of(made).blocks[place] = replace(made.blocks[place], usage=usage(0.5))
    assert len(Blocks.observe(comparison, measured)) == seen


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


def test_a_series_without_times_takes_no_time_that_is_a_number_and_is_asked_for_once_more():
    empty = Series(GRADIENTS, 0, [series_report([])] * 2)
    assert math.isnan(empty.seconds)
    assert affordable_repeats(empty) == 1


@pytest.mark.parametrize(
    ("seconds", "repeats"),
    [(1e-5, REPEATS_MAX), (SERIES_SECONDS / 4.5, 4), (SERIES_SECONDS, 1), (3.0, 1)],
)
def test_what_takes_long_is_repeated_less(seconds, repeats):
    first = Series(GRADIENTS, 0, [series_report([9.0, seconds])] * 2)
    assert affordable_repeats(first) == repeats


FULL, LOCAL, SPLIT = BlockKind.FULL, BlockKind.LOCAL, BlockKind.SPLIT
MANY = [Arm(WORKLOAD, Strategy.HOROVOD, 2, injected=f"fault{number}") for number in range(9)]


def walked(
    kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair], seed: int = 1
) -> list[Visit]:
    return walk(kinds, pairs, random.Random(seed))


def meetings(visits: Sequence[Visit]) -> list[set[Arm]]:
    return [{one.arm, other.arm} for one, other in pairwise(visits)]


def test_an_arm_that_is_compared_with_many_is_visited_again():
    pairs = [(Side(arm), Side(HOROVOD_2)) for arm in MANY]
    visits = walked({arm: {FULL} for arm in (HOROVOD_2, *MANY)}, pairs)
    # Each visit serves two, and one is left over.
    assert [visit.arm for visit in visits].count(HOROVOD_2) == 5
    assert len(visits) == 9 + 5
    assert all({arm, HOROVOD_2} in meetings(visits) for arm in MANY)


def test_a_chain_is_walked_once():
    pairs = [(Side(HOROVOD_2), Side(HOROVOD_1)), (Side(HOROVOD_2), Side(MIRRORED_2))]
    kinds = {arm: {FULL} for arm in (HOROVOD_1, MIRRORED_2, HOROVOD_2)}
    for seed in range(10):
        assert [visit.arm for visit in walked(kinds, pairs, seed)][1] == HOROVOD_2


def test_a_visit_takes_the_kinds_that_are_compared_there_and_the_first_what_is_left():
    pairs = [
        (Side(MANY[0], SPLIT), Side(HOROVOD_2)),
        (Side(MANY[0], SPLIT), Side(HOROVOD_2, LOCAL)),
        *((Side(arm), Side(HOROVOD_2)) for arm in MANY[1:3]),
        # Of the same blocks, or next to each other anyway.
        (Side(HOROVOD_2), Side(HOROVOD_2, LOCAL)),
    ]
    kinds = {HOROVOD_2: {FULL, LOCAL, SPLIT}, MANY[0]: {SPLIT}, MANY[1]: {FULL}, MANY[2]: {FULL}}
    for seed in range(20):
        visits = walked(kinds, pairs, seed)
        of_two = [visit.kinds for visit in visits if visit.arm == HOROVOD_2]
        assert len(of_two) == 2
        assert SPLIT in of_two[0]
        assert all(FULL in each for each in of_two)
        near = next(at for at, visit in enumerate(visits) if visit.arm == MANY[0])
        beside = [visit for visit in visits[max(0, near - 1) : near + 2] if visit.arm == HOROVOD_2]
        # It may be next to the other, too, by chance.
        assert any({FULL, LOCAL} <= visit.kinds for visit in beside)
        assert sum(LOCAL in each for each in of_two) == 1


def test_orders_are_drawn():
    kinds = {arm: {FULL} for arm in (HOROVOD_2, *MANY[:4])}
    pairs = [(Side(arm), Side(HOROVOD_2)) for arm in MANY[:4]]
    assert len({tuple(walked(kinds, pairs, seed)) for seed in range(20)}) > 10
    assert walked(kinds, pairs, 3) == walked(kinds, pairs, 3)


sides = st.builds(Side, st.sampled_from(MANY), st.sampled_from(list(BlockKind)))


@given(
    kinds=st.dictionaries(st.sampled_from(MANY), st.sets(st.sampled_from(list(BlockKind)))),
    pairs=st.lists(st.tuples(sides, sides)),
    seed=st.integers(0, 100),
)
def test_every_pair_meets_and_every_kind_is_taken(kinds, pairs, seed):
    visits = walked(kinds, pairs, seed)
    compared = {
        frozenset((one.arm, other.arm))
        for one, other in pairs
        if one.arm != other.arm and {one.arm, other.arm} <= kinds.keys()
    }
    assert all(pair in meetings(visits) for pair in compared)
    for arm, wanted in kinds.items():
        taken = [visit.kinds for visit in visits if visit.arm == arm]
        assert taken
        assert set().union(*taken) == set(wanted)
    # No more than a trail that is not closed costs, with a trail for each closed one.
    assert len(visits) <= 2 * len(compared) + len(kinds)
