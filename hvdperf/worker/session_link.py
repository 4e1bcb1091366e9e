"""A rank's end of the connection to the driver (the pytest process): orders in and reports out, the
phases of a start and the faults that are injected into them, how ranks without MPI find each other,
a rank's settings, and errors of a user's own network in words."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, Callable

from hvdperf.models import own_networks
from hvdperf.models.inputs import DataError
from hvdperf.worker import process, protocol
from hvdperf.worker.protocol import FaultConfig, Message, Phase, RankConfig
from hvdperf.worker.script.tap._hvdperf_recorder import OF_OTHERS, PREFIXES

# Keras writes the names of layers in bold.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Of the error of an optimizer that tf.distribute cannot trace.
_MERGE_CALL = "merge_call"
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def message_of(error: BaseException) -> str:
    """Return the error's message. Of a graph execution error only the last paragraph is kept,
    because TensorFlow puts the stack of the graph's node before it."""
    message = _ESCAPES.sub("", str(error)).strip() or repr(error)
    if message.startswith("Graph execution error"):
        message = [part.strip() for part in message.split("\n\n") if part.strip()][-1]
    return message


# Injected faults: errors and delays that a rank makes on purpose ---------------------------------


class InjectedFault(RuntimeError):
    """Raised by a rank that was asked to raise."""


def _raise() -> None:
    raise InjectedFault("injected fault: this rank raises")


# Bytes that a leaking rank keeps at every step.
LEAK_BYTES = 1 << 20

_ACTS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(1e8),
}


class Fault:
    """The fault that is injected into this rank, or none unless the config names this rank."""

    def __init__(self, config: FaultConfig | None, rank: int) -> None:
        """config: of the session's fault; None for none. rank: the number of this rank."""
        none = FaultConfig("", rank, "", 1.0, 0.0)
        self._fault = none if config is None or config.rank != rank else config
        self._leaked: list[bytes] = []

    def strike(self, phase: str) -> None:
        """Raise, exit, be killed or hang, if this phase has such a fault."""
        if self._fault.kind in _ACTS and self._fault.phase == phase:
            _ACTS[self._fault.kind]()

    def prolong(self, phase: Phase, seconds: float) -> None:
        """Prolong a phase of the start, which has taken `seconds`, to `factor` times that and `ms`
        milliseconds more."""
        if self._fault.kind == "longer" and self._fault.phase == phase.value:
            time.sleep(self._lateness(seconds))

    def compete(self) -> None:
        """Start a process that computes on this rank's cores from now on, while the rank runs."""
        if self._fault.kind == "busy":
            subprocess.Popen([sys.executable, process.__file__, str(os.getpid())])

    @property
    def follows_steps(self) -> bool:
        """Return whether the fault's size is that of a step, whose end this rank has to wait for: a
        GPU would else only have queued the step, and hide the delay behind its work."""
        return self._fault.kind in ("slow", "input")

    def slow_down(self, step_seconds: float, kind: str = "slow") -> None:
        """Sleep if this rank's fault is of this kind: `slow` delays a step, and `input` its batch.
        step_seconds: how long the last step took without the delay."""
        if self._fault.kind == kind:
            time.sleep(self._lateness(step_seconds))

    def _lateness(self, seconds: float) -> float:
        """Return by how many seconds to delay something that takes `seconds`."""
        return (self._fault.factor - 1.0) * seconds + self._fault.ms / 1000

    def offset(self) -> float:
        """Return what this rank adds to each number that it sends in a collective operation."""
        return 1.0 if self._fault.kind == "corrupt" else 0.0

    def leak(self) -> None:
        """Keep some memory that is never used again."""
        if self._fault.kind == "leak":
            # Not zeros, because those would take no page of memory.
            self._leaked.append(b"x" * LEAK_BYTES)


# The connection -----------------------------------------------------------------------------------


