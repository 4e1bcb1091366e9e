"""Launcher `agents`: every slot starts its own rank, and Horovod communicates over Gloo."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from hvdperf.launch.job import LaunchError, Order, SlotGone, Variables
from hvdperf.launch.processes import (
    fate_of,
    signal_processes,
    start_process,
    tail_of,
    wait_until_ended,
)
from hvdperf.machine.placement import Slot

# The longest delay, in seconds, with which a slot reports the end of a process.
END_REPORT_S = 2.0


class Agent(Protocol):
    """The worker processes of one slot: one for each launch, several at a time. launch: its
    name."""

    def start(self, launch: str, environment: Variables, command: Sequence[str]) -> None:
        """Start a worker process. environment: as in Order. command: begins with the interpreter.
        Raises OSError."""

    def status(self, launch: str) -> int | None:
        """Return the exit status, negative for a signal; return None while the process runs. Raises
        SlotGone if nobody can know."""

    def signal(self, launch: str, signum: int) -> None: ...

    def tail(self, launch: str) -> list[str]: ...

    def end(self, launch: str) -> None: ...


class LocalAgent:
    """An agent whose worker processes are children of this process. scratch: directory for their
    output. settings: variables that they get unless the launch has others."""

    def __init__(self, scratch: Path, settings: Mapping[str, str] = {}) -> None:
        self._scratch = scratch
        self._settings = settings
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Ends of pipes that only a process and its own children hold: they become readable when
        # these have ended. Kernels before 5.3 have no pidfd.
        self._ends: dict[str, int] = {}

    def ends(self, known: Collection[str]) -> list[int]:
        """Return descriptors that become readable when a process ends, without those of the
        launches whose end is known."""
        return [end for launch, end in self._ends.items() if launch not in known]

    def start(self, launch: str, environment: Variables, command: Sequence[str]) -> None:
        # The worker asks the kernel to kill it when this process ends (see hvdperf.worker.process).
        end, kept_open = os.pipe()
        try:
            self._processes[launch] = start_process(
                command,
                command[0],
                {**self._settings, **environment},
                self._scratch / launch,
                pass_fds=(kept_open,),
            )
        except OSError:
            os.close(end)
            raise
        finally:
            os.close(kept_open)
        self._ends[launch] = end

    def status(self, launch: str) -> int | None:
        return self._processes[launch].poll()

    def statuses(self) -> dict[str, int]:
        """Return the exit statuses of the processes that have ended, by launch."""
        polled = {launch: process.poll() for launch, process in self._processes.items()}
        return {launch: status for launch, status in polled.items() if status is not None}

    def signal(self, launch: str, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._processes[launch].pid, signum)

    def tail(self, launch: str) -> list[str]:
        return tail_of(self._scratch / launch / "stderr")

    def end(self, launch: str) -> None:
        process = self._processes.pop(launch, None)
        if process is not None:
            # The process group also holds the processes that the worker has started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(self._ends.pop(launch))
        shutil.rmtree(self._scratch / launch, ignore_errors=True)

    def end_all(self) -> None:
        for launch in list(self._processes):
            self.end(launch)


def how_launched() -> str:
    """Return how agents start ranks, in words."""
    return "each slot starts its own, Horovod over Gloo"


def rendezvous_plan(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """Return the fields of Horovod's SlotInfo for every rank.

    Local fields count the ranks of one host. Cross fields count, over all hosts, the ranks with one
    local rank.
    """
    per_host = Counter(slot.host for slot in slots)
    seen: Counter[str] = Counter()
    across: Counter[int] = Counter()
    plan = []
    for rank, slot in enumerate(slots):
        local_rank = seen[slot.host]
        plan.append(
            {
                "hostname": slot.host,
                "rank": rank,
                "local_rank": local_rank,
                "cross_rank": across[local_rank],
                "size": len(slots),
                "local_size": per_host[slot.host],
                "cross_size": sum(count > local_rank for count in per_host.values()),
            }
        )
        seen[slot.host] += 1
        across[local_rank] += 1
    return plan


def horovod_environment(
    own: Mapping[str, Any], one_host: bool, deadline_s: float
) -> dict[str, str]:
    """Return the variables that Horovod's Gloo controller reads, as horovod.runner.gloo_run sets
    them.

    own: this rank's entry of the rendezvous plan.
    """
    environment = {
        f"HOROVOD_{name.upper()}": str(value) for name, value in own.items() if name != "hostname"
    }
    environment["HOROVOD_HOSTNAME"] = own["hostname"]
    environment["HOROVOD_CONTROLLER"] = "gloo"
    environment["HOROVOD_CPU_OPERATIONS"] = "gloo"
    # Gloo's timeout goes on while a group is stopped because another one is timed.
    environment["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(int(100 * deadline_s))
    if one_host:
        environment["HOROVOD_GLOO_IFACE"] = "lo"
    return environment


class AgentsJob:
    """A launch with one process per rank, each on its slot's host.

    forked: the slots' own processes are stubs, and the ranks are processes forked on this host.
    """

    def __init__(self, launch: str, agents: Sequence[Agent], forked: bool) -> None:
        self._launch = launch
        self._agents = agents
        self._forked = forked

    def ended(self) -> str | None:
        try:
            statuses = [agent.status(self._launch) for agent in self._agents]
        except SlotGone as gone:
            return f"ended: {gone}"
        if any(status is None for status in statuses):
            return None
        return f"ended with status {statuses}"

    def lost_slot(self) -> SlotGone | None:
        try:
            for agent in self._agents:
                agent.status(self._launch)
        except SlotGone as gone:
            return gone
        return None

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
            signal_processes(signum, pids.values())
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
            wait_until_ended(pids.values())

    def tail(self, rank: int) -> list[str]:
        try:
            return self._agents[rank].tail(self._launch)
        except SlotGone:
            return []


class AgentsLauncher:
    """A launcher that has agents start the ranks; see hvdperf.launch.job.Launcher."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        """Use these agents: one per slot, by its rank."""
        self._agents = agents

    def rendezvous(self, slots: Sequence[Slot]) -> list[dict[str, Any]]:
        return rendezvous_plan(slots)

    def start(self, order: Order) -> AgentsJob:
        launch = order.scratch.name
        slots = order.slots[: order.processes]
        started = [self._agents[slot.rank] for slot in slots]
        job = AgentsJob(launch, started, forked=bool(order.stub))
        one_host = len({slot.host for slot in slots}) == 1
        plan = rendezvous_plan(slots)
        for rank, (own, agent) in enumerate(zip(plan, started, strict=True)):
            environment = {
                **order.environment,
                **horovod_environment(own, one_host, order.deadline_s),
            }
            try:
                agent.start(launch, environment, order.command)
            except OSError as error:
                job.end({})
                raise LaunchError(f"rank {rank} could not be started: {error}") from error
        return job
