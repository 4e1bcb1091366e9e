"""Where ranks share memory, and how much of it they need. Launchers, checks and documents all go by
this."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MIB = 2**20
# Open MPI's shared memory (vader) of a rank, with its reserve.
OF_A_SLOT = 8 * MIB
AT_LEAST = 64 * MIB
# NCCL's buffers between the GPUs of a node.
OF_A_GPU = 128 * MIB
# Files of a session besides shared memory: output of ranks, addresses.
TEMPORARY_FILES = 32 * MIB
_MEMORY = "dev/shm"


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
