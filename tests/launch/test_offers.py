"""What slots offer and carry out: rank 0 and a slot of one process, over a real connection."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Interface
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import outer
from hvdperf.launch import slots as slots_module
from hvdperf.launch.processes import LocalAgent, SlotGone
from hvdperf.launch.slots import Interface, Slots, interface_settings, own_offer
from hvdperf.machine.stack import probe, stack_differences
from hvdperf.paths import CACHE
from tests.support.leftovers import eventually


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What rank 0 of two ranks on this host publishes."""
    published: list[dict[str, Any]] = []
    publish = lambda launcher, text: published.append(json.loads(text))  # noqa: E731
    monkeypatch.setattr(type(outer.LAUNCHERS[0]), "publish", publish)
    monkeypatch.setattr(slots_module, "SOON_S", 0.1)
    for name in ("SIZE", "LOCAL_SIZE"):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", "2")
    monkeypatch.setattr(slots_module, "LEAVE_S", 5.0)
    exits = SimpleNamespace(**{**vars(os), "_exit": lambda status: pytest.fail("a slot stays")})
    monkeypatch.setattr(slots_module, "os", exits)
    return published


@pytest.fixture
def slots(told, tmp_path, monkeypatch) -> Iterator[Slots]:
    """Yield rank 0's slots, with a slot of rank 1 on a thread."""
    made = Slots()
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    # The thread alone has the connection, which ends with it.
    slot = threading.Thread(
        target=slots_module._serve, args=(LocalAgent(tmp_path), slots_module._connect(**told[-1]))
    )
    monkeypatch.delenv("OMPI_COMM_WORLD_RANK")
    slot.start()
    yield made
    made.release(0)
    slot.join(5.0)
    assert not slot.is_alive()


def test_every_rank_offers_what_it_has(slots):
    ours, theirs = slots.offers()
    assert ours == own_offer()
    assert (theirs.rank, theirs.host, theirs.cores) == (1, ours.host, ours.cores)


def test_every_other_host_shows_its_stack(slots):
    slots.offers()
    assert slots.stacks(sys.executable) == {}, "this host's own is known"
    slots._hosts[1] = "node2"
    (theirs,) = slots.stacks(sys.executable).items()
    assert theirs[0] == "node2"
    assert stack_differences(probe(sys.executable, CACHE), theirs[1]) == []
    with pytest.raises(
        UserError, match=r"^node2: slot of rank 1: there is no Python .* /nowhere/none"
    ) as refused:
        slots.stacks("/nowhere/none")
    assert "\n" not in str(refused.value)


def test_a_process_of_a_slot_is_started_and_its_end_reported(slots):
    agent = slots_module.RemoteAgent(slots, 1)
    slots.offers()
    agent.start("launch-0", {"WORD": "\u4e2d"}, ["/bin/sh", "-c", "echo $WORD >&2; exit 5"])
    assert eventually(lambda: agent.status("launch-0") == 5)
    assert agent.tail("launch-0") == ["\u4e2d"]
    agent.end("launch-0")
    with pytest.raises(OSError, match=r"slot of rank 1: .*/no/such"):
        agent.start("launch-1", {}, ["/no/such"])


def test_a_slot_that_does_not_connect_is_named(told, monkeypatch):
    monkeypatch.setattr(slots_module, "ANSWER_S", 0.0)
    monkeypatch.setattr(outer, "JOIN_S", 0.1)
    slots = Slots()
    with pytest.raises(UserError, match=r"rank 1\) did not connect within"):
        slots.offers()
    with pytest.raises(SlotGone):
        slots.call(1, "offer")


def test_rank_0_waits_for_a_slot_that_sees_its_file_as_late_as_slots_look_for_it(
    told, monkeypatch, tmp_path
):
    """A slot on a network file system may see the file later than a slot has to answer."""
    monkeypatch.setattr(slots_module, "SOON_S", 0.0)
    monkeypatch.setattr(slots_module, "ANSWER_S", 2.0)
    slots = Slots()

    def join() -> None:
        time.sleep(2.2)
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
        slots_module._serve(LocalAgent(tmp_path), slots_module._connect(**told[-1]))

    slot = threading.Thread(target=join)
    slot.start()
    assert len(slots.offers()) == 2
    slots.release(0)
    slot.join(5.0)


