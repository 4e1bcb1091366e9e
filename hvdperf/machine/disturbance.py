"""The share of the session's cores that other programs took while something was timed: CPU and
process counters of the driver's host, and what they add up to.

A reading is taken at both ends of every timed block, so it opens few files. The processes of the
session are therefore looked up once a turn, by `CpuMeter.watch`.
"""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from hvdperf.json_records import Positive
from hvdperf.machine.host import control_groups, launcher_pid, numbers_by_name, text_of

if TYPE_CHECKING:  # a reader of sessions needs no placement
    from hvdperf.machine.placement import Slot

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Columns of a core's line of /proc/stat, and of /proc/PID/stat behind the process's name.
_USER, _NICE, _STEAL = 1, 2, 8
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _STARTED, _LAST_CORE = 1, 11, 12, 19, 36
# The kind of a process's CPU clock that counts its user time (Linux, CPUCLOCK_VIRT).
_USER_CLOCK = 1
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
    def steal_share(self) -> float:
        return _share([self.usage], [self.usage.steal_seconds])

    @property
    def wait_share(self) -> float:
        return _share([self.usage], [self.usage.wait_seconds])

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
    mhz = [each.mhz for each in known if each.mhz is not None]
    return Disturbance(
        known[0].at,
        total(each.usage for each in known),
        sum(each.taken_seconds for each in known),
        sum(each.watched_seconds for each in known),
        _merged(culprit for each in known for culprit in each.culprits),
        fmean(mhz) if mhz else None,
    )


