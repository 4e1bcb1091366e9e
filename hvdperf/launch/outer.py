"""The launcher that has started this process and the other ranks: an mpirun or srun, whose ranks
become slots, or another one, under which every rank would be a session of its own.

Rank 0 publishes a text for the others: under mpirun through PMIx. srun gives its tasks no PMIx
unless it is asked to, so there the text is a file in the checkout, which the hosts share.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.launch import pmix
from hvdperf.launch.outer_mpirun import STATUS_VARIABLE
from hvdperf.paths import CACHE

# Seconds that rank 0 has to write its file, which another host may see late.
FILE_S = 90.0
_POLL_S = 0.1
# Seconds after which a wait is told.
SOON_S = 8.0


class Numbering(NamedTuple):
    """The variables by which a launcher tells its processes their number and how many they are.
    launcher: its name, in words."""

    launcher: str
    rank: str
    size: str


MPIRUN = Numbering("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
SRUN = Numbering("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
# Launchers whose ranks cannot be slots. Those before others set their variables, too.
OTHERS = (
    Numbering("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    Numbering("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    Numbering("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    Numbering("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    Numbering("aprun or PALS's mpiexec", "PALS_RANKID", "PALS_SIZE"),
    Numbering("an mpiexec that speaks PMI", "PMI_RANK", "PMI_SIZE"),
    Numbering("a launcher that speaks PMIx", "PMIX_RANK", "PMIX_SIZE"),
)


def by_mpirun() -> bool:
    """Return whether mpirun has started this process."""
    return bool(os.environ.get(MPIRUN.size))


def _number(name: str, default: int) -> int:
    """Return a launcher's variable as a number. Raises UserError if it is none."""
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise UserError(f"{name}={text} is no number: unset {name}") from None


def outer_rank() -> int:
    """Return the rank of this process; 0 if it was started alone. Raises UserError."""
    return _number((MPIRUN if by_mpirun() else SRUN).rank, 0) if outer_size() > 1 else 0


def outer_size() -> int:
    """Return the number of ranks; 1 if this process was started alone. Raises UserError."""
    return _number((MPIRUN if by_mpirun() else SRUN).size, 1)


def check_launcher() -> None:
    """Raise UserError if a launcher has started several of this process, and they cannot be
    slots."""
    if outer_size() > 1:
        return
    for launcher, rank, size in OTHERS:
        own, count = _number(rank, 0), _number(size, 1)
        if own > 0 or (rank in os.environ and count > 1):
            found = f"{rank}={own}" + f", {size}={count}" * (size in os.environ)
            raise UserError(
                f"{found}: {launcher} seems to have started several sessions, which would measure "
                "each other; start one with mpirun or srun, or if these variables are left from "
                f"something else: env -u {rank} -u {size} pytest perf/"
            )


def on_one_host() -> bool:
    """Return whether all ranks are on this host."""
    if by_mpirun():
        return os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(outer_size())
    return os.environ.get("SLURM_STEP_NUM_NODES", "1") == "1"


def launcher() -> int:
    """Return the id of the mpirun or its daemon that has started this process; of this process
    itself if there is none."""
    return os.getppid() if by_mpirun() else os.getpid()


def shown_by() -> int:
    """Return the id of the process that writes to the user's terminal: mpirun if it started this
    process, which then has a terminal made by mpirun; else this process. If outer_mpirun.py runs
    mpirun in the background, it is the one that has the terminal."""
    if not (by_mpirun() and os.environ.get(STATUS_VARIABLE)):
        return launcher()
    try:
        return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return launcher()


def words_before_pytest() -> list[str]:
    """Return the words that the user typed before pytest, such as `mpirun -np 4`."""
    if outer_size() == 1:
        return []
    if not by_mpirun():
        nodes = os.environ.get("SLURM_STEP_NUM_NODES", "1")
        return ["srun", "-N", nodes, "-n", str(outer_size())]
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
    except OSError:
        words = []
    names = [Path(word).name for word in words]
    if "pytest" not in names or "-m" in names:  # python -m pytest
        return ["mpirun", "-np", str(outer_size())]
    return ["mpirun", *words[1 : names.index("pytest")]]


def who_is_missing() -> str:
    """Return why a rank may not have connected, and what to do, in words."""
    launcher, size = ("mpirun" if by_mpirun() else "srun"), outer_size()
    unset = " ".join(f"-u {name}" for name in (MPIRUN.size, SRUN.size) if name in os.environ)
    return (
        f"{launcher} has started {size} processes, and each of them has to run pytest; in a shell "
        f"that {launcher} has started, as by srun --pty, run env {unset} pytest perf/ to measure "
        "on this host alone"
    )


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
    began = time.monotonic()
    told = False
    while time.monotonic() < began + FILE_S:
        with suppress(FileNotFoundError):
            return _file().read_text()
        time.sleep(_POLL_S)
        if not told and time.monotonic() > began + SOON_S:
            told = True
            text = f"the slot of rank {outer_rank()} waits for rank 0 to write {_file()}"
            print(f"{text}, {FILE_S:.0f} s at most", file=sys.stderr, flush=True)
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
