"""What the ranks of a training script wrote (hvdperf/worker/script/tap), as typed records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from pathlib import Path
from typing import NamedTuple

from hvdperf.json_records import Count, Positive, Unreadable, decode
from hvdperf.records.archive import read_document
from hvdperf.timeline.store import read_all
from hvdperf.worker.script.tap import _hvdperf_recorder as recorder

RECORDS = "rank-*.json"
Row = recorder.Row
# Functions that ran for at least so much of the longest time are called in turn.
_ALIKE = 0.8
# Of a stopped process: CPU time, and how often a second a thread may have begun to wait. Both come
# from before and after the stop, within a beat or two.
_IDLE, _FEW, _BEATS = 0.1, 20.0, 2.0


@dataclass(frozen=True)
class Slow:
    """One of the slowest steps. retraced: whether the function was traced in it."""

    retraced: bool
    row: Row


class Pause(NamedTuple):
    """Seconds in which a thread did not run that only sleeps, for 50 ms each time: the process did
    not run, or its main thread held Python's interpreter. begin, end: since the epoch. cpu: CPU
    seconds of the process meanwhile. delayed: seconds for which what had to wake up had no core.
    switches: how often a thread began to wait. usual: the same, a second, shortly before."""

    begin: float
    end: float
    cpu: float
    delayed: float
    switches: float
    usual: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def is_starved(self) -> bool:
        """Return whether what had to wake up could run, and had no core for most of the time."""
        return self.delayed > self.seconds / 2

    @property
    def is_stopped(self) -> bool:
        """Return whether the process was stopped (SIGSTOP, a frozen container, a suspended
        machine): next to nothing else of it ran. Horovod's own thread alone begins to wait a
        thousand times a second."""
        most = self.usual * _BEATS * recorder.BEAT_S + _FEW * self.seconds
        least = _BEATS * recorder.BEAT_S * (1 + self.cpu / max(self.seconds, 1.0))
        return self.switches < most and self.cpu < _IDLE * self.seconds + least


class Cpu(NamedTuple):
    """What a rank used after the warm-up. own: CPU seconds of all threads. waited: seconds for
    which the main thread could run and had no core."""

    seconds: float
    own: float
    waited: float

    @property
    def cores(self) -> float:
        """Return the cores that it used on average."""
        return self.own / self.seconds

    @property
    def delayed(self) -> float:
        """Return the share of the time for which its main thread waited for a core."""
        return self.waited / self.seconds


class Cores(NamedTuple):
    """How busy cores were after the warm-up. cores: the numbers of those that the rank may use.
    busy: seconds for which they were not idle, of all programs and all cores together. own: CPU
    seconds of the rank. faults: pages that it had to wait for, from swap or from a file. waited:
    seconds for which its threads could run and had no core, of all threads together. grown: bytes
    by which its memory grew. withheld: seconds for which a CPU quota withheld cores, of all cores
    together. allowed: the cores of that quota; 0 without one."""

    cores: tuple[int, ...]
    seconds: float
    busy: float
    own: float
    faults: int
    waited: float
    grown: int = 0
    withheld: float = 0.0
    allowed: float = 0.0


@dataclass(frozen=True)
class Steps:
    """The calls of one function. traces: how often it was traced. exchanges: whether gradients are
    exchanged in it by Horovod's tape or optimizer; others: whether the script itself calls
    hvd.allreduce in it. updates: whether an optimizer changes weights in it. rows: all of its
    calls, or two of four, two of eight, ... bins: number of steps by rounded ln of their seconds /
    BIN. summed, sums: the steps after the warm-up, and their seconds. samples: of all calls. cpu,
    cores: None if that is unknown. alone: of steps that began with an idle GPU, seconds until the
    call ended, and until the GPU had done all; None if every call waits for its GPU, or there is
    none. Then summed and sums are of steps from one idle GPU to another. batch: samples of a call
    by the shapes in its graph; 0 if unknown."""

    name: str
    count: int
    traces: int
    exchanges: bool
    updates: bool
    others: bool
    begun: float
    ended: float
    rows: tuple[Row, ...]
    slowest: tuple[Slow, ...]
    bins: tuple[tuple[int, int], ...]
    summed: int
    sums: float
    samples: int
    cpu: Cpu | None = None
    cores: Cores | None = None
    alone: tuple[tuple[float, float], ...] | None = None
    batch: int = 0

    @property
    def are_told_apart(self) -> bool:
        """Return whether the times of single steps mean something. Those of a GPU that works while
        the script goes on do not."""
        return self.alone is None

    @property
    def period(self) -> float | None:
        """Return the mean seconds of a step after the warm-up; None if there are none."""
        return self.sums / self.summed if self.summed else None

    @property
    def longest(self) -> float:
        """Return the seconds of the slowest step after the warm-up; 0 if there are none."""
        return max((each.row.period for each in self.slowest), default=0.0)

    @cached_property
    def kept(self) -> Mapping[int, Row]:
        """Return the steps after the warm-up of which all is known, by number, in their order."""
        rows = sorted({*self.rows, *(each.row for each in self.slowest)})
        return {row.number: row for row in rows if row.number > recorder.FIRST}

    def percentile(self, share: float) -> float:
        """Return the step time below which this share of the steps lies, in seconds, to a bin."""
        wanted = share * sum(count for _, count in self.bins)
        seen = 0
        for place, count in self.bins:
            seen += count
            if seen >= wanted:
                return exp(place * recorder.BIN)
        raise ValueError("there is no step")

    @property
    def samples_per_second(self) -> float | None:
        """Return the samples of this rank a second, after the warm-up."""
        samples = self.samples / self.count if self.samples else self.batch
        return samples * self.summed / self.sums if self.summed and samples else None


# A variable that the optimizer changed: its name, a checksum, the sum of its values, and that of
# their absolute values.
Weights = tuple[str, int, float, float]


class Code(NamedTuple):
    """The user's code that a rank ran. top: the directory that the script belongs to. files: names
    of the modules' files there. sha256: of their names and contents. elsewhere: a file that ran in
    place of one of the revision; "" if none did."""

    top: str
    files: tuple[str, ...]
    sha256: str
    elsewhere: str


@dataclass(frozen=True)
class Rank:
    """What one process with a rank wrote. marks: when the process was started, and Python ran.
    events: imports, hvd.init and broadcasts, with their begin and end. missing: what could not be
    recorded, in words. exchanged: tensors, bytes and sparse tensors of a step, by its name. others:
    number of exchanges outside of gradients. updated, local: number of variables that the optimizer
    changes, and of those that are registered as local. unexchanged: names of variables that are
    changed, not local, and never exchanged. batches: a digest of the first sample of each. weights:
    [] if it did not end as Python does. interpreter: the path of its Python. pauses: in which it
    did not run. code: None if it cannot be read. launched: its number and the number of ranks by
    the launcher; None without one. connected: hvd.size(), or 0 if it has not called hvd.init.
    epoch: batches of the longest data set of a known length; 0 without one. waits: if no step had
    ended for some time, the exchange that it was in, "" for none, the seconds since a step ended,
    and the line of the script; else None. process_sets: ranks of those that it exchanges with,
    unless these are all. places: where the script was between steps, and places_after: after its
    last step, with seconds. versions: by package. settings: variables that may change its speed,
    and the settings of TensorFlow's threads and of XLA."""

    format: int
    rank: Count
    size: Positive
    host: str
    pid: int
    arguments: tuple[str, ...]
    marks: Mapping[str, float]
    events: tuple[tuple[str, float, float], ...]
    missing: tuple[str, ...]
    series: tuple[Steps, ...]
    exchanged: Mapping[str, tuple[int, int, int]]
    others: Mapping[str, int]
    updated: int
    local: int
    unexchanged: tuple[str, ...]
    batches: tuple[float, ...]
    peak_memory: int
    written_at: float
    is_over: bool
    weights: tuple[Weights, ...]
    interpreter: str = ""
    code: Code | None = None
    pauses: tuple[Pause, ...] = ()
    launched: tuple[int, int] | None = None
    connected: int | None = None
    epoch: int = 0
    waits: tuple[str, float, str] | None = None
    process_sets: tuple[tuple[int, ...], ...] = ()
    places: Mapping[str, float] = field(default_factory=dict)
    places_after: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def steps(self) -> Steps | None:
        """Return the training steps: the function in which gradients are exchanged, else one in
        which weights are changed; of several the one that ran for longest. None without one."""
        for kind in ("exchanges", "others", "updates"):
            found = [each for each in self.series if getattr(each, kind)]
            if found:
                longest = max(each.ended - each.begun for each in found)
                alike = [each for each in found if each.ended - each.begun >= _ALIKE * longest]
                return max(alike, key=lambda each: each.count)
        return None

    @cached_property
    def stops(self) -> Sequence[Pause]:
        """Return when it was stopped or starved in its steps after the warm-up; other pauses are
        the script's own work."""
        steps = self.steps
        if steps is None:
            return []
        rows = (row.end for row in steps.rows if row.number >= recorder.FIRST)
        first = next(rows, steps.ended)
        within = (each for each in self.pauses if first < each.end and each.begin < steps.ended)
        return [each for each in within if each.is_starved or each.is_stopped]

    @property
    def count(self) -> int:
        """Return the number of its training steps."""
        return self.steps.count if self.steps is not None else 0

    @property
    def cpu(self) -> Cpu | None:
        return self.steps.cpu if self.steps is not None else None

    @property
    def cores(self) -> Cores | None:
        return self.steps.cores if self.steps is not None else None


