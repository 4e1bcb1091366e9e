"""The launchers, behind one interface: how the processes of a launch are started and ended. Under
`mpirun` an inner mpirun starts the ranks, and Horovod communicates over MPI; under `agents` every
slot starts its own rank, and Horovod communicates over Gloo."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hvdperf.errors import UserError
from hvdperf.launch import helpers, processes
from hvdperf.launch.processes import Agent, SlotGone, Variables
from hvdperf.launch.slots import RemoteAgent, Slots, interface_settings
from hvdperf.machine.placement import Slot
from hvdperf.machine.stack import NO_MPIRUN, Stack, find_mpirun, mpirun_version
from hvdperf.machine.starting import shared_memory_directory
from hvdperf.plan.arms import BINDING, POLLING
from hvdperf.programs import fate_of, killed_by
from hvdperf.worker.protocol import Connection, Message
from hvdperf.worker.script.tap import _hvdperf_private as private


@dataclass(frozen=True)
class Order:
    """An order to start ranks of `python -m hvdperf.worker`, one on each of the slots.

    interpreter: runs the ranks. mpirun: of its stack. environment: variables that the ranks get on
    top of the session's own. left: settings of a launch that stay as they are by default
    (plan.arms.LAUNCHES). scratch: directory of this launch alone, removed with it. stub: command
    line to start in place of each rank, which the fork server then forks.
    """

    slots: Sequence[Slot]
    interpreter: str
    environment: Variables
    scratch: Path
    stub: tuple[str, ...] = ()
    left: Collection[str] = ()
    mpirun: str = ""

    @property
    def command(self) -> tuple[str, ...]:
        """Command line to start for each rank."""
        return self.stub or (self.interpreter, "-u", "-m", "hvdperf.worker")


class Job(Protocol):
    """The processes of one launch."""

    def ended(self) -> str | SlotGone | None:
        """Return how the launch ended, in words; a slot that is gone, which ends its ranks and then
        the others; None while it runs."""

    def fate(self, rank: int) -> str:
        """Return how the rank ended, in words; return "" if that is not known."""

    def signal(self, signum: int, pids: Mapping[int, int]) -> None:
        """Send a signal to the ranks. pids: rank -> process id on its host."""

    def end(self, pids: Mapping[int, int]) -> None:
        """Kill what is left of the launch, wait for it, and remove what it left behind."""

    def tail(self, rank: int) -> list[str]:
        """Return the last lines that the rank wrote to its stderr, after those before them in which
        Horovod says which rank is missing."""


# Starts the processes of a launch without waiting for them. Raises LaunchError.
Launcher = Callable[[Order], Job]


# The mpirun that `command` is for, and the library that finds it.
_KNOWN_MPIRUN = re.compile(r"\((Open MPI|OpenRTE)\) 4\.")
_KNOWN_LIBRARY = "Open MPI v4."


def check_can_start(launcher: str, stack: Stack) -> None:
    """Raise UserError if the launcher with this name (plan.options.LAUNCHERS) cannot start ranks of
    a stack. The message says what can."""
    has_gloo = "gloo" in stack.horovod_flags
    if launcher == "mpirun":
        if problem := problem_of_mpirun(stack):
            raise UserError(f"{problem}; or {_ADD_AGENTS if has_gloo else _BUILD_GLOO}")
    elif not has_gloo:
        raise UserError(
            f"Horovod of {stack.interpreter} was built without Gloo, which ranks need there; leave "
            f"out --launcher agents, or {_BUILD_GLOO}"
        )


_ADD_AGENTS = "add --launcher agents (Horovod over Gloo, without mpirun)"
_BUILD_GLOO = "build Horovod with HOROVOD_WITH_GLOO=1, for --launcher agents"


def problem_of_mpirun(stack: Stack) -> str:
    """Return why mpirun cannot start ranks of a stack, and the fix, in words; "" if it
    can."""
    version = stack.mpirun_version
    if "mpi" not in stack.horovod_flags:
        return f"Horovod of {stack.interpreter} was built without MPI; build it with MPI"
    if version == NO_MPIRUN:
        try:
            version = mpirun_version(find_mpirun(Path(stack.interpreter)))
        except UserError as error:
            return str(error)
    if not _KNOWN_MPIRUN.search(version):
        return (
            f"{stack.mpirun} is of another MPI ({version}), and the suite starts ranks by mpirun "
            "of Open MPI 4 only; build Horovod with that"
        )
    library = stack.mpi_library
    if library is not None and not library.startswith(_KNOWN_LIBRARY):
        return (
            f"Horovod of {stack.interpreter} loads {library}, whose ranks {stack.mpirun} "
            f"({version}) cannot start; build Horovod with Open MPI 4"
        )
    return ""


class LaunchError(Exception):
    """The processes could not be started at all."""


# The binding of ranks by mpirun: none, because each rank pins itself to the cores of its slot.
BOUND_TO = "none"
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
# How each launcher starts ranks, in words, by its name (plan.options.LAUNCHERS).
_SETTINGS = " ".join(f"--mca {name} {value}" for name, value in SETTINGS.items())
HOW_LAUNCHED = {
    "mpirun": f"mpirun --bind-to {BOUND_TO} {_SETTINGS} (a rank that waits yields its core)",
    "agents": "each slot starts its own, Horovod over Gloo",
}


def command(order: Order, network: str, shared: Path | None) -> list[str]:
    """Return the inner mpirun's command line. network: the one between hosts. shared: directory in
    which the ranks share memory; None on several hosts, where Open MPI chooses one."""
    tokens = [order.mpirun, "-np", str(len(order.slots)), "--tag-output"]
    if BINDING not in order.left:
        tokens += ["--bind-to", BOUND_TO, "--map-by", "slot"]
    # The suite itself reports more ranks than cores, so mpirun must not refuse them.
    settings = {**OVERRIDES, "rmaps_base_oversubscribe": "1"}
    if POLLING not in order.left:
        settings |= SETTINGS
    per_host = Counter(slot.host for slot in order.slots)
    if len(per_host) > 1:
        tokens += ["--host", ",".join(f"{host}:{n}" for host, n in per_host.items())]
        own = {name for name, value in order.environment.items() if value is not None}
        for name in sorted({*own, "PATH", "LD_LIBRARY_PATH", "PYTHONPATH"}):
            tokens += ["-x", name]
        # A daemon is a child of its slot, so it must not leave it.
        tokens += ["--leave-session-attached"]
        start = " ".join(helpers.helper("daemon"))
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


def own_settings(cores: int) -> dict[str, str]:
    """Return the variables with which other launches are like those of the suite. A rank that waits
    in Open MPI yields its core, each rank has cores of its own, and TensorFlow as many threads as a
    rank has cores. The suite's ranks pin themselves to their cores; others have mpirun bind them.
    cores: of a rank; 0 on GPUs, where TensorFlow chooses."""
    found = {f"OMPI_MCA_{name}": value for name, value in SETTINGS.items()}
    found["OMPI_MCA_hwloc_base_binding_policy"] = "core"
    if cores > 1:
        found["OMPI_MCA_rmaps_base_mapping_policy"] = f"slot:PE={cores}"
    if cores:
        found |= {
            "TF_NUM_INTRAOP_THREADS": f"{cores}",
            "TF_NUM_INTEROP_THREADS": "1",
            "OMP_NUM_THREADS": f"{cores}",
        }
    return found


class Daemons:
    """Open MPI's daemons of one launch on other hosts, which the slots there start."""

    def __init__(self, slots: Slots, order: Order) -> None:
        self._slots, self._launch = slots, order.scratch.name
        here = order.slots[0].host
        # The first slot of each host starts the daemon there.
        self._ranks = {s.host: s.rank for s in reversed(order.slots) if s.host != here}
        self._agents = {host: RemoteAgent(slots, rank) for host, rank in self._ranks.items()}
        self._job = AgentsJob(self._launch, [*self._agents.values()], forked=False)
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

    def ended(self) -> str | SlotGone | None:
        """Return which daemon has ended or could not be started, in words, or a slot with a daemon
        that is gone; None if none is."""
        while self._asked:
            self._start(*self._asked.pop())
        if self._problem:
            return f"ended: {self._problem}"
        # A slot that is lost may still have reported the status of its daemon, which went with it.
        gone = self._slots.gone()
        if lost := next((gone[rank] for rank in self._ranks.values() if rank in gone), None):
            return lost
        statuses = self._job.statuses()
        if isinstance(statuses, SlotGone):  # since the line above
            return statuses
        for host, status in zip(self._agents, statuses, strict=True):
            if status is not None:
                return f"ended: Open MPI's daemon on {host} ended with status {status}"
        return None

    def _start(self, host: str, connection: Connection, command: str) -> None:
        problem = ""
        try:
            self._agents[host].start(self._launch, {}, ["sh", "-c", command])
        except OSError as error:
            problem = self._problem = str(error)
        with suppress(OSError):  # mpirun has ended
            connection.send({"problem": problem})

    def end(self) -> None:
        self._slots.hub.forget(self.address)
        self._job.end({})


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
        self._process, self._daemons = process, daemons
        self._stderr, self._shared = scratch / "stderr", shared

    def ended(self) -> str | SlotGone | None:
        if self._daemons is not None and (ended := self._daemons.ended()) is not None:
            return ended
        status = self._process.poll()
        return None if status is None else f"ended with status {status}"

    def fate(self, rank: int) -> str:
        """Return how the rank ended, in words; return "" if mpirun does not report it. mpirun
        reports the signal or the exit status of the first rank that failed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(processes.TERM_S)
        text = "".join(processes.lines_of(self._stderr))
        found = re.search(rf"process rank {rank} .*\s+exited\s+on signal (\d+)", text)
        if found:
            return killed_by(int(found[1]))
        found = re.search(rf"\[\[\d+,\d+\],{rank}\]\s+Exit code:\s+(\d+)", text)
        return f"(exit status {found[1]})" if found else ""

    def signal(self, signum: int, pids: Mapping[int, int]) -> None:
        if self._daemons is None:
            processes.signal_processes(signum, pids.values())
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
            processes.wait_until_ended(pids.values())
            _remove(self._shared)

    def tail(self, rank: int) -> list[str]:
        # If the rank has written nothing, mpirun may have.
        return processes.shown_of(self._written(rank)) or processes.tail_of(self._stderr)

    def _written(self, rank: int) -> list[str]:
        """Return the lines that the rank has written. mpirun tags every piece that it reads, even
        within a line; text before the first tag of a line is mpirun's own."""
        tag = re.compile(r"\[\d+,(\d+)\]<stderr>:?")
        own = ""
        for line in processes.lines_of(self._stderr):
            _, *tagged = tag.split(line)
            pieces = zip(tagged[::2], tagged[1::2], strict=True)
            own += "".join(text for who, text in pieces if int(who) == rank)
        return own.splitlines()


