"""Throughput of a step under the suite compared with the same step in a plain Horovod script."""

from __future__ import annotations

import math
from statistics import median

from bench.bare import BareLoop
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import as_ratio

LAUNCHES = 6
PAIRS_PER_LAUNCH = 20
STEPS = 20


def compare(arm_launcher: ArmLauncher, mpirun: str, arm: Arm) -> list[list[float]]:
    """Return ln(speed under the suite / speed of the bare loop), by launch and pair.

    Both groups live side by side, one stopped while the other runs, and take turns A B, B A.
    """
    workload = arm.workload
    result = []
    for launch in range(LAUNCHES):
        group = arm_launcher.start(arm, {BlockKind.FULL}, data_seed=1, share_startup=False)
        group.wait_ready(arm_launcher.startup_deadline_s)
        group.pause()
        bare = BareLoop(
            mpirun,
            arm_launcher.stacks[arm.stack].interpreter,
            [
                workload.model,
                str(workload.input_size),
                str(workload.batch),
                arm_launcher.data[workload.dataset].directory,
            ],
            [slot.cores[0] for slot in arm_launcher.slots[: arm.world_size]],
        )
        bare.pause()
        try:
            pairs = [
                _pair(arm_launcher, group, bare, first=(launch + pair) % 2)
                for pair in range(-3, PAIRS_PER_LAUNCH)
            ]
            result.append(pairs[3:])  # the first three are warm-up
        finally:
            bare.close()
            group.close()
    return result


def _pair(arm_launcher: ArmLauncher, group, bare: BareLoop, first: int) -> float:  # type: ignore[no-untyped-def]
    seconds = {}
    for side in ("suite", "bare") if first == 0 else ("bare", "suite"):
        if side == "suite":
            group.resume()
            replies = group.ask("block", arm_launcher.order_deadline_s, kind="full", steps=STEPS)
            seconds[side] = max(reply["seconds"] for reply in replies)
            group.pause()
        else:
            bare.resume()
            seconds[side] = bare.block(STEPS)
            bare.pause()
    return math.log(seconds["bare"] / seconds["suite"])


def report(arm: Arm, logs: list[list[float]]) -> list[str]:
    pairs = [value for launch in logs for value in launch]
    launches = [median(launch) for launch in logs]
    by_pair = as_ratio(hodges_lehmann(pairs, 0.025))
    by_launch = as_ratio(hodges_lehmann(launches, 0.025))
    return [
        f"{arm.name}: throughput under the suite / bare Horovod loop",
        f"  {by_pair.estimate:.4f} [{by_pair.lower:.4f}, {by_pair.upper:.4f}]  "
        f"95 % interval over {len(pairs)} alternated pairs",
        f"  {by_launch.estimate:.4f} [{by_launch.lower:.4f}, {by_launch.upper:.4f}]  "
        f"over the medians of {len(launches)} launches",
    ]
