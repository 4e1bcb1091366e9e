"""Measures this host for a few seconds without TensorFlow and Horovod, so that a night on which all
became slower can tell the machine from the stack."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from hvdperf.errors import UserError
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import ROOT
from hvdperf.programs import run

# Each measurement is the median of so many, each of which takes some hundredths of a second.
_REPEATS = 9
_SIDE = 1024
_COPIED = 1 << 27
_SENT = 1 << 26
# Seconds that the GPUs may take; TensorFlow starts in five.
_DEADLINE_S = 120.0


def probe() -> dict[str, float]:
    """Return by name how much this host does a second: floating point operations of a matrix
    product in NumPy, bytes of a copy in memory, and bytes over a loopback connection."""
    generator = np.random.default_rng(1)
    factor = generator.random((_SIDE, _SIDE), dtype=np.float32)
    product = np.empty_like(factor)
    source = np.ones(_COPIED, np.uint8)
    copied = np.empty_like(source)
    return {
        "matrix product": 2 * _SIDE**3 / _seconds(lambda: np.matmul(factor, factor, out=product)),
        "copy": _COPIED / _seconds(lambda: np.copyto(copied, source)),
        "loopback": _SENT / _seconds_sent(),
    }


def probe_gpus() -> dict[str, float]:
    """Return by name how much each GPU of this host does a second, as hvdperf.worker.devices
    measures it with the TensorFlow of this environment. Raises UserError."""
    done = run(
        [sys.executable, "-m", "hvdperf.worker.devices"],
        ROOT,
        rank_environment(sys.executable),
        within_s=_DEADLINE_S,
    )
    if done.status != 0:
        raise UserError(f"its GPUs: {done.why}")
    rates: dict[str, float] = json.loads(done.output)
    return rates


def _seconds(work: Callable[[], object]) -> float:
    """Return the median time of some work, after a first time that warms up."""
    work()
    found = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return median(found)


def _seconds_sent() -> float:
    """Return the median time in which bytes arrive at the other end of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    data, into = bytes(1 << 20), bytearray(1 << 20)
    with sender, receiver:

        def sent() -> None:
            for _ in range(_SENT // len(data)):
                sender.sendall(data)

        def exchanged() -> None:
            thread = threading.Thread(target=sent)
            thread.start()
            left = _SENT
            while left:
                received = receiver.recv_into(into)
                if not received:
                    raise OSError("the loopback connection was closed")
                left -= received
            thread.join()

        return _seconds(exchanged)
