"""Fork the ranks of a round: `python -m hvdperf.worker.fork_server LISTENER PARENT CORES`.

The server imports once what every rank imports, and then forks a rank for each stub
(worker/fork_stub.py) that asks for one. It never computes anything itself, because a process that
has used TensorFlow's runtime, CUDA or MPI, or that has several threads, cannot be forked.

After the import it prints READY and, in the same line, the reason if it cannot fork. In that case
it closes the connection of every stub, which then becomes a fresh rank, so that a failing import is
reported by the rank itself.
"""

import faulthandler
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import Any, NoReturn

from hvdperf.worker import process
from hvdperf.worker.__main__ import run_rank
from hvdperf.worker.fork_stub import FORKED, NUMBER, READY
from hvdperf.worker.strategies import Strategy

# Timeout of a stub's request. A stub sends it at once; until then no other rank is forked.
REQUEST_S = 5.0
# Modules that ranks of every strategy import once they train.
LATER = ("hvdperf.worker.collectives", "hvdperf.worker.steps")


def import_all() -> str:
    """Import what ranks import. Return why this process cannot be forked, or ''."""
    # Without this numpy's BLAS starts threads. The ranks do not compute with numpy.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    process.configure_environment()
    try:
        importlib.import_module("tensorflow")
        importlib.import_module("horovod.tensorflow")
    except Exception as error:  # noqa: BLE001 - each rank imports by itself then, and reports it
        traceback.print_exc()
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    for module in (*LATER, *{strategy.spec.module: None for strategy in Strategy}):
        # A strategy may be missing from this release, and mpi4py from this environment: the rank
        # that asks for it imports it again, and fails.
        with suppress(Exception):
            importlib.import_module(module)
    threads = other_threads()
    return f"these threads run after the import: {', '.join(threads)}" if threads else ""


def other_threads() -> list[str]:
    """Return the names of this process's threads other than the main thread."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != os.getpid():
            with open(f"/proc/self/task/{thread}/comm") as comm:
                names.append(comm.read().strip())
    return names


class Server:
    """A server that forks a rank for each stub, until it is killed.

    listener: the socket that stubs connect to. refusal: why this process cannot fork, or ''.
    """

    def __init__(self, listener: socket.socket, refusal: str) -> None:
        self._listener = listener
        self._refusal = refusal
        self._stubs: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        # SIGCHLD writes to this pair, so that a child that ends interrupts the wait for stubs.
        self._woken, wake = socket.socketpair()
        for end in (self._woken, wake):
            end.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._reap)

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        stub, _ = self._listener.accept()
        if self._refusal:
            stub.close()
            return
        server = os.getpid()
        streams: list[int] = []
        try:
            stub.settimeout(REQUEST_S)
            request = received(stub, streams)
            pid = os.fork()
            if pid == 0:
                self._become_rank(server, stub, request, streams)
        except (OSError, ValueError):
            traceback.print_exc()
            stub.close()
            return
        finally:
            for descriptor in streams:
                os.close(descriptor)
        self._stubs[pid] = stub
        self._selector.register(stub, selectors.EVENT_READ, lambda: self._stub_has_ended(pid))
        with suppress(OSError):
            stub.sendall(FORKED)

    def _become_rank(
        self, server: int, stub: socket.socket, request: dict[str, Any], streams: list[int]
    ) -> NoReturn:
        """Turn the child, after the fork, into the rank."""
        try:
            process.die_with_parent(server)
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # A stub sees that the server has ended only if no rank holds the server's sockets.
            for each in (self._listener, self._woken, self._wake, stub, *self._stubs.values()):
                each.close()
            self._selector.close()
            for descriptor, stream in enumerate(streams):
                os.dup2(stream, descriptor)
                os.close(stream)
            os.chdir(request["directory"])
            os.environ.clear()
            os.environ.update(request["environment"])
            tempfile.tempdir = None  # it was the server's
            run_rank()
        except BaseException:  # noqa: BLE001 - it must not go on as a second server
            traceback.print_exc()
        finally:
            os._exit(1)

    def _stub_has_ended(self, pid: int) -> None:
        """Kill the rank of a stub that was killed. A stub sends nothing after its request, so a
        connection that becomes readable has ended."""
        if pid in self._stubs:  # else the rank has just been reaped
            self._selector.unregister(self._stubs[pid])
            self._kill(pid)

    @staticmethod
    def _kill(pid: int) -> None:
        """Kill a rank and what it has started. A rank that does not lead a group yet is killed by
        its own id."""
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Send the wait status of each rank that has ended to its stub."""
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        for pid in list(self._stubs):
            # The id stays the rank's until it is reaped, so `_kill` meets no other process.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            self._kill(pid)
            _, status = os.waitpid(pid, 0)
            stub = self._stubs.pop(pid)
            if stub in self._selector.get_map():
                self._selector.unregister(stub)
            with suppress(OSError):
                stub.sendall(NUMBER.pack(status))
            stub.close()


def received(stub: socket.socket, streams: list[int]) -> dict[str, Any]:
    """Return a stub's request. Its standard streams are added to `streams`, even if the request is
    not complete. Raises ValueError if the stub ends first."""
    length, descriptors, _, _ = socket.recv_fds(stub, NUMBER.size, 3)
    streams += descriptors
    if len(length) < NUMBER.size:
        raise ValueError("a stub has ended before it asked for a rank")
    (size,) = NUMBER.unpack(length)
    with stub.makefile("rb") as content:
        found: dict[str, Any] = json.loads(content.read(size))
    return found


def main() -> NoReturn:
    listener, parent, cores = sys.argv[1:]
    process.die_with_parent(int(parent))
    process.take_name("hvd-server")
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    process.pin(int(core) for core in cores.split(","))
    # Nothing of an import is garbage, or little: to look for it takes an eighth of the import.
    gc.disable()
    refusal = import_all()
    # Ranks leave these objects alone, and so share their memory.
    gc.collect()
    gc.freeze()
    gc.enable()
    sys.stdout.write(f"\n{READY}{refusal}\n")
    Server(socket.socket(fileno=int(listener)), refusal).serve()


if __name__ == "__main__":
    main()
