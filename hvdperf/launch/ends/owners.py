"""Ends this process when a program that it belongs to has ended: an mpirun, a make, a step of CI.

Such a program may be killed without a word to its children, which would then measure on. Its
process is an ancestor of this one. An ancestor counts if it is of the same session of processes:
`setsid` begins a new one, so that what it starts may outlive it. The shell of a terminal does not
count, because the terminal sends SIGHUP if it is closed. Under `nohup`, which ignores SIGHUP, only
the launcher counts that has started this process as a rank.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hvdperf.launch.outer import launcher
from hvdperf.launch.outer_mpirun import INTERRUPTED

# Seconds between two looks, and seconds that this process has to end by itself.
LOOK_S = 0.5
END_S = 4.0


class Ancestor(NamedTuple):
    """A process, with the time of its start, which tells it from a later one of the same id."""

    pid: int
    began: int

    @property
    def runs(self) -> bool:
        stat = _Stat.of(self.pid)
        return stat is not None and stat.began == self.began and stat.state not in "ZX"


class _Stat(NamedTuple):
    """What /proc tells of a process."""

    state: str
    parent: int
    session: int
    terminal: int
    began: int

    @classmethod
    def of(cls, pid: int) -> _Stat | None:
        """Return what is known of a process; None if there is none that this user may see."""
        try:
            # The name, in brackets, may hold blanks.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return cls(fields[0], *(int(fields[i]) for i in (1, 3, 4, 19)))


def owners() -> list[Ancestor]:
    """Return the ancestors with which this process has to end, its parent first."""
    starter, found = launcher(), list[Ancestor]()
    own = _Stat.of(os.getpid())
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    # A process that leads its session outlives what has started it.
    pid = own.parent if own is not None and own.session != os.getpid() else 0
    while pid > 1 and own is not None and (stat := _Stat.of(pid)) is not None:
        of_session = stat.session == own.session
        is_shell_of_terminal = pid == stat.session and stat.terminal != 0
        if pid != starter and (not of_session or is_shell_of_terminal or outlives):
            break
        found.append(Ancestor(pid, stat.began))
        pid = stat.parent if pid != stat.session else 0
    return found


def end_with(ancestors: Sequence[Ancestor]) -> None:
    """End this process by SIGTERM when one of its ancestors has ended, and after END_S in any
    case."""
    if ancestors:
        threading.Thread(target=_watch, args=(ancestors,), name="owners", daemon=True).start()


def _watch(ancestors: Sequence[Ancestor]) -> None:
    while all(ancestor.runs for ancestor in ancestors):
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_S)
    os._exit(INTERRUPTED)
