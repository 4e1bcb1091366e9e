"""Launcher `mpirun`: an inner mpirun starts the ranks, and Horovod communicates over MPI."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hvdperf.launch import guard
from hvdperf.launch.job import LaunchError, Order
from hvdperf.launch.processes import (
    TAIL_LINES,
    TERM_S,
    killed_by,
    lines_of,
    signal_processes,
    start_process,
    tail_of,
    wait_until_ended,
)
from hvdperf.machine.placement import Slot


def command(order: Order, mpirun: str) -> list[str]:
    """Return the inner mpirun's command line."""
    scratch = str(order.scratch)
    tokens = [mpirun, "-np", str(order.processes), "--tag-output", "--bind-to", "none"]
    # The suite itself reports more ranks than cores, so mpirun must not refuse them.
    tokens += ["--map-by", "slot", "--oversubscribe"]
    tokens += ["--mca", "mpi_yield_when_idle", "1"]
    # Open MPI's files are removed with the launch's own directory.
    tokens += ["--mca", "orte_tmpdir_base", scratch]
    tokens += ["--mca", "btl_vader_backing_directory", scratch]
    per_host = Counter(slot.host for slot in order.slots[: order.processes])
    if len(per_host) > 1:
        tokens += ["--host", ",".join(f"{host}:{n}" for host, n in per_host.items())]
        for name in sorted({*order.environment, "PATH", "LD_LIBRARY_PATH", "PYTHONPATH"}):
            tokens += ["-x", name]
    return [*tokens, *order.command]


class MpirunJob:
    """An mpirun process and the ranks below it. local: all ranks are on this host."""

    def __init__(self, process: subprocess.Popen[bytes], scratch: Path, local: bool) -> None:
        self._process = process
        self._scratch = scratch
        self._stderr = scratch / "stderr"
        self._local = local

    def ended(self) -> str | None:
        status = self._process.poll()
        return None if status is None else f"ended with status {status}"

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
        if self._local:
            signal_processes(signum, pids.values())
            return
        # mpirun forwards signals to its ranks on all hosts; SIGTSTP reaches them as SIGSTOP.
        self._process.send_signal(signal.SIGTSTP if signum == signal.SIGSTOP else signum)

    def end(self, pids: Mapping[int, int]) -> None:
        if not self._local:
            # Terminate it first, so that it ends its daemons on the other hosts.
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(TERM_S)
        self._process.kill()
        self._process.wait()
        if self._local:
            # Ranks die with mpirun (PR_SET_PDEATHSIG), even stopped ones. The fork server kills
            # forked ranks when their stubs have died.
            wait_until_ended(pids.values())
        shutil.rmtree(self._scratch, ignore_errors=True)

    def tail(self, rank: int) -> list[str]:
        # If the rank has written nothing, mpirun may have.
        return self._written(rank)[-TAIL_LINES:] or tail_of(self._stderr)

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


class MpirunLauncher:
    """A launcher that has mpirun start the ranks; see hvdperf.launch.job.Launcher."""

    def __init__(self, mpirun: str) -> None:
        """Use the mpirun executable at this path."""
        self._mpirun = mpirun

    def rendezvous(self, slots: Sequence[Slot]) -> None:
        """Return None, because MPI has its own rendezvous."""

    def start(self, order: Order) -> MpirunJob:
        # The guard ends mpirun, and with it the ranks, when this process is killed.
        guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid())]
        try:
            process = start_process(
                [*guarded, *command(order, self._mpirun)],
                order.interpreter,
                order.environment,
                order.scratch,
            )
        except OSError as error:
            raise LaunchError(f"mpirun could not be started: {error}") from error
        hosts = {slot.host for slot in order.slots[: order.processes]}
        return MpirunJob(process, order.scratch, local=len(hosts) <= 1)
