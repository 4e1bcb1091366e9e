"""Fixtures of real groups on this machine, over each of the launchers, and of the driver's end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.hub import Hub
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.launch.processes import ForkServer
from hvdperf.machine.host import local_machine
from hvdperf.models.inputs.sample_sets import write_cifar, write_tokens
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.data import open_data
from hvdperf.plan.options import LAUNCHERS
from hvdperf.plan.questions import Fault
from hvdperf.work.round_runner import CORRECTNESS_STEPS
from hvdperf.worker.protocol import Phase
from tests.support.groups import DEADLINE_S, MakeStarter, Start, on_two_slots, trained
from tests.support.leftovers import eventually


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.close()


@pytest.fixture(scope="module", params=list(LAUNCHERS))
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def fork_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ForkServer]]:
    """Yield a process that forks ranks, by Arm.stack: one for all tests, since it imports
    TensorFlow for seconds."""
    scratch, cores = tmp_path_factory.mktemp("fork-server"), local_machine().cores
    server = ForkServer(sys.executable, scratch, "127.0.0.1:0", cores)
    # So that the deadlines of tests do not include the import.
    assert eventually(lambda: not server.is_importing, DEADLINE_S)
    assert (server.ended, server.refusal) == ("", "")
    servers = {"": server}
    yield servers
    for each in servers.values():
        each.close()


@pytest.fixture(scope="session")
def arm_launchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeStarter]:
    """Yield a function that makes launchers of arms on two slots of this machine. Each has a
    directory and a hub of its own, and starts fresh processes unless it is told to fork."""
    made = []
    cifar10, ptb = tmp_path_factory.mktemp("cifar10"), tmp_path_factory.mktemp("ptb")
    write_cifar(cifar10, "cifar10", records=200, seed=1)
    write_tokens(ptb)
    data = {"cifar10": open_data("cifar10", str(cifar10)), "ptb": open_data("ptb", str(ptb))}

    def make(launcher: str, fault: Fault | None = None, **given: float) -> ArmLauncher:
        scratch = tmp_path_factory.mktemp("launches")
        made.append(on_two_slots(launcher, scratch, data=dict(data), fault=fault, **given))
        return made[-1]

    yield make
    for each in made:
        each.hub.close()


@pytest.fixture(scope="session")
def make_arm_launcher(
    arm_launchers: MakeStarter, fork_servers: dict[str, ForkServer]
) -> MakeStarter:
    """Return a function that makes launchers of arms whose ranks are forked, as most of a session's
    are, from the process of `fork_servers`."""

    def make(*arguments: Any, **options: Any) -> ArmLauncher:
        made = arm_launchers(*arguments, **options)
        made._servers = fork_servers
        return made

    return make


@contextmanager
def starting(make_arm_launcher: MakeStarter) -> Iterator[Start]:
    """Yield a function that starts a group and waits until it is ready. The groups end with the
    context."""
    groups = []

    def started(
        launcher: str,
        arm: Arm,
        kinds: tuple[BlockKind, ...] = (BlockKind.FULL,),
        last_phase: Phase = Phase.BROADCAST,
        common_order: bool = False,
        share_startup: bool = False,
        **more: object,
    ) -> LiveLaunch:
        group = make_arm_launcher(launcher, **more).start(
            arm,
            kinds,
            data_seed=1,
            share_startup=share_startup,
            last_phase=last_phase,
            common_order=common_order,
        )
        groups.append(group)
        group.wait_ready(DEADLINE_S)
        return group

    yield started
    for group in groups:
        group.end()


@pytest.fixture
def start(make_arm_launcher: MakeStarter) -> Iterator[Start]:
    """Yield a function that starts a group for one test and waits until it is ready."""
    with starting(make_arm_launcher) as started:
        yield started


@pytest.fixture(scope="module")
def start_for_all(make_arm_launcher: MakeStarter) -> Iterator[Start]:
    """Yield a function that starts a group for all tests of a file and waits until it is ready."""
    with starting(make_arm_launcher) as started:
        yield started


@pytest.fixture(scope="session")
def weights_by_arm() -> dict[Any, dict[str, np.ndarray]]:
    """Return the weights of the reproducible trainings so far, by launcher, arm and steps."""
    return {}


@pytest.fixture
def weights(
    start: Start, tmp_path: Path, weights_by_arm: dict[Any, dict[str, np.ndarray]]
) -> Callable[..., dict[str, np.ndarray]]:
    """Return a function that returns an arm's weights after a few reproducible steps. It starts
    each arm only once over each launcher, since its weights are the same each time."""

    def weights_of(
        launcher: str, arm: Arm, steps: int = CORRECTNESS_STEPS
    ) -> dict[str, np.ndarray]:
        key = launcher, arm, steps
        if key not in weights_by_arm:
            group = start(launcher, arm, kinds=(), last_phase=Phase.BUILD)
            weights_by_arm[key] = trained(group, tmp_path / f"{arm.label}.npz", steps)
            group.close()
        return weights_by_arm[key]

    return weights_of
