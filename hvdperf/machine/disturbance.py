"""The share of the session's cores that other programs took while something was timed.

Plain data with its arithmetic, no I/O; hvdperf.machine.cpu_usage reads the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

from hvdperf.json_records import Positive

# A pair of blocks is disturbed if other programs took more than this share of the cores from the
# ranks. Undisturbed pairs had up to 0.044; most pairs that were slowed by a tenth had 0.064 or more
# (docs/other_programs.md).
DISTURBED_ABOVE = 0.06
# A program is named if it used this share of a core or more, and only the first few are named.
CULPRIT_FROM = 0.05
CULPRITS_NAMED = 3


@dataclass(frozen=True)
class Usage:
    """CPU time on the driver's host while something was timed, in seconds.

    cores: number of the session's cores on this host. busy_seconds: user, nice and steal time of
    these cores. own_seconds: user time of the session's own processes. steal_seconds: time that the
    hypervisor gave to others, a part of busy_seconds. wait_seconds: time for which the ranks'
    busiest threads, one for each of their cores, were ready to run but did not run.
    throttled_seconds: time for which the cgroup's quota stopped the session, added up over the
    cores, as the kernel counts it.
    """

    wall_seconds: float
    cores: Positive
    busy_seconds: float
    own_seconds: float
    steal_seconds: float
    wait_seconds: float
    throttled_seconds: float

    @property
    def taken_seconds(self) -> float:
        """CPU time that the ranks wanted and did not get.

        Of the time that other programs used, only as much counts as the ranks waited, because the
        rest was idle time. Time that the quota withheld counts, too.
        """
        others = max(0.0, min(self.busy_seconds - self.own_seconds, self.wait_seconds))
        return others + self.throttled_seconds


def foreign_share(usages: Sequence[Usage]) -> float:
    """Return the share of the cores that other programs used in all usages together, from 0 to 1.

    /proc/stat counts in ticks of 10 ms, so the share of a single block is coarse: pass a pair.
    """
    return _share(usages, [usage.busy_seconds - usage.own_seconds for usage in usages])


def is_disturbed(usages: Sequence[Usage | None]) -> bool:
    """Return whether other programs took too much of the cores from the ranks during these blocks.

    None is an unknown usage, which counts as undisturbed.
    """
    return taken_share([usage for usage in usages if usage is not None]) > DISTURBED_ABOVE


def taken_share(usages: Sequence[Usage]) -> float:
    """Return the share of the cores that others, or the quota, took from the ranks, from 0 to 1.
    It excludes the time that a program under `nice` uses while the cores are idle."""
    return _share(usages, [usage.taken_seconds for usage in usages])


@dataclass(frozen=True)
class Culprit:
    """A program that is not the session's.

    name: the kernel's, of up to 15 characters, because a command line may hold secrets.
    cpu_seconds: user and system time. cores: the cores on which it was seen.
    """

    name: str
    pid: int
    cpu_seconds: float
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Disturbance:
    """The use of the session's cores by other programs in the timed part of one or more rounds.

    at: beginning of that part, in seconds since the start of the session. usage: of all timed
    blocks together. taken_seconds: the sum of their Usage.taken_seconds. watched_seconds: time for
    which other programs were watched, pauses between blocks included. culprits: these programs, the
    one with the most CPU time first. mhz: mean frequency of the cores; None if the kernel does not
    report it.
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
        """Return the number of cores that the program kept busy on average while it was watched;
        above 1 for a program of several busy threads."""
        return culprit.cpu_seconds / self.watched_seconds if self.watched_seconds > 0 else 0.0

    def reason(self) -> str:
        """Return in words how much others took, which programs they are, and what to do."""
        return ": ".join(self.problem_and_fix("during the measurement"))

    def problem_and_fix(self, when: str) -> tuple[str, str]:
        """Return how much others took and which programs they are, and what to do, in words."""
        withheld = self.usage.throttled_seconds
        if withheld > 0 and withheld >= self.taken_seconds / 2:
            share = 100 * _share([self.usage], [withheld])
            took = f"the CPU quota of its cgroup withheld {withheld:.1f} s ({share:.0f} %) {when}"
            return took, "raise the quota, or give fewer slots (--np)"
        share = 100 * self.foreign_share
        took = f"other programs took {share:.0f} % of the cores {when}"
        if self.steal_share > self.foreign_share / 2:
            took = f"{took} (mostly stolen by the hypervisor for other machines)"
            return took, "measure again when the host is idle"
        named = [each for each in self.culprits if self.core_share(each) >= CULPRIT_FROM]
        names = "; ".join(self._named(each) for each in named[:CULPRITS_NAMED])
        return (
            f"{took} ({names or 'not visible from here'})",
            "stop them, or wait until they finish",
        )

    def _named(self, culprit: Culprit) -> str:
        share = f"{100 * self.core_share(culprit):.0f} %"
        core = f"core {culprit.cores[0]}" if len(culprit.cores) == 1 else "a core"
        return f"{culprit.name}, pid {culprit.pid}: {share} of {core}"


def together(disturbances: Iterable[Disturbance | None]) -> Disturbance | None:
    """Return the disturbances of several rounds merged into one, or None if none is known."""
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
    mhz = [each.mhz for each in known if each.mhz is not None]
    return Disturbance(
        known[0].at,
        total(each.usage for each in known),
        sum(each.taken_seconds for each in known),
        sum(each.watched_seconds for each in known),
        tuple(sorted(spent.values(), key=lambda culprit: -culprit.cpu_seconds)),
        fmean(mhz) if mhz else None,
    )


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sums of all figures, save `cores`, which is the same throughout a session."""
    usages = list(usages)
    names = [field.name for field in fields(Usage)]
    sums = {name: sum(getattr(usage, name) for usage in usages) for name in names}
    return Usage(**{**sums, "cores": usages[0].cores})


def _share(usages: Sequence[Usage], seconds: Sequence[float]) -> float:
    offered = sum(usage.cores * usage.wall_seconds for usage in usages)
    return min(1.0, max(0.0, sum(seconds) / offered)) if offered > 0 else 0.0
