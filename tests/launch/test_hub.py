"""The driver's end of the connections, over real sockets on loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hvdperf.launch.hub import Hub
from hvdperf.worker.protocol import Connection, Message
from tests.worker.test_session_link import assert_notices_a_host_that_vanishes

SOON = 5.0


class Recorder:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.connections: dict[int, Connection] = {}
        self.hellos: list[Message] = []
        self.messages: list[tuple[int, Message]] = []
        self.gone: dict[int, str] = {}

    def joined(self, rank: int, connection: Connection, hello: Message) -> None:
        self.connections[rank] = connection
        self.hellos.append(hello)

    def received(self, rank: int, message: Message) -> None:
        self.messages.append((rank, message))

    def left(self, rank: int, reason: str = "") -> None:
        self.gone[rank] = reason


@pytest.fixture
def connect() -> Iterator[Any]:
    """Connect to an address that the hub gave; a rank's end of it."""
    sockets = []

    def connected(address: str) -> socket.socket:
        host, port, _ = address.rsplit(":", 2)
        sock = socket.create_connection((host, int(port)), timeout=SOON)
        sockets.append(sock)
        return sock

    yield connected
    for sock in sockets:
        sock.close()


def hello(address: str, rank: int = 0, **changes: Any) -> bytes:
    token = address.rsplit(":", 1)[1]
    message = {"hello": rank, "token": token, "pid": 4711, "host": "host", **changes}
    return json.dumps(message).encode() + b"\n"


def until(hub: Hub, done: Any) -> None:
    assert hub.pump_until(done, time.monotonic() + SOON), "it never came"


@pytest.fixture
def join(hub: Hub, connect: Any) -> Any:
    """Return a function with which a rank of the listener's launch joins; it returns its end."""

    def joined(listener: Recorder, address: str, rank: int = 0) -> socket.socket:
        sock: socket.socket = connect(address)
        sock.sendall(hello(address, rank))
        until(hub, lambda: listener.hellos)
        return sock

    return joined


@pytest.fixture
def launch(hub: Hub) -> tuple[Recorder, str]:
    """The listener of a launch, and the address that its ranks connect to."""
    listener = Recorder()
    return listener, hub.expect(listener)


@pytest.fixture
def rank(join: Any, launch: tuple[Recorder, str]) -> tuple[Recorder, socket.socket]:
    """The listener of a launch, and rank 1's end of the connection by which it has joined."""
    return launch[0], join(*launch, rank=1)


def closed_by_hub(hub: Hub, sock: socket.socket) -> bool:
    """Whether the hub has closed its end; pumps until it has."""
    sock.setblocking(False)
    for _ in range(100):
        hub.pump(0.05)
        try:
            return sock.recv(1) == b""
        except BlockingIOError:
            continue
        except ConnectionResetError:
            return True
    return False


def test_a_rank_with_the_token_joins_and_what_comes_with_its_greeting_is_handed_on(
    hub, connect, launch
):
    listener, address = launch
    sock, opening = connect(address), hello(address, rank=1)
    sock.sendall(opening[:10])
    for _ in range(3):
        hub.pump(0.05)
    assert listener.hellos == []
    sock.sendall(opening[10:] + json.dumps({"phase": "init"}).encode() + b"\n")
    until(hub, lambda: listener.messages)
    assert (list(listener.connections), listener.hellos[0]["pid"]) == ([1], 4711)
    assert listener.messages == [(1, {"phase": "init"})]


HOSTILE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"[]\n",
    b'{"token":{"a":["\\ud800"]},"hello":0}\n',
    b"[" * 60_000 + b"\n",
    b"9" * 60_000 + b"\n",
    b"x" * (1 << 16) + b"x",
]
NOT_WHOLE = [
    *({"token": token} for token in ("0" * 32, None, "\u00fc" * 32)),
    # To end a launch with the process 0 or -1 would be to end every process of the user.
    *({"pid": pid} for pid in (None, 0, 10**30)),
    *({"hello": rank} for rank in ("zero", True)),
    {"host": 1},
]


@pytest.mark.parametrize("opening", [*HOSTILE, *NOT_WHOLE], ids=lambda given: repr(given)[:40])
def test_whoever_greets_otherwise_is_closed(hub, connect, launch, opening):
    listener, address = launch
    sock = connect(address)
    sock.sendall(opening if isinstance(opening, bytes) else hello(address, **opening))
    assert closed_by_hub(hub, sock)
    assert listener.hellos == []


