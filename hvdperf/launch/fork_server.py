"""The driver's handle of a process that forks ranks, which runs worker/fork/server.py."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hvdperf.launch.processes import fate_of, lines_of, start_process, tail_of
from hvdperf.worker.cpu_hog import is_stopped
from hvdperf.worker.fork import stub
from hvdperf.worker.fork.stub import READY
from hvdperf.worker.protocol import DRIVER_VARIABLE


class ForkServer:
    """A process that forks ranks. It starts at once, and makes its imports while the first
    launchers start.

    scratch: gets a directory for the socket and the output of the process. hub: address of the
    session's hub. cores: CPU cores that the process runs on. Raises OSError if the process cannot
    be started. The process ends with this one.
    """

    def __init__(self, interpreter: str, scratch: Path, hub: str, cores: Iterable[int]) -> None:
        self.interpreter = interpreter
        scratch.mkdir(parents=True, exist_ok=True)
        self.directory = directory = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
                try:
                    listener.bind(stub.address_in(directory_fd))
                finally:
                    os.close(directory_fd)
                # Stubs that connect during the server's imports wait in this queue.
                listener.listen(1024)
                arguments = [str(listener.fileno()), str(os.getpid()), ",".join(map(str, cores))]
                self._process = start_process(
                    [interpreter, "-u", "-m", "hvdperf.worker.fork.server", *arguments],
                    interpreter,
                    # Marks the process as this session's; ranks get their address from stubs.
                    {DRIVER_VARIABLE: f"{hub}:"},
                    directory,
                    pass_fds=[listener.fileno()],
                )
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def command(self) -> list[str]:
        """Command line that a launcher starts in place of each rank."""
        return [self.interpreter, "-I", "-S", stub.__file__, str(self.directory)]

    @property
    def ended(self) -> str:
        """Return how the process has ended, in words; return "" while it runs."""
        status = self._process.poll()
        return "" if status is None else f"hvd-server, which forks ranks, ended {fate_of(status)}"

    @property
    def is_importing(self) -> bool:
        """Return whether the process has not finished its imports."""
        return not self.ended and self._readiness is None

    @property
    def refusal(self) -> str:
        """Return why the process cannot fork, so that ranks are fresh processes; return "" if it
        can, or if it still imports."""
        return self._readiness or ""

    @property
    def standing(self) -> str:
        """Return the state of the process, in words."""
        if self.ended:
            return self.ended
        if is_stopped(self.pid):
            return "hvd-server, which forks ranks, is stopped"
        if self.is_importing:
            return "hvd-server, which forks ranks, still imports TensorFlow and Horovod"
        return "hvd-server, which forks ranks, has not forked this rank"

    @property
    def _readiness(self) -> str | None:
        """Return the text behind READY: the reason why the process cannot fork, or "". Return None
        before the end of its imports."""
        # A library may print something while it is imported.
        said = [line for line in lines_of(self.directory / "stdout") if line.startswith(READY)]
        return said[0].removeprefix(READY).rstrip("\n") if said else None

    def dump_stacks(self) -> None:
        """Have the process write its threads' call stacks to its stderr."""
        if not self.ended:
            self._process.send_signal(signal.SIGUSR1)

    def tail(self) -> list[str]:
        """Return the last lines of the process's stderr."""
        return tail_of(self.directory / "stderr")

    def close(self) -> None:
        """Kill the process and every rank that it has forked, and remove its directory."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
