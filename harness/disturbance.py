"""How much of the session's cores other programs took while something was timed.

Plain data with its arithmetic; harness.cpu_usage reads the figures. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

# A pair of blocks is disturbed if others took a larger share of the cores from the ranks than this:
# undisturbed pairs had up to 0.044, most pairs slowed by a tenth 0.064 and more
# (docs/measurement.md).
DISTURBED_ABOVE = 0.06
# Of the other programs, those named: with at least so much of a core, and how many.
CULPRIT_FROM = 0.05
CULPRITS_NAMED = 3


@dataclass(frozen=True)
class Usage:
    """CPU time on the driver's host while something was timed, in seconds.

    cores: how many of the session's cores this host has. busy_seconds: user, nice and steal time of
    these cores. own_seconds: user time of the session's own processes. steal_seconds: what the
    hypervisor gave to others, a part of busy_seconds. wait_seconds: how long the ranks' busiest
    threads, one for each of their cores, were ready to run and did not. throttled_seconds: how long
    the cgroup's quota stopped the session, added up over the cores, as the kernel counts it.
    """

    wall_seconds: float
    cores: int
    busy_seconds: float
    own_seconds: float
    steal_seconds: float
    wait_seconds: float
    throttled_seconds: float

    @property
    def taken_seconds(self) -> float:
        """What others took that the ranks wanted: no more than these waited. The rest was idle.
        What the quota held back was wanted, too."""
        others = max(0.0, min(self.busy_seconds - self.own_seconds, self.wait_seconds))
        return others + self.throttled_seconds


def foreign_share(usages: Sequence[Usage]) -> float:
    """Returns the share of the cores that others took over all of these together, from 0 to 1.

    /proc/stat counts in ticks of 10 ms, so a single block's share is coarse: ask for a pair.
    """
    return _share(usages, [usage.busy_seconds - usage.own_seconds for usage in usages])


def is_disturbed(usages: Sequence[Usage | None]) -> bool:
    """Whether others took so much of the cores from the ranks that what was timed meanwhile cannot
    be used.

    Nothing is known of None, which counts as undisturbed.
    """
    return taken_share([usage for usage in usages if usage is not None]) > DISTURBED_ABOVE


def taken_share(usages: Sequence[Usage]) -> float:
    """Returns the share of the cores that others took from the ranks, from 0 to 1. What a program
    under `nice` does while the cores are idle is none of it."""
    return _share(usages, [usage.taken_seconds for usage in usages])


@dataclass(frozen=True)
class Culprit:
    """A program of others: what it used of the CPU (user and system time), and where it was seen.
    name: the kernel's, of 15 characters; a command line may hold secrets."""

    name: str
    pid: int
    cpu_seconds: float
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Disturbance:
    """What others did to the session's cores during a round's timed part, or several.

    at: when it began, in seconds since the session did. usage: of all timed blocks together.
    taken_seconds: theirs (Usage.taken_seconds), added up. culprits: those that used the CPU most
    first; they were watched for watched_seconds, pauses between blocks included. mhz: the cores'
    mean frequency; None where the kernel does not tell.
    """

    at: float
    usage: Usage
    taken_seconds: float
    watched_seconds: float
    culprits: tuple[Culprit, ...] = ()
    mhz: float | None = None

    @property
    def foreign_share(self) -> float:
        return foreign_share([self.usage])

    @property
    def wait_share(self) -> float:
        return _share([self.usage], [self.usage.wait_seconds])

    @property
    def steal_share(self) -> float:
        return _share([self.usage], [self.usage.steal_seconds])

    @property
    def taken_share(self) -> float:
        return _share([self.usage], [self.taken_seconds])

    @property
    def is_disturbed(self) -> bool:
        return self.taken_share > DISTURBED_ABOVE

    def core_share(self, culprit: Culprit) -> float:
        """Returns how much of one core it used; of a program of several threads, of several."""
        return culprit.cpu_seconds / self.watched_seconds if self.watched_seconds > 0 else 0.0

    def reason(self) -> str:
        """Says in words what others took, who they are, and what to do."""
        withheld = self.usage.throttled_seconds
        if withheld > 0 and withheld >= self.taken_seconds / 2:
            share = 100 * _share([self.usage], [withheld])
            return (
                f"the CPU quota of its cgroup withheld {share:.0f} % of the cores during the "
                "measurement: raise the quota, or give fewer slots (--np)"
            )
        share = 100 * self.foreign_share
        took = f"other programs took {share:.0f} % of the cores during the measurement"
        if self.steal_share > self.foreign_share / 2:
            return f"{took} (most of it stolen by the hypervisor for other machines): wait"
        named = [each for each in self.culprits if self.core_share(each) >= CULPRIT_FROM]
        told = "; ".join(self._named(each) for each in named[:CULPRITS_NAMED])
        return f"{took} ({told or 'none that can be seen from here'}): stop them or wait"

    def _named(self, culprit: Culprit) -> str:
        share = f"{100 * self.core_share(culprit):.0f} %"
        core = f"core {culprit.cores[0]}" if len(culprit.cores) == 1 else "a core"
        return f"{culprit.name}, pid {culprit.pid}: {share} of {core}"


def together(disturbances: Iterable[Disturbance | None]) -> Disturbance | None:
    """Returns several as one, of a workload's rounds or of a session's; None if none is known."""
    known = [each for each in disturbances if each is not None]
    if not known:
        return None
    spent: dict[tuple[str, int], Culprit] = {}
    for found in (culprit for each in known for culprit in each.culprits):
        so_far = spent.get((found.name, found.pid), Culprit(found.name, found.pid, 0.0))
        spent[found.name, found.pid] = Culprit(
            found.name,
            found.pid,
            so_far.cpu_seconds + found.cpu_seconds,
            tuple(sorted({*so_far.cores, *found.cores})),
        )
    told = [each.mhz for each in known if each.mhz is not None]
    return Disturbance(
        known[0].at,
        total(each.usage for each in known),
        sum(each.taken_seconds for each in known),
        sum(each.watched_seconds for each in known),
        tuple(sorted(spent.values(), key=lambda culprit: -culprit.cpu_seconds)),
        fmean(told) if told else None,
    )


def total(usages: Iterable[Usage]) -> Usage:
    """Returns the sums of all figures, with the cores of one of them: a session's do not change."""
    usages = list(usages)
    names = [field.name for field in fields(Usage)]
    sums = {name: sum(getattr(usage, name) for usage in usages) for name in names}
    return Usage(**{**sums, "cores": usages[0].cores})


def _share(usages: Sequence[Usage], seconds: Sequence[float]) -> float:
    offered = sum(usage.cores * usage.wall_seconds for usage in usages)
    return min(1.0, max(0.0, sum(seconds) / offered)) if offered > 0 else 0.0
