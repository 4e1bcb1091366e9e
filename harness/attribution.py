"""Where the time went that one launch takes longer than another of the same arm, and whose it is.

From blocks: of every rank's step the time between steps, the wait for its batch, and the rest.
Where blocks without exchange were taken too, the rest is told apart into computing (with applying)
and the exchange, in which the ranks wait for each other. What a rank does by itself tells who is at
fault: if one rank is late, the others merely wait. Names of terms are the ledger's
(harness.ledger.TERMS).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.measurement import Block, Launch
from harness.plan import BlockKind

# Besides each phase of a start-up.
BETWEEN, INPUT, COMPUTE, EXCHANGE = (
    "between steps",
    "input wait",
    "compute",
    "exposed communication",
)
# Terms that only blocks without exchange tell apart.
TOLD_APART = (COMPUTE, EXCHANGE)
# Growth below this share of a step, or of the phases of a start, is nobody's fault.
WORTH_A_NAME = 0.02
# A rank is at fault if what it alone does is this much of what the step has grown by: what slows
# its computing slows its part in the exchange, too.
OWN_SHARE = 1 / 3


@dataclass(frozen=True)
class Blame:
    """term: what takes longer; empty if nothing does. rank: whose; None if all take longer alike.
    share: by how much of the step, or of that phase of the start."""

    term: str = ""
    rank: int | None = None
    share: float = 0.0

    def __str__(self) -> str:
        if not self.term:
            return "nothing takes longer"
        whose = "all ranks" if self.rank is None else f"rank {self.rank}"
        return f"{self.term} of {whose} (+{100 * self.share:.0f} %)"


def steps_blame(slow: Launch, usual: Launch) -> Blame:
    """Why steps of `slow` take longer than those of `usual`, a launch of the same arm beside it."""
    ours, theirs = of_steps(slow), of_steps(usual)
    whole = median(sum(rank.values()) for rank in theirs)
    grown = [
        {term: rank[term] - before[term] for term in rank}
        for rank, before in zip(ours, theirs, strict=True)
    ]
    return _blame(grown, whole)


def _blame(grown: Sequence[Mapping[str, float]], whole: float) -> Blame:
    """Of the seconds that each rank's terms have grown by, of a step of so many: first what one
    rank does by itself and the others do not, then what all of them do."""
    own = [sum(seconds for term, seconds in rank.items() if term != EXCHANGE) for rank in grown]
    rank = max(range(len(own)), key=own.__getitem__)
    others = [seconds for number, seconds in enumerate(own) if number != rank]
    longer = max(sum(terms.values()) for terms in grown)
    if own[rank] - max(others, default=0.0) >= max(WORTH_A_NAME * whole, OWN_SHARE * longer):
        ours = {term: seconds for term, seconds in grown[rank].items() if term != EXCHANGE}
        term = max(ours, key=ours.__getitem__)
        return Blame(term, rank, ours[term] / whole)
    alike = {term: min(each[term] for each in grown) for term in grown[0]}
    term = max(alike, key=alike.__getitem__)
    if alike[term] < WORTH_A_NAME * whole:
        return Blame()
    return Blame(term, None, alike[term] / whole)


def of_steps(launch: Launch) -> list[dict[str, float]]:
    """Seconds of a typical step's terms, by rank; without blocks that exchange nothing, computing
    and the exchange are both in the latter."""
    full, local = launch.of_kind(BlockKind.FULL), launch.of_kind(BlockKind.LOCAL)
    result = []
    for rank in range(len(full[0].ranks)):
        computing = median(_inside(block, rank) for block in local) if local else 0.0
        inside = median(_inside(block, rank) for block in full)
        result.append(
            {
                BETWEEN: median(_between(block, rank) for block in full),
                INPUT: median(_waiting(block, rank) for block in full),
                COMPUTE: computing,
                EXCHANGE: inside - computing,
            }
        )
    return result


def _inside(block: Block, rank: int) -> float:
    return float(block.ranks[rank]["inside_seconds"]) / block.steps


def _waiting(block: Block, rank: int) -> float:
    return float(sum(block.ranks[rank]["input_seconds"])) / block.steps


def _between(block: Block, rank: int) -> float:
    whole = float(sum(block.ranks[rank]["step_seconds"])) / block.steps
    return whole - _waiting(block, rank) - _inside(block, rank)


def start_blame(phase: str, slow: Launch, usual: Launch) -> Blame:
    """Whose fault it is that a phase of the start takes longer."""
    before = median(rank[phase] for rank in usual.startup_seconds)
    grown = [rank[phase] - before for rank in slow.startup_seconds]
    rank = max(range(len(grown)), key=grown.__getitem__)
    if grown[rank] < WORTH_A_NAME * before:
        return Blame()
    return Blame(phase, rank, grown[rank] / before)


def most_often(blames: Sequence[Blame]) -> Blame:
    """What more than half of the rounds say; nothing where they do not agree."""
    counts = Counter((blame.term, blame.rank) for blame in blames)
    if not counts:
        return Blame()
    (term, rank), times = counts.most_common(1)[0]
    if not term or 2 * times <= len(blames):
        return Blame()
    alike = [blame.share for blame in blames if (blame.term, blame.rank) == (term, rank)]
    return Blame(term, rank, median(alike))
