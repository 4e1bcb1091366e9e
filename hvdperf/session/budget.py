"""The time that a session has for its rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Budget(NamedTuple):
    """Time for work. began: when it began, by the clock `now`. seconds: how long it lasts. now: a
    monotonic clock in seconds; one that stands still while the session is stopped (Hub.now) does
    not count that time."""

    began: float
    seconds: float
    now: Callable[[], float] = time.monotonic

    def left(self) -> float:
        """Return the seconds that are left; negative past the end."""
        return self.began + self.seconds - self.now()

    def allows(self, seconds: float) -> bool:
        """Return whether work of this many seconds from now on would end in time."""
        return seconds <= self.left()
