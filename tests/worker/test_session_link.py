"""A rank's end of the connection to the driver."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdperf.worker.protocol import DRIVER_VARIABLE
from hvdperf.worker.session_link import Driver

ROOT = Path(__file__).resolve().parents[2]


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
import sys, time
sys.path.insert(0, sys.argv[1])
from hvdperf.worker.session_link import Driver
Driver(0)
print("connected", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("last_words", [b"", b"no JSON\n", b'{"a":' * 60_000 + b"\n", b"[1]\n"])
def test_a_rank_leaves_that_can_no_longer_be_told_anything(last_words):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", LISTENS, str(ROOT)],
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
    option = driver._connection.socket.getsockopt
    assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    silence = option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + (
        option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        * option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
    )
    assert silence < 30
    assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 30_000
