"""Throughput of a step under the suite compared with the same step in a plain Horovod script."""

from __future__ import annotations

import math
from contextlib import closing

from bench.bare import BareLoop
from bench.pairs import block_seconds, report, started
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.group import Group
from hvdperf.plan.arms import Arm

LAUNCHES = 6
PAIRS_PER_LAUNCH = 20
STEPS = 20


def run(arm_launcher: ArmLauncher, arm: Arm) -> list[str]:
    """Measure ln(speed under the suite / speed of the bare loop).

    Both groups live side by side, one stopped while the other runs, and take turns A B, B A.
    """
    workload = arm.workload
    interpreter = arm_launcher.stacks[arm.stack].interpreter
    data = arm_launcher.data[workload.dataset].directory
    arguments = [workload.model, str(workload.input_size), str(workload.batch), data]
    cores = [slot.cores[0] for slot in arm_launcher.slots[: arm.world_size]]
    logs = []
    for launch in range(LAUNCHES):
        with started(arm_launcher, arm) as group:
            group.pause()
            with closing(BareLoop(interpreter, arguments, cores)) as bare:
                bare.pause()
                pairs = [
                    _pair(arm_launcher, group, bare, bare_first=(launch + pair) % 2)
                    for pair in range(-3, PAIRS_PER_LAUNCH)
                ]
                logs.append(pairs[3:])  # the first three are warm-up
    return report(f"{arm.name}: throughput under the suite / bare Horovod loop", logs)


def _pair(arm_launcher: ArmLauncher, group: Group, bare: BareLoop, bare_first: int) -> float:
    seconds = {}
    for side in ("bare", "suite") if bare_first else ("suite", "bare"):
        if side == "suite":
            seconds[side] = block_seconds(arm_launcher, group, STEPS)
        else:
            bare.resume()
            seconds[side] = bare.block(STEPS)
            bare.pause()
    return math.log(seconds["bare"] / seconds["suite"])
