"""The cost of a launch before its first block."""

from __future__ import annotations

from statistics import median

from bench.pairs import started
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.plan.arms import Arm
from hvdperf.worker.protocol import STARTUP, Phase

LAUNCHES = 5
# Phases whose cost depends on the suite: launcher, init and input. The others depend on TensorFlow,
# Keras and Horovod.
OWN = (Phase.LAUNCH, Phase.INIT, Phase.INPUT)


def run(arm_launcher: ArmLauncher, arm: Arm) -> list[str]:
    """Measure the seconds of the slowest rank by phase, of launches alone on the machine."""
    launches = []
    for _ in range(LAUNCHES):
        with started(arm_launcher, arm) as group:
            ranks = group.startup_seconds()
        launches.append({phase: max(rank[phase.value] for rank in ranks) for phase in STARTUP})
    own = [sum(launch[phase] for phase in OWN) for launch in launches]
    phases = ", ".join(
        f"{phase.value} {median(launch[phase] for launch in launches):.2f}" for phase in STARTUP
    )
    return [
        f"{arm.name}: start-up of a launch, seconds, median of {len(launches)}",
        f"  launch, init and input: {median(own):.2f} (max {max(own):.2f})",
        f"  by phase: {phases}",
    ]
