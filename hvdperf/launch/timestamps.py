"""When a launch began what: as its ranks say, and as the session saw it from outside.

Plain data. Ranks may run on other hosts: of a rank's clocks only differences say anything, save
for the time of day, which is as good as the hosts keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Mark(NamedTuple):
    """Where a phase began: by the time of day (epoch seconds) and by the host's clock that is never
    set (seconds since whenever)."""

    phase: str
    at: float
    clock: float


class Asked(NamedTuple):
    """An order, when it was given and when all had answered, by the session's own clock that is
    never set, in seconds since the launch."""

    op: str
    asked: float
    answered: float


@dataclass(frozen=True)
class Marks:
    """Of one launch, from before its launcher was started until it had ended.

    launched_at, ended_at: the time of day, epoch seconds. ranks: a mark a phase, in their order, by
    rank. asked: the orders, in theirs; the last one is `close`, answered when nothing was left.
    """

    launched_at: float
    ended_at: float
    ranks: Sequence[Sequence[Mark]]
    asked: Sequence[Asked]