@dataclass(frozen=True)
class Launch:
    """The command of a run, with its launcher, and its exit status; None if it is not known."""

    command: tuple[str, ...] = ()
    status: int | None = None


NOT_KEPT = Launch()
LAUNCH = "command.json"


def read_launch(directory: Path) -> Launch:
    """Return the command of a run; NOT_KEPT if the directory has none that can be read."""
    with suppress(OSError, Unreadable):
        return decode((directory / LAUNCH).read_bytes(), Launch)
    return NOT_KEPT


def read_ranks(directory: Path) -> tuple[list[Rank], list[str]]:
    """Return what the ranks wrote, by rank, and a line for each file that cannot be read."""
    paths = sorted(directory.glob(RECORDS))
    found, refused = read_all(paths, lambda path: read_document(path, Rank, recorder.FORMAT))
    return sorted(found, key=lambda each: (each.rank, each.written_at)), refused


def last_job(ranks: Sequence[Rank]) -> tuple[list[Rank], int]:
    """Return the ranks of the job that ended last, and the number of jobs. A job is one process a
    rank; a command may have several, one after the other."""
    jobs: list[list[Rank]] = []
    for each in sorted(_launched(ranks), key=_started):
        place = next((job for job in jobs if _belongs(each, job)), None)
        if place is None:
            jobs.append(place := [])
        place.append(each)
    if not jobs:
        return [], 0
    last = max(jobs, key=lambda job: max(each.written_at for each in job))
    return sorted(last, key=lambda each: each.rank), len(jobs)


def _launched(ranks: Sequence[Rank]) -> list[Rank]:
    """Return the ranks of Horovod; if a launcher started several and Horovod connects none of
    them, those of the launcher. A process that a rank has started may train by itself."""
    alone = [rank for rank in ranks if rank.launched is not None]
    if all(rank.size == 1 for rank in ranks) and len({rank.launched for rank in alone}) > 1:
        return [
            replace(rank, rank=rank.launched[0], size=rank.launched[1])
            for rank in alone
            if rank.launched is not None
        ]
    return [rank for rank in ranks if rank.connected != 0]


def _belongs(process: Rank, job: Sequence[Rank]) -> bool:
    """Return whether a process is of this job: of the same size, another rank, and started before
    the job's first process ended."""
    return (
        process.size == job[0].size
        and process.rank not in {each.rank for each in job}
        and _started(process) < min(each.written_at for each in job)
    )


def _started(process: Rank) -> float:
    return process.marks.get("process", 0.0)
