"""Where the time went that one launch takes longer than another of the same arm, and whose it is.

From blocks: of every rank's step the time between steps, the wait for its batch, and the rest.
Where blocks without exchange were taken of as large a batch, the rest is told apart into computing
(with applying) and the exchange, in which the ranks wait for each other. What a rank does by itself
tells who is at fault: if one rank is late, the others merely wait. Names of terms are the ledger's
(hvdperf.judge.time_breakdown.TERMS).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hvdperf.judge import training_runs
from hvdperf.measure.records import Block, Launch, Round
from hvdperf.plan.arms import BlockKind, Comparison, LaunchMode
from hvdperf.plan.terms import BETWEEN, COMPUTE, EXCHANGE, INPUT, INSIDE, MEMORY
from hvdperf.stats import Interval, hodges_lehmann, shift

# Growth below this share of a step, or of a phase of a start, is nobody's fault.
WORTH_A_NAME = 0.02
# A rank is at fault if what it alone does is this much of what the step has grown by: what slows
# its computing slows its part in the exchange, too.
OWN_SHARE = 1 / 3
# How often a given rank that does no more than the others is named all the same, at most: of two
# ranks one or the other twice as often.
NAMED_BY_CHANCE = 0.025


@dataclass(frozen=True)
class Blame:
    """term: what takes longer; empty if that is not told. rank: whose; None if all take longer
    alike. share: by how much of the step, or of that phase of the start."""

    term: str = ""
    rank: int | None = None
    share: float = 0.0

    def __str__(self) -> str:
        if not self.term:
            return "what these rounds do not tell"
        whose = "all ranks" if self.rank is None else f"rank {self.rank}"
        return f"{self.term} of {whose} (+{100 * self.share:.0f} %)"


def blamed(comparison: Comparison, rounds: Sequence[Round]) -> Blame:
    """What, and who, makes the candidate slower than the reference, another launch of the same arm;
    of memory, what makes it grow."""
    pairs = [
        (measured.launches[comparison.candidate.arm], measured.launches[comparison.reference.arm])
        for measured in rounds
    ]
    if comparison.question.is_startup:
        return start_blame(comparison.question.phase, pairs)
    if comparison.question.work is LaunchMode.ENDURANCE:
        return memory_blame([faulty for faulty, _ in pairs])
    return steps_blame(pairs, comparison.candidate.kind)


def steps_blame(pairs: Sequence[tuple[Launch, Launch]], kind: BlockKind = BlockKind.FULL) -> Blame:
    """Why steps of one launch, in its blocks of that kind, take longer than those of another of the
    same arm beside it, of such pairs, one a round."""
    if not pairs:
        return Blame()
    # Blocks without exchange take a whole batch.
    told_apart = kind is not BlockKind.SPLIT and all(
        launch.of_kind(BlockKind.LOCAL) for pair in pairs for launch in pair
    )
    rounds = [_grown(slow, usual, kind, told_apart) for slow, usual in pairs]
    # Of every rank and term what is typical: a round alone is noisy.
    grown = [
        {term: median(each[rank][term] for each in rounds) for term in rounds[0][rank]}
        for rank in range(len(rounds[0]))
    ]
    own = [
        [sum(share for term, share in rank.items() if term != EXCHANGE) for rank in each]
        for each in rounds
    ]
    rank = _at_fault(own, max(sum(terms.values()) for terms in grown))
    if rank is not None:
        ours = {term: share for term, share in grown[rank].items() if term != EXCHANGE}
        term = max(ours, key=ours.__getitem__)
        return Blame(term, rank, ours[term])
    alike = {term: min(each[term] for each in grown) for term in grown[0]}
    term = max(alike, key=alike.__getitem__)
    if alike[term] < WORTH_A_NAME:
        return Blame()
    return Blame(term if told_apart or term != EXCHANGE else INSIDE, None, alike[term])


def _at_fault(rounds: Sequence[Sequence[float]], longer: float) -> int | None:
    """The rank that does by itself what takes longer; None if it is the only one, or none surely
    stands out, as none does in fewer rounds than bound anything (hvdperf.stats). rounds: what each
    rank does longer, a row a round; longer: by how much the whole takes longer."""
    # Within each round: what the ranks of a launch have in common is the machine's.
    apart = list(zip(*(_apart(own) for own in rounds), strict=True))
    if len(apart) == 1:
        return None
    rank = max(range(len(apart)), key=lambda rank: median(apart[rank]))
    far = _outweighs(median(apart[rank]), median(own[rank] for own in rounds), longer)
    return rank if far and hodges_lehmann(apart[rank], NAMED_BY_CHANCE).lower > 0.0 else None


def _outweighs(ahead: float, own: float, longer: float) -> bool:
    """Whether a rank is so far ahead of the others that it is at fault. own: what it does longer;
    of one that takes as long as ever, it is the others that are done sooner. longer: as above."""
    return min(ahead, own) >= max(WORTH_A_NAME, OWN_SHARE * longer)


def _apart(own: Sequence[float]) -> list[float]:
    """By how much each rank's share is above all the others'."""
    return [
        share - max((other for at, other in enumerate(own) if at != rank), default=0.0)
        for rank, share in enumerate(own)
    ]


def _grown(
    slow: Launch, usual: Launch, kind: BlockKind, told_apart: bool
) -> list[dict[str, float]]:
    """By what share of a step each term of each rank is longer."""
    ours, theirs = (of_steps(launch, kind, told_apart) for launch in (slow, usual))
    whole = median(sum(rank.values()) for rank in theirs)
    return [
        {term: (rank[term] - before[term]) / whole for term in rank}
        for rank, before in zip(ours, theirs, strict=True)
    ]


def of_steps(launch: Launch, kind: BlockKind, told_apart: bool) -> list[dict[str, float]]:
    """Seconds of a typical step's terms, by rank, of blocks of that kind. told_apart: by blocks
    without exchange, computing from the exchange; otherwise the latter holds both."""
    blocks, local = launch.of_kind(kind), launch.of_kind(BlockKind.LOCAL)
    result = []
    for rank in range(len(blocks[0].ranks)):
        computing = median(block.inside_seconds(rank) for block in local) if told_apart else 0.0
        inside = median(block.inside_seconds(rank) for block in blocks)
        result.append(
            {
                BETWEEN: median(_between(block, rank) for block in blocks),
                INPUT: median(_waiting(block, rank) for block in blocks),
                COMPUTE: computing,
                EXCHANGE: inside - computing,
            }
        )
    return result


def _waiting(block: Block, rank: int) -> float:
    return float(sum(block.ranks[rank]["input_seconds"])) / block.steps


def _between(block: Block, rank: int) -> float:
    whole = float(sum(block.ranks[rank]["step_seconds"])) / block.steps
    return whole - _waiting(block, rank) - block.inside_seconds(rank)


def start_blame(phase: str, pairs: Sequence[tuple[Launch, Launch]]) -> Blame:
    """Whose fault it is that a phase of the start takes longer; pairs as in steps_blame.

    A start has the machine to itself: two of one round have no more in common than any two, and
    each arm's are a sample of their own. All ranks are named only if each surely takes longer.
    """
    if not pairs:
        return Blame()
    ours, theirs = (
        [[math.log(rank[phase]) for rank in launch.startup_seconds] for launch in arm]
        for arm in zip(*pairs, strict=True)
    )
    grown = _shifts(ours, theirs, NAMED_BY_CHANCE)
    shares = [math.expm1(of_rank.estimate) for of_rank in grown]
    # One of several is ahead by chance no more often than one of two.
    alpha = NAMED_BY_CHANCE * 2 / max(2, len(shares))
    ahead = _shifts([_apart(own) for own in ours], [_apart(own) for own in theirs], alpha)
    rank = max(range(len(ahead)), key=lambda rank: ahead[rank].estimate)
    far = _outweighs(math.expm1(ahead[rank].estimate), shares[rank], max(shares))
    if len(shares) > 1 and far and ahead[rank].lower > 0.0:
        return Blame(phase, rank, shares[rank])
    all_grown = all(of_rank.lower > 0.0 for of_rank in grown) and min(shares) >= WORTH_A_NAME
    return Blame(phase, None, min(shares)) if all_grown else Blame()


def _shifts(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], alpha: float
) -> list[Interval]:
    """By how much each rank's are above those of the other arm; a row a launch."""
    columns = zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True)
    return [shift(own, usual, alpha) for own, usual in columns]


def memory_blame(launches: Sequence[Launch]) -> Blame:
    """Whose resident set grows most; share: of its logarithm in 1,000 steps (training_runs.py)."""
    if not launches:
        return Blame()
    rounds = [[training_runs.growth(rank["memory"]) for rank in launch.run] for launch in launches]
    # Of every rank; a round alone is noisy.
    shares = [median(of_rank) for of_rank in zip(*rounds, strict=True)]
    rank = _at_fault(rounds, max(shares))
    share = min(shares) if rank is None else shares[rank]
    return Blame(MEMORY, rank, share) if share >= WORTH_A_NAME else Blame()
