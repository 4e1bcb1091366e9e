"""`python -m bench costs`: measures the suite's own cost on this machine."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from hvdperf.launch.arm_launcher import ArmLauncher, dispose, make_arm_launcher
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.machine.stack import find_mpirun, probe
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import CACHE, ROOT
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import as_ratio
from hvdperf.worker.strategies import Strategy

LAUNCHES = 6
# Of a block, under the suite and in the plain script.
STEPS = 20
# Takes a turn of one side and returns its seconds.
Turn = Callable[[], float]


def costs(*, models: str = "resnet_50_s", np: tuple[int, ...] = ()) -> int:
    """Measure the suite's own cost on this machine.

    --models A,B: Measure with these networks.
    --np N: Measure with N ranks. The option may be repeated. Default: 1, and as many as fit.
    """
    # On SIGTERM, too, `finally` ends everything that was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine = local_machine()
    options = Options(profile="default", models=(models,))
    session_plan = plan_session(options, machine, local_offers(machine))
    stack = probe(sys.executable, CACHE)
    sizes = np or sorted({1, session_plan.world_sizes[-1]})
    arms = [Arm(w, Strategy.HOROVOD, size) for w in session_plan.workloads for size in sizes]
    print(f"{machine.description}; about {len(arms)} min", flush=True)
    arm_launcher = make_arm_launcher(session_plan, {"": stack}, None)
    try:
        for arm in arms:
            print("\n".join(overhead(arm_launcher, arm)), flush=True)
    finally:
        dispose(arm_launcher)
    return 0


def overhead(arm_launcher: ArmLauncher, arm: Arm) -> list[str]:
    """Measure ln(speed of a step under the suite / of the same step in a plain Horovod script).
    Both groups live side by side, one stopped while the other runs, and take turns."""
    workload = arm.workload
    interpreter = arm_launcher.stacks[arm.stack].interpreter
    data = arm_launcher.data[workload.dataset].directory
    arguments = [workload.model, str(workload.input_size), str(workload.batch), data]
    cores = [slot.cores[0] for slot in arm_launcher.slots[: arm.world_size]]

    def block(group: LiveLaunch) -> float:
        group.resume()
        replies = group.ask("block", arm_launcher.order_deadline_s, kind="full", steps=STEPS)
        group.pause()
        return slowest(replies)

    logs = []
    for launch in range(LAUNCHES):
        with started(arm_launcher, arm) as group:
            group.pause()
            with bare_loop(interpreter, arguments, cores) as bare:
                logs.append(alternated(partial(block, group), bare, launch, 20))
    return report(f"{arm.name}: throughput under the suite / bare Horovod loop", logs)


# Two sides that take turns ---------------------------------------------------------------------


@contextmanager
def started(arm_launcher: ArmLauncher, arm: Arm) -> Iterator[LiveLaunch]:
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


def alternated(one: Turn, other: Turn, launch: int, pairs: int) -> list[float]:
    """Take turns A B, B A. Return ln(speed of one / of the other) by pair, without the first three,
    which are warm-up. launch: its number, so that either side begins half of the launches."""
    logs = []
    for pair in range(-3, pairs):
        seconds = {turn: turn() for turn in ((one, other) if (launch + pair) % 2 else (other, one))}
        logs.append(math.log(seconds[other] / seconds[one]))
    return logs[3:]


def report(title: str, logs: Sequence[Sequence[float]]) -> list[str]:
    """Return lines on a ratio. logs: its ln, by launch and pair."""

    def ratio(values: Sequence[float]) -> str:
        found = as_ratio(hodges_lehmann(values, 0.025))
        return f"{found.estimate:.4f} [{found.lower:.4f}, {found.upper:.4f}]"

    pairs = [value for launch in logs for value in launch]
    return [
        title,
        f"  {ratio(pairs)}  95 % interval over {len(pairs)} alternated pairs",
        f"  {ratio([median(launch) for launch in logs])}  over the medians of {len(logs)} launches",
    ]


@contextmanager
def bare_loop(interpreter: str, arguments: Sequence[str], cores: Sequence[int]) -> Iterator[Turn]:
    """Start the plain script bench.bare_loop under mpirun, one rank a core. Yield a function that
    runs a block and returns its seconds; the ranks are stopped before and after. Raises
    RuntimeError if it does not start."""
    mpirun = str(find_mpirun(Path(interpreter)))
    command = [mpirun, "-np", str(len(cores)), "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "mpi_yield_when_idle", "1", interpreter, "-m", "bench.bare_loop"]
    process = subprocess.Popen(
        [*command, *arguments, ",".join(map(str, cores))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**rank_environment(interpreter), "TF_CPP_MIN_LOG_LEVEL": "2"},
        cwd=ROOT,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def send(signum: int) -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for pid in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signum)

    def block() -> float:
        send(signal.SIGCONT)
        stdin.write(f"{STEPS}\n")
        stdin.flush()
        seconds = float(stdout.readline())
        send(signal.SIGSTOP)
        return seconds

    try:
        if stdout.readline() != "ready\n":
            raise RuntimeError("the bare loop did not start")
        send(signal.SIGSTOP)
        yield block
    finally:
        send(signal.SIGCONT)
        with suppress(OSError):
            stdin.write("0\n")
            stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
