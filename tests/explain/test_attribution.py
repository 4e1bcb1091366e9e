"""What takes longer, and whose fault it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from hvdperf.explain import attribution
from hvdperf.explain.attribution import (
    attribute_memory,
    attribute_sides,
    attribute_slow_start,
    attribute_start,
    attribute_training,
)
from hvdperf.explain.steps import of_steps
from hvdperf.plan.arms import BlockKind, Side, Term
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import wall_time
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Block, BlockReport, Launch, Run
from hvdperf.work.blocks import turns_of
from tests.support.rounds import HOROVOD_1, HOROVOD_2, WORKLOAD, launch, rank_report, run_report
from tests.support.with_timestamps import round_with_timestamps


def attribute_steps(
    pairs: Sequence[tuple[Launch, Launch]], kind: BlockKind = BlockKind.FULL
) -> Attribution:
    """Attribute steps in blocks of that kind, of the slow launch and a usual one of each round."""
    if not pairs:
        return Attribution()
    ours, theirs = (Side(launch.arm, kind) for launch in pairs[0])
    return attribute_sides(ours, theirs, pairs)


STEPS = 10
# Fewer bound nothing.
ROUNDS = 6


class Rank(NamedTuple):
    """What a step of it consists of, in seconds."""

    between: float = 0.0001
    waiting: float = 0.0004
    computing: float = 0.014
    exchanging: float = 0.004

    def report(self, kind: BlockKind) -> BlockReport:
        inside = self.computing + (self.exchanging if kind is BlockKind.FULL else 0.0)
        step = self.between + self.waiting + inside
        return rank_report(
            STEPS * step,
            samples=32 * STEPS,
            steps=STEPS,
            input_seconds=[self.waiting] * STEPS,
            inside_seconds=STEPS * inside,
        )


BOTH = (BlockKind.FULL, BlockKind.LOCAL)


def launched(ranks: Sequence[Rank], kinds: Sequence[BlockKind] = BOTH) -> Launch:
    made: Launch = launch(HOROVOD_2, {})
    turns_of(made).blocks = [
        Block(kind, turn, STEPS, [rank.report(kind) for rank in ranks])
        for turn in range(3)
        for kind in kinds
    ]
    return made


USUAL = [Rank(), Rank()]


def of(found: Attribution) -> tuple[str, int | None]:
    return found.term, found.rank


def blame(*ranks: Rank, kinds: Sequence[BlockKind] = BOTH) -> Attribution:
    return attribute_steps([(launched(ranks, kinds), launched(USUAL, kinds))] * ROUNDS)


def test_the_terms_of_a_step_add_up_to_it():
    (first, second) = of_steps(launched(USUAL), BlockKind.FULL, with_local=True)
    assert first == second
    assert first == pytest.approx(
        {
            "between steps": 0.0001,
            "input wait": 0.0004,
            "compute": 0.014,
            "exposed communication": 0.004,
        }
    )
    (told, _) = of_steps(launched(USUAL, BOTH[:1]), BlockKind.FULL, with_local=False)
    assert told[Term.COMPUTE] == 0
    assert sum(told.values()) == pytest.approx(sum(first.values()))


@pytest.mark.parametrize(
    ("ranks", "term", "rank"),
    [
        # Its exchange takes longer, too.
        ([Rank(exchanging=0.020), Rank(computing=0.026, exchanging=0.008)], "compute", 1),
        ([Rank(computing=0.02), Rank(computing=0.0201)], "compute", None),
        # What slows the exchange may leave a rank more of its cores: rank 0 computes 11 % of a step
        # less, and rank 1 as long as before.
        ([Rank(computing=0.012, exchanging=0.012), Rank(exchanging=0.010)], Term.EXCHANGE, None),
        (USUAL, "", None),
        ([Rank(computing=0.0141), Rank(computing=0.0139)], "", None),
    ],
)
def test_a_rank_is_named_only_for_what_is_its_own(ranks, term, rank):
    assert of(blame(*ranks)) == (term, rank)


def test_what_takes_longer_on_all_ranks_is_nobodys_own():
    found = blame(Rank(exchanging=0.007), Rank(exchanging=0.0072, computing=0.0142))
    assert of(found) == ("exposed communication", None)
    assert str(found) == "attributed to exposed communication of all ranks (+16 %)"


def test_what_only_one_of_both_tells_apart_is_not():
    late = launched([Rank(exchanging=0.005), Rank(between=0.0011)], BOTH[:1])
    assert of(attribute_steps([(late, launched(USUAL))] * ROUNDS)) == ("between steps", 1)
    assert attribute_steps([(launched(USUAL, BOTH[:1]), launched(USUAL))]) == Attribution()


@pytest.mark.parametrize("kinds", [BOTH, BOTH[:1]], ids=["of both", "of one"])
def test_computing_that_only_one_side_measures_tells_the_rank_too(
    kinds: Sequence[BlockKind],
) -> None:
    late = launched([Rank(exchanging=0.016), Rank(computing=0.026)])
    assert of(attribute_steps([(late, launched(USUAL, kinds))] * ROUNDS)) == ("compute", 1)


@pytest.mark.parametrize(
    ("with_local", "term"), [(12, "compute"), (11, "compute or communication")]
)
def test_rounds_without_blocks_of_their_computing_count_if_they_are_most(
    with_local: int, term: str
) -> None:
    slow = [Rank(computing=0.02)] * 2
    pairs = [
        (launched(slow, BOTH if number < with_local else BOTH[:1]), launched(USUAL))
        for number in range(24)
    ]
    assert attribute_steps(pairs).term == term


def test_steps_of_a_divided_batch_have_terms_of_their_own():
    kinds = (*BOTH, BlockKind.SPLIT)
    late, alike = launched([Rank(), Rank(between=0.0021)], kinds), launched(USUAL, kinds)
    # What blocks of a whole batch say of another kind is not held against them.
    turns_of(late).blocks = [
        block if block.kind is BlockKind.SPLIT else usual
        for block, usual in zip(late.blocks, alike.blocks, strict=True)
    ]
    assert attribute_steps([(late, alike)] * ROUNDS) == Attribution()
    assert of(attribute_steps([(late, alike)] * ROUNDS, BlockKind.SPLIT)) == ("between steps", 1)
    longer = launched([Rank(computing=0.016)] * 2, kinds)
    found = attribute_steps([(longer, alike)] * ROUNDS, BlockKind.SPLIT)
    assert of(found) == ("compute or communication", None)
    # Of a divided batch each rank computes half.
    late = launched([Rank(exchanging=0.016), Rank(computing=0.026)], kinds)
    found = attribute_steps([(late, alike)] * ROUNDS, BlockKind.SPLIT)
    assert of(found) == ("compute", 1)


def test_steps_that_exchange_nothing_take_longer_to_compute():
    slower = launched([Rank(computing=0.016, exchanging=0.002)] * 2)
    found = attribute_steps([(slower, launched(USUAL))] * ROUNDS, BlockKind.LOCAL)
    assert of(found) == ("compute", None)
    assert found.share == pytest.approx(0.002 / 0.0145)


def test_a_round_in_which_the_machine_was_disturbed_changes_nothing():
    usual = launched(USUAL)
    late = launched([Rank(exchanging=0.005), Rank(between=0.0011)])
    disturbed = launched([Rank(computing=0.030), Rank(exchanging=0.020)])
    found = attribute_steps([(late, usual)] * 5 + [(disturbed, usual)] + [(late, usual)] * 6)
    assert of(found) == ("between steps", 1)
    assert attribute_steps([]) == Attribution()


def test_who_is_ahead_of_the_others_by_chance_is_not_named():
    usual = launched(USUAL)
    # In the typical round rank 0 computes 4 % of a step longer than rank 1, and in others rank 1.
    by_chance = [
        (launched([Rank(exchanging=0.005, computing=0.014 + own), Rank(exchanging=0.005)]), usual)
        for own in (0.002, 0.0008, 0.0009, -0.003, 0.0008, 0.002, 0.0009, -0.004)
    ]
    assert of(attribute_steps(by_chance)) == ("exposed communication", None)
    late = launched([Rank(exchanging=0.005), Rank(between=0.0011)])
    assert attribute_steps([(late, usual)] * (ROUNDS - 1)).rank is None


def test_of_a_start_the_rank_is_named_whose_phase_takes_longest():
    slow, usual = launch(HOROVOD_2, {}), launch(HOROVOD_2, {})
    assert attribute_start("trace", [(slow, usual)]) == Attribution()
    first, second = slow.startup_seconds
    slow.startup_seconds = [first, {**second, "trace": 3.0}]
    found = attribute_start("trace", [(slow, usual)] * ROUNDS)
    assert of(found) == ("trace", 1)
    assert found.share == pytest.approx(0.2)
    assert attribute_start("broadcast", [(slow, usual)]) == Attribution()


def starting(*seconds: float) -> Launch:
    """Whose ranks take so long over their trace."""
    made: Launch = launch(replace(HOROVOD_2, world_size=len(seconds)), {})
    ranks = zip(made.startup_seconds, seconds, strict=True)
    made.startup_seconds = [{**rank, "trace": own} for rank, own in ranks]
    return made


def test_of_a_start_that_takes_longer_on_all_ranks_none_is_named():
    found = attribute_start("trace", [(starting(1.15, 1.151), starting(1.0, 1.0))] * ROUNDS)
    assert of(found) == ("trace", None)
    assert found.share == pytest.approx(0.15)
    # Rank 1 always takes longer; that it does so by as much more says nothing of it.
    found = attribute_start("trace", [(starting(1.15, 1.38), starting(1.0, 1.2))] * ROUNDS)
    assert of(found) == ("trace", None)


def test_a_rank_that_starts_slowly_is_named_where_the_others_take_no_time():
    found = attribute_slow_start("trace", [starting(0.0, 1.5)] * ROUNDS)
    assert (found.rank, found.share) == (1, math.inf)


def grown(*growth: int) -> Launch:
    """Whose ranks hold so many bytes more after each of 25 steps."""
    made: Launch = launch(HOROVOD_2, {})
    made.work = Run(
        [
            replace(
                run_report(),
                memory=[[step, 1_000_000_000 + own * step] for step in range(25, 400, 25)],
            )
            for own in growth
        ]
    )
    return made


def test_of_memory_the_rank_is_named_that_grows_by_itself():
    assert of(attribute_memory([grown(0, 1_000_000)] * ROUNDS)) == ("memory", 1)
    found = attribute_memory([grown(1_000_000, 1_000_000)] * ROUNDS)
    assert of(found) == ("memory", None)
    assert found.share > 0.1
    found = attribute_memory([grown(0, 0, 1_000_000, 1_000_000)] * ROUNDS)
    assert (found.term, found.rank, found.ranks) == ("memory", None, (2, 3))


def test_who_does_not_grow_is_not_blamed():
    assert attribute_memory([grown(0, 0)]) == Attribution()
    assert attribute_memory([]) == Attribution()


def test_the_only_rank_is_not_told_apart_from_others():
    assert attribute_memory([grown(1_000_000)] * ROUNDS).rank is None
    slow, usual = (launched([rank]) for rank in (Rank(computing=0.02), Rank()))
    assert of(attribute_steps([(slow, usual)] * ROUNDS)) == ("compute", None)
    assert attribute_start("trace", [(starting(1.5), starting(1.0))] * ROUNDS).rank is None


def test_of_one_turn_as_much_is_told_as_of_several() -> None:
    late, usual = launched([Rank(), Rank(between=0.0021)]), launched(USUAL)
    for made in (late, usual):
        turns_of(made).blocks = [block for block in made.blocks if block.turn == 0]
    assert of(attribute_steps([(late, usual)] * ROUNDS)) == ("between steps", 1)


# Training --------------------------------------------------------------------------------------

WEAK, STRONG = wall_time(WORKLOAD, 2)
# The fixed cost and a step, in seconds, of tests.support.with_timestamps.
FIXED_S, STEP_S = 3.5, 0.019


def trained(
    comparison: Comparison, phase: str = "", extra: float = 0.0, **ours: Any
) -> Attribution:
    """Attribute a training whose candidate takes longer over a phase of its start, or in steps."""
    rounds = [round_with_timestamps(comparison, number, **ours) for number in range(ROUNDS)]
    pairs = [
        (each.of(comparison.candidate.arm), each.of(comparison.reference.arm)) for each in rounds
    ]
    for own, _ in pairs if phase else ():
        own.startup_seconds = [{**rank, phase: rank[phase] + extra} for rank in own.startup_seconds]
    return attribute_training(comparison, pairs)


def test_what_a_training_loses_in_its_steps_is_a_share_of_all_of_it() -> None:
    (cause,) = trained(WEAK, exchange=0.01).causes
    assert (cause.term, cause.rank) == ("exposed communication", None)
    assert cause.share == pytest.approx(40 * 0.01 / (FIXED_S + 40 * STEP_S))
    # Two replicas take 20 steps each, and should take half of the time of one.
    causes = {cause.term: cause for cause in trained(STRONG, exchange=0.05).causes}
    ideal = (FIXED_S + 40 * STEP_S) / 2
    assert causes["exposed communication"].share == pytest.approx(20 * 0.05 / ideal)
    assert causes["trace"].share == pytest.approx(1.0 / ideal), "its half of two seconds"


def test_what_a_training_loses_before_its_steps_is_a_share_of_it_too() -> None:
    (cause,) = trained(WEAK, "trace", 0.5).causes
    assert (cause.term, cause.rank) == ("trace", None)
    assert cause.share == pytest.approx(0.5 / (FIXED_S + 40 * STEP_S))


# Limits ----------------------------------------------------------------------------------------

# Binary fractions of a step of one second, so that a share can lie exactly on its limit.
ROUND = Rank(between=0.125, waiting=0.125, computing=0.5, exchanging=0.25)


def longer(*more: dict[str, float]) -> Attribution:
    """Of steps in which each rank takes longer by so many seconds of each part."""
    ranks = [
        ROUND._replace(**{part: getattr(ROUND, part) + own for part, own in each.items()})
        for each in more
    ]
    return attribute_steps([(launched(ranks), launched([ROUND, ROUND]))] * ROUNDS)


def test_growth_is_a_share_of_the_time_that_the_reference_takes_for_the_same_work() -> None:
    # Of one replica alone, which only computes, half of the step is what two should take.
    alone = launched([ROUND], BOTH[:1])
    alone.arm = HOROVOD_1
    slow = launched([ROUND._replace(waiting=0.625)] * 2)
    ours, theirs = (Side(each.arm, BlockKind.FULL) for each in (slow, alone))
    found = attribute_sides(ours, theirs, [(slow, alone)] * ROUNDS, ideal=0.5)
    assert [(cause.term, cause.share) for cause in found.causes] == [
        (Term.INPUT, 1.125),
        (Term.EXCHANGE, 0.5),
    ]
    # Another number of ranks is compared with their mean, and the rest of the step is the exchange.
    usual = launched([ROUND, ROUND._replace(computing=0.25, exchanging=0.5)])
    more = launched([ROUND._replace(waiting=0.5)] * 4)
    found = attribute_steps([(more, usual)] * ROUNDS)
    assert [(cause.term, cause.share) for cause in found.causes] == [
        (Term.INPUT, 0.375),
        (Term.COMPUTE, 0.125),
    ]


@pytest.mark.parametrize(
    ("attribute", "rank"),
    [
        (lambda: longer({"computing": 0.0625}, {"computing": 0.0625}), None),
        (lambda: longer({}, {"between": 0.0625}), 1),
        (lambda: attribute_memory([grown(1_000_000, 1_000_000)] * ROUNDS), None),
        (lambda: attribute_memory([grown(0, 1_000_000)] * ROUNDS), 1),
        (lambda: attribute_start("trace", [(starting(1.1, 1.11), starting(1, 1))] * ROUNDS), None),
        (lambda: attribute_start("trace", [(starting(1, 1.1), starting(1, 1))] * ROUNDS), 1),
    ],
    ids=["steps", "steps of a rank", "memory", "memory of a rank", "start", "start of a rank"],
)
def test_what_grows_by_exactly_what_is_worth_a_name_is_named(
    attribute: Callable[[], Attribution], rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attribute()
    assert found.term
    assert found.rank == rank
    monkeypatch.setattr(attribution, "WORTH_A_NAME", found.share)
    assert attribute() == found
    monkeypatch.setattr(attribution, "WORTH_A_NAME", math.nextafter(found.share, 1.0))
    assert attribute() == Attribution()


def test_every_term_counts_that_grows_by_exactly_what_is_worth_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attribution, "WORTH_A_NAME", 0.0625)
    found = longer({}, {"between": 0.0625, "waiting": 0.0625})
    assert [(cause.term, cause.rank) for cause in found.causes] == [
        ("between steps", 1),
        ("input wait", 1),
    ]


def test_terms_too_small_to_be_told_count_together_if_they_are_a_third_of_the_growth() -> None:
    # Each is a sixth of it, and a cause is told from a fifth on.
    def of_rank_1(own: float) -> list[int | None]:
        late = {"between": own, "waiting": own, "exchanging": 0.25}
        return [cause.rank for cause in longer({"exchanging": 0.5}, late).causes]

    assert of_rank_1(0.0625) == [None, 1]
    assert of_rank_1(0.0546875) == [None]


def test_a_rank_is_at_fault_for_a_third_of_what_the_step_grows_by():
    # The step grows by three quarters of a second.
    found = longer({"exchanging": 0.5}, {"between": 0.25, "exchanging": 0.5})
    assert 1 in [cause.rank for cause in found.causes if cause.share == 0.25]
    found = longer({"exchanging": 0.5}, {"between": 0.234375, "exchanging": 0.515625})
    assert (found.term, found.rank, found.share) == (Term.EXCHANGE, None, 0.5)
