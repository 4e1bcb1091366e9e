"""Whether ranks had the cores that they need: processes that did not run for a while, and other
programs on the same cores.

A thread of the recorder only sleeps, for 50 ms each time. If it wakes up more than a second too
late, the process did not run meanwhile, or its main thread held Python's interpreter. It is

- starved, if what had to wake up could run and had no core for most of the time,
- stopped (SIGSTOP, a frozen container, a suspended machine), if next to nothing else of the process
  ran either: Horovod's own thread alone begins to wait a thousand times a second,
- and otherwise the script's own work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean

from hvdperf.script.recorded import Pause, Rank
from hvdperf.worker.script.tap._hvdperf_recorder import BEAT_S, FIRST

# Of a stopped process: CPU time, and how often a second a thread may have begun to wait. Both come
# from before and after the stop, within a beat or two.
_IDLE, _FEW, _BEATS = 0.1, 20.0, 2.0
# Other programs disturb if they take so much of the cores, which are busy for so much of the time,
# and a rank waits for a core for so much of it: there may be room for all, or a rank may be waiting
# for something else.
LEAST_OTHERS, BUSY, LEAST_DELAY = 0.10, 0.85, 0.05
# A quota that stops ranks for a smaller share of the time does not matter.
_LEAST_WITHHELD = 0.01
# Pages that a rank waits for in a second, if its memory does not suffice.
_FAULTS = 50.0


@dataclass(frozen=True)
class Stop:
    """A rank that did not run for some time. seconds: of all its pauses. share: of its time.
    is_starved: whether it had no core; else it was stopped. count: number of pauses."""

    rank: int
    count: int
    seconds: float
    share: float
    is_starved: bool


def _is_starved(pause: Pause) -> bool:
    return pause.delayed > pause.seconds / 2


def _is_stopped(pause: Pause) -> bool:
    most = pause.usual * _BEATS * BEAT_S + _FEW * pause.seconds
    least = _BEATS * BEAT_S * (1 + pause.cpu / max(pause.seconds, 1.0))
    return pause.switches < most and pause.cpu < _IDLE * pause.seconds + least


def _pauses(rank: Rank) -> list[Pause]:
    """Return when a rank did not run in its steps after the warm-up, whether stopped or starved."""
    steps = rank.steps
    if steps is None:
        return []
    first = next((row.end for row in steps.rows if row.number >= FIRST), steps.ended)
    return [
        each
        for each in rank.pauses
        if first < each.end
        and each.begin < steps.ended
        and (_is_starved(each) or _is_stopped(each))
    ]


def paused_steps(ranks: Sequence[Rank]) -> Set[int]:
    """Return the numbers of steps in which a rank did not run for a while."""
    return {
        row.number
        for rank in ranks
        for pause in _pauses(rank)
        for row in (rank.steps.kept.values() if rank.steps is not None else ())
        if row.before < pause.end and pause.begin < row.end
    }


def stop_of(ranks: Sequence[Rank]) -> Stop | None:
    """Return the rank that did not run for longest; None if all ran all the time."""
    found = []
    for rank in ranks:
        pauses = _pauses(rank)
        if pauses and rank.steps is not None and rank.steps.sums:
            seconds = sum(each.seconds for each in pauses)
            starved = sum(each.seconds for each in pauses if _is_starved(each))
            share = min(seconds / rank.steps.sums, 1.0)
            found.append(Stop(rank.rank, len(pauses), seconds, share, 2 * starved > seconds))
    return max(found, key=lambda each: each.seconds, default=None)


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
