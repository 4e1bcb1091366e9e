"""What slots offer and carry out: rank 0 and a slot of one process, over a real connection."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import slots as slots_module
from hvdperf.launch.agents import LocalAgent
from hvdperf.launch.job import SlotGone
from hvdperf.launch.slots import ADDRESS_VARIABLE, Slots, own_offer, tasks_without_mpirun


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What rank 0 of two ranks on this host publishes."""
    published: list[dict[str, Any]] = []
    publish = SimpleNamespace(publish=lambda text: published.append(json.loads(text)))
    monkeypatch.setattr(slots_module, "pmix", publish)
    for name in ("SIZE", "LOCAL_SIZE"):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", "2")
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    monkeypatch.setattr(slots_module, "LEAVE_S", 5.0)
    exits = SimpleNamespace(**{**vars(os), "_exit": lambda status: pytest.fail("a slot stays")})
    monkeypatch.setattr(slots_module, "os", exits)
    return published


@pytest.fixture
def lend(told, tmp_path, monkeypatch) -> Iterator[Callable[[], Slots]]:
    """Return a function that makes rank 0's slots, with a slot of rank 1 on a thread."""
    made: list[Slots] = []
    threads: list[threading.Thread] = []

    def lent() -> Slots:
        slots = Slots()
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
        connection = slots_module._connect(**told[-1])
        monkeypatch.delenv("OMPI_COMM_WORLD_RANK")
        made.append(slots)
        serve = threading.Thread(
            target=slots_module._serve, args=(LocalAgent(tmp_path), connection)
        )
        serve.start()
        threads.append(serve)
        return made[-1]

    yield lent
    for slots in made:
        slots.release(0)
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()


def test_every_rank_offers_what_it_has(lend):
    ours, theirs = lend().offers()
    assert ours == own_offer()
    assert (theirs.rank, theirs.host, theirs.cores) == (1, ours.host, ours.cores)


def test_a_rank_that_cannot_tell_what_it_has_is_named_in_one_line(lend, monkeypatch):
    complaint = "nvidia-smi did not answer in 30 s: a GPU or its driver hangs; reset it"

    def fail(agent: LocalAgent) -> None:
        raise UserError(complaint)

    monkeypatch.setattr(slots_module, "_ORDERS", {"offer": fail})
    with pytest.raises(UserError) as refused:
        lend().offers()
    assert str(refused.value) == f"slot of rank 1: {complaint}"


def test_a_process_of_a_slot_is_started_and_its_end_reported(lend):
    slots = lend()
    agent = slots_module.RemoteAgent(slots, 1)
    slots.offers()
    agent.start("launch-0", {"WORD": "\u4e2d"}, ["/bin/sh", "-c", "echo $WORD >&2; exit 5"])
    deadline = time.monotonic() + 10
    while (status := agent.status("launch-0")) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (status, agent.tail("launch-0")) == (5, ["\u4e2d"])
    agent.end("launch-0")
    with pytest.raises(OSError, match=r"slot of rank 1: .*/no/such"):
        agent.start("launch-1", {}, ["/no/such"])


def test_a_slot_that_does_not_connect_is_named(told, monkeypatch):
    monkeypatch.setattr(slots_module, "ANSWER_S", 0.1)
    slots = Slots()
    with pytest.raises(UserError, match=r"the slot of rank 1 is gone: it did not answer 'offer'"):
        slots.offers()
    with pytest.raises(SlotGone):
        slots.call(1, "offer")


@pytest.mark.parametrize("hello", [{"token": "wrong"}, {"hello": 2}, {"hello": 0}, {"pid": 0}])
def test_a_stranger_is_no_slot(told, monkeypatch, hello):
    monkeypatch.setattr(slots_module, "ANSWER_S", 0.3)
    slots = Slots()
    with socket.create_connection(("127.0.0.1", told[0]["port"]), timeout=10) as stranger:
        said = {"hello": 1, "token": told[0]["token"], "pid": 1, "host": "here", **hello}
        stranger.sendall(json.dumps(said).encode() + b"\n")
        with pytest.raises(UserError, match=r"rank 1 is gone"):
            slots.offers()
        assert stranger.recv(1) == b"", "its connection is closed"


