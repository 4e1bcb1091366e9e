"""What is compared is measured one right after the other."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.plan.arms import Arm, BlockKind, Side
from hvdperf.work.interleaving import Pair, Visit, walk
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import HOROVOD_1, HOROVOD_2, MIRRORED_2, WORKLOAD

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


def test_arms_that_nothing_is_compared_with_take_their_place_too():
    visits = walked({HOROVOD_1: {FULL}, HOROVOD_2: {FULL, LOCAL}, MIRRORED_2: ()}, [])
    assert {visit.arm: visit.kinds for visit in visits} == {
        HOROVOD_1: {FULL},
        HOROVOD_2: {FULL, LOCAL},
        MIRRORED_2: frozenset(),
    }
    assert len(visits) == 3
    assert walked({}, []) == []


def test_who_is_not_there_is_not_compared_with():
    visits = walked({HOROVOD_2: {FULL}}, [(Side(HOROVOD_2), Side(HOROVOD_1))])
    assert visits == [Visit(HOROVOD_2, frozenset({FULL}))]


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


@pytest.mark.parametrize("seed", range(5))
def test_both_kinds_of_a_pair_are_taken_where_it_meets(seed):
    pairs = [(Side(arm, LOCAL), Side(HOROVOD_2, SPLIT)) for arm in MANY[:3]]
    kinds = {HOROVOD_2: {FULL, SPLIT}, **{arm: {LOCAL} for arm in MANY[:3]}}
    visits = walked(kinds, pairs, seed)
    for one, other in pairwise(visits):
        if HOROVOD_2 in (one.arm, other.arm) and one.arm != other.arm:
            met = {one.arm: one.kinds, other.arm: other.kinds}
            assert SPLIT in met[HOROVOD_2]
