"""Throughput of a run with all marks compared with one without: the cost of a time breakdown."""

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
    """Measure ln(speed with marks / speed without). The two take turns A B, B A in the same
    processes."""
    logs = []
    for _ in range(LAUNCHES):
        group = started(arm_launcher, arm)
        try:
            pairs = [_pair(arm_launcher, group, pair % 2) for pair in range(-2, PAIRS_PER_LAUNCH)]
            logs.append(pairs[2:])  # the first two are warm-up
        finally:
            group.close()
    return report(f"{arm.name}: throughput of a marked run / of one without marks", logs)


def _pair(arm_launcher: ArmLauncher, group: Group, marked_first: int) -> float:
    seconds = {}
    for marked in (True, False) if marked_first else (False, True):
        replies = group.ask(
            "run", arm_launcher.order_deadline_s, steps=STEPS, validate=False, marked=marked
        )
        seconds[marked] = slowest(replies)
    return math.log(seconds[False] / seconds[True])
