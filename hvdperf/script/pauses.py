"""Processes that did not run for a while, and whether they were stopped or had no core.

A thread of the recorder only sleeps, for 50 ms each time. If it wakes up more than a second too
late, the process did not run meanwhile, or its main thread held Python's interpreter. It is

- starved, if what had to wake up could run and had no core for most of the time,
- stopped (SIGSTOP, a frozen container, a suspended machine), if next to nothing else of the process
  ran either: Horovod's own thread alone begins to wait a thousand times a second,
- and otherwise the script's own work.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from hvdperf.script.recorded import Pause, Rank
from hvdperf.worker.script.tap._hvdperf_recorder import BEAT_S, FIRST

# Of a stopped process: CPU time, and how often a second a thread may have begun to wait. Both come
# from before and after the stop, within a beat or two.
_IDLE, _FEW, _BEATS = 0.1, 20.0, 2.0


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