def _merged(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    """Return each program once, the one with the most CPU time first."""
    spent: dict[tuple[str, int], Culprit] = {}
    for found in culprits:
        name, pid = key = found.name, found.pid
        so_far = spent.get(key, Culprit(name, pid, 0.0))
        seconds = so_far.cpu_seconds + found.cpu_seconds
        cores = tuple(sorted({*so_far.cores, *found.cores}))
        spent[key] = Culprit(name, pid, seconds, cores)
    return tuple(sorted(spent.values(), key=lambda culprit: -culprit.cpu_seconds))


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sums of all figures, save `cores`, which is the same throughout a session."""
    usages = list(usages)
    names = [field.name for field in fields(Usage)]
    sums = {name: sum(getattr(usage, name) for usage in usages) for name in names}
    return Usage(**{**sums, "cores": usages[0].cores})


def _share(usages: Sequence[Usage], seconds: Sequence[float]) -> float:
    offered = sum(usage.cores * usage.wall_seconds for usage in usages)
    return min(1.0, max(0.0, sum(seconds) / offered)) if offered > 0 else 0.0


@dataclass(frozen=True)
class Process:
    """One process, as /proc/PID/stat describes it.

    cpu_seconds: user and system time of all its threads. started: start time in ticks since the
    boot, which distinguishes the process from an earlier one with the same pid. core: the core on
    which it ran last.
    """

    pid: int
    name: str
    parent: int
    cpu_seconds: float
    started: int
    core: int


def parse_process(stat: str) -> Process:
    """Parse the text of /proc/PID/stat. Raises ValueError or IndexError for any other text."""
    pid, _, named = stat.partition(" (")
    # The name may hold spaces and parentheses.
    name, _, rest = named.rpartition(") ")
    columns = rest.split()
    ticks = int(columns[_USER_TICKS]) + int(columns[_SYSTEM_TICKS])
    parent, started, core = (int(columns[i]) for i in (_PARENT, _STARTED, _LAST_CORE))
    return Process(int(pid), name, parent, ticks / TICKS_PER_SECOND, started, core)


def parse_busy(stat: str, cores: Collection[int]) -> tuple[float, float]:
    """Return the busy (user, nice, steal) and the steal seconds of the cores, from /proc/stat."""
    wanted = {f"cpu{core}" for core in cores}
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    lines = [columns for columns in lines if columns[0] in wanted]
    steal = sum(int(columns[_STEAL]) for columns in lines)
    running = sum(int(columns[_USER]) + int(columns[_NICE]) for columns in lines)
    return (running + steal) / TICKS_PER_SECOND, steal / TICKS_PER_SECOND


def parse_throttled(stat: str) -> float:
    """Return the seconds for which a CPU cgroup was throttled, from its cpu.stat of version 1 or
    2; 0 if the file does not report them."""
    found = numbers_by_name(stat)
    return found.get("throttled_usec", 0) / 1e6 or found.get("throttled_time", 0) / 1e9


def descendants(roots: Iterable[int], processes: Iterable[Process]) -> set[int]:
    """Return the process ids of the roots and of all that they have started, directly or not."""
    children: dict[int, list[int]] = defaultdict(list)
    for process in processes:
        children[process.parent].append(process.pid)
    found: set[int] = set()
    to_visit = list(roots)
    while to_visit:
        pid = to_visit.pop()
        if pid not in found:
            found.add(pid)
            to_visit += children[pid]
    return found


@dataclass(frozen=True)
class Reading:
    """All counters at one moment.

    at: time of the monotonic clock, in seconds. cores: number of the session's cores on this host.
    own_seconds: user time of the session's processes, by pid. threads: by thread id of the ranks,
    the seconds for which the thread ran, and the seconds for which it was ready but did not run.
    """

    at: float
    cores: int
    busy_seconds: float
    steal_seconds: float
    own_seconds: Mapping[int, float]
    threads: Mapping[str, tuple[float, float]]
    throttled_seconds: float


def used(before: Reading, after: Reading, busiest: int) -> Usage:
    """Return the usage between two readings.

    busiest: the waits of this many threads count, the busiest first. It is the number of the ranks'
    cores, because further threads only wait for other threads of the ranks.
    """
    threads = [
        (times[0] - known[0], times[1] - known[1])
        for name, times in after.threads.items()
        for known in [before.threads.get(name, (0.0, 0.0))]
    ]
    return Usage(
        wall_seconds=after.at - before.at,
        cores=after.cores,
        busy_seconds=after.busy_seconds - before.busy_seconds,
        own_seconds=_growth(before.own_seconds, after.own_seconds),
        steal_seconds=after.steal_seconds - before.steal_seconds,
        wait_seconds=sum(waited for _, waited in sorted(threads, reverse=True)[:busiest]),
        throttled_seconds=after.throttled_seconds - before.throttled_seconds,
    )


@dataclass
class CpuMeter:
    """A meter of the usage of this host's cores, which also watches the other programs there.

    cores: the session's. roots: pids of processes that belong to the session, as all their
    descendants do. began: start of the session on the monotonic clock. root: the directory in which
    /proc and /sys are mounted.
    """

    cores: Sequence[int]
    roots: Collection[int]
    began: float = field(default_factory=time.monotonic)
    root: Path = Path("/")
    _own: set[int] = field(default_factory=set)
    _seen: dict[int, Process] = field(default_factory=dict)
    _seen_at: float = 0.0
    _spent: list[Culprit] = field(default_factory=list)
    _watch_began: float = 0.0

    def __post_init__(self) -> None:
        self._throttling = [
            directory / "cpu.stat"
            for directory in control_groups("cpu", self.root)
            if "throttled" in text_of(directory / "cpu.stat")
        ]

    # Usage --------------------------------------------------------------------------------

    def read(self, ranks: Iterable[int]) -> Reading:
        """Read all counters. ranks: process ids of the ranks that are to compute."""
        threads = {name: times for rank in ranks for name, times in self._threads(rank)}
        throttled = sum(parse_throttled(text_of(path)) for path in self._throttling)
        own = {pid: seconds for pid in self._own if (seconds := user_seconds(pid)) is not None}
        busy, steal = parse_busy(text_of(self.root / "proc/stat"), self.cores)
        return Reading(time.monotonic(), len(self.cores), busy, steal, own, threads, throttled)

    def _threads(self, pid: int) -> Iterable[tuple[str, tuple[float, float]]]:
        tasks = self.root / f"proc/{pid}/task"
        with suppress(OSError):
            for thread in os.listdir(tasks):
                columns = text_of(f"{tasks}/{thread}/schedstat").split()
                if len(columns) > 1:
                    yield thread, (int(columns[0]) / 1e9, int(columns[1]) / 1e9)

    # Other programs -----------------------------------------------------------------------

    def begin_watch(self) -> None:
        """Forget the CPU time that other programs have used so far, and list all processes."""
        self._spent, self._seen = [], self._processes()
        self._watch_began = self._seen_at = time.monotonic()

    def watch(self) -> None:
        """List all processes, and add up the CPU time that others have used since the last
        list."""
        now = self._processes()
        for pid, process in now.items():
            earlier = self._seen.get(pid)
            same = earlier is not None and earlier.started == process.started
            spent = process.cpu_seconds - (earlier.cpu_seconds if earlier and same else 0.0)
            if spent > 0 and pid not in self._own:
                self._spent.append(Culprit(process.name, pid, spent, (process.core,)))
        self._seen, self._seen_at = now, time.monotonic()

    def disturbance(self, usages: Sequence[Usage]) -> Disturbance:
        """Return the disturbance since begin_watch. usages: of the blocks timed meanwhile."""
        at, seconds = self._watch_began - self.began, self._seen_at - self._watch_began
        taken = sum(usage.taken_seconds for usage in usages)
        return Disturbance(at, total(usages), taken, seconds, _merged(self._spent), self._mhz())

    def _processes(self) -> dict[int, Process]:
        """Return all processes by pid, and note in _own which of them are the session's."""
        found = {}
        for name in os.listdir(self.root / "proc"):
            if name.isdecimal() and (text := text_of(f"{self.root}/proc/{name}/stat")):
                found[int(name)] = parse_process(text)
        self._own = descendants(self.roots, found.values()) & found.keys()
        return found

    def _mhz(self) -> float | None:
        """Return the mean frequency of the cores now, in MHz; None if the kernel does not report
        that of every core."""
        files = (
            f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq" for core in self.cores
        )
        texts = [text_of(self.root / file) for file in files]
        return fmean(int(text) / 1000 for text in texts) if all(texts) and texts else None


def make_meter(slots: Sequence[Slot], began: float) -> CpuMeter | None:
    """Return the meter of this host. Returns None if this host has none of the session's slots, or
    if its kernel offers no such counters. began: start of the session on the monotonic clock."""
    here = [slot for slot in slots if slot.host == socket.gethostname()]
    if not here or not Path("/proc/stat").exists() or user_seconds(os.getpid()) is None:
        return None
    # Under an outer mpirun, the other ranks of this host and their children are the session's, too.
    from hvdperf.machine.placement import cores_of  # a reader of sessions needs no placement

    return CpuMeter(cores_of(here), {launcher_pid() or os.getpid()}, began)


def user_seconds(pid: int) -> float | None:
    """Return the user time of a process, all its threads together; None if it has ended.

    The kernel credits this clock with the very ticks that it counts in /proc/stat, so the rest of
    the busy time there is that of other programs. /proc/PID/stat scales the same ticks to the time
    that the scheduler has measured, and /proc/PID/schedstat covers one thread only.
    """
    try:
        return time.clock_gettime((~pid << 3) | _USER_CLOCK)
    except OSError:
        return None


def _growth(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    return sum(seconds - before.get(key, 0.0) for key, seconds in after.items())
