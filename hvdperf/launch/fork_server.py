"""The driver's handle of a process that forks ranks; worker/fork_server.py is that process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hvdperf.launch.job import fate_of
from hvdperf.machine.rank_environment import rank_environment
from hvdperf.paths import ROOT
from hvdperf.worker import fork_stub
from hvdperf.worker.cpu_hog import is_stopped
from hvdperf.worker.protocol import DRIVER_VARIABLE


class ForkServer:
    """A process that forks ranks. It starts at once, and imports while the first launchers start.

    scratch: gets a directory for the socket and the output of the process. hub: address of the
    session's hub. cores: CPU cores that the process runs on. Raises OSError if the process cannot
    be started. The process ends with this one.
    """

    def __init__(self, interpreter: str, scratch: Path, hub: str, cores: Iterable[int]) -> None:
        self.interpreter = interpreter
        scratch.mkdir(parents=True, exist_ok=True)
        self.directory = directory = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
        try:
            self._process = self._started(interpreter, hub, cores)
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _started(self, interpreter: str, hub: str, cores: Iterable[int]) -> subprocess.Popen[bytes]:
        directory = self.directory
        with (
            socket.socket(socket.AF_UNIX) as listener,
            open(directory / "stdout", "wb") as stdout,
            open(directory / "stderr", "wb") as stderr,
        ):
            place = os.open(directory, os.O_PATH | os.O_DIRECTORY)
            try:
                listener.bind(fork_stub.address_in(place))
            finally:
                os.close(place)
            # A stub that connects before the server has imported waits.
            listener.listen(1024)
            told = [str(listener.fileno()), str(os.getpid()), ",".join(map(str, cores))]
            return subprocess.Popen(
                [interpreter, "-u", "-m", "hvdperf.worker.fork_server", *told],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                # The address marks the process as this session's; ranks get theirs from stubs.
                env={
                    **rank_environment(interpreter),
                    DRIVER_VARIABLE: f"{hub}:",
                    "TMPDIR": str(directory),
                },
                cwd=ROOT,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def command(self) -> list[str]:
        """Command line that a launcher starts for every rank, in place of the rank."""
        return [self.interpreter, "-I", "-S", fork_stub.__file__, str(self.directory)]

    @property
    def ended(self) -> str:
        """Return how the process has ended, in words; return "" while it runs."""
        status = self._process.poll()
        return "" if status is None else f"hvd-server, which forks ranks, ended {fate_of(status)}"

    @property
    def imports(self) -> bool:
        """Return whether the process still imports what ranks import."""
        return not self.ended and self._ready is None

    @property
    def refusal(self) -> str:
        """Return why the process cannot fork, so that ranks are fresh processes; return "" if it
        can, or if it has not imported yet."""
        return self._ready or ""

    @property
    def standing(self) -> str:
        """Return what the process does, in words."""
        if self.ended:
            return self.ended
        if is_stopped(self.pid):
            return "hvd-server, which forks ranks, is stopped"
        doing = "still imports TensorFlow and Horovod" if self.imports else "does not fork it"
        return f"hvd-server, which forks ranks, {doing}"

    @property
    def _ready(self) -> str | None:
        # A library may print something while it is imported.
        said = [line for line in self._lines("stdout") if line.startswith(fork_stub.READY)]
        return said[0].removeprefix(fork_stub.READY) if said else None

    def _lines(self, stream: str) -> list[str]:
        try:
            return (self.directory / stream).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []  # the server has been closed

    def stacks(self) -> None:
        """Have the process write the stacks of its threads to its stderr."""
        if not self.ended:
            self._process.send_signal(signal.SIGUSR1)

    def tail(self, lines: int = 20) -> list[str]:
        """Return the last lines of the process's stderr that are not empty."""
        return [line for line in self._lines("stderr") if line.strip()][-lines:]

    def close(self) -> None:
        """Kill the process and every rank that it has forked, and remove its directory."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
