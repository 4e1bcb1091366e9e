"""Launcher `mpirun`: an inner mpirun starts the ranks, and Horovod communicates over MPI."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hvdperf.launch import daemon_start
from hvdperf.launch.ends.scratch import scratch_directory
from hvdperf.launch.guard import guarded
from hvdperf.launch.job import LaunchError, Order, SlotGone
from hvdperf.launch.outer.interfaces import interface_settings
from hvdperf.launch.outer.slots import Slots
from hvdperf.launch.processes import (
    TERM_S,
    killed_by,
    lines_of,
    shown_of,
    signal_processes,
    start_process,
    tail_of,
    wait_until_ended,
)
from hvdperf.machine.placement import Slot
from hvdperf.machine.starting import shared_memory_directory
from hvdperf.worker.protocol import Connection, Message

# The binding of ranks by mpirun: none, because each rank pins itself to the cores of its slot.
BINDING = "none"
# Settings of every launch. A rank that waits in MPI lets other threads have its core.
SETTINGS = {"mpi_yield_when_idle": "1"}
# Settings that the user may have made for other programs, in a file of Open MPI, where only a value
# on the command line overrides them: hosts and arguments for ssh, which the session's slots have
# already taken into account, and how ranks are mapped to cores.
OVERRIDES = {
    "orte_default_hostfile": "none",
    "plm_rsh_args": "",
    "rmaps_base_no_oversubscribe": "0",
    "rmaps_base_no_schedule_local": "0",
}


def how_launched() -> str:
    """Return how mpirun starts ranks, in words."""
    settings = " ".join(f"--mca {name} {value}" for name, value in SETTINGS.items())
    return f"mpirun --bind-to {BINDING} {settings} (a rank that waits yields its core)"


def command(order: Order, mpirun: str, network: str, shared: Path | None) -> list[str]:
    """Return the inner mpirun's command line. network: the one between hosts. shared: directory in
    which the ranks share memory; None on several hosts, where Open MPI chooses one."""
    tokens = [mpirun, "-np", str(order.processes), "--tag-output", "--bind-to", BINDING]
    tokens += ["--map-by", "slot"]
    # The suite itself reports more ranks than cores, so mpirun must not refuse them.
    settings = {**SETTINGS, **OVERRIDES, "rmaps_base_oversubscribe": "1"}
    per_host = Counter(slot.host for slot in order.slots[: order.processes])
    if len(per_host) > 1:
        tokens += ["--host", ",".join(f"{host}:{n}" for host, n in per_host.items())]
        for name in sorted({*order.environment, "PATH", "LD_LIBRARY_PATH", "PYTHONPATH"}):
            tokens += ["-x", name]
        # A daemon is a child of its slot, so it must not leave it.
        tokens += ["--leave-session-attached"]
        start = f"{sys.executable} -I -S {daemon_start.__file__}"
        settings |= {"plm": "rsh", "plm_rsh_agent": start, "plm_rsh_no_tree_spawn": "1"}
        settings |= {"orte_enable_recovery": "0"}
        settings |= {"oob_tcp_if_include": network, "btl_tcp_if_include": network}
    else:
        # Open MPI's files are removed with the launch's own directories.
        settings |= {"orte_tmpdir_base": str(order.scratch)}
        settings |= {"btl_vader_backing_directory": str(shared)}
    for name, value in settings.items():
        tokens += ["--mca", name, value]
    return [*tokens, *order.command]


class Daemons:
    """Open MPI's daemons of one launch on other hosts, which the slots there start."""

    def __init__(self, slots: Slots, order: Order) -> None:
        self._slots, self._launch = slots, order.scratch.name
        here = order.slots[0].host
        # The first slot of each host starts the daemon there.
        self._rank_on = {
            slot.host: slot.rank for slot in reversed(order.slots) if slot.host != here
        }
        self._asking: dict[int, tuple[str, Connection]] = {}
        self._asked: list[tuple[str, Connection, str]] = []
        self._problem = ""
        token = slots.hub.expect(self).rsplit(":", 1)[1]
        self.address = f"127.0.0.1:{slots.hub.port}:{token}"

    def joined(self, rank: int, connection: Connection, hello: Message) -> None:
        self._asking[rank] = hello["host"], connection

    def received(self, rank: int, message: Message) -> None:
        command = message.get("command")
        if not isinstance(command, str):
            raise ValueError("this is not the command of a daemon")
        # A slot cannot be called now, because its hub is delivering this message.
        self._asked.append((*self._asking[rank], command))

    def left(self, rank: int, reason: str = "") -> None:
        self._asking.pop(rank, None)

    def ended(self) -> str | None:
        """Return which daemon has ended or could not be started, in words; None if none has."""
        while self._asked:
            self._start(*self._asked.pop())
        if self._problem:
            return f"ended: {self._problem}"
        if lost := self.lost_slot():
            return f"ended: {lost}"
        for host, rank in self._rank_on.items():
            status = self._slots.status(rank, self._launch)
            if status is not None:
                return f"ended: Open MPI's daemon on {host} ended with status {status}"
        return None

    def lost_slot(self) -> SlotGone | None:
        """Return a slot with a daemon that is gone; None if none is."""
        gone = self._slots.gone()
        return next((gone[rank] for rank in self._rank_on.values() if rank in gone), None)

    def _start(self, host: str, connection: Connection, command: str) -> None:
        problem = ""
        try:
            shell = ["sh", "-c", command]
            self._slots.call(self._rank_on[host], "start", self._launch, {}, shell)
        except OSError as error:
            problem = self._problem = str(error)
        with suppress(OSError):  # mpirun has ended
            connection.send({"problem": problem})

    def end(self) -> None:
        self._slots.hub.forget(self.address)
        for rank in self._rank_on.values():
            with suppress(OSError):  # the daemon ends with its slot
                self._slots.call(rank, "end", self._launch)


