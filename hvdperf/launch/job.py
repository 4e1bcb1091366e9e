"""The interface of a launcher: how the processes of one launch are started and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hvdperf.machine.placement import Slot

# Variables of a process by name. None stands for one of the session's that it does not get.
Variables = Mapping[str, str | None]


@dataclass(frozen=True)
class Order:
    """An order to start `processes` ranks of `python -m hvdperf.worker` on the first slots.

    interpreter: runs the ranks. environment: variables that the ranks get on top of the session's
    own. scratch: directory of this launch alone, removed with it. deadline_s: the longest deadline
    of the launch, in seconds. stub: command line to start in place of each rank, which the fork
    server then forks.
    """

    processes: int
    slots: Sequence[Slot]
    interpreter: str
    environment: Variables
    scratch: Path
    deadline_s: float
    stub: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """Command line to start for each rank."""
        return self.stub or (self.interpreter, "-u", "-m", "hvdperf.worker")


class Job(Protocol):
    """The processes of one launch."""

    def ended(self) -> str | None:
        """Return how the launch ended, in words; return None while it runs."""

    def lost_slot(self) -> SlotGone | None:
        """Return a slot of the launch that is gone, which ends its ranks and then the others."""

    def fate(self, rank: int) -> str:
        """Return how the rank ended, in words; return "" if that is not known."""

    def signal(self, signum: int, pids: Mapping[int, int]) -> None:
        """Send a signal to the ranks. pids: rank -> process id on its host."""

    def end(self, pids: Mapping[int, int]) -> None:
        """Kill what is left of the launch, wait for it, and remove what it left behind."""

    def tail(self, rank: int) -> list[str]:
        """Return the last lines that the rank wrote to its stderr, after those before them in which
        Horovod says which rank is missing."""


class Launcher(Protocol):
    """A way to start jobs."""

    def rendezvous(self, slots: Sequence[Slot]) -> list[dict[str, Any]] | None:
        """Return the ranks' entries, as hvdperf.worker.rendezvous reads them, if rank 0 has to help
        Horovod's ranks find each other. Return None if the launcher does that itself."""

    def start(self, order: Order) -> Job:
        """Start the processes without waiting for them. Raises LaunchError."""


class LaunchError(Exception):
    """The processes could not be started at all."""


class SlotGone(OSError):
    """A slot cannot be used any more. rank: its rank in the session. host: its host, or "" if that
    is not known. reason: a sentence about the slot without its full stop."""

    def __init__(self, rank: int, host: str, reason: str) -> None:
        self.rank, self.host = rank, host
        where = f" on {host}" if host else ""
        super().__init__(f"the slot of rank {rank}{where} is gone: {reason}")


def is_slot_gone(error: BaseException) -> bool:
    """Return whether an error means that a slot is gone."""
    return isinstance(error, SlotGone) or isinstance(error.__cause__, SlotGone)
