"""`python -m bench.slots [N ...]`: the cost of many slots on this machine (64, 128 and 256).

Every N is a real mpirun of N ranks: rank 0 measures, and the others lend their slots as they do in
a session. The slots then start workers that import no TensorFlow and speak the protocol of ranks.
Figures are medians of the given number of mpiruns; the least and the greatest follow in rows of
their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from hvdperf.columns import Columns
from hvdperf.launch.group import Group
from hvdperf.launch.launchers import AgentsJob, AgentsLauncher, Order
from hvdperf.launch.outer import leave_status, outer_size, shown_by
from hvdperf.launch.outer_mpirun import RUNNING
from hvdperf.launch.processes import Agent, LocalAgent, wait_until_ended
from hvdperf.launch.slots import RemoteAgent, Slots
from hvdperf.machine.placement import Offer, place
from hvdperf.machine.stack import find_mpirun
from hvdperf.paths import ROOT
from hvdperf.worker.process import die_with_parent

SIZES = (64, 128, 256)
# Limits of the largest of these sizes on two cores, by the heading of the column.
LIMITS: Mapping[str, float] = {"ready": 10.0, "PSS MB": 4000.0, "order": 0.5, "idle %": 1.0}
# Seconds that a launch may take, and workers to stop or to go on.
DEADLINE_S = 120.0
CHANGE_S = 20.0
# Times that an order is given to all slots, and to all workers.
ORDERS = 5
# A rank that answers every order at once. It ends with its slot, or when its connection closes.
WORKER = """
import os, socket, time
from hvdperf.worker.process import die_with_parent
from hvdperf.worker.protocol import DRIVER_VARIABLE, Connection, Phase
die_with_parent()
host, port, token = os.environ[DRIVER_VARIABLE].split(":")
rank, here = int(os.environ["HOROVOD_RANK"]), socket.gethostname()
connection = Connection(socket.create_connection((host, int(port))))
connection.send({"hello": rank, "token": token, "pid": os.getpid(), "host": here})
def enter(phase):
    connection.send({"phase": phase.value, "at": time.time(), "clock": time.monotonic()})
enter(Phase.INIT)
enter(Phase.READY)
while (orders := connection.receive()) is not None:
    for order in orders:
        if "op" in order:
            connection.send({"reply": {"rank": rank}})
