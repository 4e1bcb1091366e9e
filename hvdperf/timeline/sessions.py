"""Runs a session of the suite in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from hvdperf.errors import UserError
from hvdperf.paths import ROOT

# Exit statuses of pytest after an interruption, an internal error and bad input. After any other
# status the session has ended, and its documents can be used, whatever the verdict.
NO_SESSION = (2, 3, 4)
# Seconds for which a signal may go unnoticed.
WAIT_S = 1.0


def is_without_session(status: int) -> bool:
    """Return whether pytest with this exit status, negative for a signal, did not end a session."""
    return status < 0 or status in NO_SESSION


def ended(command: Sequence[str], output: TextIO | None = None) -> int:
    """Run a command to its end and return its exit status. output: takes its stdout; None for this
    process's.

    Ctrl-C reaches the command by itself, and SIGTERM is passed on to it. The command then gets the
    time that it needs to end its ranks and to clean up.
    """
    early: list[int] = []
    # Before the command starts, since a signal may come as soon as it runs.
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: early.append(number)),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
    }
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output)
        signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        for number in early:
            process.send_signal(number)
        # A signal that arrives just before this waits would be handled only at the end of the wait.
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(WAIT_S)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def run_session(arguments: Sequence[str], results: Path, lost: str, quiet: bool = False) -> Path:
    """Run one session, and return the directory of its documents.

    arguments: of pytest. results: the directory for --results. lost: text that begins the error
    message, such as `nothing was measured of X`. quiet: send pytest's output to stderr instead of
    stdout. Raises UserError if there was no session.
    """
    before = set(results.glob("runs/*"))
    command = [sys.executable, "-m", "pytest", *arguments, f"--results={results}"]
    status = ended(command, sys.stderr if quiet else None)
    new = sorted(set(results.glob("runs/*")) - before)
    if is_without_session(status) or not new:
        raise UserError(f"{lost}: pytest ended with status {status}; see its output above")
    return new[-1]
