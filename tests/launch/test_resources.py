"""What a session opens: by which address ranks on other hosts reach it."""

from __future__ import annotations

import errno
import socket
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import resources
from hvdperf.launch.hub import Hub
from hvdperf.launch.resources import (
    ADDRESS_VARIABLE,
    make_arm_launcher,
    make_launcher,
    reachable_address,
)
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.options import LAUNCHERS, Options
from hvdperf.plan.profile import Sampling
from hvdperf.worker.protocol import address_towards

SLOTS = place([Offer(rank, host, (0, 1)) for rank, host in enumerate(["first", "near", "far"])])


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of this host, "first", to others: host -> its own address on that route."""
    known: dict[str, str] = {}

    def towards(host: str, port: int) -> str:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known[host]

    monkeypatch.setattr(resources, "address_towards", towards)
    monkeypatch.setattr(socket, "gethostname", lambda: "first")
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    return known


@pytest.mark.parametrize(
    "known",
    [
        {"first": "127.0.1.1", "near": "10.0.0.1", "far": "10.1.0.1"},
        {"first": "10.0.0.1"},
        {"near": "127.0.0.1", "first": "10.0.0.1"},
        {"far": "10.0.0.1", "first": "127.0.1.1"},
    ],
)
def test_it_is_the_address_on_the_route_to_another_host_and_never_loopback(routes, known):
    routes.update(known)
    assert reachable_address(SLOTS) == "10.0.0.1"


def test_the_environment_knows_better(routes, monkeypatch):
    routes["near"] = "10.0.0.1"
    monkeypatch.setenv(ADDRESS_VARIABLE, "192.168.7.1")
    assert reachable_address(SLOTS) == "192.168.7.1"


@pytest.mark.parametrize("known", [{}, {"first": "127.0.1.1"}])
def test_none_but_loopback_is_one_line_before_a_directory_is_made(routes, known, monkeypatch):
    routes.update(known)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: pytest.fail("made"))
    session_plan: Any = SimpleNamespace(slots=SLOTS)
    with pytest.raises(UserError) as refused:
        make_arm_launcher(session_plan, {}, None)
    assert "near can reach first: set HVDPERF_ADDRESS to such an address, or give" in str(
        refused.value
    )
    assert "\n" not in str(refused.value)


def test_this_host_reaches_itself_by_loopback():
    assert address_towards("127.0.0.1", 9) == "127.0.0.1"


def test_a_start_that_fails_leaves_nothing(tmp_path, monkeypatch):
    opened: list[Hub] = []

    class Opened(Hub):
        def __init__(self, *arguments: str, **named: str) -> None:
            super().__init__(*arguments, **named)
            opened.append(self)

    def fail(*arguments: Any) -> None:
        raise ConnectionError("a slot is gone")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(resources, "Hub", Opened)
    monkeypatch.setattr(resources, "make_launcher", fail)
    session_plan: Any = SimpleNamespace(
        slots=SLOTS[:1], profile=SimpleNamespace(sampling=Sampling()), options=Options()
    )
    stack: Any = SimpleNamespace(interpreter="python", mpirun="mpirun")
    with pytest.raises(ConnectionError):
        make_arm_launcher(session_plan, {"": stack}, None)
    assert list(tmp_path.iterdir()) == []
    assert [hub._server.fileno() for hub in opened] == [-1]


def test_no_socket_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(socket, "create_server", fail)
    session_plan: Any = SimpleNamespace(
        slots=SLOTS[:1], profile=SimpleNamespace(sampling=Sampling())
    )
    with pytest.raises(UserError, match=r"no socket can be opened .*: Cannot assign requested"):
        make_arm_launcher(session_plan, {}, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_that_can_be_asked_for_can_be_made(tmp_path, name):
    assert make_launcher(name, "mpirun", 2, tmp_path, None) is not None
