"""Measure this node as `hvdperf vet` orders it: python -m hvdperf.worker.vet.

It reads a line of JSON from its standard input: addresses and port of the command that started it,
the number of this node, a token, and the user's settings. It connects there, and carries out orders
one by one until the connection ends.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from hvdperf.worker.process import take_name
from hvdperf.worker.protocol import TRY_S, Connection, Message, connection_to
from hvdperf.worker.vet.host import Link, files_to_read, rate, reader, written_file


class Node:
    """What can be ordered: the methods without an underscore."""

    def __init__(self) -> None:
        self._link = Link()
        self._devices: Any = None
        self._read: Callable[[], float] = lambda: 0.0

    def prepare(self, data_dir: str) -> Message:
        """Build what is measured. Return the kind of this node, and the terms of its speed.
        data_dir: a directory to read from; "" to write a file and read that. Raises OSError."""
        files = files_to_read(Path(data_dir)) if data_dir else [written_file()]
        self._read = reader(files)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf

        from hvdperf.worker.vet.devices import Devices

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
    orders: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_receive, args=(connection, orders), daemon=True).start()
    node = Node()
    while (order := orders.get())["order"] != "leave":
        answer = _carry_out(node, order["order"], order["arguments"])
        connection.send({"answers": order["number"], **answer})


def _receive(connection: Connection, orders: queue.Queue[Message]) -> None:
    """Pass orders on until the connection ends; then let this process end, even if it hangs."""
    messages: list[Message] | None = []
    while messages is not None:
        try:
            messages = connection.receive()
        except (OSError, ValueError):
            messages = None
        for message in messages or []:
            orders.put(message)
    orders.put({"order": "leave"})
    threading.Timer(TRY_S, os._exit, (1,)).start()


def _carry_out(node: Node, order: str, arguments: Sequence[Any]) -> Message:
    try:
        return {"value": getattr(node, order)(*arguments)}
    except Exception as error:  # noqa: BLE001 - the command names this node and goes on
        said = str(error).strip().splitlines() or [""]
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        return {"error": f"{kind}{said[0]}"}


if __name__ == "__main__":
    main()