@contextmanager
def a_stranger(told: dict[str, Any], **hello: Any) -> Iterator[socket.socket]:
    """Connect to rank 0, and greet as the slot of rank 1 does, but for what is given."""
    with socket.create_connection(("127.0.0.1", told["port"]), timeout=10) as connected:
        said = {"hello": 1, "token": told["token"], "pid": 1, "host": "here", **hello}
        connected.sendall(json.dumps(said).encode() + b"\n")
        yield connected


def test_a_slot_that_does_not_answer_is_gone_and_is_not_asked_again(told, monkeypatch):
    monkeypatch.setattr(slots_module, "ANSWER_S", 1.0)
    slots = Slots()
    with a_stranger(told[0]) as silent:
        assert slots.hub.pump_until(slots._all_joined, slots.hub.now() + 10)
        agent = slots_module.RemoteAgent(slots, 1)
        gone = "the slot of rank 1 on here is gone: it did not answer 'start'"
        for _ in range(2):
            with pytest.raises(SlotGone, match=gone):
                agent.start("launch-0", {}, ["true"])
        with pytest.raises(UserError, match=gone):
            slots.offers()
        assert silent.recv(1 << 16).count(b"\n") == 1


@pytest.mark.parametrize("hello", [{"token": "wrong"}, {"hello": 2}, {"hello": 0}])
def test_a_stranger_is_no_slot(told, monkeypatch, hello):
    monkeypatch.setattr(outer, "JOIN_S", 0.3)
    slots = Slots()
    with a_stranger(told[0], **hello) as stranger:
        with pytest.raises(UserError, match=r"rank 1\) did not connect"):
            slots.offers()
        assert stranger.recv(1) == b"", "its connection is closed"


ETH0, IB0 = (
    Interface(name, IPv4Interface(address))
    for name, address in (("eth0", "10.0.0.5/24"), ("ib0", "10.1.0.5/16"))
)


@pytest.fixture
def two_networks(told, monkeypatch) -> None:
    """This host has two interfaces, and the ranks are on several hosts."""
    monkeypatch.setattr(slots_module, "interfaces", lambda: [ETH0, IB0])
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")


def test_a_host_that_cannot_reach_rank_0_is_told_what_to_do(two_networks):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UserError) as refused:
        slots_module._connect("first", ["10.0.0.5", "127.0.0.1"], port, "token")
    message = str(refused.value)
    assert f"cannot reach first, the host of rank 0, at port {port} (127.0.0.1: " in message
    assert "or name a network of both by --network" in message
    assert "10.0.0.5" not in message, "an address of this host is not another host's"


def test_other_hosts_are_given_the_addresses_in_the_network(two_networks, told, monkeypatch):
    for network, addresses in (("", ["10.0.0.5", "10.1.0.5"]), ("10.1.0.0/16", ["10.1.0.5"])):
        Slots(network)
        assert told[-1]["addresses"] == addresses
    has = r"10.0.0.0/24 \(eth0\), 10.1.0.0/16 \(ib0\)"
    with pytest.raises(UserError, match=rf"has no address .* 10.9.0.0/16: it has {has}"):
        Slots("10.9.0.0/16")
    with pytest.raises(UserError, match=r"--network eth0: is not a network of IPv4 addresses"):
        Slots("eth0")
    monkeypatch.setattr(slots_module, "interfaces", list)
    with pytest.raises(UserError, match=r"it has no network at all"):
        Slots()


def test_the_interface_is_the_one_that_another_host_has_reached(two_networks, monkeypatch):
    def at(here: str) -> Any:
        own = SimpleNamespace(getsockname=lambda: (here, 1), fileno=lambda: -1)
        return SimpleNamespace(socket=own)

    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    slots = Slots()
    slots.joined(1, at("127.0.0.1"), {"host": socket.gethostname()})
    assert interface_settings(slots.interface) == {}
    slots.joined(2, at("10.1.0.5"), {"host": "another"})
    assert slots.interface == IB0
    assert set(interface_settings(slots.interface).values()) == {"ib0"}


@pytest.mark.parametrize("order", ["end_all", "_directory", "__init__", "no such thing"])
def test_a_slot_carries_out_no_order_that_is_not_listed(order, tmp_path):
    answer = slots_module._carry_out(LocalAgent(tmp_path), order, ())
    assert answer == {"error": f"a slot does not know the order {order!r}"}
