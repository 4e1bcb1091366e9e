"""The driver's handle of a process that forks ranks; worker/fork_server.py is that process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hvdperf.launch.processes import fate_of, lines_of, start_process, tail_of
from hvdperf.worker import fork_stub
from hvdperf.worker.cpu_hog import is_stopped
from hvdperf.worker.fork_stub import READY
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
            with socket.socket(socket.AF_UNIX) as listener:
                place = os.open(directory, os.O_PATH | os.O_DIRECTORY)
                try:
                    listener.bind(fork_stub.address_in(place))
                finally:
                    os.close(place)
                # A stub that connects before the server has imported waits.
                listener.listen(1024)
                told = [str(listener.fileno()), str(os.getpid()), ",".join(map(str, cores))]
                self._process = start_process(
                    [interpreter, "-u", "-m", "hvdperf.worker.fork_server", *told],
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
        said = [line for line in lines_of(self.directory / "stdout") if line.startswith(READY)]
        return said[0].removeprefix(READY).rstrip("\n") if said else None

    def stacks(self) -> None:
        """Have the process write the stacks of its threads to its stderr."""
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
