"""Throughput of a run with timestamps compared with one without: the cost of a time breakdown."""

from __future__ import annotations

import math

from bench.pairs import report, slowest, started
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.group import Group
from hvdperf.plan.arms import Arm

LAUNCHES = 6
PAIRS_PER_LAUNCH = 12
STEPS = 40


def run(arm_launcher: ArmLauncher, arm: Arm) -> list[str]:
    """Measure ln(speed with timestamps / speed without). The two take turns A B, B A in the same
    processes."""
    logs = []
    for _ in range(LAUNCHES):
        with started(arm_launcher, arm) as group:
            pairs = [_pair(arm_launcher, group, pair % 2) for pair in range(-2, PAIRS_PER_LAUNCH)]
            logs.append(pairs[2:])  # the first two are warm-up
    return report(f"{arm.name}: throughput of a run with timestamps / of one without", logs)


def _pair(arm_launcher: ArmLauncher, group: Group, with_timestamps_first: int) -> float:
    seconds = {}
    for with_timestamps in (True, False) if with_timestamps_first else (False, True):
        replies = group.ask(
            "run",
            arm_launcher.order_deadline_s,
            steps=STEPS,
            validate=False,
            with_timestamps=with_timestamps,
        )
        seconds[with_timestamps] = slowest(replies)
    return math.log(seconds[False] / seconds[True])
