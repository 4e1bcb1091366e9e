"""Functions of the parts of the benchmark: groups that take turns, and their ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.group import Group
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import as_ratio


@contextmanager
def started(arm_launcher: ArmLauncher, arm: Arm) -> Iterator[Group]:
    """Start a group of the arm, and yield it when it is ready for blocks; end it at the end."""
    group = arm_launcher.start(arm, {BlockKind.FULL}, data_seed=1, share_startup=False)
    try:
        group.wait_ready(arm_launcher.startup_deadline_s)
        yield group
    finally:
        group.end()


def slowest(replies: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of the slowest rank."""
    return max(float(reply["seconds"]) for reply in replies)


def block_seconds(arm_launcher: ArmLauncher, group: Group, steps: int) -> float:
    """Return the seconds of a block of a group that is stopped before and after it."""
    group.resume()
    replies = group.ask("block", arm_launcher.order_deadline_s, kind="full", steps=steps)
    group.pause()
    return slowest(replies)


def ratio(logs: Sequence[float]) -> str:
    """Return the ratio with its 95 % interval. logs: its ln, one a pair."""
    found = as_ratio(hodges_lehmann(logs, 0.025))
    return f"{found.estimate:.4f} [{found.lower:.4f}, {found.upper:.4f}]"


def report(title: str, logs: Sequence[Sequence[float]]) -> list[str]:
    """Return lines on a ratio. logs: its ln, by launch and pair."""
    pairs = [value for launch in logs for value in launch]
    return [
        title,
        f"  {ratio(pairs)}  95 % interval over {len(pairs)} alternated pairs",
        f"  {ratio([median(launch) for launch in logs])}  over the medians of {len(logs)} launches",
    ]
