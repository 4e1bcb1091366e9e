"""Start Open MPI's daemon on another host: `remote_shell.py SSH ... HOST COMMAND ...`.

If ssh fails, mpirun ends all ranks, even when the daemon has long been running and its host is
lost. After rank 0 has started, this script therefore reports no failure to mpirun. It uses the
standard library only (`python -I -S`).
"""

import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1


def main(command: "list[str]") -> int:
    """Run the command, which ends with this process; return what mpirun is to know."""
    process = subprocess.Popen(
        command, preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    status = process.wait()
    with open(os.environ["HVDPERF_STATUS_FILE"]) as written_by_rank_0:
        return 0 if written_by_rank_0.read() else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
