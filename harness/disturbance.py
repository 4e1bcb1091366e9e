"""How much of the session's cores other programs took while something was timed.

Plain data with its arithmetic; harness.cpu_usage reads the figures. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A pair of blocks is disturbed if others took a larger share of the cores than this.
DISTURBED_ABOVE = 0.08


@dataclass(frozen=True)
class Usage:
    """CPU time on the driver's host while something was timed, in seconds.

    cores: how many of the session's cores this host has. busy_seconds: user, nice and steal time of
    these cores. own_seconds: user time of the session's own processes. steal_seconds: what the
    hypervisor gave to others, a part of busy_seconds. wait_seconds: how long threads of the ranks
    were ready to run and did not, summed over threads. throttled_seconds: how long the cgroup's
    quota stopped the session.
    """

    wall_seconds: float
    cores: int
    busy_seconds: float
    own_seconds: float
    steal_seconds: float
    wait_seconds: float
    throttled_seconds: float


def foreign_share(usages: Sequence[Usage]) -> float:
    """Returns the share of the cores that others took over all of these together, from 0 to 1.

    /proc/stat counts in ticks of 10 ms, so a single block's share is coarse: ask for a pair.
    """
    return _share(usages, [usage.busy_seconds - usage.own_seconds for usage in usages])


def is_disturbed(usages: Sequence[Usage | None]) -> bool:
    """Whether others took so much of the cores that what was timed meanwhile cannot be used.

    Nothing is known of None, which counts as undisturbed.
    """
    known = [usage for usage in usages if usage is not None]
    return foreign_share(known) > DISTURBED_ABOVE


def _share(usages: Sequence[Usage], seconds: Sequence[float]) -> float:
    offered = sum(usage.cores * usage.wall_seconds for usage in usages)
    return min(1.0, max(0.0, sum(seconds) / offered)) if offered > 0 else 0.0
