"""A real terminal in which a command runs, and the lines that it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Escapes for colours, the terminal's title and its progress bar.
_INVISIBLE = re.compile(r"\x1b\[[0-9;]*m|\x1b\].*?(?:\x07|\x1b\\)")


def _as_under_a_shell() -> None:
    # These tests may run in the background of a script, where Ctrl-C is ignored, or under nohup.
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A terminal with a command that starts at once. output: every byte written to it so far.

    It is the command's controlling terminal, with the command in the foreground, as under a shell.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.output = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**(os.environ if env is None else env), "TERM": "xterm"}
        for name in ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "COLUMNS"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_as_under_a_shell,
        )
        os.close(slave)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, text: bytes, seconds: float = 60.0) -> None:
        """Wait until the text has been written."""
        deadline = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < deadline, f"without {text!r}: {self.output!r}"
            assert self._read(0.1), f"ended without {text!r}: {self.output!r}"

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float = 120.0) -> int:
        """Wait for the command and return its exit status."""
        deadline = time.monotonic() + seconds
        try:
            while self._read(0.1):
                assert time.monotonic() < deadline, f"still runs: {self.output!r}"
            return self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._master)

    def close(self, seconds: float = 60.0) -> int:
        """Close the terminal with the command in it, and return the command's exit status."""
        os.close(self._master)
        try:
            return self._process.wait(seconds)
        finally:
            self._process.kill()
            self._process.wait()

    def shown(self) -> list[str]:
        """Return the lines that can be seen, however far back one would have to scroll."""
        return _INVISIBLE.sub("", self.output.decode()).replace("\r", "").split("\n")

    def _read(self, seconds: float) -> bool:
        """Read what there is, and return whether there may be more."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            read = os.read(self._master, 1 << 16)
        except OSError:
            return False  # nobody has the other end any more
        self.output += read
        return bool(read)
