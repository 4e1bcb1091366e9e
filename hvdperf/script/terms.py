"""Where the time of a step goes, by the stamps of all ranks.

A step of a rank lasts from the end of its call before to the end of its call. In that order it

- runs the script's own code (between),
- waits for input (input),
- computes up to its last gradient (compute),
- waits for the last rank to have computed its last gradient (waiting),
- exchanges what is not exchanged yet (exchange): what a step takes longer because of Horovod,
- and changes the weights (update).

Every boundary is a stamp of its own, so the terms add up to the step; what does not, because stamps
of several ranks contradict each other, is the residual.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from math import exp, log
from statistics import fmean, median

from hvdperf.script.recorded import BIN, FIRST, Rank, Row, Steps
from hvdperf.stats import Interval, hodges_lehmann


class Term(Enum):
    """A part of a step, with what it is called."""

    BETWEEN = "the script between steps"
    INPUT = "waiting for input"
    COMPUTE = "compute until the last gradient"
    WAITING = "waiting for the last rank"
    EXCHANGE = "exchange"
    UPDATE = "update of the weights"
    # Of steps without stamps in the graph: all but BETWEEN and INPUT.
    CALL = "the step itself"


# What a rank does by itself: if this takes longer on one rank, the others wait.
OWN = (Term.BETWEEN, Term.INPUT, Term.COMPUTE)
# Steps that are judged together, one block after the other; fewer decide nothing.
BLOCKS = 12
# A rank is slower than the others if its own time is so much longer, with this error rate.
LEAST_SLOWER, ALPHA = 0.03, 0.005
# A step is slow if it takes so many times the median.
SLOW = 2.0


@dataclass(frozen=True)
class OfRank:
    """The mean seconds of a step of one rank by term, and what is left. period: of the steps that
    were kept."""

    rank: int
    terms: Mapping[Term, float]
    period: float

    @property
    def own(self) -> float:
        """Return the seconds of what it does by itself."""
        return sum(self.terms.get(term, 0.0) for term in OWN)

    @property
    def residual(self) -> float:
        return self.period - sum(self.terms.values())


@dataclass(frozen=True)
class Slower:
    """A rank whose own time is longer than that of the others. longer: its ratio to their median,
    less 1, with bounds. term: in which it is longest. waited: seconds of a step that the other
    ranks wait for the last one, on average."""

    rank: int
    longer: Interval
    term: Term
    waited: float


@dataclass(frozen=True)
class Tail:
    """Steps that take more than SLOW times the median, of the rank that lost most time in them.
    count, of: how many, and of how many steps. share: of its time, what they took beyond the
    median. retraced: whether the function was traced in most of the slowest. rank, term: what the
    slowest spent most time in beyond what is usual; waiting for another rank does not count."""

    count: int
    of: int
    share: float
    retraced: bool
    rank: int
    term: Term


@dataclass(frozen=True)
class Parts:
    """Where the time of a step goes. by_rank: in the order of ranks. steps: number of steps that
    all ranks kept. last: share of the steps in which each rank's last gradient came last."""

    by_rank: Sequence[OfRank]
    steps: int
    last: Mapping[int, float]
    slower: Slower | None

    @property
    def has_stamps(self) -> bool:
        return any(Term.COMPUTE in each.terms for each in self.by_rank)

    @property
    def period(self) -> float:
        return fmean(each.period for each in self.by_rank)

    def share(self, term: Term) -> float:
        """Return the share of a step that a term takes, on average over ranks."""
        return fmean(each.terms.get(term, 0.0) for each in self.by_rank) / self.period


def parts_of(ranks: Sequence[Rank]) -> Parts | None:
    """Return where the time goes in the steps that all ranks kept; None if there are none."""
    rows = [
        {row.number: row for row in rank.steps.rows if row.number > FIRST} if rank.steps else {}
        for rank in ranks
    ]
    common = sorted(set.intersection(*map(set, rows))) if rows else []
    if not common:
        return None
    offsets = _offsets(ranks, rows, common)
    table: list[list[Mapping[Term, float]]] = [[] for _ in ranks]
    came_last = [0] * len(ranks)
    stamped = 0
    for index in common:
        step = [_shifted(row[index], by) for row, by in zip(rows, offsets, strict=True)]
        ready = max(row.ready for row in step) if all(row.done for row in step) else 0.0
        if ready:
            stamped += 1
            came_last[max(range(len(step)), key=lambda at: step[at].ready)] += 1
        for place, row in enumerate(step):
            table[place].append(_terms(row, ready))
    by_rank = [
        OfRank(
            rank.rank,
            {term: fmean(each.get(term, 0.0) for each in own) for term in Term if _has(own, term)},
            fmean(row[index].period for index in common),
        )
        for rank, own, row in zip(ranks, table, rows, strict=True)
    ]
    last = {
        rank.rank: count / stamped if stamped else 0.0
        for rank, count in zip(ranks, came_last, strict=True)
    }
    return Parts(by_rank, len(common), last, _slower(by_rank, table))


def _has(own: Sequence[Mapping[Term, float]], term: Term) -> bool:
    return any(term in each for each in own)


def _offsets(
    ranks: Sequence[Rank], rows: Sequence[Mapping[int, Row]], common: Sequence[int]
) -> list[float]:
    """Return how far each rank's clock is ahead of the first rank's, in seconds. An exchange ends
    on all ranks at nearly the same time; hosts that are the first rank's have its clock."""
    found = []
    for rank, own in zip(ranks, rows, strict=True):
        both = [index for index in common if own[index].done and rows[0][index].done]
        if rank.host == ranks[0].host or not both:
            found.append(0.0)
        else:
            found.append(median(own[index].done - rows[0][index].done for index in both))
    return found


