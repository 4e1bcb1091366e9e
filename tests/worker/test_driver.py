"""A rank's end of the connection to the driver."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from harness.wire import DRIVER_VARIABLE
from harness.worker.driver import Driver


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
    assert sent == [{"error": {"phase": "launch", "kind": "ValueError", "message": "bad shape"}}]
    assert driver._orders.empty()
