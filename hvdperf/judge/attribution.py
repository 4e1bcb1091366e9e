"""Attributes the time that a launch takes longer than another launch of the same arm to a term and
a rank.

Blocks divide every rank's step into the time between steps, the wait for its batch, and the rest.
Blocks of the same batch without exchange, if there are any, divide the rest into computing (with
applying) and the exchange, in which the ranks wait for each other. The rank at fault is found by
the time that each rank spends outside of the exchange: if one rank is late, the others merely wait.
The names of terms are those of the time breakdown (hvdperf.plan.terms).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hvdperf.json_records import Figures, Number
from hvdperf.judge import training_runs
from hvdperf.measure.records import Block, Launch, Round
from hvdperf.plan.arms import BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.question import LaunchMode
from hvdperf.plan.terms import Term
from hvdperf.stats import Interval, hodges_lehmann, shift

# Growth below this share of a step, or of a phase of a start, is not attributed.
WORTH_A_NAME = 0.02
# A rank is at fault if its own part is at least this share of the growth of the step. The share is
# below 1 because what slows a rank's computing slows its part in the exchange, too.
OWN_SHARE = 1 / 3
# Highest probability that a given rank is named by chance. That either of two ranks is named is
# twice as probable.
NAMED_BY_CHANCE = 0.025


@dataclass(frozen=True)
class Attribution(Figures):
    """An attribution. term: the part that takes longer; "" if it is not known. rank: the rank at
    fault; None if all ranks take longer alike. share: the extra time / the time of the step, or of
    that phase of the start; for memory, the growth of ln(resident set)."""

    term: str = ""
    rank: int | None = None
    share: Number = 0.0

    def __str__(self) -> str:
        if not self.term:
            return "not attributed"
        whose = "all ranks" if self.rank is None else f"rank {self.rank}"
        return f"attributed to {self.term} of {whose} (+{100 * self.share:.0f} %)"


def attributed(comparison: Comparison, rounds: Sequence[Round]) -> Attribution:
    """Return the term and the rank that make the candidate slower than the reference, another
    launch of the same arm; for memory, the rank that grows most."""
    pairs = [
        (measured.of(comparison.candidate.arm), measured.of(comparison.reference.arm))
        for measured in rounds
    ]
    if comparison.question.mode is LaunchMode.STARTUP:
        return attribute_start(comparison.question.spec.phase, pairs)
    if comparison.question.mode is LaunchMode.ENDURANCE:
        return attribute_memory([faulty for faulty, _ in pairs])
    return attribute_steps(pairs, comparison.candidate.kind)


def attribute_steps(
    pairs: Sequence[tuple[Launch, Launch]], kind: BlockKind = BlockKind.FULL
) -> Attribution:
    """Return the attribution of steps in blocks of that kind. pairs: the slow launch and a usual
    one of the same arm, one pair per round."""
    if not pairs:
        return Attribution()
    # Blocks without exchange take a whole batch, and split ones a part of it.
    with_local = kind is not BlockKind.SPLIT and all(
        launch.of_kind(BlockKind.LOCAL) for pair in pairs for launch in pair
    )
    rounds = [_grown(slow, usual, kind, with_local) for slow, usual in pairs]
    # The median over rounds, because a round alone is noisy.
    grown = [
        {term: median(each[rank][term] for each in rounds) for term in rounds[0][rank]}
        for rank in range(len(rounds[0]))
    ]
    own = [
        [sum(share for term, share in rank.items() if term != Term.EXCHANGE) for rank in each]
        for each in rounds
    ]
    rank = _at_fault(own, max(sum(terms.values()) for terms in grown))
    if rank is not None:
        ours = {term: share for term, share in grown[rank].items() if term != Term.EXCHANGE}
        term = max(ours, key=ours.__getitem__)
        return Attribution(term, rank, ours[term])
    alike = {term: min(each[term] for each in grown) for term in grown[0]}
    longest = max(alike, key=alike.__getitem__)
    if alike[longest] < WORTH_A_NAME:
        return Attribution()
    named = Term.INSIDE if longest is Term.EXCHANGE and not with_local else longest
    return Attribution(named, None, alike[longest])


def _at_fault(rounds: Sequence[Sequence[float]], longer: float) -> int | None:
    """Return the rank that causes the growth. Return None if there is only one rank, or if none
    stands out with 97.5 % confidence, which takes enough rounds for a finite interval
    (hvdperf.stats). rounds: the growth of each rank's own time, one row per round. longer: the
    growth of the whole."""
    # Compare ranks within each round, because a change that they share there is the machine's.
    apart = list(zip(*(_apart(own) for own in rounds), strict=True))
    if len(apart) == 1:
        return None
    rank = max(range(len(apart)), key=lambda rank: median(apart[rank]))
    far = _outweighs(median(apart[rank]), median(own[rank] for own in rounds), longer)
    return rank if far and hodges_lehmann(apart[rank], NAMED_BY_CHANCE).lower > 0.0 else None


def _outweighs(ahead: float, own: float, longer: float) -> bool:
    """Return whether a rank's growth exceeds the others' so far that the rank is at fault. ahead:
    the excess. own: the rank's own growth; without it, the others became faster. longer: the growth
    of the whole."""
    return min(ahead, own) >= max(WORTH_A_NAME, OWN_SHARE * longer)


def _apart(own: Sequence[float]) -> list[float]:
    """Return each rank's share minus the largest share of the other ranks."""
    return [
        share - max((other for at, other in enumerate(own) if at != rank), default=0.0)
        for rank, share in enumerate(own)
    ]


