"""Messages between driver and ranks: one JSON object per line over a TCP connection per rank.

The module uses the standard library only, and nothing newer than Python 3.9, because the ranks may
run in an older interpreter.

A rank opens with ``hello``, receives its ``config``, reports each phase that it enters, and answers
orders one by one until the order to close. A rank that fails sends ``error`` and waits for that
order.
"""

import json
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Callable, NamedTuple, Optional

Message = dict[str, Any]

# IDLE_S: seconds of silence before the other end is probed. UNANSWERED_S: seconds without an answer
# before the connection ends. The other host's kernel answers, even for a stopped process.
IDLE_S = 10
UNANSWERED_S = 15
# Seconds that an address of the driver has to answer before the next one is tried.
TRY_S = 3.0

# host:port:token of the driver, in the environment of every rank.
DRIVER_VARIABLE = "HVDPERF_DRIVER"


class Phase(str, Enum):
    """The phases of a rank, in the order in which a launch goes through them."""

    LAUNCH = "launch"
    IMPORT = "import"
    INIT = "init"
    BUILD = "build"
    INPUT = "input"
    TRACE = "trace"
    FIRST_STEP = "first step"
    BROADCAST = "broadcast"
    READY = "ready"
    BLOCK = "block"
    COLLECTIVE = "collective"
    RUN = "run"
    VALIDATION = "validation"
    ABLATION = "ablation"
    CORRECTNESS = "correctness"
    EVIDENCE = "evidence"
    END = "end"


STARTUP = tuple(Phase)[: list(Phase).index(Phase.READY)]
# A phase of Phase, or an order that is a method of the trainer.
_PHASE = re.compile(r"[a-z][a-z_ ]{0,30}")


def _is(value: Any, **types: type) -> bool:
    return isinstance(value, dict) and all(type(value.get(k)) is t for k, t in types.items())


# The messages of a rank after its greeting: the key that identifies one -> a check of its content.
_CHECKS: dict[str, Callable[[Message], bool]] = {
    "phase": lambda message: (
        _is(message, phase=str, at=float, clock=float)
        and bool(_PHASE.fullmatch(message["phase"]))
        and isinstance(message.get("metadata", {}), dict)
    ),
    "reply": lambda message: isinstance(message["reply"], dict),
    "error": lambda message: _is(message["error"], phase=str, kind=str, message=str),
    "status": lambda message: (
        _is(message["status"], phase=str, steps_begun=int, where=str, waits=bool)
        and bool(_PHASE.fullmatch(message["status"]["phase"]))
    ),
    "time": lambda message: _is(message, time=float),
    "share": lambda message: isinstance(message["share"], str),
}


def kind_of(message: Message) -> str:
    """Return the kind of message that a rank sent: the key of its content. Raises ValueError if no
    rank sends such a message."""
    kind = next((key for key in _CHECKS if key in message), "")
    if not kind or not _CHECKS[kind](message):
        raise ValueError(f"no rank sends {json.dumps(message)[:100]}")
    return kind


