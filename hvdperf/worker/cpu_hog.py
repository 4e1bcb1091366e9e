"""Take cores away from a rank: `python cpu_hog.py PID`, an injected fault beside the rank PID.

The process computes on its parent's cores as long as the parent, the rank, lives. It pauses while
the rank is stopped, as ranks are between their turns, so that it takes no time from others.
Standard library only.
"""

import os
import sys
import time

# It computes for BURST_S before it looks at the rank again. While the rank is stopped, it looks
# every LOOK_S.
BURST_S = 0.002
LOOK_S = 0.01


def stat_fields(pid: int) -> "list[str]":
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


def compete(rank: int) -> None:
    """Compute until the rank is gone, except while it is stopped."""
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
