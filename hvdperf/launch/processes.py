"""Processes of this host: their start, output, signals and end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hvdperf.launch.diagnosis import diagnosis_lines
from hvdperf.launch.job import Variables
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import ROOT

# Escape sequences of a terminal (ECMA-48: a control sequence, a string, or two characters), and
# other control characters.
_CONTROLS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x1b\\|\x07)|[ -/]*[0-~])|[\x00-\x08\x0e-\x1f\x7f]"
)
# Lines at the end of a process's stderr that a failure shows.
TAIL_LINES = 20
# Lines of Horovod's diagnosis before them that it shows, too.
DIAGNOSIS_LINES = 10
# Seconds that processes have to end after a signal.
TERM_S = 5.0


def start_process(
    command: Sequence[str],
    interpreter: str,
    environment: Variables,
    directory: Path,
    pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in the environment of a rank.

    interpreter: that of the ranks. environment: variables on top of the ranks' usual ones.
    directory: created for the output and the temporary files, some of which TensorFlow never
    removes. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in environment.items() if value is not None}
    session = {name: value for name, value in os.environ.items() if name not in environment}
    with open(directory / "stdout", "wb") as stdout, open(directory / "stderr", "wb") as stderr:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**rank_environment(interpreter, session), **own, "TMPDIR": str(directory)},
            cwd=ROOT,
            pass_fds=pass_fds,
            # Ctrl-C must reach pytest only, which ends the launches itself.
            start_new_session=True,
        )


def lines_of(output: Path) -> list[str]:
    """Return the lines of a process's output, with their ends and without what controls a terminal,
    such as colours; [] if the file is gone."""
    try:
        text = output.read_text(errors="replace")
    except FileNotFoundError:
        return []
    return _CONTROLS.sub("", text).splitlines(keepends=True)


def tail_of(output: Path) -> list[str]:
    """Return the lines of a process's output that a failure shows."""
    return shown_of([line.rstrip() for line in lines_of(output) if line.strip()])


def shown_of(lines: Sequence[str]) -> list[str]:
    """Return the last lines, after those before them in which Horovod says which rank is
    missing."""
    end = max(0, len(lines) - TAIL_LINES)
    earlier = [i for i in diagnosis_lines(lines) if i < end][-DIAGNOSIS_LINES:]
    return [*(lines[i] for i in earlier), *lines[end:]]


def fate_of(status: int) -> str:
    """Return how a process ended, in words. status: as subprocess.Popen returns it."""
    return f"(exit status {status})" if status >= 0 else killed_by(-status)


def killed_by(signum: int) -> str:
    """Return by which signal a process was killed, in words."""
    names = {each.value: each.name for each in signal.Signals}
    return f"(killed by signal {signum}, {names.get(signum, 'which has no name')})"


def is_running(pid: int) -> bool:
    """Return whether the process, or a thread of it, still runs. A process that only waits to be
    reaped has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X") or len(threads) > 1


def signal_processes(signum: int, pids: Iterable[int]) -> None:
    """Send a signal to processes of this host that the caller owns; skip those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


def wait_until_ended(pids: Collection[int]) -> None:
    """Wait until processes of this host that are about to die have ended, for TERM_S at most."""
    deadline = time.monotonic() + TERM_S
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)