def test_a_host_that_cannot_reach_rank_0_is_told_what_to_do(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(slots_module, "addresses_of_this_host", lambda: ["10.0.0.9"])
    with pytest.raises(UserError) as refused:
        slots_module._connect("first", ["10.0.0.9", "127.0.0.1"], port, "token")
    message = str(refused.value)
    assert f"cannot reach first, the host of rank 0, at port {port} (127.0.0.1: " in message
    assert f"or set {ADDRESS_VARIABLE} to another address of first" in message
    assert "10.0.0.9" not in message, "an address of this host is not another host's"


def test_other_hosts_are_given_every_address_but_loopback(told, monkeypatch):
    known = {"lo": "127.0.0.1", "eth0": "10.0.0.5", "ib0": "10.1.0.5"}

    def answer(descriptor: int, request: int, name: bytes) -> bytes:
        interface = name.rstrip(b"\0").decode()
        if interface not in known:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return bytes(20) + socket.inet_aton(known[interface]) + bytes(232)

    names = list(enumerate([*known, "down0"], 1))
    monkeypatch.setattr(socket, "if_nameindex", lambda: names)
    monkeypatch.setattr(slots_module, "fcntl", SimpleNamespace(ioctl=answer))
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    Slots()
    assert told[-1]["addresses"] == ["10.0.0.5", "10.1.0.5"]
    monkeypatch.setenv(ADDRESS_VARIABLE, "192.168.7.1")
    Slots()
    assert told[-1]["addresses"] == ["192.168.7.1"]


class Connected:
    """A connection from a slot's address to one of this host's."""

    def __init__(self, here: str, there: str) -> None:
        self.socket = SimpleNamespace(
            getsockname=lambda: (here, 1), getpeername=lambda: (there, 2), fileno=lambda: -1
        )


@pytest.mark.parametrize(
    ("slots_from", "address"),
    [
        ([], ""),
        ([("127.0.0.1", "127.0.0.1")], ""),
        ([("127.0.0.1", "127.0.0.1"), ("10.0.0.5", "10.0.0.6")], "10.0.0.5"),
    ],
)
def test_ranks_of_other_hosts_connect_where_a_slot_of_theirs_did(
    told, monkeypatch, slots_from, address
):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    slots = Slots()
    for rank, ends in enumerate(slots_from, 1):
        joined: Any = Connected(*ends)
        slots.joined(rank, joined, {})
    assert slots.address == address


def test_a_host_without_a_network_says_so(monkeypatch):
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo")])
    with pytest.raises(UserError, match=f"has no address .* or set {ADDRESS_VARIABLE}"):
        slots_module.addresses_of_this_host()


@pytest.mark.parametrize(
    ("environment", "tasks"),
    [
        ({}, 1),
        ({"SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "4"}, 4),
        ({"SLURM_STEP_NUM_TASKS": "4", "OMPI_COMM_WORLD_SIZE": "2"}, 1),
    ],
)
def test_what_srun_has_started_by_itself_is_no_slot(monkeypatch, environment, tasks):
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tasks_without_mpirun() == tasks


@pytest.mark.parametrize("order", ["end_all", "_directory", "__init__", "no such thing"])
def test_a_slot_carries_out_no_order_that_is_not_listed(order, tmp_path):
    answer = slots_module._carry_out(LocalAgent(tmp_path), order, ())
    assert answer == {"error": f"a slot does not know the order {order!r}"}


def test_every_order_that_a_slot_is_given_is_listed():
    given = re.findall(
        r'\.call\((?:self\._)?rank, "(\w+)"', Path(slots_module.__file__).read_text()
    )
    assert set(given) == set(slots_module._ORDERS)
