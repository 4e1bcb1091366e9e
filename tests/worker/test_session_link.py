"""Messages between driver and ranks, the configuration of a rank, and its end of the connection."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hvdperf.paths import ROOT
from hvdperf.worker.protocol import DRIVER_VARIABLE, Connection, FaultConfig, RankConfig
from hvdperf.worker.session_link import Driver
from tests.support.rank_configs import rank_config


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    yield Connection(ours), theirs
    ours.close()
    theirs.close()


def test_messages_are_handed_on_when_they_are_whole(ends):
    connection, peer = ends
    for piece, messages in (
        (b"{", []),
        (b'"a": 1}\n{"b": 2}\n{"c"', [{"a": 1}, {"b": 2}]),
        (b": 3}\n", [{"c": 3}]),
    ):
        peer.sendall(piece)
        assert connection.receive() == messages


def test_what_is_sent_is_received(ends):
    connection, peer = ends
    # Longer than one read takes, and no longer than a socket buffers.
    message = {"error": {"message": "line\nbreak, ünïcode" * 4000}, "list": [1, None, 2.5]}
    Connection(peer).send(message)
    messages = None
    while not messages:
        messages = connection.receive()
    assert messages == [message]


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"[1, 2]\n", b"\xff\xfe\n"])
def test_garbage_is_an_error(ends, garbage):
    connection, peer = ends
    peer.sendall(garbage)
    with pytest.raises(ValueError):
        connection.receive()


def test_the_end_of_the_stream_is_none(ends):
    connection, peer = ends
    peer.sendall(b'{"a": 1}\n{"half')
    peer.close()
    assert connection.receive() == [{"a": 1}]
    assert connection.receive() is None


def test_a_rank_reads_the_configuration_that_the_session_made() -> None:
    for fault in (None, FaultConfig("slow", 1, "block", 2.0, 0.0)):
        made = rank_config(fault=fault, kinds=["full", "local"])
        assert RankConfig.of(json.loads(json.dumps(made.message()))) == made


def test_a_configuration_of_another_release_names_what_differs() -> None:
    message = rank_config().message()
    without = {name: value for name, value in message.items() if name != "batch"}
    others = {"colour": {**message, "colour": "red"}, "batch": without}
    others["width"] = {**message, "exchange": {"width": 1}}
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"config of a rank: .*'{name}'"):
            RankConfig.of(other)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Of rank 1. Its orders are the test's: the thread that receives them ends the process with
    the connection."""
    monkeypatch.setattr(Driver, "_listen", lambda self: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv(DRIVER_VARIABLE, f"127.0.0.1:{server.getsockname()[1]}:token")
        made = Driver(rank=1)
    yield made
    made._connection.close()


def test_a_rank_that_has_failed_is_dismissed_whatever_another_one_shares(driver, monkeypatch):
    sent: list[dict] = []
    monkeypatch.setattr(driver, "_send", sent.append)
    driver._orders.put({"shared": "127.0.0.1:4711"})
    driver._orders.put({"op": "close"})
    driver.fail(ValueError("bad"), "bad shape")
    said = {"phase": "launch", "kind": "ValueError", "message": "bad shape"}
    assert sent == [{"error": {**said, "step": 0, "of_user": False}}]
    assert driver._orders.empty()


LISTENS = """
import time
from hvdperf.worker.session_link import Driver
Driver(0)
print("connected", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("last_words", [b"", b'{"a":' * 60_000 + b"\n"])
def test_a_rank_leaves_that_can_no_longer_be_told_anything(last_words):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", LISTENS],
            cwd=ROOT,
            env={**os.environ, DRIVER_VARIABLE: f"127.0.0.1:{server.getsockname()[1]}:token"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        connection, _ = server.accept()
        with connection:
            assert process.stdout is not None
            assert process.stdout.readline() == b"connected\n"
            connection.sendall(last_words)
            if not last_words:
                connection.shutdown(socket.SHUT_WR)
            _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert (b"Error" in said) == bool(last_words)


def test_a_rank_notices_a_host_that_vanishes(driver):
    assert_notices_a_host_that_vanishes(driver._connection.socket)


def assert_notices_a_host_that_vanishes(connected: socket.socket) -> None:
    option = connected.getsockopt
    assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    silence = option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + (
        option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        * option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
    )
    assert silence < 30
    assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 30_000
