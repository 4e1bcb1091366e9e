"""A rank as an operating-system process: its parent, its cores, its environment.

`python process.py PID` takes cores away from the rank PID, as an injected fault. Standard library
only: run like that, in whatever directory a script has changed to, it may not find hvdperf.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import NoReturn, Optional

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
# Settings that say where a rank is, and so differ between ranks.
OF_A_RANK = {
    *(f"HOROVOD_{kind}{what}" for kind in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE")),
    *("HOROVOD_HOSTNAME", "TF_CONFIG"),
}


def die_with_parent(parent: Optional[int] = None) -> None:
    """Have the kernel kill this process when its parent ends, even while it is stopped.

    parent: the id of the process that started this one, if it may have ended already. If it has,
    this process exits with status 1.
    """
    parent = os.getppid() if parent is None else parent
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def leave(status: int) -> NoReturn:
    """End this process at once: destructors of TensorFlow and MPI would take most of a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def take_name(name: str) -> None:
    """Give this process the name, of at most 15 characters, that ps and top show."""
    _prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()))


def _prctl(option: int, value: object) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def pin(cores: Iterable[int]) -> None:
    """Restrict every thread of this process to the cores; without any, leave them as they are. New
    threads inherit the restriction."""
    wanted = set(cores)
    if not wanted:
        return
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), wanted)
        except ProcessLookupError:
            continue  # the thread has ended since it was listed


def configure_environment(device: Optional[str] = None, hides_others: bool = True) -> None:
    """Set the environment variables that TensorFlow reads, before it is imported. device: the GPUs
    of this process. hides_others: whether it sees no others; a script chooses by its local rank."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # An empty list hides the GPUs from a rank that is to use the CPU.
    if device is None or hides_others:
        os.environ["CUDA_VISIBLE_DEVICES"] = device if device is not None else ""


class Resumes:
    """How often a signal let this process go on that had been stopped."""

    count = 0

    @classmethod
    def begin(cls) -> None:
        """Begin to count. Only the main thread may call this."""
        signal.signal(signal.SIGCONT, cls._add)

    @classmethod
    def _add(cls, signum: int, frame: object) -> None:
        cls.count += 1


def peak_bytes() -> int:
    """Return the largest size of this process's resident set so far, in bytes."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def resident_bytes() -> int:
    """Return the size of this process's resident set in bytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The state of a process, and one that takes cores away -------------------------------------------


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state of the process on. Raises
    FileNotFoundError if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            # The name, in parentheses, may hold anything.
            return stat.read().rpartition(")")[2].split()
    except ProcessLookupError as error:
        # It has ended since the file was opened.
        raise FileNotFoundError(*error.args) from None


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process. Raises as stat_fields does."""
    return stat_fields(pid)[0] == "T"


# It computes for BURST_S before it looks at the rank again. While the rank is stopped, it looks
# every LOOK_S.
BURST_S = 0.002
LOOK_S = 0.01


def compete(rank: int) -> None:
    """Compute on the cores of the rank, this process's parent, until it is gone. Pause while it is
    stopped, as ranks are between their turns, so that this takes no time from others."""
    while os.getppid() == rank:
        try:
            if is_stopped(rank):
                time.sleep(LOOK_S)
                continue
        except FileNotFoundError:
            return
        until = time.perf_counter() + BURST_S
        while time.perf_counter() < until:
            pass


if __name__ == "__main__":
    compete(int(sys.argv[1]))
