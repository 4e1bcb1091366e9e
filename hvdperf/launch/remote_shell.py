"""Start Open MPI's daemon on another host: `remote_shell.py WORDS SSH ... HOST COMMAND ...`.

WORDS: the number of words of SSH. Before HOST come the arguments for it that the user gives Open
MPI, which are repeated in COMMAND.

If ssh fails, mpirun ends all ranks, even when the daemon has long been running and its host is
lost. After rank 0 has started, this script therefore reports no failure to mpirun. It uses the
standard library only (`python -I -S`).
"""

import os
import subprocess
import sys

_ARGUMENTS = "plm_rsh_args"
_GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard.py")


def main(words: int, command: "list[str]") -> int:
    """Run the command, which ends with this process; return what mpirun is to know."""
    guarded = [sys.executable, "-I", "-S", _GUARD, str(os.getpid()), *command]
    status = subprocess.call(guarded)
    status_file = os.environ["HVDPERF_STATUS_FILE"]
    try:
        with open(status_file) as written_by_rank_0:
            if written_by_rank_0.read():
                return 0
    except FileNotFoundError:
        return 0  # the session is over, and its files are gone
    if status:
        if _ARGUMENTS in command:
            words += len(command[command.index(_ARGUMENTS) + 1].strip('"').split())
        host = command[words]
        with open(f"{status_file}.problems", "a") as problems:
            problems.write(
                f"ERROR: {host}: Open MPI's daemon does not start: {command[0]} returned {status}; "
                f"see whether `{' '.join(command[:words])} {host} true` works, and whether the "
                "checkout there has the same path, with an environment (`make env`)\n"
            )
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
