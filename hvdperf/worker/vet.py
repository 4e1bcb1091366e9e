"""The process on a node that `hvdperf vet` looks at: python -m hvdperf.worker.vet.

It reads a line of JSON from its standard input: addresses and port of the command that started it,
the number of this node, a token, and the user's settings. It connects there, and carries out orders
one by one until the connection ends. It measures what it is told, and compares nothing: of other
nodes it knows the one that it exchanges bytes with.

Rates of a host are bytes a second. TensorFlow is imported when the devices are prepared.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

import numpy as np

from hvdperf.worker.process import take_name
from hvdperf.worker.protocol import Message, connection_to
from hvdperf.worker.session_link import Driver

# Bytes of a copy, which no cache holds, of what is read at once, and of what is sent at once.
_COPIED, _READ, _SENT = 1 << 27, 1 << 20, 1 << 18
# Bytes of the file that is read.
READ_BYTES = 1 << 26
# Seconds that the other node has to connect or to accept, and to take what was sent.
CONNECT_S = 10.0
DRAIN_S = 20.0
# The key of an exchange, which tells it from other connections: so many characters.
KEY = 32


def rate(unit: Callable[[], float], seconds: float) -> float:
    """Repeat a unit of work for so many seconds, or a little more, and return how much was done a
    second. unit: does the work, and returns its amount."""
    done, began = 0.0, time.perf_counter()
    while True:
        done += unit()
        elapsed = time.perf_counter() - began
        if elapsed >= seconds:
            return done / elapsed


def copier() -> Callable[[], float]:
    """Return a unit of work that copies memory, by one core."""
    source = np.ones(_COPIED, np.uint8)
    copied = np.empty_like(source)

    def copy() -> float:
        np.copyto(copied, source)
        return source.nbytes

    return copy


def reader() -> Callable[[], float]:
    """Write a temporary file of READ_BYTES that no storage can compress, and return a unit of work
    that reads it, after it has asked the kernel to forget what it holds of it. The file has no
    name, so that nothing is left when this process ends. Raises OSError."""
    stream = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is kept to the end
    for _ in range(READ_BYTES // _READ):
        stream.write(secrets.token_bytes(_READ))
    os.fsync(stream.fileno())
    into = bytearray(_READ)

    def read() -> float:
        stream.seek(0)
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        total = 0
        while count := stream.readinto(into):
            total += count
        return total

    return read


class Link:
    """This node's end of exchanges with other nodes. port: at which it accepts them."""

    def __init__(self) -> None:
        self._server = socket.create_server(("0.0.0.0", 0))
        self.port = int(self._server.getsockname()[1])

    def rate(self, seconds: float, key: str, peer: Sequence[object]) -> float:
        """Send and receive at once for so many seconds, and return what has arrived a second. peer:
        address and port of the other node; () if it is the one that connects. Raises OSError."""
        with self._connected(key, peer) as connection:
            connection.settimeout(seconds + DRAIN_S)
            return _exchanged(connection, seconds)

    def _connected(self, key: str, peer: Sequence[object]) -> socket.socket:
        deadline = time.monotonic() + CONNECT_S
        if peer:
            host, port = peer
            connection = socket.create_connection((str(host), int(str(port))), timeout=CONNECT_S)
            connection.sendall(key.encode())
            if _received(connection, len(key)) == key.encode():
                return connection
            connection.close()
            raise ConnectionError("the other node did not answer")
        while True:
            self._server.settimeout(max(0.01, deadline - time.monotonic()))
            connection, _ = self._server.accept()
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                if _received(connection, len(key)) == key.encode():
                    connection.sendall(key.encode())
                    return connection
            except OSError:
                pass  # not the node that is waited for
            connection.close()


def _received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def _exchanged(connection: socket.socket, seconds: float) -> float:
    data, into = bytes(_SENT), bytearray(_SENT)
    problems: list[OSError] = []
    began = time.perf_counter()

    def send() -> None:
        try:
            while time.perf_counter() < began + seconds:
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            problems.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    total = 0
    while count := connection.recv_into(into):
        total += count
    elapsed = time.perf_counter() - began
    sender.join()
    if problems:
        raise problems[0]
    return total / elapsed


# Orders ------------------------------------------------------------------------------------------


class Node:
    """What can be ordered: the methods without an underscore."""

    def __init__(self) -> None:
        self._link = Link()
        self._devices: Any = None
        self._read: Callable[[], float] = lambda: 0.0

    def prepare(self) -> Message:
        """Build what is measured. Return the kind of this node, and the terms of its speed. Raises
        OSError."""
        self._read = reader()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf

        from hvdperf.worker.devices import Devices

        self._devices = Devices()
        cores = len(os.sched_getaffinity(0))
        counts = Counter(self._devices.models) or {f"core of {_cpu_model()}": cores}
        devices = ", ".join(f"{count} x {model}" for model, count in counts.items())
        kind = f"{devices}, TensorFlow {tf.__version__}"
        terms = [*self._devices.terms, "input"]
        return {"kind": kind, "terms": terms, "port": self._link.port}

    def rates(self, term: str, seconds: float) -> Mapping[str, float]:
        """Return how much is done a second, by device."""
        if term == "input":
            return {"": rate(self._read, seconds)}
        found: Mapping[str, float] = self._devices.rates(term, seconds)
        return found

    def link(self, seconds: float, key: str, peer: Sequence[object]) -> float:
        """Return the bytes that arrive from another node a second. Raises OSError."""
        return self._link.rate(seconds, key, peer)

    def digests(self) -> Mapping[str, str]:
        """Return what each device computes from the same seeds."""
        found: Mapping[str, str] = self._devices.digests()
        return found


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def main() -> None:
    take_name("hvd-vet")
    plan = json.loads(sys.stdin.readline() or "{}")
    if not plan:
        sys.exit("it was given no plan: `hvdperf vet` starts it")
    os.environ.update(plan["settings"])
    try:
        connection = connection_to(plan["addresses"], plan["port"], plan["node"], plan["token"])
    except OSError as error:
        sys.exit(
            f"it cannot reach the host of `hvdperf vet` at port {plan['port']} ({error}): open "
            "that route, or name a network of both by --network"
        )
    driver, node = Driver(plan["node"], connection), Node()
    while (order := driver.next_order())["order"] != "leave":
        driver.answer(order["number"], _carry_out(node, order["order"], order["arguments"]))


def _carry_out(node: Node, order: str, arguments: Sequence[Any]) -> Message:
    try:
        return {"value": getattr(node, order)(*arguments)}
    except Exception as error:  # noqa: BLE001 - the command names this node and goes on
        said = str(error).strip().splitlines() or [""]
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        return {"error": f"{kind}{said[0]}"}


if __name__ == "__main__":
    main()
