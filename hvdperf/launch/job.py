"""The interface of a launcher: how the processes of one launch are started and ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hvdperf.machine.placement import Slot


@dataclass(frozen=True)
class Order:
    """What to start: `processes` ranks of `python -m hvdperf.worker` on the first slots.

    environment is what the ranks get on top of the session's own; scratch is a directory of this
    launch alone, removed with it. stub: a command line that stands in for every rank, which is
    forked elsewhere on this host.
    """

    processes: int
    slots: Sequence[Slot]
    interpreter: str
    environment: Mapping[str, str]
    scratch: Path
    deadline_s: float
    stub: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """What to start for each rank."""
        return self.stub or (self.interpreter, "-u", "-m", "hvdperf.worker")


def fate_of(status: int) -> str:
    """How a process ended, in words. status: as subprocess.Popen returns it."""
    if status < 0:
        return f"(killed by signal {-status}, {signal.Signals(-status).name})"
    return f"(exit status {status})"


class Job(Protocol):
    """The processes of one launch."""

    def ended(self) -> str | None:
        """How the launch ended, in words, or None while it runs."""

    def fate(self, rank: int) -> str:
        """What is known of how that rank ended, in words; empty if nothing is."""

    def signal(self, signum: int, pids: Mapping[int, int]) -> None:
        """Send a signal to the ranks; pids: rank -> process id on its host."""

    def end(self, pids: Mapping[int, int]) -> None:
        """Kill what is left of the launch, wait for it, and remove what it left behind."""

    def tail(self, rank: int, lines: int = 20) -> list[str]:
        """The last lines that the rank wrote to its stderr."""


class Launcher(Protocol):
    """Starts jobs."""

    name: str

    def rendezvous(self, slots: Sequence[Slot]) -> list[dict[str, Any]] | None:
        """Where rank 0 is to help Horovod's ranks find each other: who they are, as
        hvdperf.worker.rendezvous reads it. None where the launcher does that itself."""

    def start(self, order: Order) -> Job:
        """Start the processes, without waiting for them. Raises LaunchError if it cannot."""


class LaunchError(Exception):
    """The processes could not be started at all."""


class SlotGone(OSError):
    """A slot does not do what it is asked to: it is stopped, or dead. rank: of the outer mpirun."""

    def __init__(self, rank: int, asked: str, seconds: float) -> None:
        self.rank = rank
        super().__init__(
            f"the slot of rank {rank} did not answer {asked!r} within {seconds:.0f} s: its process "
            "is stopped, or its host is gone"
        )


def is_of_a_slot(error: BaseException) -> bool:
    """Whether a slot that is gone is why something could not be started."""
    return isinstance(error, SlotGone) or isinstance(error.__cause__, SlotGone)
