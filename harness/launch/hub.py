"""The driver's end of all connections: one listening socket and one selector a session."""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

from harness.wire import Connection, Message


class Listener(Protocol):
    """Whoever the messages of one launch are for."""

    def joined(self, rank: int, connection: Connection, hello: Message) -> None: ...

    def received(self, rank: int, message: Message) -> None: ...

    def left(self, rank: int) -> None: ...


class Hub:
    """Accepts the ranks of every launch and hands their messages on, on the caller's thread.

    host: the address to listen on; loopback unless ranks come from other hosts. A connection
    that does not open with the token of an expected launch is closed.
    """

    def __init__(self, host: str = "127.0.0.1", advertised: str | None = None) -> None:
        self._server = socket.create_server((host, 0), backlog=1024)
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._advertised = advertised or host
        self._listeners: dict[str, Listener] = {}

    @property
    def port(self) -> int:
        """That ranks connect to."""
        return int(self._server.getsockname()[1])

    def expect(self, listener: Listener) -> str:
        """Make a token for a launch; the address that its ranks connect to, token included."""
        token = secrets.token_hex(16)
        self._listeners[token] = listener
        return f"{self._advertised}:{self.port}:{token}"

    def forget(self, address: str) -> None:
        """Accept no more ranks of that launch."""
        self._listeners.pop(address.rsplit(":", 1)[1], None)

    def pump(self, seconds: float) -> None:
        """Hand on whatever arrives; returns after the first batch of messages, or in time."""
        for key, _ in self._selector.select(max(seconds, 0.0)):
            key.data()

    def pump_until(self, done: Callable[[], Any], deadline: float) -> bool:
        """Hand messages on until done() is true; False if time.monotonic() passes deadline."""
        while not done():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            # Also wake up to look at what no message tells: a process that has ended.
            self.pump(min(remaining, 0.1))
        return True

    def _accept(self) -> None:
        accepted, _ = self._server.accept()
        accepted.settimeout(10)  # a sender that stops in mid-message must not stop the session
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(accepted)
        self._selector.register(accepted, selectors.EVENT_READ, lambda: self._greet(connection))

    def _greet(self, connection: Connection) -> None:
        messages = self._read(connection)
        if messages == []:
            return  # the line is not complete yet
        messages = messages or [{}]
        hello = messages[0]
        listener = self._listener(str(hello.get("token", "")))
        self._selector.unregister(connection.socket)
        if listener is None or not isinstance(hello.get("hello"), int):
            connection.close()
            return
        rank: int = hello["hello"]
        self._selector.register(
            connection.socket,
            selectors.EVENT_READ,
            lambda: self._deliver(listener, rank, connection),
        )
        listener.joined(rank, connection, hello)
        for message in messages[1:]:  # a quick rank's next words may come in the same read
            listener.received(rank, message)

    def _listener(self, token: str) -> Listener | None:
        for expected, listener in self._listeners.items():
            if hmac.compare_digest(expected.encode(), token.encode()):
                return listener
        return None

    def _deliver(self, listener: Listener, rank: int, connection: Connection) -> None:
        messages = self._read(connection)
        if messages is None:
            self.drop(connection)
            listener.left(rank)
            return
        for message in messages:
            listener.received(rank, message)

    def drop(self, connection: Connection) -> None:
        """Close a connection, and listen to it no more."""
        if connection.socket.fileno() >= 0 and connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.close()

    @staticmethod
    def _read(connection: Connection) -> list[Message] | None:
        try:
            return connection.receive()
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
