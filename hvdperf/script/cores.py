"""Whether ranks had the cores and the memory that they needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from hvdperf.script.recorded import Rank

# Other programs disturb if they take so much of the cores, which are busy for so much of the time,
# and a rank waits for a core for so much of it: there may be room for all, or a rank may be waiting
# for something else.
LEAST_OTHERS, BUSY, LEAST_DELAY = 0.10, 0.85, 0.05
# A quota that stops ranks for a smaller share of the time does not matter.
_LEAST_WITHHELD = 0.01
# Pages that a rank waits for in a second, if its memory does not suffice.
_FAULTS = 50.0


@dataclass(frozen=True)
class Group:
    """Ranks of a host that may use the same cores. busy: cores that were not idle, on average. own:
    those of them that the ranks used. delayed: the largest share of the time for which the main
    thread of one of them waited for a core. waited: the largest number of threads of one of them
    that waited for a core, on average. allowed: the cores of their CPU quota; 0 without one.
    withheld: the share of the time for which that quota stopped them. seconds: that this is of."""

    ranks: Sequence[int]
    cores: int
    busy: float
    own: float
    delayed: float
    waited: float
    allowed: float = 0.0
    withheld: float = 0.0
    seconds: float = 0.0

    @property
    def others(self) -> float:
        """Return the share of the cores that other processes use; 0 if that disturbs no rank."""
        share = (self.busy - self.own) / self.cores
        is_full = self.busy > BUSY * self.cores and self.delayed > LEAST_DELAY
        return share if is_full and share > LEAST_OTHERS else 0.0

    @property
    def missing(self) -> float:
        """Return the share of a core that a rank lacks, because of other processes, a quota, or
        other ranks."""
        left = (1 - self.others) * (1 - self.withheld)
        return 1 - left * min(self.cores / len(self.ranks), 1.0)


def groups_of(ranks: Sequence[Rank]) -> list[Group]:
    """Return the ranks by the cores that they may use; without those of which that is unknown."""
    found: dict[tuple[str, tuple[int, ...]], list[Rank]] = {}
    for rank in ranks:
        if rank.cores is not None:
            found.setdefault((rank.host, rank.cores.cores), []).append(rank)
    return [_group(cores, own) for (_, cores), own in found.items()]


def _group(cores: Sequence[int], ranks: Sequence[Rank]) -> Group:
    used = [rank.cores for rank in ranks if rank.cores is not None]
    busy = fmean(each.busy / each.seconds for each in used)
    own = sum(each.own / each.seconds for each in used)
    delayed = max((rank.cpu.delayed for rank in ranks if rank.cpu is not None), default=0.0)
    waited = max(each.waited / each.seconds for each in used)
    most = max(used, key=lambda each: each.withheld / each.seconds)
    # The kernel adds up the cores that it withholds, which are more than a rank may need at once.
    withheld = min(most.withheld / most.seconds, delayed)
    withheld = withheld if withheld > _LEAST_WITHHELD else 0.0
    quota = most.allowed, withheld, most.seconds
    return Group([rank.rank for rank in ranks], len(cores), busy, own, delayed, waited, *quota)


def faults_of(ranks: Sequence[Rank]) -> Mapping[int, float]:
    """Return the pages a second for which ranks waited, of those where that is worth telling."""
    known = {rank.rank: rank.cores for rank in ranks if rank.cores is not None}
    faults = {rank: cores.faults / cores.seconds for rank, cores in known.items()}
    return {rank: pages for rank, pages in faults.items() if pages > _FAULTS}
