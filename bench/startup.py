"""The cost of a launch before its first block."""

from __future__ import annotations

from statistics import median

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.worker.protocol import STARTUP, Phase

LAUNCHES = 5
# The phases of the suite's own work; in the others, TensorFlow, Keras and Horovod work.
OWN = (Phase.LAUNCH, Phase.INIT, Phase.INPUT)


def measure(arm_launcher: ArmLauncher, arm: Arm) -> list[dict[str, float]]:
    """Return the seconds of the slowest rank by phase, one entry per launch, each alone on the
    machine."""
    result = []
    for _ in range(LAUNCHES):
        group = arm_launcher.start(arm, {BlockKind.FULL}, data_seed=1, share_startup=False)
        group.wait_ready(arm_launcher.startup_deadline_s)
        ranks = group.startup_seconds()
        result.append({phase.value: max(rank[phase.value] for rank in ranks) for phase in STARTUP})
        group.close()
    return result


def report(arm: Arm, launches: list[dict[str, float]]) -> list[str]:
    own = [sum(launch[phase.value] for phase in OWN) for launch in launches]
    phases = ", ".join(
        f"{phase.value} {median(launch[phase.value] for launch in launches):.2f}"
        for phase in STARTUP
    )
    return [
        f"{arm.name}: start-up of a launch, seconds, median of {len(launches)}",
        f"  launcher, init, pipe and input: {median(own):.2f} (max {max(own):.2f})",
        f"  by phase: {phases}",
    ]