def test_who_does_not_greet_in_time_is_closed(hub, connect, join, launch, monkeypatch):
    monkeypatch.setattr("hvdperf.launch.hub.GREETING_S", 0.2)
    listener, address = launch
    silent, slow = connect(address), connect(address)
    slow.sendall(b'{"hello"')
    join(*launch)
    assert closed_by_hub(hub, silent)
    assert closed_by_hub(hub, slow)
    hub.pump(0.05)
    assert listener.gone == {}, "a rank may be silent"


def test_nothing_is_heard_of_a_rank_that_its_launch_refuses(hub, connect):
    class Refusing(Recorder):
        def joined(self, rank, connection, hello):
            hub.drop(connection)

    listener = Refusing()
    address = hub.expect(listener)
    sock = connect(address)
    sock.sendall(hello(address, rank=99) + b'{"phase": "build", "at": 1.0, "clock": 1.0}\n')
    assert closed_by_hub(hub, sock)
    assert listener.messages == []


def test_a_rank_whose_message_has_no_end_is_given_up(hub, rank, monkeypatch):
    monkeypatch.setattr("hvdperf.launch.hub.MESSAGE_BYTES", 1 << 18)
    listener, sock = rank

    def babble() -> None:
        with suppress(OSError):
            while True:
                sock.sendall(b"x" * (1 << 16))

    babbling = threading.Thread(target=babble)
    babbling.start()
    until(hub, lambda: listener.gone)
    babbling.join()
    told = "its message cannot be read: a message is longer than 262144 bytes"
    assert listener.gone == {1: told}


def test_the_driver_notices_a_host_that_vanishes(rank):
    assert_notices_a_host_that_vanishes(rank[0].connections[1].socket)


def test_messages_go_to_the_listener_of_their_launch(hub, join):
    listeners = {0: Recorder(), 7: Recorder()}
    for rank, listener in listeners.items():
        sock = join(listener, hub.expect(listener), rank)
        # A rank may say more than a stranger.
        said = json.dumps({"reply": {"text": "x" * 100_000}}).encode()
        threading.Thread(target=sock.sendall, args=[said + b'\n{"phase": "ready"}\n']).start()
    until(hub, lambda: all(len(each.messages) == 2 for each in listeners.values()))
    for rank, listener in listeners.items():
        told = [(who, *message) for who, message in listener.messages]
        assert told == [(rank, "reply"), (rank, "phase")]


@pytest.mark.parametrize("ending", [b"", b"this is no JSON\n"])
def test_a_rank_has_left_when_its_connection_ends(hub, rank, ending):
    listener, sock = rank
    sock.sendall(ending)
    sock.shutdown(socket.SHUT_WR)
    until(hub, lambda: listener.gone)
    assert list(listener.gone) == [1]
    assert bool(listener.gone[1]) == bool(ending), "garbage is told from an end"


def test_ranks_of_a_forgotten_launch_are_not_let_in(hub, connect, join, launch):
    forgotten, address = launch
    expected = Recorder()
    other = hub.expect(expected)
    hub.forget(address)
    late = connect(address)
    late.sendall(hello(address))
    assert closed_by_hub(hub, late)
    join(expected, other)
    assert forgotten.hellos == []
    hub.forget(address)  # twice is fine


def test_a_connection_closed_by_its_group_makes_room_for_the_next(hub, connect, join, launch):
    """The next connection gets the file descriptor of the one that was closed."""
    join(*launch)
    second = Recorder()
    address = hub.expect(second)
    waiting = connect(address)
    hub.drop(launch[0].connections[0])
    waiting.sendall(hello(address))
    until(hub, lambda: second.hellos)


def test_addresses_carry_a_token_of_their_own():
    hub = Hub("127.0.0.1", advertised="node1")
    one, two = (hub.expect(Recorder()).rsplit(":", 1) for _ in range(2))
    hub.close()
    assert one[0] == two[0]
    assert one[0].startswith("node1:")
    assert one[1] != two[1]


def test_time_for_which_the_session_was_stopped_passes_no_deadline(hub, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def select(seconds: float) -> list[Any]:
        # The second wait is a stop of ten minutes.
        clock[0] += seconds if clock[0] < 100.2 or hub.stops else 600.0
        return []

    monkeypatch.setattr(hub._selector, "select", select)
    assert hub.pump_until(lambda: True, hub.now() - 1)
    assert not hub.pump_until(lambda: False, hub.now() + 5.0)
    assert hub.stops == 1
    assert clock[0] > 700.0
    assert hub.now() == pytest.approx(105.0, abs=0.3)