def _grown(
    slow: Launch, usual: Launch, kind: BlockKind, with_local: bool
) -> list[dict[Term, float]]:
    """Return the growth of each term, by rank, as a share of a usual step."""
    ours, theirs = (of_steps(launch, kind, with_local) for launch in (slow, usual))
    whole = median(sum(rank.values()) for rank in theirs)
    return [
        {term: (rank[term] - before[term]) / whole for term in rank}
        for rank, before in zip(ours, theirs, strict=True)
    ]


def of_steps(launch: Launch, kind: BlockKind, with_local: bool) -> list[dict[Term, float]]:
    """Return the seconds of a typical step's terms, by rank, from blocks of that kind. with_local:
    divide computing from the exchange by blocks without exchange. Without it, Term.EXCHANGE holds
    both."""
    blocks, local = launch.of_kind(kind), launch.of_kind(BlockKind.LOCAL)
    result = []
    for rank in range(len(blocks[0].ranks)):
        computing = median(block.inside_seconds(rank) for block in local) if with_local else 0.0
        inside = median(block.inside_seconds(rank) for block in blocks)
        result.append(
            {
                Term.BETWEEN: median(_between(block, rank) for block in blocks),
                Term.INPUT: median(_waiting(block, rank) for block in blocks),
                Term.COMPUTE: computing,
                Term.EXCHANGE: inside - computing,
            }
        )
    return result


def _waiting(block: Block, rank: int) -> float:
    return sum(block.ranks[rank].input_seconds) / block.steps


def _between(block: Block, rank: int) -> float:
    whole = sum(block.ranks[rank].step_seconds) / block.steps
    return whole - _waiting(block, rank) - block.inside_seconds(rank)


def attribute_start(phase: str, pairs: Sequence[tuple[Launch, Launch]]) -> Attribution:
    """Return the rank at fault for a phase of the start that takes longer. pairs: as in
    attribute_steps.

    A start has the machine to itself. Two starts of one round are thus as independent as any two,
    so the starts of each arm are a sample of their own. All ranks are named only if each takes
    longer with 97.5 % confidence.
    """
    if not pairs:
        return Attribution()
    ours, theirs = (
        [[math.log(rank[phase]) for rank in launch.startup_seconds] for launch in arm]
        for arm in zip(*pairs, strict=True)
    )
    grown = _shifts(ours, theirs, NAMED_BY_CHANCE)
    shares = [math.expm1(of_rank.estimate) for of_rank in grown]
    # Several ranks share the error rate of two (Bonferroni).
    alpha = NAMED_BY_CHANCE * 2 / max(2, len(shares))
    ahead = _shifts([_apart(own) for own in ours], [_apart(own) for own in theirs], alpha)
    rank = max(range(len(ahead)), key=lambda rank: ahead[rank].estimate)
    far = _outweighs(math.expm1(ahead[rank].estimate), shares[rank], max(shares))
    if len(shares) > 1 and far and ahead[rank].lower > 0.0:
        return Attribution(phase, rank, shares[rank])
    all_grown = all(of_rank.lower > 0.0 for of_rank in grown) and min(shares) >= WORTH_A_NAME
    return Attribution(phase, None, min(shares)) if all_grown else Attribution()


def _shifts(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], alpha: float
) -> list[Interval]:
    """Return the shift of each rank's values from the other arm's. ours, theirs: one row per
    launch."""
    columns = zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True)
    return [shift(own, usual, alpha) for own, usual in columns]


def attribute_memory(launches: Sequence[Launch]) -> Attribution:
    """Return the rank whose resident set grows most, or all ranks. share: growth of its logarithm
    in 1,000 steps (training_runs.py)."""
    if not launches:
        return Attribution()
    rounds = [[training_runs.growth(rank.memory) for rank in launch.run] for launch in launches]
    # The median over rounds, because a round alone is noisy.
    shares = [median(of_rank) for of_rank in zip(*rounds, strict=True)]
    rank = _at_fault(rounds, max(shares))
    share = min(shares) if rank is None else shares[rank]
    return Attribution(Term.MEMORY, rank, share) if share >= WORTH_A_NAME else Attribution()
