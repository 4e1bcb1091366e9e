"""CPU and process counters of the driver's host, from which disturbances are computed.

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
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from hvdperf.machine.disturbance import Culprit, Disturbance, Usage, total
from hvdperf.machine.host import control_groups, launcher_pid
from hvdperf.machine.placement import Slot, cores_of

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Columns of a core's line of /proc/stat, and of /proc/PID/stat behind the process's name.
_USER, _NICE, _STEAL = 1, 2, 8
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _STARTED, _LAST_CORE = 1, 11, 12, 19, 36
# The kind of a process's CPU clock that counts its user time (Linux, CPUCLOCK_VIRT).
_USER_CLOCK = 1


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
    lines = (line.partition(" ") for line in stat.splitlines())
    found = {name: value for name, _, value in lines}
    return int(found.get("throttled_usec", 0)) / 1e6 or int(found.get("throttled_time", 0)) / 1e9


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
    _spent: dict[tuple[int, int], Culprit] = field(default_factory=dict)
    _watch_began: float = 0.0

    def __post_init__(self) -> None:
        self._throttling = [
            directory / "cpu.stat"
            for directory in control_groups("cpu", self.root)
            if "throttled" in _text(directory / "cpu.stat")
        ]

    # Usage --------------------------------------------------------------------------------

    def read(self, ranks: Iterable[int]) -> Reading:
        """Read all counters. ranks: process ids of the ranks that are to compute."""
        threads = {name: times for rank in ranks for name, times in self._threads(rank)}
        throttled = sum(parse_throttled(_text(path)) for path in self._throttling)
        own = {pid: seconds for pid in self._own if (seconds := user_seconds(pid)) is not None}
        busy, steal = parse_busy(_text(self.root / "proc/stat"), self.cores)
        return Reading(time.monotonic(), len(self.cores), busy, steal, own, threads, throttled)

    def _threads(self, pid: int) -> Iterable[tuple[str, tuple[float, float]]]:
        tasks = self.root / f"proc/{pid}/task"
        with suppress(OSError):
            for thread in os.listdir(tasks):
                columns = _text(f"{tasks}/{thread}/schedstat").split()
                if len(columns) > 1:
                    yield thread, (int(columns[0]) / 1e9, int(columns[1]) / 1e9)

    # Other programs -----------------------------------------------------------------------

    def begin_watch(self) -> None:
        """Forget the CPU time that other programs have used so far, and lists all processes."""
        self._spent, self._seen = {}, self._processes()
        self._watch_began = self._seen_at = time.monotonic()

    def watch(self) -> None:
        """List all processes, and adds up the CPU time that others have used since the last
        list."""
        now = self._processes()
        for pid, process in now.items():
            earlier = self._seen.get(pid)
            same = earlier is not None and earlier.started == process.started
            spent = process.cpu_seconds - (earlier.cpu_seconds if earlier and same else 0.0)
            if spent > 0 and pid not in self._own:
                self._charge(process, spent)
        self._seen, self._seen_at = now, time.monotonic()

    def disturbance(self, usages: Sequence[Usage]) -> Disturbance:
        """Return the disturbance since begin_watch. usages: of the blocks timed meanwhile."""
        at, seconds = self._watch_began - self.began, self._seen_at - self._watch_began
        taken = sum(usage.taken_seconds for usage in usages)
        return Disturbance(at, total(usages), taken, seconds, self.culprits(), self._mhz())

    def culprits(self) -> tuple[Culprit, ...]:
        """Return the other programs of the watch, the one with the most CPU time first."""
        return tuple(sorted(self._spent.values(), key=lambda each: -each.cpu_seconds))

    def _charge(self, process: Process, seconds: float) -> None:
        key = (process.pid, process.started)
        known = self._spent.get(key, Culprit(process.name, process.pid, 0.0))
        cores = tuple(sorted({*known.cores, process.core}))
        self._spent[key] = Culprit(process.name, process.pid, known.cpu_seconds + seconds, cores)

    def _processes(self) -> dict[int, Process]:
        """Return all processes by pid, and notes in _own which of them are the session's."""
        found = {}
        for name in os.listdir(self.root / "proc"):
            if name.isdecimal() and (text := _text(f"{self.root}/proc/{name}/stat")):
                found[int(name)] = parse_process(text)
        self._own = descendants(self.roots, found.values()) & found.keys()
        return found

    def _mhz(self) -> float | None:
        """Return the mean frequency of the cores now, in MHz; None if the kernel does not report
        that of every core."""
        files = (
            f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq" for core in self.cores
        )
        texts = [_text(self.root / file) for file in files]
        return fmean(int(text) / 1000 for text in texts) if all(texts) and texts else None


def make_meter(slots: Sequence[Slot], began: float) -> CpuMeter | None:
    """Return the meter of this host. Returns None if this host has none of the session's slots, or
    if its kernel offers no such counters. began: start of the session on the monotonic clock."""
    here = [slot for slot in slots if slot.host == socket.gethostname()]
    if not here or not Path("/proc/stat").exists() or user_seconds(os.getpid()) is None:
        return None
    # Under an outer mpirun, the other ranks of this host and their children are the session's, too.
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


def _text(path: Path | str) -> str:
    """Return the file's text, or "" if the file does not exist (any more). Path.read_text takes
    three times as long."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""