def _remove(directory: Path | None) -> None:
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def start_by_mpirun(slots: Slots | None, order: Order) -> MpirunJob:
    """Have mpirun start the ranks. slots: those that start its daemons on other hosts."""
    daemons, environment, network = None, order.environment, ""
    hosts = {slot.host for slot in order.slots}
    if len(hosts) > 1 and slots is not None:
        daemons = Daemons(slots, order)
        environment = processes.with_defaults(environment, interface_settings(slots.interface))
        environment = {**environment, helpers.DAEMONS_VARIABLE: daemons.address}
        network = slots.interface.network if slots.interface is not None else ""
    shared = None
    try:
        if len(hosts) == 1:
            where = shared_memory_directory(len(order.slots))
            shared = Path(helpers.scratch_directory("hvdperf-", where))
        words = command(order, network, shared)
        if private.VARIABLE in environment:
            words = private.command(words)
        # When this process is killed, mpirun ends, and with it the ranks.
        process = processes.start_process(
            helpers.guarded(words), order.interpreter, environment, order.scratch
        )
    except OSError as error:
        _remove(shared)
        raise LaunchError(f"mpirun could not be started: {error}") from error
    return MpirunJob(process, order.scratch, shared, daemons)


# The longest delay, in seconds, with which a slot reports the end of a process.
END_REPORT_S = 2.0
# Eleven days. Gloo counts in milliseconds, with 32 bits.
GLOO_TIMEOUT_S = 1_000_000


