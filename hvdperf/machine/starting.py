"""The environment and the space that ranks need, and what keeps them from starting."""

from __future__ import annotations

import os
import re
import resource
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hvdperf.errors import first_of
from hvdperf.machine.host import (
    control_groups,
    memory_in_groups,
    number_in,
    numbers_by_name,
    text_of,
)
from hvdperf.paths import ROOT, shown
from hvdperf.worker.process import OF_A_RANK
from hvdperf.worker.script.tap._hvdperf_recorder import PREFIXES

# Prefixes of the variables by which Open MPI and Slurm talk to their own children. An inner mpirun
# that finds such variables takes itself for a rank of the outer one, or calls srun.
_OUTER = ("OMPI_", "PMIX_", "PMI_", "HFI_", "IPATH_", "SLURM_")
_KEPT = ("OMPI_ALLOW_RUN_AS_ROOT",)
# MCA settings are kept, since they are the user's, except those that mpirun makes for its children,
# and those that say how ranks are started, bound and connected: the suite has its own.
_MCA = "OMPI_MCA_"
_OUTER_MCA = (
    *("orte_", "plm", "ras", "rmaps", "hwloc_base_binding", "oob_tcp_if_", "btl_tcp_if_"),
    *("ess", "pmix", "initial_wdir", "shmem_RUNTIME", "mpi_oversubscribe"),
)
# Variables that every process needs, and prefixes of those that may keep ranks from starting.
_NEEDED = frozenset(
    ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "OPAL_PREFIX", "CUDA_VISIBLE_DEVICES")
)
_SUSPECTS = ("HOROVOD_", "OMPI_", "TF_", "LD_", "PYTHON", "NCCL_", "UCX_")


def user_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the user's settings, which every rank gets on every host."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIXES) and name not in OF_A_RANK
    }


def not_needed(environment: Mapping[str, str] = os.environ) -> dict[str, list[str]]:
    """Return the names of the user's variables that a process does without, in groups by what they
    belong to; the groups that most often keep ranks from starting come first."""
    groups: dict[str, list[str]] = {prefix: [] for prefix in _SUSPECTS}
    groups[""] = []
    for name in sorted(environment):
        if name not in _NEEDED and not _is_outer(name):
            groups[next((each for each in _SUSPECTS if name.startswith(each)), "")].append(name)
    return {prefix: names for prefix, names in groups.items() if names}


def rank_environment(
    interpreter: str | Path, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a rank's process, whether or not the user has sourced `activate`.

    Horovod's libraries do not know where their MPI is, so the `lib` of the interpreter's
    environment is added to LD_LIBRARY_PATH if it holds an MPI library, which OPAL_PREFIX must not
    send to the files of another one. Open MPI refuses to run as root unless two variables confirm
    that this is meant.
    """
    result = {name: value for name, value in environment.items() if not _is_outer(name)}
    result["PYTHONPATH"] = _prepend(ROOT, result.get("PYTHONPATH"))
    home = Path(interpreter).absolute().parent.parent
    libraries = home / "lib"
    if any(libraries.glob("libmpi.so*")):
        if Path(result.get("OPAL_PREFIX", home)).resolve() != home.resolve():
            del result["OPAL_PREFIX"]
        result["LD_LIBRARY_PATH"] = _prepend(libraries, result.get("LD_LIBRARY_PATH"))
    if os.geteuid() == 0:
        result["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        result["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return result


def _prepend(directory: Path, search_path: str | None) -> str:
    return os.pathsep.join([str(directory), search_path] if search_path else [str(directory)])


def _is_outer(name: str) -> bool:
    """Return whether a variable is the outer launcher's, or says which rank a process is."""
    if name in OF_A_RANK:
        return True
    if name.startswith(_MCA):
        return name[len(_MCA) :].startswith(_OUTER_MCA)
    return name.startswith(_OUTER) and not name.startswith(_KEPT)


MIB = 2**20
# Open MPI's shared memory (vader) of a rank, with its reserve.
OF_A_SLOT = 8 * MIB
AT_LEAST = 64 * MIB
# NCCL's buffers between the GPUs of a node.
OF_A_GPU = 128 * MIB
# Files of a session besides shared memory: output of ranks, addresses.
TEMPORARY_FILES = 32 * MIB
_MEMORY = "dev/shm"
# cgroup v1 reports a huge number where memory is unlimited.
_NO_LIMIT = 1 << 60
# TensorFlow maps more than this much, in bytes.
ADDRESS_SPACE = 16 * 1024 * MIB
# The kernel's usual number of process ids: a lower limit of a user's processes and threads may be
# too low.
PROCESSES = 1 << 15
# Processes and threads of a rank.
THREADS_OF_A_RANK = 100
# Variables that are named.
_NAMED = 6
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


def shared_memory_needed(slots: int, gpus: int = 0) -> int:
    """Return the bytes that the ranks of a host share."""
    return max(AT_LEAST, slots * OF_A_SLOT) + gpus * OF_A_GPU


def shared_memory_directory(slots: int, gpus: int = 0, root: Path = Path("/")) -> Path:
    """Return the directory in which ranks of one host share memory: /dev/shm, where Open MPI has it
    on several hosts, too; that of temporary files if /dev/shm is too small, as in containers."""
    memory, needed = root / _MEMORY, shared_memory_needed(slots, gpus)
    if free_bytes(memory) >= needed:
        return memory
    return max(memory, Path(tempfile.gettempdir()), key=free_bytes)


def free_bytes(directory: Path) -> int:
    """Return the bytes that may be written into a directory; 0 if it does not exist, or is not
    writable."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize if os.access(directory, os.W_OK | os.X_OK) else 0


def killed_for_memory(root: Path = Path("/")) -> int:
    """Return how often the kernel has killed a process for lack of memory, in the control groups of
    this process or on the machine."""
    files = [group / name for group in control_groups("memory", root) for name in _COUNTERS]
    texts = map(text_of, (*files, root / "proc/vmstat"))
    return sum(numbers_by_name(text).get("oom_kill", 0) for text in texts)


def missing(ranks: int, said: Iterable[str], killed: int, root: Path = Path("/")) -> str:
    """Return what the machine lacks for these ranks, which failed to start, and the fix, in one
    line; "" if it seems to lack nothing.

    said: cause and output of the failed launch. killed: `killed_for_memory` before it.
    """
    text = "\n".join(said)
    return next(filter(None, _missing(ranks, text, killed, root)), "")


def _missing(ranks: int, text: str, killed: int, root: Path) -> Iterator[str]:
    if killed_for_memory(root) > killed:
        limits = (limit for limit, _ in memory_in_groups(root) if limit < _NO_LIMIT)
        limit = min(limits, default=None)
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
        limit, taken = number_in(directory / "pids.max"), number_in(directory / "pids.current")
        if limit is not None and taken is not None and limit - taken < ranks * THREADS_OF_A_RANK:
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
    flags = number_in(root / "sys/class/net/lo/flags", base=16)
    is_down = flags is not None and not flags & 1
    return "the loopback interface is down: sudo ip link set lo up" if is_down else ""


def of_environment(names: Sequence[str]) -> str:
    """Return that these variables of the user keep ranks from starting, in words."""
    unset = " ".join(f"-u {name}" for name in names[:_NAMED])
    return (
        f"the ranks start without {first_of(names, _NAMED)}, which this environment has: "
        f"env {unset} pytest ..."
    )
