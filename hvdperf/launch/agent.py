"""Starts, signals and ends worker processes on one host; every slot has such an agent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from hvdperf.machine.rank_environment import rank_environment
from hvdperf.paths import ROOT


class Agent(Protocol):
    """The worker processes of one slot. A slot runs several at a time, one per launch (by its
    name)."""

    def start(
        self,
        launch: str,
        interpreter: str,
        environment: Mapping[str, str],
        command: Sequence[str],
    ) -> None: ...

    def status(self, launch: str) -> int | None:
        """Return the exit status, negative for a signal; return None while the process runs."""

    def signal(self, launch: str, signum: int) -> None: ...

    def tail(self, launch: str, lines: int) -> list[str]: ...

    def end(self, launch: str) -> None: ...


class LocalAgent:
    """An agent whose worker processes are children of this process. scratch: directory for their
    output."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._processes)

    def _directory(self, launch: str) -> Path:
        return self._scratch / launch

    def start(
        self,
        launch: str,
        interpreter: str,
        environment: Mapping[str, str],
        command: Sequence[str],
    ) -> None:
        directory = self._directory(launch)
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "stdout", "wb") as stdout, open(directory / "stderr", "wb") as stderr:
            # The worker asks the kernel to end it with this process (see hvdperf.worker.process).
            self._processes[launch] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                # TensorFlow leaves temporary files behind; they are removed with the launch.
                env={**rank_environment(interpreter), **environment, "TMPDIR": str(directory)},
                cwd=ROOT,
                start_new_session=True,
            )

    def status(self, launch: str) -> int | None:
        return self._processes[launch].poll()

    def statuses(self) -> dict[str, int]:
        """Return the exit statuses of the processes that have ended, by launch."""
        polled = {launch: process.poll() for launch, process in self._processes.items()}
        return {launch: status for launch, status in polled.items() if status is not None}

    def signal(self, launch: str, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._processes[launch].pid, signum)

    def tail(self, launch: str, lines: int) -> list[str]:
        try:
            text = (self._directory(launch) / "stderr").read_text(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def end(self, launch: str) -> None:
        process = self._processes.pop(launch, None)
        if process is not None:
            # The process group also holds the processes that the worker has started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._directory(launch), ignore_errors=True)

    def end_all(self) -> None:
        for launch in list(self._processes):
            self.end(launch)