def _shifted(row: Row, by: float) -> Row:
    if not by:
        return row
    stamps = (each and each - by for each in (row.ready, row.done))
    times = (row.before - by, row.begin - by, row.end - by)
    return Row(row.number, *times, row.input_outside, row.input_within, *stamps)


def _terms(row: Row, ready: float) -> dict[Term, float]:
    """Return the seconds of a step by term. ready: when the last rank had its last gradient; 0 if
    that is unknown."""
    found = {
        Term.BETWEEN: row.begin - row.before - row.input_outside,
        Term.INPUT: row.input,
    }
    if not ready:
        found[Term.CALL] = row.end - row.begin - row.input_within
        return found
    found[Term.COMPUTE] = row.ready - row.begin - row.input_within
    # A rank that has all gradients of the others before the last one's stamp has not waited.
    met = min(ready, row.done)
    found[Term.WAITING] = met - row.ready
    found[Term.EXCHANGE] = row.done - met
    found[Term.UPDATE] = row.end - row.done
    return found


def _slower(
    by_rank: Sequence[OfRank], table: Sequence[Sequence[Mapping[Term, float]]]
) -> Slower | None:
    """Return the rank whose own time is longer than that of the others, by blocks of steps; None if
    no rank's is, or if there are no stamps."""
    count = len(table[0])
    if len(by_rank) < 2 or count < 2 * BLOCKS or not _has(table[0], Term.COMPUTE):
        return None
    edges = [count * at // BLOCKS for at in range(BLOCKS + 1)]
    own = [
        [
            median(sum(each.get(term, 0.0) for term in OWN) for each in of_rank[begin:end])
            for begin, end in itertools.pairwise(edges)
        ]
        for of_rank in table
    ]
    found = []
    for place, mine in enumerate(own):
        others = [blocks for at, blocks in enumerate(own) if at != place]
        ratios = [
            log(max(mine[at], 1e-9) / max(median(blocks[at] for blocks in others), 1e-9))
            for at in range(BLOCKS)
        ]
        longer = hodges_lehmann(ratios, ALPHA / len(own))
        if longer.lower > log(1 + LEAST_SLOWER):
            found.append((longer, place))
    if not found:
        return None
    longer, place = max(found, key=lambda each: each[0].estimate)
    others_by_rank = [each for at, each in enumerate(by_rank) if at != place]

    def excess(term: Term) -> float:
        usual = median(each.terms.get(term, 0.0) for each in others_by_rank)
        return by_rank[place].terms.get(term, 0.0) - usual

    return Slower(
        by_rank[place].rank,
        Interval(
            exp(longer.estimate) - 1,
            exp(longer.lower) - 1,
            exp(longer.upper) - 1,
            longer.alpha,
            BLOCKS,
        ),
        max(OWN, key=excess),
        fmean(each.terms.get(Term.WAITING, 0.0) for each in others_by_rank),
    )


def percentile(bins: Sequence[tuple[int, int]], share: float) -> float:
    """Return the step time below which this share of the steps lies, in seconds, to a bin."""
    wanted = share * sum(count for _, count in bins)
    seen = 0
    for place, count in bins:
        seen += count
        if seen >= wanted:
            return exp(place * BIN)
    raise ValueError("there is no step")


def tail_of(ranks: Sequence[Rank], parts: Parts) -> Tail | None:
    """Return the slow steps; None if there are none."""
    worst: tuple[float, int, Steps] | None = None
    slow: set[int] = set()
    retraced = 0
    for rank in ranks:
        steps = rank.steps
        if steps is None or not steps.summed:
            continue
        usual = percentile(steps.bins, 0.5)
        seconds = [(exp(place * BIN), count) for place, count in steps.bins]
        beyond = [(each - usual, count) for each, count in seconds if each > SLOW * usual]
        lost = sum(each * count for each, count in beyond) / steps.sums
        found = (lost, sum(count for _, count in beyond), steps)
        if found[1] and (worst is None or lost > worst[0]):
            worst = found
            slow = {each.row.number for each in steps.slowest if each.row.period > SLOW * usual}
            retraced = sum(each.retraced for each in steps.slowest if each.row.number in slow)
    if worst is None or not slow:
        return None
    share, count, steps = worst
    return Tail(count, steps.summed, share, 2 * retraced > len(slow), *_cause(ranks, parts, slow))


def _cause(ranks: Sequence[Rank], parts: Parts, slow: Set[int]) -> tuple[int, Term]:
    """Return in which term of which rank slow steps took more time than is usual. slow: their
    indexes."""
    rows = []
    for rank in ranks:
        assert rank.steps is not None
        known = [*(each.row for each in rank.steps.slowest), *rank.steps.rows]
        rows.append({row.number: row for row in known if row.number in slow})
    more: dict[tuple[int, Term], float] = {}
    for index in slow:
        step = {at: own[index] for at, own in enumerate(rows) if index in own}
        is_whole = len(step) == len(ranks) and all(row.done for row in step.values())
        ready = max(row.ready for row in step.values()) if is_whole else 0.0
        for at, row in step.items():
            usual = parts.by_rank[at].terms
            for term, seconds in _terms(row, ready).items():
                if term is not Term.WAITING:
                    key = ranks[at].rank, term
                    more[key] = more.get(key, 0.0) + seconds - usual.get(term, 0.0)
    return max(more, key=more.__getitem__)
