"""The driver's end of all connections: one listening socket and one selector per session."""

from __future__ import annotations

import errno
import hmac
import itertools
import json
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from hvdperf.errors import UserError
from hvdperf.worker.protocol import Connection, Message, tune

# Limits on connections without a valid greeting: its bytes, and seconds until it is complete.
GREETING_BYTES = 1 << 16
GREETING_S = 10.0
# Limit of a later message. The longest ones report every step of a run, at 100 bytes a step.
MESSAGE_BYTES = 1 << 25
# Process ids as the kernel limits them. 0 and negative numbers would signal whole groups of
# processes; larger numbers name none.
PROCESS_IDS = range(1, 1 << 22)
# Seconds for which a rank may accept no data before its connection is closed.
SEND_S = 10.0
# A wait that takes so many seconds longer than asked for is a stop of the process.
STOPPED_S = 1.0
# Keys and types of every greeting, besides the token.
_GREETING = {"hello": int, "pid": int, "host": str}


class Listener(Protocol):
    """The recipient of one launch's messages."""

    def joined(self, rank: int, connection: Connection, hello: Message) -> None: ...

    def received(self, rank: int, message: Message) -> None:
        """Handle a message. Raises ValueError if ranks send no such message."""

    def left(self, rank: int, reason: str = "") -> None:
        """Note that the connection to the rank is closed. reason: the fault of the connection, or
        ""."""


class Hub:
    """The server that the ranks of all launches connect to; it works on the caller's thread.

    It passes the ranks' messages on to the listener of their launch. It closes a connection that
    does not open with the token of an expected launch. host: address to listen on; loopback unless
    ranks come from other hosts. advertised: address that ranks connect to; host if None. Raises
    UserError if no socket can be opened. stops, stopped_seconds: how often, and for how long, this
    process was stopped while it waited.
    """

    def __init__(self, host: str = "127.0.0.1", advertised: str | None = None) -> None:
        try:
            self._server = socket.create_server((host, 0), backlog=1024)
        except OSError as error:
            raise UserError(
                f"no socket can be opened for ranks to connect to: {error.strerror}; see whether "
                "the loopback interface is up, and whether too many files are open (ulimit -n)"
            ) from None
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._advertised = advertised or host
        self.stopped_seconds, self.stops = 0.0, 0
        self._listeners: dict[str, Listener] = {}
        # Connections that have yet to greet, the oldest first, and their deadlines.
        self._strangers: dict[Connection, float] = {}

    @property
    def port(self) -> int:
        """Port that ranks connect to."""
        return int(self._server.getsockname()[1])

    @property
    def address(self) -> str:
        """Address that ranks connect to, as host:port, without a token."""
        return f"{self._advertised}:{self.port}"

    def expect(self, listener: Listener) -> str:
        """Make a token for a launch, and return the address that its ranks connect to, as
        host:port:token."""
        token = secrets.token_hex(16)
        self._listeners[token] = listener
        return f"{self.address}:{token}"

    def forget(self, address: str) -> None:
        """Accept no more ranks of the launch with this address."""
        self._listeners.pop(address.rsplit(":", 1)[1], None)

    def pump(self, seconds: float) -> None:
        """Pass on what arrives. Return after the first batch of messages, or after `seconds`."""
        before = time.monotonic()
        ready = self._selector.select(max(seconds, 0.0))
        longer = time.monotonic() - before - seconds
        if longer > STOPPED_S:  # by a signal, or with its container or machine
            self.stopped_seconds += longer
            self.stops += 1
        for key, _ in ready:
            key.data()
        now = time.monotonic()
        for connection, deadline in list(self._strangers.items()):
            if now > deadline:
                self.drop(connection)

    def now(self) -> float:
        """Return the monotonic clock, without the time for which this process was stopped. All
        deadlines of a session are by this clock, in seconds."""
        return time.monotonic() - self.stopped_seconds

    def pump_until(self, done: Callable[[], Any], deadline: float) -> bool:
        """Pass messages on until done() is true. Return False if the deadline (by `now`) passes
        first."""
        while not done():
            remaining = deadline - self.now()
            if remaining <= 0:
                return False
            # Wake up even without messages, because done() may look at processes that end silently.
            self.pump(min(remaining, 0.1))
        return True

    def _accept(self) -> None:
        try:
            accepted, _ = self._server.accept()
        except OSError:
            return  # the peer has gone again, or too many files are open
        try:
            tune(accepted)
        except OSError:
            accepted.close()
            return  # the peer has gone again
        accepted.settimeout(SEND_S)
        connection = Connection(accepted)
        self._strangers[connection] = time.monotonic() + GREETING_S
        self._selector.register(accepted, selectors.EVENT_READ, lambda: self._greet(connection))

    def _greet(self, connection: Connection) -> None:
        try:
            messages = connection.receive(limit=GREETING_BYTES)
        except (OSError, ValueError):
            messages = None
        if messages == []:
            return  # the line is not complete yet
        hello, *more = messages or [{}]
        listener = self._listener(hello.get("token"))
        if (
            listener is None
            or any(type(hello.get(k)) is not t for k, t in _GREETING.items())
            or hello["pid"] not in PROCESS_IDS
        ):
            self.drop(connection)
            return
        del self._strangers[connection]
        rank: int = hello["hello"]
        deliver = partial(self._deliver, listener, rank, connection)
        self._selector.modify(
            connection.socket,
            selectors.EVENT_READ,
            lambda: deliver(lambda: connection.receive(limit=MESSAGE_BYTES)),
        )
        listener.joined(rank, connection, hello)
        # The same read may hold the rank's next messages. A rank that was refused is closed.
        if connection.socket.fileno() >= 0:
            deliver(lambda: more)

    def _listener(self, token: Any) -> Listener | None:
        if not isinstance(token, str):
            return None
        given = token.encode(errors="replace")
        for expected, listener in self._listeners.items():
            if hmac.compare_digest(expected.encode(), given):
                return listener
        return None

    def _deliver(
        self,
        listener: Listener,
        rank: int,
        connection: Connection,
        read: Callable[[], list[Message] | None],
    ) -> None:
        """Hand on what `read` returns; note that the rank has left at the end of the stream (None)
        or after an error."""
        reason = ""
        try:
            messages = read()
            for message in messages or ():
                listener.received(rank, message)
            if messages is not None:
                return
        except ValueError as error:
            reason = f"its message cannot be read: {error}"
        except OSError as error:
            if error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
                reason = "its host does not answer any more"
        self.drop(connection)
        listener.left(rank, reason)

    def drop(self, connection: Connection) -> None:
        """Close a connection and stop listening to it."""
        self._strangers.pop(connection, None)
        if connection.socket.fileno() >= 0 and connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.close()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()


