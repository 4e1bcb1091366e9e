"""A small workload and its arms, which the tests of real groups share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdperf.launch.arm_launcher import ArmLauncher, make_launcher
from hvdperf.launch.hub import Hub
from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers, place
from hvdperf.machine.stack import find_mpirun
from hvdperf.plan.arms import Arm, Workload
from hvdperf.plan.options import LAUNCHERS
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import Evidence, Launch, Turns
from hvdperf.work.round_runner import CORRECTNESS_STEPS
from hvdperf.worker.strategies import Strategy
from tests.support.stores import STACK

# Small enough to trace in half a second, of the shape that the default profile trains.
WORKLOAD = Workload(model="alexnet_s", dataset="cifar10", input_size=67, batch=8, optimizer="sgd")
# With an optimizer that has a state, as in sessions. It takes another third of a second to start.
ADAM = replace(WORKLOAD, optimizer="adam")
# A workload of every other task.
LSTM = Workload(model="lstm_s", dataset="ptb", input_size=20, batch=8)
TRANSFORMER = Workload(model="transformer_s", dataset="ptb", input_size=32, batch=8)
DCGAN = Workload(model="dcgan_s", dataset="cifar10", input_size=64, batch=8)
DEADLINE_S = 60.0

MakeStarter = Callable[..., ArmLauncher]
Start = Callable[..., LiveLaunch]


def on_two_slots(launcher: str, scratch: Path, **given: Any) -> ArmLauncher:
    """Return a launcher of arms on two slots of this machine, with a hub of its own."""
    over_mpi = LAUNCHERS[launcher].over_mpi
    mpirun = str(find_mpirun(Path(sys.executable)))
    return ArmLauncher(
        stacks={"": replace(STACK, interpreter=sys.executable, mpirun=mpirun)},
        launcher=make_launcher(over_mpi, 2, scratch, slots=None),
        over_mpi=over_mpi,
        hub=Hub(),
        slots=place(local_offers(local_machine(), 2, oversubscribe=True)),
        scratch=scratch,
        **{"startup_deadline_s": DEADLINE_S, "order_deadline_s": DEADLINE_S, **given},
    )


def horovod(world_size: int, workload: Workload = WORKLOAD) -> Arm:
    return Arm(workload, Strategy.HOROVOD, world_size)


def mirrored(world_size: int, workload: Workload = WORKLOAD) -> Arm:
    return Arm(workload, Strategy.MIRRORED, world_size)


def multiworker(world_size: int, workload: Workload = WORKLOAD) -> Arm:
    return Arm(workload, Strategy.MULTIWORKER, world_size)


def single(workload: Workload = WORKLOAD) -> Arm:
    return Arm(workload, Strategy.SINGLE, 1)


def launched(arm: Arm, group: LiveLaunch, work: Any = None) -> Launch:
    """Return the launch as a round makes it at the end, save for its start-up."""
    evidence = group.reports(Evidence, "evidence", DEADLINE_S)
    return Launch(arm, 0, work=work or Turns(), evidence=evidence)


def failure_of(do: Callable[[], object]) -> Failure:
    """Return the failure of the launch that does this."""
    with pytest.raises(LaunchFailed) as failed:
        do()
    return failed.value.failure


def trained(group: LiveLaunch, path: Path, steps: int = CORRECTNESS_STEPS) -> dict[str, np.ndarray]:
    """Return a group's weights after a few reproducible steps, which must be alike on all replicas.
    The training builds and traces a model of its own."""
    replies = group.ask("correctness", DEADLINE_S, steps=steps, path=str(path))
    digests = {digest for reply in replies for digest in reply["digests"]}
    assert len(digests) == 1
    with np.load(path) as arrays:
        return dict(arrays)


def update_difference(
    weights: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> float:
    """Return the distance between two trainings from the same weights, relative to the distance
    that the expected training went."""

    def flat(arrays: Mapping[str, np.ndarray], which: str) -> np.ndarray:
        return np.concatenate(
            [arrays[name].ravel() for name in sorted(arrays) if name.startswith(which)]
        )

    begun, end = flat(expected, "begun"), flat(expected, "trained")
    np.testing.assert_array_equal(flat(weights, "begun"), begun)
    return float(np.linalg.norm(flat(weights, "trained") - end) / np.linalg.norm(end - begun))
