"""A process that takes cores away from a rank: `python cpu_hog.py PID`, planted beside it.

It runs where its parent does, for as long as that one lives, and stops while that is stopped, as a
rank is between its turns: nobody else's time is to be taken. Standard library only.
"""

import os
import sys
import time

# How long it computes before it looks at the rank again, and how often it looks while that sleeps.
BURST_S = 0.002
LOOK_S = 0.01


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal. Raises FileNotFoundError if there is none."""
    with open(f"/proc/{pid}/stat") as stat:
        # The name, in parentheses, may hold anything.
        return stat.read().rpartition(")")[2].split()[0] == "T"


def compete(rank: int) -> None:
    """Until the rank is gone."""
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
