"""Known causes of slow steps, starts and trainings, against another stack or a threshold."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from hvdperf.plan import questions
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Term
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Block, BlockReport, Launch, Round
from hvdperf.work.blocks import turns_of
from hvdperf.work.table import attributed
from tests.support.rounds import WORKLOAD, launch, one_round, samples_per_step
from tests.support.with_timestamps import round_with_timestamps

DRAWS = 20
RIGHT = 19
ROUNDS = 8
TURNS = 2
# Seconds of a step.
BETWEEN, INPUT, COMPUTE, EXCHANGE = 0.0002, 0.0008, 0.015, 0.004


@dataclass(frozen=True)
class Stack:
    """What a step of an arm takes: extra seconds by term, of all ranks or by rank; and the relative
    noise of a block, of a launch, and of a rank in a launch, as standard deviations."""

    all: Mapping[Term, float] = field(default_factory=dict)
    ranks: Mapping[int, Mapping[Term, float]] = field(default_factory=dict)
    noise: float = 0.04

    def seconds(self, rank: int, term: Term) -> float:
        return self.all.get(term, 0.0) + self.ranks.get(rank, {}).get(term, 0.0)


def made(
    arm: Arm, kinds: Sequence[BlockKind], stack: Stack, noise: random.Random, number: int
) -> Launch:
    """Return a launch whose ranks wait for the slowest of them in every exchange."""
    count, sd = arm.processes, stack.noise
    of_ranks = [noise.lognormvariate(0.0, sd / 2) for _ in range(count)]
    result: Launch = launch(arm, {}, number)
    for turn in range(TURNS):
        for kind in kinds:
            part = 1 / count if kind is BlockKind.SPLIT else 1.0
            of_block = noise.lognormvariate(0.0, sd)
            own = [
                {
                    Term.BETWEEN: BETWEEN + stack.seconds(rank, Term.BETWEEN),
                    Term.INPUT: INPUT + stack.seconds(rank, Term.INPUT),
                    Term.COMPUTE: (COMPUTE + stack.seconds(rank, Term.COMPUTE))
                    * part
                    * of_ranks[rank]
                    * of_block
                    * noise.lognormvariate(0.0, sd / 2),
                }
                for rank in range(count)
            ]
            ready = [sum(terms.values()) for terms in own]
            exchange = (EXCHANGE + stack.all.get(Term.EXCHANGE, 0.0)) * noise.lognormvariate(0, sd)
            alone = kind is BlockKind.LOCAL or arm.world_size == 1
            steps = ready if alone else [max(ready) + exchange] * count
            reports = [
                BlockReport(
                    seconds=step,
                    step_seconds=[step],
                    input_seconds=[terms[Term.INPUT]],
                    inside_seconds=step - terms[Term.BETWEEN] - terms[Term.INPUT],
                    samples=samples_per_step(arm, kind) // count,
                    loss=1.5,
                )
                for step, terms in zip(steps, own, strict=True)
            ]
            turns_of(result).blocks.append(Block(kind, turn, 1, reports))
    return result


def rounds(
    comparison: Comparison,
    candidate: Stack,
    noise: random.Random,
    local: bool,
    reference: Stack | None = None,
) -> list[Round]:
    """Return rounds of a comparison. local: whether the candidate's blocks without exchange were
    measured, and those of the reference if it has several ranks."""
    found = []
    for number in range(ROUNDS):
        kinds: dict[Arm, dict[BlockKind, None]] = {}
        for side in comparison.sides:
            kinds.setdefault(side.arm, {})[side.kind] = None
            if local and side.arm.strategy.spec.horovod and side.arm.world_size > 1:
                kinds[side.arm][BlockKind.LOCAL] = None
        launches = [
            made(
                arm,
                list(of_arm),
                candidate
                if arm == comparison.candidate.arm
                else reference or Stack(noise=candidate.noise),
                noise,
                number,
            )
            for arm, of_arm in kinds.items()
        ]
        found.append(Round(number, Schedule.ALTERNATE, launches))
    return found


# The terms and ranks of the expected causes, the larger ones first. No ranks stand for all ranks.
Causes = Sequence[tuple[str, tuple[int, ...]]]
ALL: tuple[int, ...] = ()
LONGER = 0.004  # seconds, a fifth of a step


def of(term: Term, *ranks: int, seconds: float = LONGER) -> dict[int, dict[Term, float]]:
    return {rank: {term: seconds} for rank in ranks}


def told(
    comparison: Comparison,
    stack: Stack,
    local: bool = True,
    hosts: Sequence[str] = (),
    draws: int = DRAWS,
) -> list[Attribution]:
    """Return the attribution of each draw."""
    return [
        attributed(comparison, rounds(comparison, stack, random.Random(seed), local), hosts)
        for seed in range(draws)
    ]


def times(found: Sequence[Attribution], expected: Causes) -> int:
    """Return how often exactly these causes were told."""
    return [[(cause.term, cause.at_fault) for cause in each.causes] for each in found].count(
        list(expected)
    )


def slower_stack(n: int) -> Comparison:
    """Return the comparison of two stacks by n replicas."""
    asked = questions.against(questions.weak_scaling(WORKLOAD, n))
    assert asked is not None
    return asked


WAITS, COMPUTES, PAUSES = Term.INPUT.value, Term.COMPUTE.value, Term.BETWEEN.value
EXCHANGES = Term.EXCHANGE.value

WEAK_2, WEAK_4 = (questions.weak_scaling(WORKLOAD, n) for n in (2, 4))
TWO_OF_2, TWO_OF_4, TWO_OF_8 = map(slower_stack, (2, 4, 8))
C, W, B, X = Term.COMPUTE, Term.INPUT, Term.BETWEEN, Term.EXCHANGE
# By two stacks of so many replicas, and in other comparisons. Weak scaling always has the exchange,
# which takes 20 % of a step, as a cause: one replica alone exchanges nothing.
KNOWN: Mapping[str, tuple[Comparison, Stack, Causes]] = {
    "1 of 2 computes": (TWO_OF_2, Stack(ranks=of(C, 1)), [(COMPUTES, (1,))]),
    "1 of 2 pauses": (TWO_OF_2, Stack(ranks=of(B, 0)), [(PAUSES, (0,))]),
    "1 of 8 waits": (TWO_OF_8, Stack(ranks=of(W, 7)), [(WAITS, (7,))]),
    "2 of 4 compute": (TWO_OF_4, Stack(ranks=of(C, 2, 3)), [(COMPUTES, (2, 3))]),
    "7 of 8 compute": (TWO_OF_8, Stack(ranks=of(C, *range(1, 8))), [(COMPUTES, (*range(1, 8),))]),
    "all compute": (TWO_OF_4, Stack(all={C: LONGER}), [(COMPUTES, ALL)]),
    "all wait": (TWO_OF_4, Stack(all={W: LONGER}), [(WAITS, ALL)]),
    "all exchange": (TWO_OF_4, Stack(all={X: LONGER}), [(EXCHANGES, ALL)]),
    "1 waits, all compute": (
        *(TWO_OF_2, Stack(all={C: 0.004}, ranks=of(W, 1, seconds=0.008))),
        [(WAITS, (1,)), (COMPUTES, ALL)],
    ),
    "0 computes, 1 waits": (
        *(TWO_OF_2, Stack(ranks={0: {C: 0.008}, 1: {W: 0.005}})),
        [(COMPUTES, (0,)), (WAITS, (1,))],
    ),
    "weak, all wait": (WEAK_2, Stack(all={W: 0.02}), [(WAITS, ALL)]),
    "weak, 1 of 2 computes": (
        *(WEAK_2, Stack(ranks=of(C, 1, seconds=0.03))),
        [(COMPUTES, (1,))],
    ),
    "weak, all compute": (WEAK_4, Stack(all={C: 0.03}), [(COMPUTES, ALL)]),
    "strong, 1 computes": (
        *(questions.strong_scaling(WORKLOAD, 2), Stack(ranks=of(C, 1, seconds=0.08))),
        [(COMPUTES, (1,))],
    ),
    "parity, 1 computes": (
        *(questions.parity(WORKLOAD, 2), Stack(ranks=of(C, 1, seconds=0.015))),
        [(COMPUTES, (1,))],
    ),
    "communication, all exchange": (
        *(questions.communication(WORKLOAD, 2), Stack(all={X: 0.02})),
        [(EXCHANGES, ALL)],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_makes_steps_slower_is_told(name: str) -> None:
    comparison, stack, expected = KNOWN[name]
    assert times(told(comparison, stack), expected) >= RIGHT


@pytest.mark.parametrize(
    ("stack", "ranks"),
    [(Stack(all={W: 0.05}), ALL), (Stack(ranks=of(W, 1, seconds=0.05)), (1,))],
    ids=["all wait", "1 of 2 waits"],
)
def test_who_waits_is_told_without_blocks_that_exchange_nothing(
    stack: Stack, ranks: tuple[int, ...]
) -> None:
    assert times(told(WEAK_2, stack, local=False), [(WAITS, ranks)]) >= RIGHT


@pytest.mark.parametrize("n", [2, 8])
def test_of_a_stack_that_is_not_slower_nothing_is_told(n: int) -> None:
    assert times(told(slower_stack(n), Stack()), []) >= RIGHT


HOSTS = ("node1",) * 4 + ("node2",) * 4


def test_a_slow_host_is_told() -> None:
    found = told(slower_stack(8), Stack(ranks=of(Term.COMPUTE, 4, 5, 6, 7)), hosts=HOSTS)
    assert times(found, [(COMPUTES, (4, 5, 6, 7))]) >= RIGHT
    assert [each.host for each in found].count("node2") >= RIGHT
    # As many ranks of both are not a host.
    (mixed,) = told(
        slower_stack(8), Stack(ranks=of(Term.COMPUTE, 2, 3, 4, 5)), hosts=HOSTS, draws=1
    )
    assert (mixed.at_fault, mixed.host) == ((2, 3, 4, 5), "")


def test_who_has_its_batch_earlier_and_computes_longer_keeps_nobody_waiting() -> None:
    stack = Stack(
        ranks={0: {Term.COMPUTE: 0.002}, 1: {Term.INPUT: 0.002}}, all={Term.EXCHANGE: 0.02}
    )
    for found in told(slower_stack(2), stack):
        assert (found.term, found.at_fault) == (EXCHANGES, ALL)


TWO_HOSTS = ("node1", "node1", "node2", "node2")


def started(
    phase: str, longer: Mapping[int, Mapping[str, float]], n: int = 4, hosts: Sequence[str] = ()
) -> Attribution:
    """Return the cause of starts whose phase is judged. longer: factors by rank and phase."""
    (asked,) = [each for each in questions.startup(WORKLOAD, n) if each.question.spec.part == phase]
    noise = random.Random(1)
    rounds = [one_round(asked, 1.0, number) for number in range(ROUNDS)]
    for each in rounds:
        launch = each.of(asked.candidate.arm)
        launch.startup_seconds = [
            {
                name: seconds * longer.get(rank, {}).get(name, 1.0) * noise.lognormvariate(0, 0.05)
                for name, seconds in of_rank.items()
            }
            for rank, of_rank in enumerate(launch.startup_seconds)
        ]
    return attributed(asked, rounds, hosts)


def test_of_a_slow_start_the_slow_rank_is_named() -> None:
    found = started("trace", {2: {"trace": 1.5}})
    assert (found.term, found.at_fault) == ("trace", (2,))
    assert found.share == pytest.approx(0.5, abs=0.1)
    found = started("trace", {2: {"trace": 1.5}, 3: {"trace": 1.5}}, hosts=TWO_HOSTS)
    assert (found.at_fault, found.host) == ((2, 3), "node2")


def test_who_comes_late_to_the_broadcast_is_named_with_what_made_it_late() -> None:
    # The others wait in their broadcast for it.
    waits = {rank: {"broadcast": 6.0} for rank in (0, 1, 2)}
    found = started("broadcast", {**waits, 3: {"trace": 1.6}})
    assert (found.term, found.at_fault) == ("trace", (3,))


def test_of_a_training_the_late_rank_is_told_and_of_an_ideal_one_nothing() -> None:
    (asked, _) = questions.wall_time(WORKLOAD, 2)
    rounds = [round_with_timestamps(asked, number, late=[0.0, 0.03]) for number in range(ROUNDS)]
    found = attributed(asked, rounds)
    assert (found.term, found.at_fault) == (Term.BETWEEN, (1,))
    ideal = [round_with_timestamps(asked, number) for number in range(ROUNDS)]
    assert attributed(asked, ideal).causes == ()
