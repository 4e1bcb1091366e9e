"""Throughput of a run with all marks compared with one without: the cost of a time breakdown."""

from __future__ import annotations

import math
from statistics import median

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import as_ratio

LAUNCHES = 6
PAIRS_PER_LAUNCH = 12
STEPS = 40


def compare(arm_launcher: ArmLauncher, arm: Arm) -> list[list[float]]:
    """Return ln(speed with marks / speed without), by launch and pair. The two take turns A B, B A
    in the same processes."""
    result = []
    for _ in range(LAUNCHES):
        group = arm_launcher.start(arm, {BlockKind.FULL}, data_seed=1, share_startup=False)
        try:
            group.wait_ready(arm_launcher.startup_deadline_s)
            pairs = []
            for pair in range(-2, PAIRS_PER_LAUNCH):
                seconds = {}
                for marked in (True, False) if pair % 2 else (False, True):
                    replies = group.ask(
                        "run",
                        arm_launcher.order_deadline_s,
                        steps=STEPS,
                        validate=False,
                        marked=marked,
                    )
                    seconds[marked] = max(reply["seconds"] for reply in replies)
                pairs.append(math.log(seconds[False] / seconds[True]))
            result.append(pairs[2:])  # the first two are warm-up
        finally:
            group.close()
    return result


def report(arm: Arm, logs: list[list[float]]) -> list[str]:
    pairs = as_ratio(hodges_lehmann([value for launch in logs for value in launch], 0.025))
    launches = as_ratio(hodges_lehmann([median(launch) for launch in logs], 0.025))
    return [
        f"{arm.name}: throughput of a marked run / of one without marks",
        f"  {pairs.estimate:.4f} [{pairs.lower:.4f}, {pairs.upper:.4f}]  95 % interval over "
        f"{pairs.observations} alternated pairs",
        f"  {launches.estimate:.4f} [{launches.lower:.4f}, {launches.upper:.4f}]  over the medians "
        f"of {launches.observations} launches",
    ]
