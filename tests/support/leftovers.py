"""Processes of launches, what they hold open, the memory that they share, and their end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from hvdperf.launch.processes import is_running
from hvdperf.worker.protocol import DRIVER_VARIABLE


def launched(port: int) -> dict[int, str]:
    """Return the names of the processes, by process id, that were to connect to the port."""
    address = re.compile(rf"(?:^|\0){DRIVER_VARIABLE}=[^\0]*:{port}:")
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if address.search((process / "environ").read_text(errors="replace")):
                found[int(process.name)] = (process / "comm").read_text().strip()
    return found


def descriptors(pid: int) -> frozenset[str]:
    """Return the names that the kernel gives to a process's open files."""
    found = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(descriptor))
    # Without the directory that has just been listed.
    return frozenset(found - {f"/proc/{pid}/fd"})


def open_sockets(pids: Iterable[int]) -> set[str]:
    """Return the kernel's numbers of the TCP sockets of the processes and of their parents."""
    parents = [
        int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids
    ]
    names = frozenset[str]().union(*map(descriptors, {*pids, *parents} - {os.getpid()}))
    return {number for name in names for number in re.findall(r"socket:\[(\d+)\]", name)} & (
        all_sockets()
    )


def shared_memory_files(pids: Iterable[int]) -> set[Path]:
    """Return the files through which the ranks share memory."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/") and "s " in line}
    return {path for path in paths if "vader" in path.name or path.is_relative_to("/dev/shm")}


def all_sockets() -> set[str]:
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    # Sockets that wait out a connection's end belong to no process any more and have number 0.
    return {row[9] for row in rows} - {"0"}


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def ended(pids: Iterable[int]) -> bool:
    """Return whether the processes end within 10 s: on a busy machine, the kernel takes a while to
    end a killed process."""
    return eventually(lambda: not any(map(is_running, pids)))


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until it holds, or the seconds have passed; return whether it does."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()
