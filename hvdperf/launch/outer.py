"""The mpirun or srun that has started this process and the other ranks.

Rank 0 publishes a text for the others: under mpirun through PMIx. srun gives its tasks no PMIx
unless it is asked to, so there the text is a file in the checkout, which the hosts share.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.launch import pmix
from hvdperf.launch.outer_mpirun import STATUS_VARIABLE
from hvdperf.paths import CACHE

# Seconds that rank 0 has to write its file, which another host may see late.
FILE_S = 90.0
_POLL_S = 0.1


def by_mpirun() -> bool:
    """Return whether mpirun has started this process."""
    return "OMPI_COMM_WORLD_SIZE" in os.environ


def outer_rank() -> int:
    """Return the rank of this process; 0 if it was started alone."""
    names = ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    return int(os.environ.get(names[not by_mpirun()], "0")) if outer_size() > 1 else 0


def outer_size() -> int:
    """Return the number of ranks; 1 if this process was started alone."""
    names = ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
    return int(os.environ.get(names[not by_mpirun()], "1"))


def on_one_host() -> bool:
    """Return whether all ranks are on this host."""
    if by_mpirun():
        return os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(outer_size())
    return os.environ.get("SLURM_STEP_NUM_NODES", "1") == "1"


def shown_by() -> int:
    """Return the id of the process that writes to the user's terminal: mpirun if it started this
    process, which then has a terminal made by mpirun; else this process."""
    return os.getppid() if by_mpirun() else os.getpid()


def words_before_pytest() -> list[str]:
    """Return the words that the user typed before pytest, such as `mpirun -np 4`."""
    if outer_size() == 1:
        return []
    if not by_mpirun():
        return ["srun", "-N", os.environ["SLURM_STEP_NUM_NODES"], "-n", str(outer_size())]
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
    except OSError:
        words = []
    names = [Path(word).name for word in words]
    if "pytest" not in names or "-m" in names:  # python -m pytest
        return ["mpirun", "-np", str(outer_size())]
    return ["mpirun", *words[1 : names.index("pytest")]]


def publish(text: str) -> None:
    """Give the text to the other ranks. Only rank 0 does. Raises UserError."""
    if by_mpirun():
        pmix.publish(text)
        return
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), text, mode=0o600)
    except OSError as error:
        raise UserError(
            f"{_file()} cannot be written, in which the tasks of srun find rank 0: {error.strerror}"
        ) from None


def withdraw() -> None:
    """Remove what was published, as soon as all ranks have read it."""
    if not by_mpirun():
        with suppress(OSError):
            _file().unlink()


def look_up() -> str:
    """Wait for the text that rank 0 publishes, and return it; return "" if rank 0 ends before.
    Raises UserError."""
    if by_mpirun():
        return pmix.look_up()
    deadline = time.monotonic() + FILE_S
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            return _file().read_text()
        time.sleep(_POLL_S)
    raise UserError(
        f"rank 0 has not written {_file()} within {FILE_S:.0f} s: put the checkout on a file "
        "system that all hosts share, or start the suite with mpirun"
    )


def _file() -> Path:
    """Return the file of this step of Slurm."""
    job, step = (os.environ.get(f"SLURM_{name}_ID", "0") for name in ("JOB", "STEP"))
    return CACHE / f"srun-{job}.{step}.json"


def leave_status(status: int | str) -> bool:
    """Leave this session's exit status, or RUNNING, to hvdperf.launch.outer_mpirun. Return False if
    that has not started it."""
    try:
        Path(os.environ.get(STATUS_VARIABLE, "")).write_text(f"{status}")
    except OSError:
        return False
    return True
