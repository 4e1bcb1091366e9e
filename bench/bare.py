"""The driver of bench.bare_loop, one more group that can be stopped and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hvdperf.machine.stack import find_mpirun
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import ROOT


class BareLoop:
    """One mpirun of the plain script. cores: one for each rank. Raises RuntimeError if the script
    does not start."""

    def __init__(self, interpreter: str, arguments: Sequence[str], cores: Sequence[int]) -> None:
        mpirun = str(find_mpirun(Path(interpreter)))
        command = [mpirun, "-np", str(len(cores)), "--oversubscribe", "--bind-to", "none"]
        command += ["--mca", "mpi_yield_when_idle", "1", interpreter, "-m", "bench.bare_loop"]
        self._process = subprocess.Popen(
            [*command, *arguments, ",".join(map(str, cores))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**rank_environment(interpreter), "TF_CPP_MIN_LOG_LEVEL": "2"},
            cwd=ROOT,
            text=True,
        )
        if self._line() != "ready":
            raise RuntimeError("the bare loop did not start")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def block(self, steps: int) -> float:
        """Run the steps and return the seconds that the slowest rank took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return float(self._line())

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, signum: int) -> None:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for pid in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signum)

    def close(self) -> None:
        self.resume()
        assert self._process.stdin is not None
        self._process.stdin.write("0\n")
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
        self._process.wait()
