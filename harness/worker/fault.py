"""Planted faults: what a rank does wrong on purpose, to prove that the suite notices."""

import os
import signal
import time
from typing import Any, Callable, Optional

from harness.wire import Phase


class PlantedFault(RuntimeError):
    """Raised by a rank that was asked to raise."""


def _raise() -> None:
    raise PlantedFault("planted fault: this rank raises")


def _hang() -> None:
    while True:
        time.sleep(3600)


_ACTS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
}


class Fault:
    """What this rank was asked to do wrong: nothing, unless its config names it."""

    def __init__(self, config: Optional[dict[str, Any]], rank: int) -> None:
        """config: kind (raise, exit, kill, hang, slow), rank, phase, factor (of slow)."""
        mine = config is not None and config["rank"] == rank
        self._kind: Optional[str] = config["kind"] if config is not None and mine else None
        self._phase = config.get("phase", Phase.BLOCK.value) if config is not None else ""
        self._factor = float(config.get("factor", 1.0)) if config is not None else 1.0

    def strike(self, phase: Phase) -> None:
        """Do what was planted for this phase."""
        if self._kind in _ACTS and self._phase == phase.value:
            _ACTS[self._kind]()

    def slow_down(self, step_seconds: float) -> None:
        """Delay a step so that it takes `factor` times the last undelayed one, in seconds."""
        if self._kind == "slow":
            time.sleep((self._factor - 1.0) * step_seconds)
