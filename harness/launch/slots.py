"""The ranks of the outer mpirun: rank 0 is the pytest session, the others lend their slot.

A slot looks for a message, sleeps, and looks again: a rank that waits in an MPI call burns a
whole core.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UserError
from harness.launch.agent import LocalAgent
from harness.machine import local_machine
from harness.placement import Offer

# Seconds between two looks: while a worker runs, orders such as "stop" must be quick.
IDLE_SLEEP_S = 0.05
BUSY_SLEEP_S = 0.005
# Seconds that a slot gets to answer.
ANSWER_S = 60.0


def outer_rank() -> int:
    """Rank of this process under the outer mpirun (or srun); 0 without one."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))


def outer_size() -> int:
    """Number of ranks of the outer mpirun; 1 without one."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


class SlotGone(OSError):
    """A slot did not answer in time."""


class Slots:
    """Rank 0's view of all ranks, over mpi4py. Only made under an outer mpirun of two or more."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm = MPI.COMM_WORLD
        self._exits: dict[tuple[int, str], int] = {}

    @property
    def size(self) -> int:
        return int(self._comm.Get_size())

    def offers(self) -> list[Offer]:
        """What every rank has to lend, by rank."""
        return [own_offer(), *(self.call(rank, "offer") for rank in range(1, self.size))]

    def agent(self, rank: int) -> RemoteAgent:
        return RemoteAgent(self, rank)

    def call(self, rank: int, method: str, *arguments: Any) -> Any:
        """Have a slot run a method of its agent, and wait for what it returns."""
        self._comm.send(("call", method, arguments), dest=rank)
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            answer = self._next_from(rank)
            if answer is not None:
                kind, value = answer
                if kind == "error":
                    raise OSError(f"slot of rank {rank}: {value}")
                return value
            time.sleep(0.0005)
        raise SlotGone(f"slot {rank} did not answer {method!r} within {ANSWER_S:.0f} s")

    def status(self, rank: int, launch: str) -> int | None:
        """As the slot last reported it, unasked."""
        while self._comm.iprobe(source=rank):
            self._next_from(rank)
        return self._exits.get((rank, launch))

    def _next_from(self, rank: int) -> tuple[str, Any] | None:
        if not self._comm.iprobe(source=rank):
            return None
        kind, value = self._comm.recv(source=rank)
        if kind == "exited":
            for launch, status in value.items():
                self._exits[rank, launch] = status
            return None
        return kind, value

    def release(self) -> None:
        """Let every slot go."""
        for rank in range(1, self.size):
            self._comm.send(("leave", "", ()), dest=rank)


class RemoteAgent:
    """See harness.launch.agent.Agent; the process runs on another rank's host."""

    def __init__(self, slots: Slots, rank: int) -> None:
        self._slots = slots
        self._rank = rank

    def start(self, launch: str, interpreter: str, environment: Mapping[str, str]) -> None:
        self._slots.call(self._rank, "start", launch, interpreter, dict(environment))

    def status(self, launch: str) -> int | None:
        return self._slots.status(self._rank, launch)

    def signal(self, launch: str, signum: int) -> None:
        self._slots.call(self._rank, "signal", launch, signum)

    def tail(self, launch: str, lines: int) -> list[str]:
        return list(self._slots.call(self._rank, "tail", launch, lines))

    def end(self, launch: str) -> None:
        self._slots.call(self._rank, "end", launch)


def own_offer() -> Offer:
    """What this rank has to lend."""
    machine = local_machine()
    gpus = tuple(gpu.uuid for gpu in machine.gpus)
    return Offer(outer_rank(), machine.host, machine.cores, gpus)


def lend_slot() -> NoReturn:
    """What a rank above 0 does instead of running pytest; ends the process."""
    # mpirun passes Ctrl-C on as SIGTERM. Rank 0 reports and then lets the slots go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="hvdperf-slot-") as scratch:
        agent = LocalAgent(Path(scratch))
        _serve(agent)
        agent.end_all()
    sys.exit(0)


def _serve(agent: LocalAgent) -> None:
    """Do what rank 0 asks until it lets this slot go."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    reported: set[str] = set()
    while True:
        while not comm.iprobe(source=0):
            time.sleep(BUSY_SLEEP_S if agent.busy else IDLE_SLEEP_S)
            news = {k: v for k, v in agent.statuses().items() if k not in reported}
            if news:
                reported.update(news)
                comm.send(("exited", news), dest=0)
        kind, method, arguments = comm.recv(source=0)
        if kind == "leave":
            return
        comm.send(_carry_out(agent, method, arguments), dest=0)


def _carry_out(agent: LocalAgent, method: str, arguments: Any) -> tuple[str, Any]:
    try:
        return "value", own_offer() if method == "offer" else getattr(agent, method)(*arguments)
    except (OSError, UserError) as error:
        return "error", str(error)