class Driver:
    """A rank's connection to the driver. It receives orders on a thread of its own, so that even a
    busy or hanging rank ends when the driver is gone, and reports its position when the driver asks
    for it."""

    def __init__(self, rank: int, connection: protocol.Connection | None = None) -> None:
        """Without a connection, connect to the address in the environment and say hello."""
        if connection is None:
            host, port, token = os.environ[protocol.DRIVER_VARIABLE].rsplit(":", 2)
            connection = protocol.connection_to([host], int(port), rank, token, within_s=30.0)
        self._connection = connection
        self._sending = threading.Lock()
        self._orders: queue.Queue[Message] = queue.Queue()
        self._main_thread = threading.get_ident()
        self.rank = rank
        self.phase: str = Phase.LAUNCH
        self.entered_at = time.time()
        self.steps_begun = 0
        # Until the config is there.
        self.fault = Fault(None, rank)
        threading.Thread(target=self._listen, name="driver", daemon=True).start()

    def _listen(self) -> None:
        """Receive messages. End this process when the driver is gone or sends garbage, because the
        main thread may hang in a collective and nobody can dismiss it."""
        try:
            while (messages := self._connection.receive()) is not None:
                for message in messages:
                    if message.get("op") == "status":
                        self._send({"status": self.standing()})
                    elif message.get("op") == "time":
                        self._send({"time": time.time()})
                    else:
                        self._orders.put(message)
        except OSError:
            pass  # the driver is gone
        except BaseException:  # noqa: BLE001 - a rank without this thread would obey nobody
            traceback.print_exc()
        finally:
            os._exit(1)

    def _send(self, message: Message) -> None:
        with self._sending:
            self._connection.send(message)

    def next_order(self) -> Message:
        """Wait for the next order; the first one is this rank's config."""
        return self._orders.get()

    def enter(self, phase: str, at: float | None = None, **metadata: Any) -> None:
        """Report which phase begins now, or began at that time of day, with the time of day and
        with this host's monotonic clock, which is never set. A fault of a phase that begins now
        strikes."""
        self.phase = phase
        now, clock = time.time(), time.monotonic()
        when = self.entered_at = now if at is None else at
        self._send({"phase": phase, "at": when, "clock": clock - (now - when), **metadata})
        if at is None:
            self.fault.strike(phase)

    def close(self) -> None:
        """End the connection, also if a process that this one has forked still holds it."""
        self._connection.socket.shutdown(socket.SHUT_RDWR)

    def share(self, value: str) -> None:
        """Send a value to every other rank of the launch, each of which gets it by `shared`."""
        self._send({"share": value})

    def shared(self) -> str:
        """Wait for a value that another rank shares and return it."""
        return str(self._orders.get()["shared"])

    def reply(self, result: dict[str, Any]) -> None:
        self._send({"reply": result})

    def answer(self, number: int, result: Message) -> None:
        """Answer a numbered order: that of a process that is no rank."""
        self._send({"answers": number, **result})

    def fail(self, error: BaseException, message: str, of_user: bool = False) -> None:
        """Report what this rank raised, with its current phase and the message; wait to be
        dismissed. of_user: whether the user's own network or data raised it.

        The rank must not end by itself: mpirun would then end the other ranks before they have
        reported whether they caused the error.
        """
        where = {"phase": self.phase, "step": self.steps_begun}
        what = {"kind": type(error).__name__, "message": message, "of_user": of_user}
        self._send({"error": {**where, **what}})
        # Skip values that other ranks share.
        while self.next_order().get("op") != "close":
            pass

    def standing(self) -> dict[str, Any]:
        """Return where the main thread is: phase, steps_begun, where (its innermost frame) and
        waits (whether it seems to wait for other ranks)."""
        frame = sys._current_frames().get(self._main_thread)
        where, waits = "?", False
        if frame is not None:
            inner = traceback.extract_stack(frame)[-1]
            where = f"{os.path.basename(inner.filename)}:{inner.lineno} {inner.name}"
            # A rank that waits for another one is in a collective, so in code of TensorFlow or
            # Horovod. Horovod's wrappers are generated code, of the file "<string>".
            own = inner.filename.startswith(_OWN)
            named = (inner.filename + inner.name).lower()
            waits = not own and ("tensorflow" in named or "horovod" in named)
        return {
            "phase": self.phase,
            "steps_begun": self.steps_begun,
            "where": where,
            "waits": waits,
        }


def go_through(trainer: Any, driver: Driver, first: str, last: str) -> dict[str, Any]:
    """Go through the phases of a start-up from `first` to `last`, methods of the trainer of these
    names. Return what they return."""
    metadata: dict[str, Any] = {}
    begin, end = (protocol.STARTUP.index(Phase(name)) for name in (first, last))
    for phase in protocol.STARTUP[begin : end + 1]:
        driver.enter(phase, metadata=metadata)
        begun = time.monotonic()
        metadata.update(getattr(trainer, phase.name.lower())() or {})
        driver.fault.prolong(phase, time.monotonic() - begun)
    return metadata