"""


@dataclass(frozen=True)
class Figures:
    """The figures of one mpirun, times in seconds.

    ready: from the start of mpirun until every slot has joined and made its offer. memory_bytes:
    PSS of all slots together, before they start anything. idle_cores, stopped_cores: cores that all
    slots together use before they start anything, and while their workers are stopped. order: an
    order to all slots and their answers. start: of a worker a slot, until all are ready. gather: an
    order to all workers and their answers. stop, go_on: of all workers, until each has had its
    signal. stop_skew, go_on_skew: from the first worker that was seen to change to the last one.
    kill: of all workers, until they have ended and their slots are free. session_files,
    mpirun_files: open files of rank 0 and of mpirun while workers run.
    """

    ready: float
    memory_bytes: float
    idle_cores: float
    order: float
    start: float
    gather: float
    stopped_cores: float
    stop: float
    stop_skew: float
    go_on: float
    go_on_skew: float
    kill: float
    session_files: int
    mpirun_files: int


# Heading of a column -> its value for N slots, and its decimals.
COLUMNS: Mapping[str, tuple[Callable[[Figures, int], float], int]] = {
    "ready": (lambda of, size: of.ready, 2),
    "PSS MB": (lambda of, size: of.memory_bytes / 1e6, 0),
    "a slot": (lambda of, size: of.memory_bytes / 1e6 / (size - 1), 2),
    "idle %": (lambda of, size: 100 * of.idle_cores, 2),
    "order": (lambda of, size: of.order, 3),
    "start": (lambda of, size: of.start, 2),
    "gather": (lambda of, size: of.gather, 3),
    "stopped %": (lambda of, size: 100 * of.stopped_cores, 2),
    "stop": (lambda of, size: of.stop, 3),
    "skew": (lambda of, size: of.stop_skew, 3),
    "go on": (lambda of, size: of.go_on, 3),
    "its skew": (lambda of, size: of.go_on_skew, 3),
    "kill": (lambda of, size: of.kill, 2),
    "files": (lambda of, size: of.session_files, 0),
    "of mpirun": (lambda of, size: of.mpirun_files, 0),
}
TABLE = Columns(("slots", 5), ("", -8), *((name, max(len(name), 6)) for name in COLUMNS))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.slots", description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*", metavar="N", help="slots (64 128 256)")
    parser.add_argument("--times", type=int, default=1, help="mpiruns of each N (1)")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds to watch idle slots (5)")
    parser.add_argument("--rank-0", type=float, metavar="BEGAN", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_0 is not None:
        leave_status(RUNNING)
        options.out.write_text(json.dumps(asdict(measure(options.rank_0, options.idle))))
        leave_status(0)
        return
    sizes = options.sizes or list(SIZES)
    if min(sizes) < 2:
        parser.error("rank 0 measures, so N is 2 at least")
    # On SIGTERM, too, `finally` ends everything that was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(f"seconds, MB, per cent of a core; load {os.getloadavg()[0]:.2f};", end=" ")
    print(f"ulimit -n {soft}, at most {hard}\n{TABLE.header}", flush=True)
    found = {}
    for size in sizes:
        found[size] = [run(size, options.idle) for _ in range(options.times)]
        print("\n".join(rows(size, found[size])), flush=True)
    print("\n".join([*growth(found), *limits(found)]))


def run(size: int, idle_s: float) -> Figures:
    """Return the figures of one mpirun of that many ranks. Raises CalledProcessError."""
    python = Path(sys.executable)
    with TemporaryDirectory(prefix="hvdperf-slots-") as scratch:
        out = Path(scratch) / "figures.json"
        command = [str(find_mpirun(python)), "--oversubscribe", "-np", "1", str(python)]
        command += ["-m", "bench.slots", "--rank-0", f"{time.monotonic()}", "--idle", f"{idle_s}"]
        command += ["--out", str(out), ":", "-np", f"{size - 1}", str(python.parent / "pytest")]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()  # mpirun ends its ranks
                process.wait()
        if status:
            raise subprocess.CalledProcessError(status, command)
        return Figures(**json.loads(out.read_text()))


# The table -------------------------------------------------------------------------------------


def rows(size: int, found: Sequence[Figures]) -> list[str]:
    """Return the row of the medians, and those of the extremes if there are several mpiruns."""
    kinds: dict[str, Callable[[list[float]], float]] = {"median": median}
    if len(found) > 1:
        kinds |= {"least": min, "greatest": max}
    return [
        TABLE.row(
            size if kind == "median" else "",
            kind,
            *(
                f"{summary([value(each, size) for each in found]):.{digits}f}"
                for value, digits in COLUMNS.values()
            ),
        )
        for kind, summary in kinds.items()
    ]


def median_of(name: str, size: int, found: Sequence[Figures]) -> float:
    """Return the median of a column."""
    value, _ = COLUMNS[name]
    return median(value(each, size) for each in found)


def growth(found: Mapping[int, Sequence[Figures]]) -> list[str]:
    """Return a line with the growth from the smallest to the largest N; no line for a single N."""
    small, large = min(found), max(found)
    if small == large:
        return []
    cells = []
    for name in ("ready", "PSS MB", "order", "start", "gather", "stop", "kill"):
        before, after = (median_of(name, size, found[size]) for size in (small, large))
        cells.append(f"{name} {after / before * small / large:.2f}")
    return [f"growth from {small} to {large} slots, compared with linear: {', '.join(cells)}"]


def limits(found: Mapping[int, Sequence[Figures]]) -> list[str]:
    """Return a line for each limit, with the medians of the largest N."""
    size = max(found)
    reached = {name: median_of(name, size, found[size]) for name in LIMITS}
    return [
        f"{size} slots, {name}: {reached[name]:.3g}, "
        f"{'within' if reached[name] <= limit else 'BEYOND'} the limit of {limit:g}"
        for name, limit in LIMITS.items()
    ]


# On rank 0 -------------------------------------------------------------------------------------


class LightOrder(Order):
    """An order to start WORKER instead of ranks that train."""

    @property
    def command(self) -> tuple[str, ...]:
        return (self.interpreter, "-S", "-c", WORKER)


class Launcher(AgentsLauncher):
    """A launcher that keeps its last job, so that slots can be given orders of no effect."""

    job: AgentsJob

    def start(self, order: Order) -> AgentsJob:
        self.job = super().start(order)
        return self.job


def measure(began: float, idle_s: float) -> Figures:
    """Return the figures of the slots of this mpirun. began: time at which it was started, by the
    monotonic clock. idle_s: seconds over which CPU time is counted."""
    with ExitStack() as end:
        # The process that watches workers is forked before there are connections to inherit.
        watcher = end.enter_context(
            # Slots.release may end this process without the pool's own clean-up.
            ProcessPoolExecutor(1, get_context("fork"), initializer=die_with_parent)
        )
        watcher.submit(os.getpid).result()
        slots = Slots()
        end.callback(slots.release, 0)
        offers = slots.offers()
        ready = time.monotonic() - began
        lent = slot_processes()
        memory, idle = float(sum(map(pss_bytes, lent))), cores_used(lent, idle_s)
        scratch = Path(end.enter_context(TemporaryDirectory(prefix="hvdperf-slots-")))
        group, launcher, start = with_workers(slots, offers, scratch)
        end.callback(group.end)
        order = seconds_of_one(lambda: launcher.job.signal(signal.SIGCONT, pids_of(group)))
        gather = seconds_of_one(lambda: group.ask("block", DEADLINE_S))
        stop, stop_skew = changed(group.pause, group, watcher, stopped=True)
        stopped_cores = cores_used(lent, idle_s)
        go_on, go_on_skew = changed(group.resume, group, watcher, stopped=False)
        own_files, mpirun_files = open_files(os.getpid()), open_files(shown_by())
        kill = seconds_of(lambda: kill_all(group))
        return Figures(
            *(ready, memory, idle, order, start, gather, stopped_cores),
            *(stop, stop_skew, go_on, go_on_skew, kill),
            session_files=own_files,
            mpirun_files=mpirun_files,
        )


def with_workers(
    slots: Slots, offers: Sequence[Offer], scratch: Path
) -> tuple[Group, Launcher, float]:
    """Start a worker on every slot. Return their group, its launcher, and the seconds until all
    were ready."""
    others = [RemoteAgent(slots, rank) for rank in range(1, outer_size())]
    agents: list[Agent] = [LocalAgent(scratch / "agent-0"), *others]
    order = LightOrder(
        len(offers), place(offers), sys.executable, {}, scratch / "launch-0", DEADLINE_S
    )
    launcher = Launcher(agents)
    began = time.monotonic()
    group = Group("light workers", launcher, slots.hub, order, [{} for _ in offers])
    group.wait_ready(DEADLINE_S)
    return group, launcher, time.monotonic() - began


def kill_all(group: Group) -> None:
    """Kill all workers and wait until they have ended."""
    pids = pids_of(group).values()
    group.kill()
    group.end()
    wait_until_ended(pids)


def pids_of(group: Group) -> dict[int, int]:
    return {number: rank.pid for number, rank in enumerate(group.ranks)}


def seconds_of(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def seconds_of_one(order: Callable[[], object]) -> float:
    """Return the median of the seconds that the order takes."""
    return median(seconds_of(order) for _ in range(ORDERS))


def changed(
    order: Callable[[], None], group: Group, watcher: Executor, stopped: bool
) -> tuple[float, float]:
    """Return the seconds of an order that stops all workers or has them go on, and those from the
    first worker that was seen to do so to the last one."""
    seen = watcher.submit(watch, list(pids_of(group).values()), stopped)
    time.sleep(0.2)  # the watcher has begun
    taken = seconds_of(order)
    times = seen.result()
    return taken, max(times) - min(times)


def watch(pids: Collection[int], stopped: bool) -> list[float]:
    """Return the time, by the monotonic clock, at which each process was first seen stopped, or
    first not stopped. Raises TimeoutError if one does not change within CHANGE_S."""
    deadline, seen = time.monotonic() + CHANGE_S, list[float]()
    with ExitStack() as end:
        left = [end.enter_context(open(f"/proc/{pid}/stat", "rb", buffering=0)) for pid in pids]
        while left:
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"{len(left)} of {len(pids)} workers have not changed")
            states = [os.pread(each.fileno(), 512, 0).rpartition(b")")[2][1:2] for each in left]
            still = [
                each
                for each, state in zip(left, states, strict=True)
                if (state == b"T") is not stopped
            ]
            seen += [now] * (len(left) - len(still))
            left = still
            # Watching must not take a core from those that are watched.
            time.sleep(0.001)
    return seen


def slot_processes() -> list[int]:
    """Return the processes of the slots that this mpirun has started, without this one."""
    # An mpirun of many ranks starts them from several threads.
    of_threads = Path(f"/proc/{shown_by()}/task").glob("*/children")
    children = [int(child) for path in of_threads for child in path.read_text().split()]
    return [child for child in children if child != os.getpid()]


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process: pages that n processes share count 1/n."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def cores_used(pids: Collection[int], seconds: float) -> float:
    """Return the number of cores that the processes together use during the next seconds."""
    before, began = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pids) - before) / (time.monotonic() - began)


def cpu_seconds(pids: Collection[int]) -> float:
    """Return the CPU time that all threads of the processes have used so far."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError):  # it has just ended
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


if __name__ == "__main__":
    main()
