"""The steps of launches: rare long ones, the terms of a usual one, and the ranks that lie above the
others.

Rare long steps, which a median hides: how often, how much longer, and on which rank they begin.

A rank's step has three parts: the time between steps, the wait for its batch, and the rest, which
holds its computing, the wait for the other ranks, and the exchange. Blocks without exchange, if
there are any, measure each rank's computing. A rank that is done early waits in the exchange, so
the exchange itself is what the slowest rank has left. The extra time of rare long steps is in none
of them.

Plain arithmetic on what was measured. No I/O.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise
from statistics import fmean, median

from hvdperf.plan.arms import BlockKind, Side, Term
from hvdperf.records.rounds import Block, BlockReport, Launch, Pair, is_disturbed
from hvdperf.stats import hodges_lehmann, spread

# Rare long steps ---------------------------------------------------------------------------------

# A step is long if it takes this many times the median, and lies this many standard deviations
# above it.
FACTOR = 2.0
DEVIATIONS = 8.0
# Long steps are told from this number on, and from this share of the time on.
FEWEST = 3
WORTH_A_WORD = 0.02
# The first steps of a run may be long without being rare (the fixed cost shows them).
FIRST_STEPS = 5
# A rank is named if this share of the long steps begins on it.
MOSTLY = 0.8


@dataclass(frozen=True)
class LongSteps:
    """Rare long steps. rank: on which they begin; None if that cannot be told. count: number of
    long steps; steps: of all steps. extra_seconds: their mean extra time. share: their extra time /
    the time of all steps."""

    rank: int | None
    count: int
    steps: int
    extra_seconds: float
    share: float

    def __str__(self) -> str:
        whose = "a step" if self.rank is None else f"a step of rank {self.rank}"
        return (
            f"{whose} in {self.steps / self.count:.0f} takes {self.extra_seconds:.2g} s longer "
            f"({100 * self.share:.0f} % of the time)"
        )


# Steps of a launch by rank: of each step its seconds, and those of it that the rank spends before
# it meets the others.
Steps = Sequence[Sequence[tuple[float, float]]]


def long_steps(launches: Sequence[Launch]) -> LongSteps | None:
    """Return the rare long steps of launches of an arm; None if there are too few to be told.
    Blocks that other programs disturbed are left out."""
    found = [_begun_on(steps) for launch in launches if (steps := _steps(launch, BlockKind.FULL))]
    events = [event for of_launch in found for event in of_launch[0]]
    taken, seconds = sum(each[1] for each in found), sum(each[2] for each in found)
    least = _least([extra for _, extra in events])
    events = [event for event in events if event[1] >= least]
    extra = [event[1] for event in events]
    if len(events) < FEWEST or sum(extra) < WORTH_A_WORD * seconds:
        return None
    # In a single one of several launches, it is what happened to that launch.
    if len(found) > 1 and sum(any(own >= least for _, own in each[0]) for each in found) < 2:
        return None
    rank = _mostly(event[0] for event in events)
    if rank is None:
        # In steps without exchange, no rank waits for another one.
        rank = _mostly(
            rank
            for launch in launches
            for rank, own in enumerate(_steps(launch, BlockKind.LOCAL))
            for extra_seconds in excess([seconds for seconds, _ in own])
            if extra_seconds >= least
        )
    return LongSteps(rank, len(events), taken, fmean(extra), sum(extra) / seconds)


def _least(extra: Sequence[float]) -> float:
    """Return the least extra seconds of the long steps that are reported together. Half of all
    extra time is in steps with a certain excess or less; a step with less than half of that excess
    is another matter, such as what other programs do."""
    rising = sorted(extra)
    middle = bisect_left(list(accumulate(rising)), sum(rising) / 2)
    return rising[middle] / 2 if rising else 0.0


def excess(seconds: Sequence[float]) -> list[float]:
    """Return for each step by how many seconds it exceeds the median if it is long, and else 0."""
    if not seconds:
        return []
    middle = median(seconds)
    limit = max(FACTOR * middle, middle + DEVIATIONS * spread(seconds))
    return [own - middle if own > limit else 0.0 for own in seconds]


def usual_sum(seconds: Sequence[float]) -> float:
    """Return the sum of all steps' seconds, without the extra time of long steps."""
    return sum(seconds) - sum(excess(seconds))


def usual_seconds(report: BlockReport) -> float:
    """Return a rank's seconds of a block, without the extra time of long steps."""
    return report.seconds - sum(excess(report.step_seconds))


def usual_inside(block: Block, rank: int) -> float:
    """Return the mean seconds of a step from its batch on, without the extra time of long steps."""
    own = block.ranks[rank]
    waited = excess(own.input_seconds)
    longer = sum(
        max(0.0, whole - of_input)
        for whole, of_input in zip(excess(own.step_seconds), waited, strict=False)
    )
    # A step that is long before its batch is not long inside.
    return max(own.inside_seconds - longer, 0.0) / block.steps or block.inside_seconds(rank)


def _begun_on(ranks: Steps) -> tuple[list[tuple[int | None, float]], int, float]:
    """Return the long steps, the number of all steps, and their seconds. Of each long step: the
    rank on which it begins, and its extra seconds."""
    longer = [excess([seconds for seconds, _ in own]) for own in ranks]
    usual = [median(before for _, before in own) for own in ranks]
    events: list[tuple[int | None, float]] = []
    for number in range(len(ranks[0])):
        extra = max(own[number] for own in longer)
        if extra <= 0.0:
            continue
        before = [own[number][1] - usually for own, usually in zip(ranks, usual, strict=True)]
        first = before.index(max(before))
        alone = len(ranks) == 1 or before[first] >= extra / 2
        events.append((first if alone else None, extra))
    slowest = max(sum(seconds for seconds, _ in own) for own in ranks)
    return events, len(ranks[0]), slowest


