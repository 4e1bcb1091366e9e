"""Fixtures of real groups on this machine, over each of the launchers, and of the driver's end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hvdperf.launch.agent import LocalAgent
from hvdperf.launch.agents import AgentsLauncher
from hvdperf.launch.arm_launcher import ArmLauncher, Installed
from hvdperf.launch.group import Group
from hvdperf.launch.hub import Hub
from hvdperf.launch.mpirun import MpirunLauncher
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers, place
from hvdperf.machine.stack import find_mpirun
from hvdperf.plan.arms import AGAINST, Arm, BlockKind
from hvdperf.plan.data import open_data
from hvdperf.plan.faults import Fault
from hvdperf.worker.protocol import Phase
from models.inputs.cifar_files import Layout
from models.inputs.samples import write_cifar
from models.inputs.token_samples import write_tokens
from tests.support.groups import DEADLINE_S, MakeStarter


@pytest.fixture(scope="session")
def cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cifar10")
    write_cifar(directory, "cifar10", Layout.BINARY, records_per_file=40, seed=1)
    return directory


@pytest.fixture(scope="session")
def ptb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ptb")
    write_tokens(directory)
    return directory


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.close()


@pytest.fixture(params=["mpirun", "agents"])
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_arm_launcher(cifar10: Path, ptb: Path, tmp_path: Path) -> Iterator[MakeStarter]:
    """Yield a function that makes launchers of arms on two slots of this machine. What is left of
    the arms ends with the test. fork: whether ranks are forked, as most of a session's are."""
    end = ExitStack()

    def make(
        launcher: str,
        fault: Fault | None = None,
        order_deadline_s: float = DEADLINE_S,
        fork: bool = True,
    ) -> ArmLauncher:
        slots = place(local_offers(local_machine(), 2, oversubscribe=True))
        hub = Hub()
        end.callback(hub.close)
        if launcher == "mpirun":
            chosen: MpirunLauncher | AgentsLauncher = MpirunLauncher(
                str(find_mpirun(Path(sys.executable)))
            )
        else:
            chosen = AgentsLauncher([LocalAgent(tmp_path / f"agent-{i}") for i in range(2)])
        arm_launcher = ArmLauncher(
            # The same stack twice: a stack may be compared with itself.
            stacks=dict.fromkeys(("", AGAINST), Installed(sys.executable, chosen)),
            hub=hub,
            slots=slots,
            data={
                "cifar10": open_data("cifar10", str(cifar10)),
                "ptb": open_data("ptb", str(ptb)),
            },
            scratch=tmp_path / "scratch",
            startup_deadline_s=DEADLINE_S,
            order_deadline_s=order_deadline_s,
            fault=fault,
        )
        if fork:
            end.enter_context(arm_launcher.forking(pytest.fail))
        return arm_launcher

    with end:
        yield make


@pytest.fixture
def start(make_arm_launcher: MakeStarter) -> Iterator[Callable[..., Group]]:
    """Yield a function that starts a group and waits until it is ready."""
    groups = []

    def started(
        launcher: str,
        arm: Arm,
        kinds: tuple[BlockKind, ...] = (BlockKind.FULL,),
        last_phase: Phase = Phase.BROADCAST,
        common_order: bool = False,
        timeline: bool = False,
        **more: object,
    ) -> Group:
        group = make_arm_launcher(launcher, **more).start(
            arm,
            kinds,
            data_seed=1,
            share_startup=False,
            last_phase=last_phase,
            common_order=common_order,
            timeline=timeline,
        )
        groups.append(group)
        group.wait_ready(DEADLINE_S)
        return group

    yield started
    for group in groups:
        group.end()
