"""The terms of a step of a launch, from its timed blocks, and their growth from another launch.

A rank's step has three parts: the time between steps, the wait for its batch, and the rest, which
holds its computing, the wait for the other ranks, and the exchange. Blocks without exchange, if
there are any, measure each rank's computing. A rank that is done early waits in the exchange, so
the exchange itself is what the slowest rank has left. The extra time of rare long steps is in none
of them (hvdperf.explain.long_steps). Plain arithmetic on what was measured. No I/O.

Finds the ranks whose figures lie above those of the others: one rank, a group, or a host.

Numbers in, ranks out. A row holds the figures of all ranks in one round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, median

from hvdperf.explain.long_steps import usual_inside, usual_sum
from hvdperf.plan.arms import BlockKind, Side, Term
from hvdperf.records.rounds import Block, Launch, Pair
from hvdperf.stats import hodges_lehmann

Rows = Sequence[Sequence[float]]

# Highest probability that the ranks with the highest figures are named by chance. Of two ranks
# either may be it, so that one of them is named is twice as probable.
NAMED_BY_CHANCE = 0.025
# All ranks of a host are preferred to another group if they separate the figures this well,
# compared with the group that separates them best.
AS_GOOD_AS_A_HOST = 0.8


@dataclass(frozen=True)
class Group:
    """The ranks that lie above the others. host: the host of which they are all ranks; "" if they
    are not. ahead: their mean minus that of the others, in a typical round."""

    ranks: tuple[int, ...]
    host: str
    ahead: float


def group_apart(rows: Rows, hosts: Sequence[str] = ()) -> Group | None:
    """Return the ranks that lie above the others, but not all ranks; return None if there are none.

    The ranks are those that separate the typical figures of the rounds best (two classes with the
    largest variance between them, Otsu 1979). They are named if they lie above the others with
    97.5 % confidence. For this, each round is tested with the group that the other rounds suggest,
    because a group lies above the others in the rounds that it was chosen by. It takes at least six
    rounds (hvdperf.stats). rows: one a round. hosts: of the ranks; empty if they are not known.
    """
    ranks = len(rows[0])
    if ranks < 2 or len(rows) < 2:
        return None
    found = highest(_middles(rows), hosts)
    if not found:
        return None
    tested = []
    for number, row in enumerate(rows):
        others = [*rows[:number], *rows[number + 1 :]]
        tested.append(_ahead(row, highest(_middles(others), hosts)))
    if not hodges_lehmann(tested, NAMED_BY_CHANCE).lower > 0.0:
        return None
    return Group(found, host_of(found, hosts), median(_ahead(row, found) for row in rows))


def host_of(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Return the host, one of several, of which these are all ranks; return "" if there is none.
    hosts: of all ranks; empty if they are not known."""
    names = {hosts[rank] for rank in ranks} if len(set(hosts)) > 1 else set()
    name = names.pop() if len(names) == 1 else ""
    return name if name and len(ranks) == hosts.count(name) else ""


def without(ranks: Sequence[int], count: int) -> list[int]:
    """Return the other ranks of `count` ranks."""
    return [rank for rank in range(count) if rank not in ranks]


def _middles(rows: Rows) -> list[float]:
    """Return each rank's mean over the rounds without the highest and the lowest quarter of them: a
    few rounds do not matter, and it varies less than a median."""
    cut = len(rows) // 4
    return [fmean(sorted(own)[cut : len(rows) - cut]) for own in zip(*rows, strict=True)]


def _ahead(row: Sequence[float], ranks: Sequence[int]) -> float:
    """Return the mean of these ranks minus the mean of the others; 0 without these ranks."""
    if not ranks:
        return 0.0
    others = without(ranks, len(row))
    return fmean(row[rank] for rank in ranks) - fmean(row[rank] for rank in others)


