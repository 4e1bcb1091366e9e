"""What ranks get on every host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdperf.launch.arm_launcher import ArmLauncher, Installed
from hvdperf.launch.hub import Hub
from hvdperf.launch.job import LaunchError, Order
from hvdperf.launch.mpirun import command
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.data import DataSource
from hvdperf.worker.strategies.table import Strategy
from tests.support.rounds import WORKLOAD


class Recording:
    """A launcher that starts nothing."""

    name = "recording"

    orders: list[Order]

    def __init__(self) -> None:
        self.orders = []

    def rendezvous(self, slots: Any) -> None:
        return None

    def start(self, order: Order) -> Any:
        self.orders.append(order)
        raise LaunchError("it only records")


def test_the_users_settings_reach_the_ranks_of_other_hosts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "3.5")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    launcher, hub = Recording(), Hub()
    arm_launcher = ArmLauncher(
        stacks={"": Installed("python", launcher)},
        hub=hub,
        slots=place([Offer(0, "here", (0,)), Offer(1, "there", (0,))]),
        data={WORKLOAD.dataset: DataSource(WORKLOAD.dataset, "", 10)},
        scratch=tmp_path,
        startup_deadline_s=1.0,
        order_deadline_s=1.0,
    )
    with pytest.raises(LaunchError):
        arm_launcher.start(
            Arm(WORKLOAD, Strategy.HOROVOD, 2), {BlockKind.FULL}, data_seed=1, share_startup=False
        )
    hub.close()
    (order,) = launcher.orders
    assert order.environment["HOROVOD_CYCLE_TIME"] == "3.5"
    exported = command(order, "mpirun", "10.77.0.0/24", None)
    for name in ("HOROVOD_CYCLE_TIME", "NCCL_SOCKET_IFNAME", "HOROVOD_STALL_CHECK_TIME_SECONDS"):
        assert exported[exported.index(name) - 1] == "-x"