# The name of a method of a peer, and its arguments.
Order = tuple[str, Sequence[Any]]
Key = TypeVar("Key", bound=int | str)


class Peers(Generic[Key]):
    """Processes on other hosts that carry out numbered orders (Listener), each by a key of its own.

    keys: by the number with which a process greets. connections: of those that are connected. lost:
    why nothing is asked of a process any more. closed: those whose connection has ended.
    """

    def __init__(self, hub: Hub, keys: Mapping[int, Key]) -> None:
        self.hub = hub
        self.keys = keys
        self.token = hub.expect(self).rsplit(":", 1)[1]
        self.connections: dict[Key, Connection] = {}
        self.lost: dict[Key, str] = {}
        self.closed: set[Key] = set()
        self._numbers = itertools.count()
        self._answers: dict[int, Message] = {}

    def joined(self, rank: int, connection: Connection, hello: Message) -> None:
        key = self.keys.get(rank)
        if key is None or key in self.connections or key in self.closed or key in self.lost:
            self.hub.drop(connection)
        else:
            self.connections[key] = connection

    def received(self, rank: int, message: Message) -> None:
        number = message.get("answers")
        if type(number) is not int or not ("value" in message or "error" in message):
            raise ValueError(f"no such process says {json.dumps(message)[:100]}")
        self._answers[number] = message

    def left(self, rank: int, reason: str = "") -> None:
        key = self.keys[rank]
        self.connections.pop(key, None)
        self.closed.add(key)
        self.lose(key, reason or "its process has ended")

    def lose(self, key: Key, why: str) -> None:
        """Ask nothing of a process any more."""
        self.lost.setdefault(key, why)

    def send(self, key: Key, message: Message) -> bool:
        """Return whether the message could be sent."""
        try:
            self.connections[key].send(message)
        except (KeyError, OSError):
            return False
        return True

    def answers_to(self, orders: Mapping[Key, Order], deadline_s: float) -> dict[Key, Message]:
        """Give each process its order, all at the same time, and return the answers: value, or
        error. One that does not answer in time is lost, and has none."""
        numbers = {}
        for key, (name, arguments) in orders.items():
            number = next(self._numbers)
            order = {"order": name, "number": number, "arguments": arguments}
            if key not in self.lost and self.send(key, order):
                numbers[key] = number

        def all_answered() -> bool:
            return all(n in self._answers or key in self.lost for key, n in numbers.items())

        self.hub.pump_until(all_answered, self.hub.now() + deadline_s)
        found = {}
        for key, (name, _) in orders.items():
            answer = self._answers.pop(numbers[key], None) if key in numbers else None
            if answer is not None:
                found[key] = answer
            else:
                self.lose(key, silent(name, deadline_s))
        return found


def silent(order: str, seconds: float) -> str:
    return (
        f"it did not answer {order!r} within {seconds:.0f} s: its process is stopped, or its host "
        "is gone"
    )
