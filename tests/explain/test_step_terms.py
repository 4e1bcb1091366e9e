"""The terms of steps, their growth, and the ranks that lie above the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hvdperf.explain.step_terms import (
    Computing,
    Terms,
    computing_known,
    group_apart,
    grown,
    highest,
    host_of,
    terms_of,
    without,
)
from hvdperf.plan.arms import BlockKind, Side, Term
from hvdperf.records.rounds import Block, Launch
from hvdperf.work.blocks import turns_of
from tests.support.rounds import HOROVOD_1, HOROVOD_2, launch, rank_report

FULL, LOCAL, SPLIT = BlockKind.FULL, BlockKind.LOCAL, BlockKind.SPLIT
BETWEEN, INPUT = 0.25, 0.5


def launched(inside: dict[BlockKind, Sequence[float]], world_size: int = 2) -> Launch:
    """Return a launch of three turns, whose ranks take so many seconds inside of a step."""
    made: Launch = launch(replace(HOROVOD_2, world_size=world_size), {})
    turns_of(made).blocks = [
        Block(
            kind,
            turn,
            10,
            [
                rank_report(
                    10 * (BETWEEN + INPUT + own),
                    320,
                    input_seconds=[INPUT] * 10,
                    inside_seconds=10 * own,
                )
                for own in ranks
            ],
        )
        for turn in range(3)
        for kind, ranks in inside.items()
    ]
    return made


# Terms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "known"),
    [
        ((FULL, LOCAL), (FULL, LOCAL), FULL, Computing.BOTH_SIDES),
        ((FULL, LOCAL), (FULL,), FULL, Computing.OF_RANKS),
        ((FULL, LOCAL, SPLIT), (FULL, LOCAL), SPLIT, Computing.OF_RANKS),
        ((FULL,), (FULL, LOCAL), FULL, Computing.NOTHING),
    ],
)
def test_computing_is_known_where_blocks_without_exchange_measure_it(
    ours: Sequence[BlockKind], theirs: Sequence[BlockKind], kind: BlockKind, known: Computing
) -> None:
    pair = tuple(launched({each: [1.0, 1.0] for each in kinds}) for kinds in (ours, theirs))
    sides = Side(HOROVOD_2, kind), Side(HOROVOD_2, kind)
    assert computing_known(*sides, [pair] * 6) is known  # type: ignore[list-item]
    alone = Side(HOROVOD_1, FULL)
    if known is Computing.OF_RANKS and kind is FULL:
        assert computing_known(sides[0], alone, [pair]) is Computing.BOTH_SIDES  # type: ignore[list-item]


def test_what_the_slowest_rank_has_left_is_the_exchange() -> None:
    made = launched({FULL: [4.0, 4.5], LOCAL: [2.0, 3.0]})
    found = terms_of(made, Side(HOROVOD_2, FULL), Computing.BOTH_SIDES)
    assert [dict(rank) for rank in found.own] == [
        {Term.BETWEEN: BETWEEN, Term.INPUT: INPUT, Term.COMPUTE: 2.0},
        {Term.BETWEEN: BETWEEN, Term.INPUT: INPUT, Term.COMPUTE: 3.0},
    ]
    assert (found.exchange, found.in_common) == (1.5, 0.0)
    assert found.step == BETWEEN + INPUT + 3.0 + 1.5
    assert found.of(Term.COMPUTE, [0, 1]) == 2.5
    assert found.of(Term.EXCHANGE, [0]) == 1.5


def test_of_ranks_only_what_they_compute_longer_than_the_quickest_is_their_own() -> None:
    made = launched({FULL: [4.0, 4.5], LOCAL: [2.0, 3.0]})
    found = terms_of(made, Side(HOROVOD_2, FULL), Computing.OF_RANKS)
    assert [rank[Term.COMPUTE] for rank in found.own] == [0.0, 1.0]
    assert (found.exchange, found.in_common) == (3.5, 2.0)
    assert found.of(Term.COMPUTE, [1]) == 3.0, "with what all have in common"
    assert found.step == BETWEEN + INPUT + 1.0 + 3.5


def test_where_computing_is_not_known_the_exchange_holds_it() -> None:
    made = launched({FULL: [4.0, 4.5], LOCAL: [2.0, 3.0]})
    found = terms_of(made, Side(HOROVOD_2, FULL), Computing.NOTHING)
    assert {rank[Term.COMPUTE] for rank in found.own} == {0.0}
    assert found.exchange == 4.0


def test_one_replica_alone_only_computes() -> None:
    made = launched({FULL: [4.0]}, world_size=1)
    found = terms_of(made, Side(made.arm, FULL), Computing.BOTH_SIDES)
    assert [rank[Term.COMPUTE] for rank in found.own] == [4.0]
    assert found.exchange == 0.0


def test_of_a_divided_batch_each_rank_computes_its_part() -> None:
    made = launched({FULL: [4.0, 4.5], LOCAL: [2.0, 3.0], SPLIT: [2.5, 2.5]})
    found = terms_of(made, Side(HOROVOD_2, SPLIT), Computing.OF_RANKS)
    assert [rank[Term.COMPUTE] for rank in found.own] == [0.0, 0.5]
    assert found.exchange == 2.0


def test_growth_is_a_share_of_the_references_time_for_the_same_work() -> None:
    def terms(between: float, computes: Sequence[float], exchange: float) -> Terms:
        return Terms([{Term.BETWEEN: between, Term.COMPUTE: own} for own in computes], exchange)

    usual = terms(1.0, [2.0, 2.0], 1.0)
    found = grown(terms(1.5, [2.0, 3.0], 1.25), usual, 1.0)
    assert found.whole == 1.75 / 4
    assert found.exchange == 0.25 / 4
    assert [rank[Term.COMPUTE] for rank in found.own] == [0.0, 1.0 / 4]
    # Half of the reference's step is what it should take.
    found = grown(terms(1.5, [2.0, 3.0], 1.25), usual, 0.5)
    assert found.whole == 5.75 / 2 - 1
    assert found.own[0][Term.BETWEEN] == 1.0 / 2
    assert found.exchange == 0.75 / 2
    # Another number of ranks is compared with their mean, and the rest of the step is the exchange.
    found = grown(terms(1.5, [2.0, 3.0, 3.0, 3.0], 1.25), terms(1.0, [1.0, 2.0], 1.0), 1.0)
    assert found.own[0][Term.COMPUTE] == 0.5 / 4
    assert found.usual.exchange == 1.5
    assert found.usual.step == 4.0


# Ranks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "hosts", "host"),
    [
        ((0, 1), "aab", "a"),
        ((2,), "aab", "b"),
        ((0,), "aab", ""),
        ((1, 2), "aab", ""),
        ((0, 1), "aa", ""),
        ((0, 1), "", ""),
    ],
)
def test_a_host_is_named_if_the_ranks_are_all_of_it_and_there_is_another(
    ranks: Sequence[int], hosts: str, host: str
) -> None:
    assert host_of(ranks, list(hosts)) == host


@pytest.mark.parametrize(
    ("figures", "hosts", "found"),
    [
        ([1.0, 1.0, 1.0], "", ()),
        ([5.0], "", ()),
        ([1.0, 3.0], "", (1,)),
        ([3.0, 1.0, 3.5, 1.0], "", (0, 2)),
        ([1.0, 3.0, 3.0, 3.0], "", (1, 2, 3)),
        # The host separates them 0.87 and 0.62 times as well as its slowest rank does.
        ([0.0, 0.0, 4.0, 1.6], "", (2,)),
        ([0.0, 0.0, 4.0, 1.6], "aabb", (2, 3)),
        ([0.0, 0.0, 4.0, 1.0], "aabb", (2,)),
        ([4.0, 1.6, 0.0, 0.0], "aabb", (0, 1)),
        ([1.0, 1.0, 1.0, 1.0], "aabb", ()),
        ([0.0, 0.0, 4.0, 1.6], "aaaa", (2,)),
        ([0.0, 0.0, 4.0, 1.6, 0.0, 0.0], "aabbcc", (2, 3)),
    ],
)
def test_the_upper_class_is_the_one_that_separates_best(
    figures: Sequence[float], hosts: str, found: tuple[int, ...]
) -> None:
    assert highest(figures, list(hosts)) == found


def test_the_others_are_all_but_these() -> None:
    assert without([1, 3], 4) == [0, 2]


def test_a_quarter_of_the_rounds_at_either_end_does_not_matter() -> None:
    rows = [[1.0, 2.0]] * 10
    group = group_apart([*rows, [9.0, 2.0], [1.0, 9.0]])
    assert group is not None
    assert (group.ranks, group.host, group.ahead) == ((1,), "", 1.0)
    # Half of the rounds do.
    assert group_apart([*rows[:4], *[[2.0, 1.0]] * 4]) is None


def test_a_group_is_named_with_its_host_and_how_far_it_is_ahead() -> None:
    rows = [[1.0, 1.5, 3.0, 4.0 + 0.125 * number] for number in range(7)]
    group = group_apart(rows, list("aabb"))
    assert group is not None
    assert (group.ranks, group.host) == ((2, 3), "b")
    assert group.ahead == (3.0 + 4.375) / 2 - 1.25
    assert group_apart(rows[:5], list("aabb")) is None, "five rounds bound nothing"
