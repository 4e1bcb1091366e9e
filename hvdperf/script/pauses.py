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

from hvdperf.explain.time_breakdown import standing_out
from hvdperf.script.recorded import Pause, Rank
from hvdperf.worker.script.tap._hvdperf_recorder import BEAT_S, FIRST

# Of a stopped process: CPU time, and how often a second a thread may have begun to wait. Both come
# from before and after the stop, within a beat or two.
_IDLE, _FEW, _BEATS = 0.1, 20.0, 2.0


@dataclass(frozen=True)
class Stop:
    """The pauses of the rank that did not run for longest. rank: None if others were stopped for at
    least half as long. count: number of pauses. seconds: of all of them. share: of its time.
    is_starved: whether it had no core; else it was stopped."""

    rank: int | None
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
    """Return the longest stop of a rank; None if all ran all the time."""
    paused = {rank.rank: sum(each.seconds for each in _pauses(rank)) for rank in ranks}
    worst = max(ranks, key=lambda rank: paused[rank.rank], default=None)
    if worst is None or worst.steps is None or not (worst.steps.sums and paused[worst.rank]):
        return None
    pauses, seconds = _pauses(worst), paused[worst.rank]
    starved = sum(each.seconds for each in pauses if _is_starved(each))
    share = min(seconds / worst.steps.sums, 1.0)
    alone = standing_out(paused) if len(ranks) > 1 else worst.rank
    return Stop(alone, len(pauses), seconds, share, 2 * starved > seconds)
