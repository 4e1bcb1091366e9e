"""A census of what launches may leave behind: processes, sockets, shared memory, files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hvdperf.worker.protocol import DRIVER_VARIABLE

# The kinds that a census counts.
COUNTED = ("processes", "file descriptors", "listening ports", "shared memory", "temporary files")
# Names of Open MPI's own files in the directory for temporary files.
_OPEN_MPIS = ("ompi.*", "openmpi-*", "pmix*", "prte*", "vader*")
_LISTENS = "0A"
SHARED_MEMORY = Path("/dev/shm")

Names = frozenset[str]
# The names that were found, by kind (COUNTED).
Census = Mapping[str, Names]


def take_census(scratch: Path, ports: Iterable[int]) -> Census:
    """Return what exists now of this process, of launches that were to connect to one of the ports,
    and of this user's files: all of /dev/shm, everything below scratch, and Open MPI's own."""
    mine = descriptors(os.getpid())
    processes = launched(ports)
    held = mine.union(*map(descriptors, processes))
    temporary = Path(tempfile.gettempdir())
    files = [*scratch.rglob("*"), *(found for name in _OPEN_MPIS for found in temporary.glob(name))]
    return {
        "processes": frozenset(f"{pid} {name}" for pid, name in processes.items()),
        "file descriptors": mine,
        "listening ports": frozenset(
            f"port {port}" for inode, port in listening().items() if f"socket:[{inode}]" in held
        ),
        "shared memory": frozenset(map(str, _own(SHARED_MEMORY.iterdir()))),
        "temporary files": frozenset(map(str, _own(files))),
    }


def _own(files: Iterable[Path]) -> Iterable[Path]:
    """Yield the files of this user; others may be at work on this machine, too."""
    for path in files:
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                yield path


def launched(ports: Iterable[int]) -> dict[int, str]:
    """Return the names of processes, by process id: those whose environment names one of the ports,
    and ended children of this process for which nobody has waited."""
    ends = tuple(f":{port}:" for port in ports)
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with suppress(OSError):
            process = Path("/proc", entry)
            name, _, state = (process / "stat").read_text().partition("(")[2].rpartition(")")
            if state.split()[:2] == ["Z", str(os.getpid())] or _is_directed_to(process, ends):
                found[int(entry)] = name
    return found


def _is_directed_to(process: Path, ends: Iterable[str]) -> bool:
    """Return whether a process's environment says to connect to one of the ends."""
    variables = (process / "environ").read_text(errors="replace").split("\0")
    addresses = [text for text in variables if text.startswith(f"{DRIVER_VARIABLE}=")]
    return any(end in text for text in addresses for end in ends)


def descriptors(pid: int) -> Names:
    """Return the names that the kernel gives to a process's open files."""
    found = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(descriptor))
    # Without the directory that has just been listed.
    return frozenset(found - {f"/proc/{pid}/fd"})


def listening() -> dict[str, int]:
    """Return the TCP ports on which somebody listens, by the number of the socket."""
    return {row[9]: int(row[1].rpartition(":")[2], 16) for row in sockets() if row[3] == _LISTENS}


def sockets() -> list[list[str]]:
    """Return the rows of the kernel's tables of TCP sockets."""
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    return [line.split() for table in tables for line in table.splitlines()[1:]]
