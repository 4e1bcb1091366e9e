"""Runs another program to its end; what goes wrong is one line."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hvdperf.errors import UserError

_WORD = re.compile(r"[^\W_]")
# How mpirun begins to say with which status a rank exited, after all that the rank said.
_EXITED = re.compile(r"^-{50,}\nPrimary job ", re.MULTILINE)


class NotStarted(UserError):
    """The program does not start."""


class TooLong(UserError):
    """The program did not end in time, and was killed."""


def fate_of(status: int) -> str:
    """Return how a process ended, in words. status: as subprocess.Popen returns it."""
    return f"(exit status {status})" if status >= 0 else killed_by(-status)


def killed_by(signum: int) -> str:
    """Return by which signal a process was killed, in words."""
    names = {each.value: each.name for each in signal.Signals}
    return f"(killed by signal {signum}, {names.get(signum, 'which has no name')})"


def last_line(text: str) -> str:
    """Return the last line that has a letter or a digit, as that of a frame has none, before
    mpirun says with which status a rank exited; "" without such a line."""
    text = _EXITED.split(text, maxsplit=1)[0]
    return next((line.strip() for line in reversed(text.splitlines()) if _WORD.search(line)), "")


class Done(NamedTuple):
    """How a program ended. status: its exit status; the negative number of a signal."""

    status: int
    output: str
    errors: str

    @property
    def said(self) -> list[str]:
        """What it wrote, errors first: a line or more."""
        return (self.errors + self.output).strip().splitlines() or ["it printed nothing"]

    @property
    def why(self) -> str:
        """The last line of its errors."""
        return last_line(self.errors) or f"it ended with status {self.status}"


def run(
    command: Sequence[str | Path],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    within_s: float | None = None,
) -> Done:
    """Run a program, which has nothing to read from its standard input, and return how it ended.
    within_s: seconds after which it is killed; None for no limit. Raises NotStarted and TooLong."""
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise NotStarted(f"{command[0]} does not start: {error.strerror}") from None
    try:
        output, errors = process.communicate(timeout=within_s)
    except BaseException as error:
        process.kill()
        # The wait is limited: behind a broken device the process may never return from the kernel.
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TooLong(f"{command[0]} did not end within {within_s:g} s") from None
        raise
    return Done(process.returncode, output, errors)
