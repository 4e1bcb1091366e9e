"""What the tests of real groups share: a small workload and its arms."""

from __future__ import annotations

from collections.abc import Callable

from harness.plan import Arm, Strategy, Workload
from harness.starter import Starter

# Small enough to trace in a second, of the shape that the default profile trains.
WORKLOAD = Workload(model="alexnet_s", dataset="cifar10", image_size=67, batch=8)
DEADLINE_S = 60.0

MakeStarter = Callable[..., Starter]


def horovod(world_size: int) -> Arm:
    return Arm(WORKLOAD, Strategy.HOROVOD, world_size)


def mirrored(world_size: int) -> Arm:
    return Arm(WORKLOAD, Strategy.MIRRORED, world_size)
