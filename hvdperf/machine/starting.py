"""What keeps a machine from starting ranks: memory, space, limits, its name. Reads the kernel's
counters; starts nothing."""

from __future__ import annotations

import re
import resource
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hvdperf.machine.cores import control_groups
from hvdperf.machine.space import (
    MIB,
    TEMPORARY_FILES,
    free_bytes,
    shared_memory_directory,
    shared_memory_needed,
)
from hvdperf.paths import shown

# TensorFlow maps more than this much, in bytes.
ADDRESS_SPACE = 16 * 1024 * MIB
# The kernel's usual number of process ids: a lower limit of a user's processes and threads may be
# too low.
PROCESSES = 1 << 15
# Processes and threads of a rank.
THREADS_OF_A_RANK = 100
# Variables that are named.
_NAMED = 6
_OF_PIDS = ("max", "current")
_COUNTERS = ("memory.events", "memory.events.local", "memory.oom_control")
# What a rank or its launcher says when it lacks something.
_OF_MEMORY = re.compile(
    r"[Cc]annot allocate memory|bad_alloc|MemoryError|[Oo]ut of memory|OOM|failed to map segment|"
    r"killed by signal 9"
)
_OF_PROCESSES = re.compile(
    r"[Rr]esource temporarily unavailable|can't start new thread|pthread_create|[Ff]ork failed|"
    r"failed to create thread|fork\b"
)
_OF_SPACE = re.compile(r"[Nn]o space left|[Dd]isk quota exceeded|SIGBUS|signal 7|shared memory")
_OF_NAMES = re.compile(
    r"[Nn]ame or service not known|gethostbyname|getaddrinfo|[Nn]ame resolution|[Cc]ould not "
    r"resolve|SIGSEGV|SIGABRT|[Uu]nable to (?:find|resolve)|no answer|route"
)


def killed_for_memory(root: Path = Path("/")) -> int:
    """Return how often the kernel has killed a process for lack of memory, in the control groups of
    this process or on the machine."""
    found = 0
    for directory in control_groups("memory", root):
        for name in _COUNTERS:
            found += _field(directory / name, "oom_kill")
    return found + _field(root / "proc/vmstat", "oom_kill")


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the lowest limit of memory of this process's control groups, in bytes; None without
    one."""
    found = []
    for directory in control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                found.append(int((directory / name).read_text()))
            except (OSError, ValueError):
                continue
    return min((each for each in found if each < 1 << 60), default=None)


def _field(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(words[1]) for line in lines if (words := line.split())[:1] == [name])


def missing(ranks: int, said: Iterable[str], killed: int, root: Path = Path("/")) -> str:
    """Return what the machine lacks for these ranks, which failed to start, and what mends it, in
    one line; "" if it seems to lack nothing.

    said: cause and output of the failed launch. killed: `killed_for_memory` before it.
    """
    text = "\n".join(said)
    return next(filter(None, _missing(ranks, text, killed, root)), "")


def _missing(ranks: int, text: str, killed: int, root: Path) -> Iterator[str]:
    if killed_for_memory(root) > killed:
        limit = memory_limit(root)
        whose = f"its control group allows {limit / MIB:.0f} MiB" if limit else "all is in use"
        yield f"the kernel killed a process for lack of memory ({whose}): give more, or fewer slots"
    if _OF_SPACE.search(text):
        yield _space("shared memory", shared_memory_directory(ranks), shared_memory_needed(ranks))
    yield _space("temporary files", Path(tempfile.gettempdir()), TEMPORARY_FILES)
    if _OF_MEMORY.search(text):
        yield _limit(resource.RLIMIT_AS, "-v", 1024, ADDRESS_SPACE, "address space")
        yield _limit(resource.RLIMIT_DATA, "-d", 1024, ADDRESS_SPACE, "data segment")
    if _OF_PROCESSES.search(text):
        yield _limit(resource.RLIMIT_NPROC, "-u", 1, PROCESSES, "processes and threads")
        yield _limit(resource.RLIMIT_AS, "-v", 1024, ADDRESS_SPACE, "address space")
        yield _pids(ranks, root)
    yield _loopback(root)
    if _OF_NAMES.search(text):
        yield _name()


def _space(what: str, where: Path, needed: int) -> str:
    free = free_bytes(where)
    if free >= needed:
        return ""
    return (
        f"{shown(where)} has {free / MIB:.0f} MiB left for {what}, which need {needed / MIB:.0f}: "
        "remove old files there, or name another directory by TMPDIR"
    )


def _limit(which: int, option: str, unit: int, needed: int, what: str) -> str:
    limit, _ = resource.getrlimit(which)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return ""
    return f"the limit of {what} is {limit // unit} (ulimit {option}): ulimit {option} unlimited"


def _pids(ranks: int, root: Path) -> str:
    """Return that a control group allows too few processes, in words; "" if it does not."""
    for directory in control_groups("pids", root):
        try:
            limit, taken = (int((directory / f"pids.{name}").read_text()) for name in _OF_PIDS)
        except (OSError, ValueError):
            continue
        if limit - taken < ranks * THREADS_OF_A_RANK:
            return (
                f"its control group allows {limit} processes (docker run --pids-limit): allow more"
            )
    return ""


def _name() -> str:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return f"the name of this host does not resolve: add `127.0.1.1 {name}` to /etc/hosts"
    return ""


def _loopback(root: Path) -> str:
    try:
        flags = int((root / "sys/class/net/lo/flags").read_text(), 16)
    except (OSError, ValueError):
        return ""
    return "" if flags & 1 else "the loopback interface is down: sudo ip link set lo up"


def of_environment(names: Sequence[str]) -> str:
    """Return that these variables of the user keep ranks from starting, in words."""
    unset = " ".join(f"-u {name}" for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
    return (
        f"the ranks start without {', '.join(names[:_NAMED])}{more}, which this environment has: "
        f"env {unset} pytest ..."
    )
