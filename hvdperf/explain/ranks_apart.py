"""Finds the ranks whose figures lie above those of the others: one rank, a group, or a host.

Numbers in, ranks out. A row holds the figures of all ranks in one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

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
