"""Planted faults: what a rank does wrong on purpose, to prove that the suite notices."""

import os
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Optional

from hvdperf.worker import cpu_hog
from hvdperf.worker.learning_rate import Constant
from hvdperf.worker.protocol import Phase


class PlantedFault(RuntimeError):
    """Raised by a rank that was asked to raise."""


def _raise() -> None:
    raise PlantedFault("planted fault: this rank raises")


def _hang() -> None:
    while True:
        time.sleep(3600)


# What a leaking rank keeps of every step.
LEAK_BYTES = 1 << 20

_ACTS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
}


def planted(config: dict[str, Any], kind: str) -> bool:
    """Whether all ranks were asked to do this wrong. config: a rank's, by arm_launcher.py."""
    return config["fault"] is not None and config["fault"]["kind"] == kind


class Fault:
    """What this rank was asked to do wrong: nothing, unless its config names it."""

    def __init__(self, config: Optional[dict[str, Any]], rank: int) -> None:
        """config: kind (hvdperf.plan.faults.Fault.KINDS), rank, phase, factor, ms."""
        mine = config is not None and config["rank"] == rank
        self._kind: Optional[str] = config["kind"] if config is not None and mine else None
        self._phase = config.get("phase", Phase.BLOCK.value) if config is not None else ""
        self._factor = float(config.get("factor", 1.0)) if config is not None else 1.0
        self._ms = float(config.get("ms", 0.0)) if config is not None else 0.0
        self._leaked: list[bytes] = []

    def strike(self, phase: Phase) -> None:
        """Do what was planted for this phase."""
        if self._kind in _ACTS and self._phase == phase.value:
            _ACTS[self._kind]()

    def prolong(self, phase: Phase, seconds: float) -> None:
        """Have a phase of the start, which has taken so many seconds, take `factor` times that."""
        if self._kind == "longer" and self._phase == phase.value:
            time.sleep(self._lateness(seconds))

    def compete(self) -> None:
        """Have another process compute on this rank's cores from now on, while the rank runs."""
        if self._kind == "busy":
            subprocess.Popen([sys.executable, cpu_hog.__file__, str(os.getpid())])

    def slow_down(self, step_seconds: float) -> None:
        """Be late with a step; step_seconds: what the last one took without being late."""
        if self._kind in ("slow", "delay"):
            time.sleep(self._lateness(step_seconds))

    def hold_up_input(self, step_seconds: float) -> None:
        """Be late with the batch of a step; step_seconds as in slow_down."""
        if self._kind == "input":
            time.sleep(self._lateness(step_seconds))

    def _lateness(self, seconds: float) -> float:
        """By how much something that takes so many seconds is to be late."""
        return (self._factor - 1.0) * seconds + self._ms / 1000

    def stray(self, learning_rate: Constant) -> None:
        """Train with `factor` times the learning rate of the others."""
        if self._kind == "stray":
            learning_rate.go_astray(self._factor)

    def offset(self) -> float:
        """By how much the numbers that it sends are off."""
        return 1.0 if self._kind == "corrupt" else 0.0

    def leak(self) -> None:
        """Keep some memory that is never used again."""
        if self._kind == "leak":
            # Not zeros, which would take no page of memory.
            self._leaked.append(b"x" * LEAK_BYTES)