class MpirunJob:
    """An mpirun process and the ranks below it. shared: directory of their shared memory on this
    host. daemons: those on other hosts; None if all ranks are on this host."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        scratch: Path,
        shared: Path | None = None,
        daemons: Daemons | None = None,
    ) -> None:
        self._process = process
        self._scratch, self._shared = scratch, shared
        self._stderr = scratch / "stderr"
        self._daemons = daemons

    def ended(self) -> str | None:
        if self._daemons is not None and (ended := self._daemons.ended()) is not None:
            return ended
        status = self._process.poll()
        return None if status is None else f"ended with status {status}"

    def lost_slot(self) -> SlotGone | None:
        return self._daemons.lost_slot() if self._daemons is not None else None

    def fate(self, rank: int) -> str:
        """Return how the rank ended, in words; return "" if mpirun does not report it. mpirun
        reports the signal or the exit status of the first rank that failed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TERM_S)
        text = "".join(lines_of(self._stderr))
        found = re.search(rf"process rank {rank} .*\s+exited\s+on signal (\d+)", text)
        if found:
            return killed_by(int(found[1]))
        found = re.search(rf"\[\[\d+,\d+\],{rank}\]\s+Exit code:\s+(\d+)", text)
        return f"(exit status {found[1]})" if found else ""

    def signal(self, signum: int, pids: Mapping[int, int]) -> None:
        if self._daemons is None:
            signal_processes(signum, pids.values())
            return
        # mpirun forwards signals to its ranks on all hosts; SIGTSTP reaches them as SIGSTOP.
        self._process.send_signal(signal.SIGTSTP if signum == signal.SIGSTOP else signum)

    def end(self, pids: Mapping[int, int]) -> None:
        self._process.kill()
        self._process.wait()
        if self._daemons is not None:
            self._daemons.end()
        else:
            # Ranks die with mpirun (PR_SET_PDEATHSIG), even stopped ones. The fork server kills
            # forked ranks when their stubs have died.
            wait_until_ended(pids.values())
        _remove(self._scratch, self._shared)

    def tail(self, rank: int) -> list[str]:
        # If the rank has written nothing, mpirun may have.
        return shown_of(self._written(rank)) or tail_of(self._stderr)

    def _written(self, rank: int) -> list[str]:
        """Return the lines that the rank has written. mpirun tags every piece that it reads, even
        within a line; text before the first tag of a line is mpirun's own."""
        tag = re.compile(r"\[\d+,(\d+)\]<stderr>:?")
        own = ""
        for line in lines_of(self._stderr):
            _, *tagged = tag.split(line)
            pieces = zip(tagged[::2], tagged[1::2], strict=True)
            own += "".join(text for who, text in pieces if int(who) == rank)
        return own.splitlines()


def _remove(*directories: Path | None) -> None:
    for directory in filter(None, directories):
        shutil.rmtree(directory, ignore_errors=True)


class MpirunLauncher:
    """A launcher that has mpirun start the ranks; see hvdperf.launch.job.Launcher."""

    def __init__(self, mpirun: str, slots: Slots | None = None) -> None:
        """Use the mpirun executable at this path. slots: those that start its daemons on other
        hosts."""
        self._mpirun, self._slots = mpirun, slots

    def rendezvous(self, slots: Sequence[Slot]) -> None:
        """Return None, because MPI has its own rendezvous."""

    def start(self, order: Order) -> MpirunJob:
        daemons, environment, network = None, dict(order.environment), ""
        hosts = {slot.host for slot in order.slots[: order.processes]}
        if len(hosts) > 1 and self._slots is not None:
            daemons = Daemons(self._slots, order)
            interface = self._slots.interface
            environment = {**interface_settings(interface), **environment}
            environment[daemon_start.VARIABLE] = daemons.address
            network = interface.network if interface is not None else ""
        shared = None
        try:
            if len(hosts) == 1:
                where = shared_memory_directory(order.processes)
                shared = Path(scratch_directory("hvdperf-", where))
            # When this process is killed, mpirun ends, and with it the ranks.
            process = start_process(
                guarded(command(order, self._mpirun, network, shared)),
                order.interpreter,
                environment,
                order.scratch,
            )
        except OSError as error:
            _remove(shared)
            raise LaunchError(f"mpirun could not be started: {error}") from error
        return MpirunJob(process, order.scratch, shared, daemons)