def group_of(hvd: Any) -> dict[str, Any]:
    """Return what Horovod says of this rank and its group."""
    return {
        "rank": hvd.rank(),
        "world_size": hvd.size(),
        "transport": "mpi" if hvd.mpi_enabled() else "gloo",
    }


def meet(driver: Driver, plan: list[dict[str, Any]]) -> None:
    """Open a rendezvous server on rank 0, share its address, and give the address to Horovod.

    plan: one entry per rank with the fields of horovod.runner.common.util.hosts.SlotInfo.
    """
    if driver.rank == 0:
        address = _open_server(plan)
        driver.share(address)
    else:
        address = driver.shared()
    host, port = address.rsplit(":", 1)
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = host
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = port


def form_cluster(driver: Driver, workers: int) -> None:
    """Exchange with all workers the addresses where they will listen, and set TF_CONFIG, which
    TensorFlow reads.

    Another process could take the port before TensorFlow does, some seconds later.
    """
    host = own_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    addresses = {driver.rank: f"{host}:{port}"}
    driver.share(f"{driver.rank} {host}:{port}")
    while len(addresses) < workers:
        rank, address = driver.shared().split()
        addresses[int(rank)] = address
    cluster = {"worker": [addresses[rank] for rank in range(workers)]}
    task = {"type": "worker", "index": driver.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})


def _open_server(plan: list[dict[str, Any]]) -> str:
    """Start the server on a thread that ends with this process; return the server's address.

    RendezvousServer.start() will not do: it listens on every interface and picks a random port.
    """
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host = own_address()
    server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
    server.init([SlotInfo(**entry) for entry in plan])
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return f"{host}:{server.server_port}"


def own_address() -> str:
    """Return the address from which this host reaches the driver: loopback if it is the driver's
    host."""
    host, port, _ = os.environ[protocol.DRIVER_VARIABLE].rsplit(":", 2)
    return protocol.address_towards(host, int(port))


# The rendezvous of one launch, and the interface of a host.
_OF_A_LAUNCH = ("HOROVOD_GLOO_", "NCCL_SOCKET_IFNAME")


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that all ranks of a launch should have alike."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES)
        and not name.startswith((*_OF_A_LAUNCH, *OF_OTHERS))
        and name not in process.OF_A_RANK
    }


# What TensorFlow says of the place in its graph.
_PLACES = re.compile(
    r"\[\[\{\{.*?\}\}\]\]|\{\{function_node .*?\}\}|\[Op:\w+\]( name:)?|"
    r"Error in user-defined function passed to \S+ transformation with iterator: \S+:(?= )|"
    r"Traceback \(most recent call last\).*"
)
_LABEL = re.compile(
    r"Received a label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)"
)


def in_words(error: BaseException, source: str = "") -> str:
    """Return in one line the line of the user's file (source) through which an error passed, its
    kind and its message; of one that was raised to explain something to the user, the message."""
    if isinstance(error, (own_networks.BadNetwork, DataError)):
        return str(error)
    if isinstance(error, StopIteration):
        return "its data have ended; yield at least one sample for every rank"
    text = " ".join(message_of(error).split())
    text = " ".join(_PLACES.sub("", text).split())
    if _MERGE_CALL in text:
        return (
            "its optimizer lets replicas meet within a condition, as moving averages and the "
            "accumulation of gradients do, which tf.distribute does not allow in a traced step"
        )
    label = _LABEL.search(text)
    if label is not None:
        return f"label {label[1]} of {label[2]} classes"
    line = own_networks.line_of(error, source)
    return f"{f'line {line}: ' if line else ''}{type(error).__name__}: {text}"


def is_of_user(error: BaseException, config: RankConfig) -> bool:
    """Return whether the user's own network, or the data that it was given, raised an error in a
    rank. config: the rank's."""
    origin = config.own_network
    if not origin:
        return False
    if isinstance(error, (own_networks.BadNetwork, DataError, StopIteration)):
        return True
    # Code within a graph is not in the traceback, but in the message.
    if own_networks.line_of(error, origin) or origin in str(error):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if config.dataset == config.model and any(f.name == "next_batch" for f in frames):
        return True
    if _MERGE_CALL in str(error):
        return True
    # An operation of the network that refuses a value, such as a label that is out of range.
    return type(error).__name__ == "InvalidArgumentError" and "Horovod" not in str(error)
