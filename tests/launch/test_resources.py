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
from hvdperf.launch.arm_launcher import threads
from hvdperf.launch.hub import Hub
from hvdperf.launch.job import Order
from hvdperf.launch.mpirun import SETTINGS, MpirunLauncher, command
from hvdperf.launch.resources import how_launched, make_arm_launcher, make_launcher
from hvdperf.machine.placement import Offer, Slot, place
from hvdperf.plan.options import LAUNCHERS, Options, Sampling
from hvdperf.worker.protocol import address_towards
from hvdperf.worker.strategies.table import Strategy

SLOTS = place([Offer(0, "first", (0, 1))])


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_how_ranks_are_launched_is_told_as_they_are_launched(tmp_path, launcher):
    slots = place([Offer(0, "first", (0, 1)), Offer(1, "second", (0, 1))])
    told = how_launched(launcher, slots)
    pools = threads(Strategy.HOROVOD, slots[:1])
    assert f"{pools.intra_op} intra-op and {pools.inter_op} inter-op" in told
    assert f"the {len(slots[0].cores)} cores" in told
    tokens = command(Order(1, slots, "python", {}, tmp_path, 1.0), "mpirun", "", None)
    used = ["--bind-to " + tokens[tokens.index("--bind-to") + 1]]
    used += [f"--mca {name} {value}" for name, value in SETTINGS.items()]
    assert all((each in told) is (launcher == "mpirun") for each in used)
    # What is told is on every command line.
    assert all(each in " ".join(tokens) for each in used)


def test_each_number_of_cores_is_told():
    gpus = place([Offer(0, "first", (0, 1, 2), ("GPU-0", "GPU-1"))])
    assert "TensorFlow chooses" in how_launched("agents", gpus)
    unlike = [Slot(0, "first", (0,)), Slot(1, "first", (1, 2))]
    assert "1 or 2 cores" in how_launched("agents", unlike)


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
