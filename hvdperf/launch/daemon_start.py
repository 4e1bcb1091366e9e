"""Have a slot start Open MPI's daemon on its host: `daemon_start.py HOST COMMAND ...`.

The inner mpirun calls this instead of ssh or srun. So neither keys nor another step of Slurm are
needed, and the daemon ends with its slot. It is a separate script of the standard library only,
which `python -I -S` starts in 20 ms.
"""

import json
import os
import socket
import sys

# host:port:token of the session, in the environment of the inner mpirun.
VARIABLE = "HVDPERF_DAEMONS"


def main(host: str, command: str) -> str:
    """Return why the daemon could not be started, or ""."""
    address, port, token = os.environ[VARIABLE].rsplit(":", 2)
    hello = {"hello": os.getpid(), "token": token, "pid": os.getpid(), "host": host}
    with socket.create_connection((address, int(port))) as session, session.makefile("rwb") as file:
        for message in (hello, {"command": command}):
            file.write(json.dumps(message).encode() + b"\n")
        file.flush()
        return str(json.loads(file.readline())["problem"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], " ".join(sys.argv[2:])) or 0)