def rendezvous_plan(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """Return the fields of Horovod's SlotInfo for every rank.

    Local fields count the ranks of one host. Cross fields count, over all hosts, the ranks with one
    local rank.
    """
    hosts = [slot.host for slot in slots]
    local_ranks = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    return [
        {
            "hostname": host,
            "rank": rank,
            "local_rank": local_rank,
            "cross_rank": local_ranks[:rank].count(local_rank),
            "size": len(hosts),
            "local_size": hosts.count(host),
            "cross_size": local_ranks.count(local_rank),
        }
        for rank, (host, local_rank) in enumerate(zip(hosts, local_ranks, strict=True))
    ]


def horovod_environment(own: Mapping[str, Any], one_host: bool) -> dict[str, str]:
    """Return the variables that Horovod's Gloo controller reads, as horovod.runner.gloo_run sets
    them.

    own: this rank's entry of the rendezvous plan.
    """
    return {
        **{f"HOROVOD_{name.upper()}": str(value) for name, value in own.items()},
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        # It goes on while a group is stopped because another one is timed. The session has limits.
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_S),
        **({"HOROVOD_GLOO_IFACE": "lo"} if one_host else {}),
    }


class AgentsJob:
    """A launch with one process per rank, each on its slot's host.

    forked: the slots' own processes are stubs, and the ranks are processes forked on this host.
    """

    def __init__(self, launch: str, agents: Sequence[Agent], forked: bool) -> None:
        self._launch = launch
        self._agents = agents
        self._forked = forked

    def ended(self) -> str | SlotGone | None:
        statuses = self.statuses()
        if isinstance(statuses, SlotGone):
            return statuses
        return None if None in statuses else f"ended with status {statuses}"

    def statuses(self) -> list[int | None] | SlotGone:
        """Return the exit statuses by rank, or a slot that is gone."""
        try:
            return [agent.status(self._launch) for agent in self._agents]
        except SlotGone as gone:
            return gone

    def fate(self, rank: int) -> str:
        # A slot reports the end of its process with a delay.
        deadline = time.monotonic() + END_REPORT_S
        try:
            while (status := self._agents[rank].status(self._launch)) is None:
                if time.monotonic() > deadline:
                    return ""
                time.sleep(0.01)
        except SlotGone as gone:
            return f"({gone})"
        return fate_of(status)

    def signal(self, signum: int, pids: Mapping[int, int]) -> None:
        if self._forked:
            processes.signal_processes(signum, pids.values())
            return
        for rank in pids:
            self._agents[rank].signal(self._launch, signum)

    def end(self, pids: Mapping[int, int]) -> None:
        for agent in self._agents:
            # A slot that is gone must not keep the other ranks alive. Its own rank ends when its
            # connection closes, or with the slot.
            with suppress(OSError):
                agent.end(self._launch)
        if self._forked:
            processes.wait_until_ended(pids.values())

    def tail(self, rank: int) -> list[str]:
        try:
            return self._agents[rank].tail(self._launch)
        except SlotGone:
            return []


def start_by_agents(agents: Sequence[Agent], order: Order) -> AgentsJob:
    """Have agents start the ranks. agents: one per slot, by its rank."""
    launch = order.scratch.name
    started = [agents[slot.rank] for slot in order.slots]
    job = AgentsJob(launch, started, forked=bool(order.stub))
    one_host = len({slot.host for slot in order.slots}) == 1
    plan = rendezvous_plan(order.slots)
    for rank, (own, agent) in enumerate(zip(plan, started, strict=True)):
        environment = {**order.environment, **horovod_environment(own, one_host)}
        try:
            agent.start(launch, environment, order.command)
        except OSError as error:
            job.end({})
            raise LaunchError(f"rank {rank} could not be started: {error}") from error
    return job
