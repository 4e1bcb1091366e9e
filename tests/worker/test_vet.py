"""What a host does a second without TensorFlow."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from hvdperf.worker import vet
from hvdperf.worker.vet import Link, rate, reader


def test_a_unit_counts_with_its_amount() -> None:
    assert rate(lambda: 5.0, 0.0) > 0
    amounts = iter(range(1, 10**9))
    many = rate(lambda: float(next(amounts)), 0.01)
    assert many > rate(lambda: 1.0, 0.0)


def test_all_bytes_are_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vet, "READ_BYTES", 3 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    read = reader()
    assert list(tmp_path.iterdir()) == []
    assert [read(), read()] == [3 << 20] * 2


def test_two_nodes_exchange_bytes_and_a_stranger_is_turned_away() -> None:
    one, other = Link(), Link()
    found: dict[str, Any] = {}

    def accept() -> None:
        found["other"] = other.rate(0.05, "k" * vet.KEY, ())

    thread = threading.Thread(target=accept)
    thread.start()
    with socket.create_connection(("127.0.0.1", other.port)) as stranger:
        stranger.sendall(b"x" * vet.KEY)
        assert stranger.recv(1) == b""
    found["one"] = one.rate(0.05, "k" * vet.KEY, ("127.0.0.1", other.port))
    thread.join()
    assert all(value > 1e6 for value in found.values())


def test_a_node_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vet, "CONNECT_S", 0.1)
    with pytest.raises(OSError):
        Link().rate(0.05, "k" * vet.KEY, ())
