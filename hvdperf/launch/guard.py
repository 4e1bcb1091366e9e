"""Run a command that the kernel kills when the process that started it ends.

It is a separate script (`python -I -S guard.py PARENT_PID COMMAND ...`) because between fork and
exec a multi-threaded parent must not run Python.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def guarded(command: list[str]) -> list[str]:
    """Return the command line of a command that the kernel kills when this process ends."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *command]


def end_with_parent(signum: int = signal.SIGKILL) -> None:
    """Have the kernel send this process the signal when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum)


if __name__ == "__main__":
    end_with_parent()
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)  # the parent ended before prctl took effect
    os.execvp(sys.argv[2], sys.argv[2:])
