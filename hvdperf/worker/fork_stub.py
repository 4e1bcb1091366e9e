"""Stand in for a rank that hvdperf.worker.fork_server forks: `python -I -S fork_stub.py DIRECTORY`.

A launcher starts this stub instead of a rank. The stub hands its environment, working directory and
standard streams to the server, waits, and ends as the rank has ended. If the server cannot fork,
the stub becomes the rank itself, in a fresh process. Standard library only.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import NoReturn, Optional

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
# Begins the line that the server prints after its imports. If it cannot fork, the reason follows.
READY = "hvd-server is ready: "
# The server's answer once it has forked the rank.
FORKED = b"F"
# The format of the rank's wait status, sent when it has ended, and of the length of the request.
NUMBER = struct.Struct("i")


def address_in(directory: int) -> str:
    """Return an address of the server's socket that is short enough, which its path may not be.

    directory: a file descriptor of the directory that the socket is in.
    """
    return f"/proc/self/fd/{directory}/socket"


def ask(directory: str) -> Optional[socket.socket]:
    """Have the server fork a rank. Return the connection to it, or None if it forks no rank."""
    request = {"environment": dict(os.environ), "directory": os.getcwd()}
    content = json.dumps(request).encode()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        server.connect(address_in(directory_fd))
        os.close(directory_fd)
        socket.send_fds(server, [NUMBER.pack(len(content))], [0, 1, 2])
        server.sendall(content)
        if server.recv(1) == FORKED:
            return server
    except OSError:
        pass  # the server has ended
    server.close()
    return None


def end_as(status: int) -> NoReturn:
    """End this process with the wait status of another one."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def main() -> NoReturn:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_NAME, b"hvd-stub")
    server = ask(sys.argv[1])
    if server is None:
        os.execv(sys.executable, [sys.executable, "-u", "-m", "hvdperf.worker"])
    status = server.recv(NUMBER.size)
    if not status:
        print("hvd-stub: hvd-server, which forked this rank, has ended", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    end_as(*NUMBER.unpack(status))


if __name__ == "__main__":
    main()
