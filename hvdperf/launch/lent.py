"""Be the rank of a program that knows nothing of slots: on its slot's cores, with its device.

A script of its own (`python -I -S lent.py SLOTS COMMAND ...`), started by mpirun on any host.
SLOTS: `cores;device` of every rank in its order, separated by `|`; cores such as `0,1`, device
empty without one. The kernel ends it with mpirun.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    own = sys.argv[1].split("|")[int(os.environ["OMPI_COMM_WORLD_RANK"])]
    cores, _, device = own.partition(";")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    os.environ["CUDA_VISIBLE_DEVICES"] = device
    # nccl-tests takes GPU i on local rank i, where no rank sees more than its own.
    os.environ["NCCL_TESTS_DEVICE"] = "0"
    os.execvp(sys.argv[2], sys.argv[2:])
