"""Injected faults: errors and delays that a rank makes on purpose."""

import os
import signal
import subprocess
import sys
import time
from typing import Callable, Optional

from hvdperf.worker import process
from hvdperf.worker.learning import Constant
from hvdperf.worker.protocol import FaultConfig, Phase, RankConfig


class InjectedFault(RuntimeError):
    """Raised by a rank that was asked to raise."""


def _raise() -> None:
    raise InjectedFault("injected fault: this rank raises")


def _hang() -> None:
    while True:
        time.sleep(3600)


# Bytes that a leaking rank keeps at every step.
LEAK_BYTES = 1 << 20

_ACTS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
}


def injected(config: RankConfig, kind: str) -> bool:
    """Return whether a fault of this kind is injected into all ranks. config: a rank's."""
    return config.fault is not None and config.fault.kind == kind


class Fault:
    """The fault that is injected into this rank, or none unless the config names this rank."""

    def __init__(self, config: Optional[FaultConfig], rank: int) -> None:
        """config: of the session's fault; None for none. rank: the number of this rank."""
        none = FaultConfig("", rank, "", 1.0, 0.0)
        self._fault = none if config is None or config.rank != rank else config
        self._leaked: list[bytes] = []

    def strike(self, phase: str) -> None:
        """Raise, exit, be killed or hang, if this phase has such a fault."""
        if self._fault.kind in _ACTS and self._fault.phase == phase:
            _ACTS[self._fault.kind]()

    def prolong(self, phase: Phase, seconds: float) -> None:
        """Prolong a phase of the start, which has taken `seconds`, to `factor` times that and `ms`
        milliseconds more."""
        if self._fault.kind == "longer" and self._fault.phase == phase.value:
            time.sleep(self._lateness(seconds))

    def compete(self) -> None:
        """Start a process that computes on this rank's cores from now on, while the rank runs."""
        if self._fault.kind == "busy":
            subprocess.Popen([sys.executable, process.__file__, str(os.getpid())])

    @property
    def follows_steps(self) -> bool:
        """Return whether the fault's size is that of a step, whose end this rank has to wait for: a
        GPU would else only have queued the step, and hide the delay behind its work."""
        return self._fault.kind in ("slow", "delay", "input")

    def slow_down(self, step_seconds: float) -> None:
        """Delay a step. step_seconds: how long the last step took without the delay."""
        if self._fault.kind in ("slow", "delay"):
            time.sleep(self._lateness(step_seconds))

    def hold_up_input(self, step_seconds: float) -> None:
        """Delay the batch of a step. step_seconds: as in slow_down."""
        if self._fault.kind == "input":
            time.sleep(self._lateness(step_seconds))

    def _lateness(self, seconds: float) -> float:
        """Return by how many seconds to delay something that takes `seconds`."""
        return (self._fault.factor - 1.0) * seconds + self._fault.ms / 1000

    def stray(self, learning_rate: Constant) -> None:
        """Train with `factor` times the learning rate of the others."""
        if self._fault.kind == "stray":
            learning_rate.go_astray(self._fault.factor)

    def offset(self) -> float:
        """Return what this rank adds to each number that it sends in a collective operation."""
        return 1.0 if self._fault.kind == "corrupt" else 0.0

    def leak(self) -> None:
        """Keep some memory that is never used again."""
        if self._fault.kind == "leak":
            # Not zeros, because those would take no page of memory.
            self._leaked.append(b"x" * LEAK_BYTES)
