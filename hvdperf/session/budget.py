"""The time that a session has for its rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """A span of time in which rounds may run. began: when it began, by `clock`, in seconds.
    seconds: how long it is. clock: returns the time in seconds."""

    began: float
    seconds: float
    clock: Callable[[], float]

    @property
    def ends(self) -> float:
        """Return when the budget ends, by its clock."""
        return self.began + self.seconds

    def allows(self, seconds: float) -> bool:
        """Return whether work that takes this many seconds from now on would end in time."""
        return self.clock() + seconds <= self.ends
