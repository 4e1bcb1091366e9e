"""Directories for temporary files that are gone after their process, even if it was killed.

A second process, which is this script (`python -I -S scratch.py`), reads the names of directories,
one a line. When the process that writes them has ended, it removes those that are left. It is of
the standard library only.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

# Seconds in which the processes that write into the directories end, too.
_END_S = 10.0
_remover: "subprocess.Popen[bytes] | None" = None


def scratch_directory(prefix: str, within: "os.PathLike[str] | None" = None) -> str:
    """Return the path of a new directory, which is removed after the end of this process. within:
    where to make it; by default where temporary files are. Raises OSError."""
    global _remover
    if _remover is None:
        _remover = _start()
        atexit.register(_end, _remover)
    path = tempfile.mkdtemp(prefix=prefix, dir=within)
    assert _remover.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        _remover.stdin.write(os.fsencode(path) + b"\n")
        _remover.stdin.flush()
    return path


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-I", "-S", os.path.abspath(__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # neither Ctrl-C nor the end of a terminal is for it
    )


def _end(remover: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        remover.communicate()


def _remove_at_end() -> None:
    """Read names until the process that writes them has ended; then remove the directories."""
    left = [os.fsdecode(line.rstrip(b"\n")) for line in sys.stdin.buffer]
    deadline = time.monotonic() + _END_S
    while left and time.monotonic() < deadline:
        for each in left:
            shutil.rmtree(each, ignore_errors=True)
        time.sleep(0.05)
        left = [each for each in left if os.path.lexists(each)]


if __name__ == "__main__":
    _remove_at_end()
