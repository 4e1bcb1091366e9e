"""The launcher that has started this process and the other ranks: one whose ranks become slots, by
its row of LAUNCHERS, or another one, under which every rank would be a session of its own.

Rank 0 publishes a text for the others in a file of the checkout, which hosts share. MPI could pass
it on. It would be imported and initialized by every rank, however, and could not be finalized
without all of them.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.launch.outer_mpirun import STATUS_VARIABLE
from hvdperf.machine.host import launcher_pid
from hvdperf.paths import CACHE

# Seconds for a slot and rank 0 to find each other: on a network file system a slot may see the file
# of rank 0 late.
JOIN_S = 90.0
# Seconds between two attempts.
_POLL_S = 0.2


@dataclass(frozen=True)
class OuterLauncher:
    """A launcher whose processes are a session and its slots.

    name: its command. rank, size, nodes: the variables by which it tells a process its number, how
    many there are, and on how many hosts. ids: variables that tell this launch from others.
    """

    name: str
    rank: str = ""
    size: str = ""
    nodes: str = ""
    ids: tuple[str, ...] = ()

    def on_one_host(self) -> bool:
        return os.environ.get(self.nodes, "1") == "1"

    def words(self) -> list[str]:
        """Return the words that the user typed before pytest."""
        count = ["-N", os.environ.get(self.nodes, "1"), "-n", str(outer_size())]
        return [*self.name.split(), *count]

    def publish(self, text: str) -> None:
        """Give the text to the other ranks. Only rank 0 does. Raises UserError."""
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(), text, mode=0o600)
        except OSError as error:
            raise UserError(
                f"{self._file()} cannot be written, in which the processes of {self.name} find "
                f"rank 0: {error.strerror}"
            ) from None

    def withdraw(self) -> None:
        """Remove what was published, as soon as all ranks have read it."""
        with suppress(OSError):
            self._file().unlink()

    def look_up(self) -> str:
        """Wait for the text that rank 0 publishes, and return it. Raises UserError."""
        deadline, file = time.monotonic() + JOIN_S, self._file()
        while time.monotonic() < deadline:
            # Opening the directory has NFS forget that the file was not there.
            with suppress(FileNotFoundError):
                os.listdir(file.parent)
                return file.read_text()
            time.sleep(_POLL_S)
        raise UserError(
            f"rank 0 has not written {file} within {JOIN_S:.0f} s: put the checkout on a file "
            "system that all hosts share"
        )

    def _file(self) -> Path:
        """Return the file of this launch."""
        launch = ".".join(os.environ.get(name, "0") for name in self.ids)
        return CACHE / f"{self.name.replace(' ', '-')}-{launch}.json"


class _Mpirun(OuterLauncher):
    """Open MPI's, which tells how many processes are on a host."""

    def on_one_host(self) -> bool:
        return os.environ.get(self.nodes) == str(outer_size())

    def words(self) -> list[str]:
        try:
            words = Path(f"/proc/{launcher()}/cmdline").read_text().split("\0")
        except OSError:
            words = []
        names = [Path(word).name for word in words]
        if "pytest" not in names or "-m" in names:  # python -m pytest
            return ["mpirun", "-np", str(outer_size())]
        return ["mpirun", *words[1 : names.index("pytest")]]


# The first one counts whose size is set: mpirun may run in a step of srun.
LAUNCHERS = (
    _Mpirun(
        "mpirun",
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        # The first one is drawn for each launch, by Open MPI 4; the other is of Open MPI 5, too.
        ids=("OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE"),
    ),
    OuterLauncher(
        "srun",
        *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"),
        ids=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)
_ALONE = OuterLauncher("")


# Launchers whose ranks cannot be slots. Those before others set their variables, too.
OTHERS = (
    OuterLauncher("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    OuterLauncher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    OuterLauncher("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    OuterLauncher("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    OuterLauncher("aprun or PALS's mpiexec", "PALS_RANKID", "PALS_SIZE"),
    OuterLauncher("an mpiexec that speaks PMI", "PMI_RANK", "PMI_SIZE"),
    OuterLauncher("a launcher that speaks PMIx", "PMIX_RANK", "PMIX_SIZE"),
)


def started_by() -> OuterLauncher:
    """Return the launcher that has started this process, or one that does nothing."""
    return next((each for each in LAUNCHERS if os.environ.get(each.size)), _ALONE)


def _number(name: str, default: int) -> int:
    """Return a launcher's variable as a number. Raises UserError if it is none."""
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise UserError(f"{name}={text} is no number: unset {name}") from None


def outer_rank() -> int:
    """Return the rank of this process; 0 if it was started alone. Raises UserError."""
    return _number(started_by().rank, 0) if outer_size() > 1 else 0


def outer_size() -> int:
    """Return the number of ranks; 1 if this process was started alone. Raises UserError."""
    return _number(started_by().size, 1)


def check_launcher() -> None:
    """Raise UserError if a launcher has started several of this process, and they cannot be
    slots."""
    if outer_size() > 1:
        return
    for other in OTHERS:
        rank, size = other.rank, other.size
        own, count = _number(rank, 0), _number(size, 1)
        if own > 0 or (rank in os.environ and count > 1):
            found = f"{rank}={own}" + f", {size}={count}" * (size in os.environ)
            known = " or ".join(each.name for each in LAUNCHERS)
            raise UserError(
                f"{found}: {other.name} seems to have started several sessions, which would "
                f"measure each other; start one with {known}, or if these variables are left from "
                f"something else: env -u {rank} -u {size} pytest perf/"
            )


def launcher() -> int:
    """Return the id of the mpirun or its daemon that has started this process, and ends it; of this
    process itself if there is none."""
    return launcher_pid() or os.getpid()


def words_before_pytest() -> list[str]:
    """Return the words that the user typed before pytest, such as `mpirun -np 4`."""
    return started_by().words() if outer_size() > 1 else []


def who_is_missing() -> str:
    """Return why a rank may not have connected, and what to do, in words."""
    name, size = started_by().name, outer_size()
    unset = " ".join(f"-u {each.size}" for each in LAUNCHERS if each.size in os.environ)
    return (
        f"{name} has started {size} processes, and each of them has to run pytest; in a shell "
        f"that {name} has started, as by srun --pty, run env {unset} pytest perf/ to measure on "
        "this host alone"
    )


def leave_status(status: int | str) -> bool:
    """Leave this session's exit status, or RUNNING, to hvdperf.launch.outer_mpirun. Return False if
    that has not started it."""
    try:
        Path(os.environ.get(STATUS_VARIABLE, "")).write_text(f"{status}")
    except OSError:
        return False
    return True
