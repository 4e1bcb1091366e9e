"""What launches may leave behind, as the kernel tells: processes, sockets, shared memory."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from harness.launch.mpirun import is_running


def open_sockets(pids: Iterable[int]) -> set[str]:
    """The TCP sockets of the processes and of whatever started them, as the kernel numbers them."""
    parents = [
        int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids
    ]
    found = set()
    for pid in {*pids, *parents} - {os.getpid()}:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.update(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
    return found & all_sockets()


def shared_memory_files(pids: Iterable[int]) -> set[Path]:
    """The files through which the ranks share memory."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/") and "s " in line}
    return {path for path in paths if "vader" in path.name or path.is_relative_to("/dev/shm")}


def all_sockets() -> set[str]:
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    # Those that wait out a connection's end belong to no process any more and have number 0.
    return {row[9] for row in rows} - {"0"}


def ended(pids: Iterable[int]) -> bool:
    """Whether the processes end; the kernel of a busy machine takes a while over a killed one."""
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_running, pids))