def _steps(launch: Launch, kind: BlockKind) -> Steps:
    """Return the steps of a launch, of its run with timestamps if it has one, else of its
    blocks; [] without any."""
    runs = [rank.timestamps[FIRST_STEPS:] for rank in launch.run]
    if kind is BlockKind.FULL and runs and all(len(own) > 1 for own in runs):
        return [
            [(after[-1] - last[-1], after[1] - last[-1]) for last, after in pairwise(own)]
            for own in runs
        ]
    blocks = [
        block for block in launch.of_kind(kind) if _is_whole(block) and not is_disturbed([block])
    ]
    if not blocks:
        return []
    return [
        [step for block in blocks for step in _of_block(block.ranks[rank])]
        for rank in range(min(len(block.ranks) for block in blocks))
    ]


def _of_block(report: BlockReport) -> list[tuple[float, float]]:
    """Return a rank's steps of a block. The time between its steps is only known of all of them
    together; it counts to the longest step, where it matters if that step is long."""
    steps = list(zip(report.step_seconds, report.input_seconds, strict=True))
    between = sum(report.step_seconds) - sum(report.input_seconds) - report.inside_seconds
    longest = max(range(len(steps)), key=lambda number: steps[number][0])
    seconds, waited = steps[longest]
    steps[longest] = seconds, min(seconds, waited + max(0.0, between))
    return steps


def _is_whole(block: Block) -> bool:
    """Return whether every rank reported a finite time of every step, and of its input."""
    return all(
        len(rank.step_seconds) == len(rank.input_seconds) == block.steps
        and all(map(math.isfinite, (*rank.step_seconds, *rank.input_seconds)))
        for rank in block.ranks
    )


def _mostly(ranks: Iterable[int | None]) -> int | None:
    """Return the rank of most of the long steps, or None."""
    found = list(ranks)
    most = max(found, key=found.count, default=None)
    return most if found and found.count(most) >= MOSTLY * len(found) else None


# The ranks above the others ----------------------------------------------------------------------

# A row holds the figures of all ranks in one round.
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


# Terms -------------------------------------------------------------------------------------------

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

    @property
    def rest(self) -> Term:
        """Return the term that is left when the ranks' own are taken off."""
        return Term.EXCHANGE if self is Computing.BOTH_SIDES else Term.INSIDE


# The seconds of the terms of one side's step, by rank: its own, and what the slowest rank has left
# for the exchange, which with Computing.NOTHING holds the computing, too.
Terms = Sequence[Mapping[Term, float]]


def _step(terms: Terms) -> float:
    """Return the seconds of the step: of the slowest rank's own terms, and the exchange."""
    return max(sum(rank.values()) for rank in terms)


@dataclass(frozen=True)
class Growth:
    """The growth of the terms from a reference to a candidate in one round, by rank, as shares of
    the reference's time for the same work. whole: of the step. usual_step: seconds of the
    reference's step."""

    ranks: Terms
    whole: float
    usual_step: float


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
    usual_step = _step(usual)
    whole = usual_step * ideal
    if len(usual) != len(candidate):
        mean = {term: fmean(rank[term] for rank in usual) for term in usual[0]}
        *own, rest = mean
        mean[rest] = usual_step - sum(mean[term] for term in own)
        usual = [mean] * len(candidate)
    return Growth(
        [
            {term: (seconds - ideal * before[term]) / whole for term, seconds in rank.items()}
            for rank, before in zip(candidate, usual, strict=True)
        ],
        _step(candidate) / whole - 1.0,
        usual_step,
    )


def terms_of(launch: Launch, side: Side, known: Computing) -> Terms:
    """Return the terms of a side's steps, as far as computing is known."""
    local = bool(launch.of_kind(BlockKind.LOCAL)) and known is not Computing.NOTHING
    ranks = of_steps(launch, side.kind, with_local=local)
    if local and side.kind is BlockKind.SPLIT:
        # Blocks without exchange compute a whole batch, and a rank of these steps its part of it.
        less = 1 - 1 / launch.arm.world_size
        for rank in ranks:
            rank[Term.EXCHANGE] += less * rank[Term.COMPUTE]
            rank[Term.COMPUTE] -= less * rank[Term.COMPUTE]
    if known is Computing.BOTH_SIDES and not local:  # one replica alone
        ranks = [{**rank, Term.COMPUTE: rank[Term.EXCHANGE], Term.EXCHANGE: 0.0} for rank in ranks]
    left = min(rank.pop(Term.EXCHANGE) for rank in ranks)
    # The exchange holds computing that all ranks have in common, if the other side's is not known.
    of_ranks = known is Computing.OF_RANKS
    in_common = min(rank[Term.COMPUTE] for rank in ranks) if of_ranks else 0.0
    for rank in ranks:
        rank[Term.COMPUTE] -= in_common
        rank[known.rest] = left + in_common
    return ranks


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


def _waiting(block: Block, rank: int) -> float:
    return usual_sum(block.ranks[rank].input_seconds) / block.steps


def _between(block: Block, rank: int) -> float:
    whole = usual_sum(block.ranks[rank].step_seconds) / block.steps
    return whole - _waiting(block, rank) - usual_inside(block, rank)
