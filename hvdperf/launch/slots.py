"""The ranks of the outer mpirun: rank 0 is the pytest session, the others lend their slots.

A slot polls for messages and sleeps between two polls, because a rank that waits in an MPI call
keeps a whole core busy.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hvdperf.errors import UserError
from hvdperf.launch.agents import LocalAgent
from hvdperf.launch.job import SlotGone
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import Offer
from hvdperf.worker import process

# Seconds between two polls. While a worker runs, orders such as "stop" must take effect quickly.
IDLE_SLEEP_S = 0.05
BUSY_SLEEP_S = 0.005
# Seconds that a slot has to answer, and to leave.
ANSWER_S = 30.0
LEAVE_S = 10.0


def outer_rank() -> int:
    """Rank of this process under the outer mpirun; 0 without one."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))


def outer_size() -> int:
    """Number of ranks of the outer mpirun; 1 without one."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def tasks_without_mpirun() -> int:
    """Return how many copies of this process srun has started without mpirun; return 1 under mpirun
    and without srun. These copies cannot be slots, because Open MPI gives a process its rank only
    if mpirun started it."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return 1
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))


def shown_by() -> int:
    """Return the id of the process that writes to the user's terminal: mpirun if it started this
    process, which then has a terminal made by mpirun; else this process."""
    return os.getppid() if "OMPI_COMM_WORLD_SIZE" in os.environ else os.getpid()


class Slots:
    """Rank 0's view of all ranks, over mpi4py; only made under an outer mpirun of two or more."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm = MPI.COMM_WORLD
        self._calls = itertools.count()
        self._exits: dict[tuple[int, str], int] = {}
        self._gone: dict[int, SlotGone] = {}
        # Messages that slots have not received yet; MPI reads them from here.
        self._unreceived: list[Any] = []

    @property
    def size(self) -> int:
        return int(self._comm.Get_size())

    def offers(self) -> list[Offer]:
        """Return the offer of every rank, by rank. Raises UserError if a slot does not answer, or
        if a rank cannot determine its offer; the message names the slot."""
        try:
            return [own_offer(), *(self.call(rank, "offer") for rank in self._others)]
        except SlotGone as gone:
            raise UserError(f"{gone}; start the session again without that slot") from None
        except OSError as error:
            raise UserError(str(error)) from None

    @property
    def _others(self) -> range:
        return range(1, self.size)

    def call(self, rank: int, method: str, *arguments: Any) -> Any:
        """Have a slot run a method of its agent, and return the method's result. Raises OSError if
        the method fails. Raises SlotGone if the slot does not answer within ANSWER_S, and from then
        on at once."""
        if rank in self._gone:
            raise self._gone[rank]
        number = next(self._calls)
        self._send(rank, ("call", number, method, arguments))
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            answer = self._next_from(rank)
            # The answer to an earlier call, which Ctrl-C has interrupted, may come first.
            if answer is not None and answer[1] == number:
                kind, _, value = answer
                if kind == "error":
                    raise OSError(f"slot of rank {rank}: {value}")
                return value
            time.sleep(0.0005)
        self._gone[rank] = SlotGone(rank, method, ANSWER_S)
        raise self._gone[rank]

    def _send(self, rank: int, message: tuple[Any, ...]) -> None:
        """Send a message without waiting for its receipt, because a stopped slot never receives
        it."""
        self._unreceived = [request for request in self._unreceived if not request.Test()]
        self._unreceived.append(self._comm.isend(message, dest=rank))

    def status(self, rank: int, launch: str) -> int | None:
        """Return the exit status that the slot has reported for the launch; None before it has."""
        while self._comm.iprobe(source=rank):
            self._next_from(rank)
        return self._exits.get((rank, launch))

    def _next_from(self, rank: int) -> tuple[str, int, Any] | None:
        if not self._comm.iprobe(source=rank):
            return None
        kind, number, value = self._comm.recv(source=rank)
        if kind == "exited":
            for launch, status in value.items():
                self._exits[rank, launch] = status
            return None
        return kind, number, value

    def release(self, exit_status: int) -> None:
        """Let every slot leave. MPI cannot be left without all of its ranks: if a slot does not
        leave, end all processes with exit_status, or with 1 if that is 0."""
        for rank in self._others:
            self._send(rank, ("leave", 0, "", ()))
        staying = set(self._others)
        deadline = time.monotonic() + LEAVE_S
        while staying and time.monotonic() < deadline:
            for rank in list(staying):
                answer = self._next_from(rank)
                if answer is not None and answer[0] == "left":
                    staying.remove(rank)
            time.sleep(0.0005)
        for rank in sorted(staying):
            print(f"ERROR: {SlotGone(rank, 'leave', LEAVE_S)}", file=sys.stderr, flush=True)
        if staying:
            self._comm.Abort(exit_status or 1)


class RemoteAgent:
    """An agent on another rank's host; see hvdperf.launch.agents.Agent."""

    def __init__(self, slots: Slots, rank: int) -> None:
        self._slots = slots
        self._rank = rank

    def start(self, launch: str, environment: Mapping[str, str], command: Sequence[str]) -> None:
        self._slots.call(self._rank, "start", launch, dict(environment), list(command))

    def status(self, launch: str) -> int | None:
        return self._slots.status(self._rank, launch)

    def signal(self, launch: str, signum: int) -> None:
        self._slots.call(self._rank, "signal", launch, signum)

    def tail(self, launch: str) -> list[str]:
        return list(self._slots.call(self._rank, "tail", launch))

    def end(self, launch: str) -> None:
        self._slots.call(self._rank, "end", launch)


def own_offer() -> Offer:
    """Return the resources that this rank can lend."""
    machine = local_machine()
    gpus = tuple(gpu.uuid for gpu in machine.gpus)
    return Offer(outer_rank(), machine.host, machine.cores, gpus)


def lend_slot() -> NoReturn:
    """Serve rank 0 instead of running pytest, on a rank above 0; end the process."""
    # mpirun passes Ctrl-C on as SIGTERM. The slot stays until rank 0 has written its results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process.take_name(f"hvd-slot-{outer_rank()}")
    with tempfile.TemporaryDirectory(prefix="hvdperf-slot-") as scratch:
        agent = LocalAgent(Path(scratch))
        _serve(agent)
        agent.end_all()
    sys.exit(0)


def _serve(agent: LocalAgent) -> None:
    """Carry out the orders of rank 0 until it lets this slot leave."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    reported: set[str] = set()
    while True:
        while not comm.iprobe(source=0):
            time.sleep(BUSY_SLEEP_S if agent.busy else IDLE_SLEEP_S)
            news = {k: v for k, v in agent.statuses().items() if k not in reported}
            if news:
                reported.update(news)
                comm.send(("exited", 0, news), dest=0)
        kind, number, method, arguments = comm.recv(source=0)
        if kind == "leave":
            comm.send(("left", number, None), dest=0)
            return
        kind, value = _carry_out(agent, method, arguments)
        comm.send((kind, number, value), dest=0)


# The orders that rank 0 may give a slot, each with the function that carries it out.
_ORDERS: Mapping[str, Callable[..., Any]] = {
    "offer": lambda agent: own_offer(),
    "start": LocalAgent.start,
    "signal": LocalAgent.signal,
    "tail": LocalAgent.tail,
    "end": LocalAgent.end,
}


def _carry_out(agent: LocalAgent, method: str, arguments: Any) -> tuple[str, Any]:
    if method not in _ORDERS:
        return "error", f"a slot does not know the order {method!r}"
    try:
        return "value", _ORDERS[method](agent, *arguments)
    except (OSError, UserError) as error:
        return "error", str(error)
