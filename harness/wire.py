"""What driver and ranks say to each other: one JSON object a line over a TCP connection per rank.

Standard library only, and no newer than Python 3.9: the ranks may run in an older interpreter.

A rank opens with ``hello``, gets its ``config``, reports each phase as it enters it, and then
answers orders one by one until it is told to close. A rank that fails says ``error`` first.
"""

import json
import socket
from enum import Enum
from typing import Any, Optional

Message = dict[str, Any]

# host:port:token of the driver, in the environment of every rank.
DRIVER_VARIABLE = "HVDPERF_DRIVER"


class Phase(str, Enum):
    """What a rank is doing, in the order in which a launch goes through it."""

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
    GRADIENTS = "gradients"
    TIMELINE = "timeline"
    EVIDENCE = "evidence"
    END = "end"


STARTUP = (
    Phase.LAUNCH,
    Phase.IMPORT,
    Phase.INIT,
    Phase.BUILD,
    Phase.INPUT,
    Phase.TRACE,
    Phase.FIRST_STEP,
    Phase.BROADCAST,
)


def address_towards(host: str, port: int) -> str:
    """The address of this host on its route there: loopback where that is this host. Nothing is
    sent. Raises OSError where the name is not known, or there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])


class Connection:
    """Framing over a connected socket. Sending blocks; receiving takes what has arrived."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = b""

    def send(self, message: Message) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Optional[list[Message]]:
        """The complete messages that have arrived, after one read; None at the end of the stream.

        Raises ValueError if the peer does not speak this protocol.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a message is not a JSON object")
        return messages

    def close(self) -> None:
        self.socket.close()