def highest(figures: Sequence[float], hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks of the upper of the two classes that separate the figures best; () if all
    figures are the same."""
    order = sorted(range(len(figures)), key=lambda rank: -figures[rank])
    best, found = 0.0, 0
    total, so_far = sum(figures), 0.0
    for count, rank in enumerate(order[:-1], start=1):
        so_far += figures[rank]
        separated = _separated(so_far, total, count, len(figures))
        if separated > best:
            best, found = separated, count
    of_hosts = {
        tuple(rank for rank, its in enumerate(hosts) if its == host)
        for host in dict.fromkeys(hosts)
    }
    for mates in of_hosts if len(of_hosts) > 1 and found else ():
        its = sum(figures[rank] for rank in mates)
        above = its / len(mates) > total / len(figures)
        if above and _separated(its, total, len(mates), len(figures)) > AS_GOOD_AS_A_HOST * best:
            return mates
    return tuple(sorted(order[:found]))


def _separated(of_group: float, total: float, count: int, ranks: int) -> float:
    """Return the variance between a group of `count` ranks and the others, but for a constant
    factor."""
    others = ranks - count
    apart = of_group / count - (total - of_group) / others
    return count * others * apart * apart


# The parts of a step in which a rank does not depend on the others.
OWN = (Term.BETWEEN, Term.INPUT, Term.COMPUTE)


class Computing(Enum):
    """What is known of the computing of both sides.

    BOTH_SIDES: its seconds. OF_RANKS: only by how much the candidate's ranks differ. NOTHING: it
    cannot be told from the exchange.
    """

    BOTH_SIDES = "both sides"
    OF_RANKS = "of ranks"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Terms:
    """The seconds of the terms of one side's step. own: of each rank's own terms, by rank.
    exchange: what the slowest rank has left for the exchange; with Computing.NOTHING it holds the
    computing, too. in_common: seconds of computing that all ranks have in common, and that
    `exchange` holds, because the other side's are not known (Computing.OF_RANKS)."""

    own: Sequence[Mapping[Term, float]]
    exchange: float
    in_common: float = 0.0

    @property
    def step(self) -> float:
        """Seconds of the step: of the slowest rank's own terms, and the exchange."""
        return max(sum(rank.values()) for rank in self.own) + self.exchange

    def of(self, term: Term, ranks: Sequence[int]) -> float:
        """Return the seconds of a term, of an average of these ranks."""
        if term not in self.own[0]:
            return self.exchange
        mean = fmean(self.own[rank][term] for rank in ranks)
        return mean + self.in_common if term is Term.COMPUTE else mean


@dataclass(frozen=True)
class Growth:
    """The growth of the terms from a reference to a candidate in one round, as shares of the
    reference's time for the same work. own: of each rank's own terms, by rank. exchange: of the
    exchange. whole: of the step. usual: the reference's terms, by the candidate's ranks."""

    own: Sequence[Mapping[Term, float]]
    exchange: float
    whole: float
    candidate: Terms
    usual: Terms


def computing_known(ours: Side, theirs: Side, pairs: Sequence[Pair]) -> Computing:
    """Return what all of these launches tell of computing. pairs: one a round."""
    if not all(launch.of_kind(BlockKind.LOCAL) for launch, _ in pairs):
        return Computing.NOTHING
    # Blocks without exchange take a whole batch, and split ones a part of it.
    if ours.kind is BlockKind.SPLIT:
        return Computing.OF_RANKS
    # One replica alone exchanges nothing.
    alone = theirs.arm.world_size == 1
    both = alone or all(launch.of_kind(BlockKind.LOCAL) for _, launch in pairs)
    return Computing.BOTH_SIDES if both else Computing.OF_RANKS


def grown(candidate: Terms, usual: Terms, ideal: float) -> Growth:
    """Return the growth from one side's terms to the other's. ideal: seconds that a step of the
    candidate should take, for one second of the reference's."""
    whole = usual.step * ideal
    if len(usual.own) != len(candidate.own):
        mean = {term: fmean(rank[term] for rank in usual.own) for term in usual.own[0]}
        usual = Terms([mean] * len(candidate.own), usual.step - sum(mean.values()))
    return Growth(
        own=[
            {term: (rank[term] - ideal * before[term]) / whole for term in rank}
            for rank, before in zip(candidate.own, usual.own, strict=True)
        ],
        exchange=(candidate.exchange - ideal * usual.exchange) / whole,
        whole=candidate.step / whole - 1.0,
        candidate=candidate,
        usual=usual,
    )


def terms_of(launch: Launch, side: Side, known: Computing) -> Terms:
    """Return the terms of a side's steps, as far as computing is known."""
    local = bool(launch.of_kind(BlockKind.LOCAL)) and known is not Computing.NOTHING
    ranks = of_steps(launch, side.kind, with_local=local)
    if local and side.kind is BlockKind.SPLIT:
        part = 1 / launch.arm.world_size
        ranks = [_computing_part(rank, part) for rank in ranks]
    if known is Computing.BOTH_SIDES and not local:  # one replica alone
        ranks = [{**rank, Term.COMPUTE: rank[Term.EXCHANGE], Term.EXCHANGE: 0.0} for rank in ranks]
    left = min(rank[Term.EXCHANGE] for rank in ranks)
    of_ranks = known is Computing.OF_RANKS
    in_common = min(rank[Term.COMPUTE] for rank in ranks) if of_ranks else 0.0
    return Terms(
        [
            {term: rank[term] - (in_common if term is Term.COMPUTE else 0.0) for term in OWN}
            for rank in ranks
        ],
        left + in_common,
        in_common,
    )


def of_steps(launch: Launch, kind: BlockKind, with_local: bool) -> list[dict[Term, float]]:
    """Return the seconds of a typical step's terms, by rank, from blocks of that kind. with_local:
    divide computing from the exchange by blocks without exchange. Without it, Term.EXCHANGE holds
    both. Term.EXCHANGE holds the wait for the other ranks."""
    blocks, local = launch.of_kind(kind), launch.of_kind(BlockKind.LOCAL)
    result = []
    for rank in range(len(blocks[0].ranks)):
        computing = median(usual_inside(block, rank) for block in local) if with_local else 0.0
        inside = median(usual_inside(block, rank) for block in blocks)
        result.append(
            {
                Term.BETWEEN: median(_between(block, rank) for block in blocks),
                Term.INPUT: median(_waiting(block, rank) for block in blocks),
                Term.COMPUTE: computing,
                Term.EXCHANGE: inside - computing,
            }
        )
    return result


def _computing_part(rank: Mapping[Term, float], part: float) -> dict[Term, float]:
    """Return the terms of a step that computes only this part of what blocks without exchange
    compute."""
    less = (1 - part) * rank[Term.COMPUTE]
    changed = {Term.COMPUTE: rank[Term.COMPUTE] - less, Term.EXCHANGE: rank[Term.EXCHANGE] + less}
    return {**rank, **changed}


def _waiting(block: Block, rank: int) -> float:
    return usual_sum(block.ranks[rank].input_seconds) / block.steps


def _between(block: Block, rank: int) -> float:
    whole = usual_sum(block.ranks[rank].step_seconds) / block.steps
    return whole - _waiting(block, rank) - usual_inside(block, rank)
