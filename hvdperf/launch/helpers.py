"""Small processes beside those of a session: each runs this file as a script of the standard
library only (`python -I -S helpers.py NAME ARGUMENT ...`), which imports no more than it needs, so
that it starts in 20 ms.

`guard PARENT_PID COMMAND ...` runs a command that the kernel kills when the process that started it
ends; between fork and exec a multi-threaded parent must not run Python. `remove` removes temporary
directories after the end of the process that made them, even if that was killed. `daemon HOST
COMMAND ...` has a slot start Open MPI's daemon on its host: the inner mpirun calls it instead of
ssh or srun, so neither keys nor another step of Slurm are needed, and the daemon ends with its
slot. `shell FILE WORDS SSH ... HOST COMMAND ...` starts that daemon by ssh, for an outer mpirun.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
# host:port:token of the session, in the environment of the inner mpirun.
DAEMONS_VARIABLE = "HVDPERF_DAEMONS"
_SHELL_ARGUMENTS = "plm_rsh_args"
# Seconds in which the processes that write into temporary directories end, too.
_END_S = 10.0


def helper(name: str, *arguments: str) -> list[str]:
    """Return the command line of one of these processes."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), name, *arguments]


def guarded(command: list[str]) -> list[str]:
    """Return the command line of a command that the kernel kills when this process ends."""
    return helper("guard", str(os.getpid()), *command)


def end_with_parent(signum: int = 9) -> None:
    """Have the kernel send this process the signal, by default SIGKILL, when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)


def _guard(parent: str, *command: str) -> None:
    end_with_parent()
    if os.getppid() != int(parent):
        sys.exit(1)  # the parent ended before prctl took effect
    os.execvp(command[0], command)


# The end of the pipe to the process that removes directories; None before there is one.
_to_remover: int | None = None


def scratch_directory(prefix: str, within: os.PathLike[str] | None = None) -> str:
    """Return the path of a new directory, which is removed after the end of this process. within:
    where to make it; by default where temporary files are. Raises OSError."""
    import contextlib
    import tempfile

    global _to_remover
    if _to_remover is None:
        _to_remover = _start_remover()
    path = tempfile.mkdtemp(prefix=prefix, dir=within)
    with contextlib.suppress(BrokenPipeError):
        os.write(_to_remover, os.fsencode(path) + b"\n")
    return path


def _start_remover() -> int:
    import atexit
    import subprocess

    reading, writing = os.pipe()
    remover = subprocess.Popen(
        helper("remove"),
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # neither Ctrl-C nor the end of a terminal is for it
    )
    os.close(reading)

    def end() -> None:
        os.close(writing)
        remover.wait()

    atexit.register(end)
    return writing


def _remove() -> None:
    """Read names, one a line, until the process that writes them has ended; then remove these
    directories."""
    import shutil

    left = [os.fsdecode(line.rstrip(b"\n")) for line in sys.stdin.buffer]
    deadline = time.monotonic() + _END_S
    while left and time.monotonic() < deadline:
        for each in left:
            shutil.rmtree(each, ignore_errors=True)
        time.sleep(0.05)
        left = [each for each in left if os.path.lexists(each)]


def _start_daemon(host: str, *command: str) -> str | int:
    """Return why the daemon could not be started, or 0."""
    import json
    import socket

    address, port, token = os.environ[DAEMONS_VARIABLE].rsplit(":", 2)
    hello = {"hello": os.getpid(), "token": token, "pid": os.getpid(), "host": host}
    with socket.create_connection((address, int(port))) as session, session.makefile("rwb") as file:
        for message in (hello, {"command": " ".join(command)}):
            file.write(json.dumps(message).encode() + b"\n")
        file.flush()
        return str(json.loads(file.readline())["problem"]) or 0


def _start_by_shell(status_file: str, count: str, *command: str) -> int:
    """Run a command, which ends with this process; return what mpirun is to know. status_file: into
    which rank 0 writes when it starts. count: of the words of ssh. Before HOST come the arguments
    for it that the user gives Open MPI, which are repeated in COMMAND.

    If ssh fails, mpirun ends all ranks, even when the daemon has long been running and its host is
    lost. After rank 0 has started, no failure is therefore reported to mpirun.
    """
    import subprocess

    status, words = subprocess.call(guarded([*command])), int(count)
    try:
        with open(status_file) as written_by_rank_0:
            if written_by_rank_0.read():
                return 0
    except FileNotFoundError:
        return 0  # the session is over, and its files are gone
    if status:
        if _SHELL_ARGUMENTS in command:
            words += len(command[command.index(_SHELL_ARGUMENTS) + 1].strip('"').split())
        host = command[words]
        with open(f"{status_file}.problems", "a") as problems:
            problems.write(
                f"ERROR: {host}: Open MPI's daemon does not start: {command[0]} returned {status}; "
                f"see whether `{' '.join(command[:words])} {host} true` works, and whether the "
                "checkout there has the same path, with an environment (`make env`)\n"
            )
    return status


if __name__ == "__main__":
    _NAMED: dict[str, Callable[..., str | int | None]] = {
        "guard": _guard,
        "remove": _remove,
        "daemon": _start_daemon,
        "shell": _start_by_shell,
    }
    sys.exit(_NAMED[sys.argv[1]](*sys.argv[2:]))