def address_towards(host: str, port: int) -> str:
    """Return the address of this host on its route to `host`: loopback if that is this host.
    Nothing is sent. Raises OSError if the name is not known, or if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])


def tune(connected: socket.socket) -> None:
    """Have each message sent at once, and have the connection end when the other host vanishes:
    after IDLE_S + UNANSWERED_S seconds, or UNANSWERED_S seconds after something was sent."""
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, IDLE_S),
        (socket.TCP_KEEPINTVL, UNANSWERED_S // 3),
        (socket.TCP_KEEPCNT, 3),
        (socket.TCP_USER_TIMEOUT, UNANSWERED_S * 1000),
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def connection_to(
    addresses: Iterable[str], port: int, rank: int, token: str, within_s: float = TRY_S
) -> "Connection":
    """Return a connection that has greeted, at the first of the addresses that answers. token: the
    launch's. within_s: seconds that each address has to answer. Raises OSError, which says why none
    does."""
    problems = []
    for address in addresses:
        try:
            connected = socket.create_connection((address, port), timeout=within_s)
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
            continue
        connected.settimeout(None)
        tune(connected)
        connection = Connection(connected)
        greeting = {"hello": rank, "token": token}
        connection.send({**greeting, "pid": os.getpid(), "host": socket.gethostname()})
        return connection
    raise OSError("; ".join(problems))


class Connection:
    """The framing of messages on a connected socket. `send` blocks; `receive` takes the bytes that
    have arrived."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = b""

    def send(self, message: Message) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, limit: Optional[int] = None) -> Optional[list[Message]]:
        """Read once. Return the complete messages that have arrived, or None at the end of the
        stream.

        limit: how many bytes of a message may arrive before its end. Raises ValueError if the peer
        does not speak this protocol, or exceeds the limit.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        if limit is not None and len(self._received) > limit:
            raise ValueError(f"a message is longer than {limit} bytes")
        try:
            messages = [json.loads(line) for line in lines]
        except RecursionError:
            raise ValueError("a message is nested too deeply") from None
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a message is not a JSON object")
        return messages

    def close(self) -> None:
        self.socket.close()


# The configuration of a rank, which the session makes (launch/arm_launcher.py) ------------------


class Exchange(NamedTuple):
    """How Horovod exchanges gradients; see plan/arms.py."""

    compression: str = "none"
    reduction: str = "average"
    groups: int = 0
    sparse_as_dense: bool = False


class FaultConfig(NamedTuple):
    """A fault that is injected into one rank; kinds: hvdperf.plan.questions.Fault.KINDS."""

    kind: str
    rank: int
    phase: str
    factor: float
    ms: float


class RankConfig(NamedTuple):
    """What a rank trains, on what, and how.

    model, dataset, input_size (pixels a side, or words a sequence), batch (samples a replica),
    optimizer, precision, learning_rate: of the workload. classes: of its data. own_network: origin
    of a network that is not the suite's, or "". data_dir, data_id, data_files: where the data are,
    their id and the files that it is made of. epoch_steps: steps of a pass over the data. passes:
    batches of an update. cores, startup_cores: of this process. device: GPUs that it sees; None for
    none. intra_op, inter_op: TensorFlow's threads, 0 for its own choice. input_threads: those of
    the input. The others depend on the launch: see ArmLauncher.start; their defaults are those of
    one process that trains without others. rendezvous: the plan of hvdperf.worker.session_link, if
    rank 0 has to open a server. cluster: whether ranks form a cluster of TensorFlow. script: the
    path of a training script that is run instead, and its arguments; script_place: the directory
    in which it is run; script_top: the directory that both belong to.
    """

    strategy: str
    model: str
    dataset: str
    input_size: int
    batch: int
    optimizer: str
    precision: str
    learning_rate: str
    classes: int
    own_network: str
    world_size: int
    epoch_steps: int
    data_dir: str
    data_id: str
    data_files: Sequence[str]
    exchange: Exchange
    passes: int
    cores: Sequence[int]
    startup_cores: Sequence[int]
    device: Optional[str]
    intra_op: int
    inter_op: int
    input_threads: int
    seed: int
    data_seed: int = 1
    kinds: Sequence[str] = ("full",)
    last_phase: str = Phase.BROADCAST.value
    common_order: bool = False
    share_startup: bool = True
    rendezvous: Optional[list[dict[str, Any]]] = None
    cluster: bool = False
    fault: Optional[FaultConfig] = None
    script: Sequence[str] = ()
    script_place: str = ""
    script_top: str = ""

    def message(self) -> dict[str, Any]:
        """Return the configuration as it is sent."""
        fault = None if self.fault is None else self.fault._asdict()
        return {**self._asdict(), "exchange": self.exchange._asdict(), "fault": fault}

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "RankConfig":
        """Return the configuration of a message. Raises ValueError, which names missing or unknown
        fields."""
        try:
            found = cls(**message)
            fault: Any = found.fault
            return found._replace(
                exchange=Exchange(**message["exchange"]),
                fault=None if fault is None else FaultConfig(**fault),
            )
        except TypeError as error:
            raise ValueError(f"config of a rank: {error}; is its hvdperf the session's?") from None
