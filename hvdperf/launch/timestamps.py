"""Times of a launch: of its phases, by the ranks' clocks, and of its orders, by the session's.

Plain data. Ranks may run on other hosts, so clocks of two ranks must not be compared, except for
the time of day, which is the session's: that of another host is corrected by an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hvdperf.json_records import Figures, Number


class Timestamp(NamedTuple):
    """The beginning of a phase. at: time of day, in epoch seconds. clock: the host's monotonic
    clock, in seconds from an arbitrary origin."""

    phase: str
    at: float
    clock: float


class Asked(NamedTuple):
    """An order. asked, answered: when it was given and when all ranks had answered, by the
    session's monotonic clock, in seconds since the launch."""

    op: str
    asked: float
    answered: float


class ClockOffset(NamedTuple):
    """By how much a host's time of day is ahead of the session's, in seconds. uncertainty: half of
    the shortest round trip by which it was measured; 0 on the session's own host."""

    seconds: float = 0.0
    uncertainty: float = 0.0


@dataclass(frozen=True)
class Timestamps(Figures):
    """The times of one launch, from before its launcher was started until it had ended.

    launched_at, ended_at: time of day, in epoch seconds; ended_at is NaN before the end. ranks: by
    rank, one timestamp per phase, in their order, with the session's time of day. offsets: by rank,
    what was subtracted from it. asked: the orders, in their order; the last one is `close`, which
    is answered when all ranks have left and, if they leave the group, the launcher has ended.
    """

    launched_at: float
    ended_at: Number
    ranks: Sequence[Sequence[Timestamp]]
    asked: Sequence[Asked]
    offsets: Sequence[ClockOffset] = ()
