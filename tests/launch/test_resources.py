"""What a session opens, and what is left of it if that fails."""

from __future__ import annotations

import errno
import socket
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import resources
from hvdperf.launch.agents import AgentsLauncher
from hvdperf.launch.hub import Hub
from hvdperf.launch.mpirun import MpirunLauncher
from hvdperf.launch.resources import make_arm_launcher, make_launcher
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.options import LAUNCHERS, Options
from hvdperf.plan.profile import Sampling
from hvdperf.worker.protocol import address_towards

SLOTS = place([Offer(0, "first", (0, 1))])


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
        slots=SLOTS, profile=SimpleNamespace(sampling=Sampling()), options=Options()
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
    session_plan: Any = SimpleNamespace(slots=SLOTS, profile=SimpleNamespace(sampling=Sampling()))
    with pytest.raises(UserError, match=r"no socket can be opened .*: Cannot assign requested"):
        make_arm_launcher(session_plan, {}, None)
    assert list(tmp_path.iterdir()) == []


def test_every_launcher_that_can_be_asked_for_can_be_made(tmp_path):
    made = {name: type(make_launcher(name, "mpirun", 2, tmp_path, None)) for name in LAUNCHERS}
    assert made == {"mpirun": MpirunLauncher, "agents": AgentsLauncher}
