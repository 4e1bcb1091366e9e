"""A rank that raises, exits, is killed or hangs: named, explained, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hvdperf.launch.helpers import scratch_directory
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import SWEEP, Arm, BlockKind
from hvdperf.plan.data import DataSource
from hvdperf.plan.options import LAUNCHERS
from hvdperf.plan.questions import Fault
from hvdperf.records.rounds import BlockReport
from hvdperf.worker.protocol import Phase
from hvdperf.worker.strategies import Strategy
from tests.support.groups import (
    DEADLINE_S,
    WORKLOAD,
    MakeStarter,
    Start,
    failure_of,
    horovod,
    single,
)
from tests.support.leftovers import (
    all_sockets,
    descriptors,
    ended,
    eventually,
    launched,
    open_sockets,
    shared_memory_files,
)

pytestmark = pytest.mark.mpirun
ROOT = Path(__file__).resolve().parents[2]

CAUSES = {
    "raise": "InjectedFault: ",
    "exit": "the process ended without a report (exit status 3)",
    "kill": "the process ended without a report (killed by signal 9, SIGKILL)",
    "hang": "no answer after",
}
# Horovod's own watch over stalled operations speaks before the deadline where it does, over MPI.
STALL_CHECK_S, STALL_SHUTDOWN_S = 2, 4
HANG_DEADLINE_S = 6.0


@pytest.fixture(autouse=True)
def _quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", str(STALL_CHECK_S))
    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(STALL_SHUTDOWN_S))


# How the kinds end over the other launcher, tests/launch/test_fork_server.py shows.
@pytest.mark.parametrize(
    ("launcher", "kind"),
    [
        *(("mpirun", kind) for kind in ("raise", "exit", "hang")),
        *(("agents", kind) for kind in ("kill", "hang")),
    ],
)
def test_the_failing_rank_is_named_and_nothing_stays(
    make_arm_launcher: MakeStarter, launcher: str, kind: str, tmp_path: Path
) -> None:
    arm_launcher = make_arm_launcher(
        launcher, Fault(kind, rank=1), order_deadline_s=HANG_DEADLINE_S
    )
    group = arm_launcher.start(horovod(2), {BlockKind.FULL}, data_seed=1, share_startup=False)
    group.wait_ready(DEADLINE_S)
    pids = [rank.pid for rank in group.ranks]
    sockets, shared_files = open_sockets(pids), shared_memory_files(pids)
    assert sockets
    # Open MPI's are in directories of the launch's own; Gloo has none.
    assert all("hvdperf-" in str(path.parent) for path in shared_files)
    assert bool(shared_files) == LAUNCHERS[launcher].over_mpi
    failure = failure_of(lambda: group.ask("block", HANG_DEADLINE_S, kind="full", steps=5))
    assert (failure.rank, failure.phase) == (1, "block")
    assert CAUSES[kind] in failure.cause
    if kind == "raise":
        assert any("InjectedFault" in line for line in failure.tail), "the end of its stderr"
        assert all(line.startswith("[rank 1]") for line in failure.tail)
    # Horovod's own diagnosis, which comes long before the call stacks. Over Gloo, Horovod 0.28.1
    # prints none.
    if kind == "hang" and LAUNCHERS[launcher].over_mpi:
        assert "rank 1 has not submitted" in failure.cause
    assert ended(pids)
    assert not [path for path in shared_files if path.exists()]
    assert not sockets & all_sockets()
    assert not list(arm_launcher.scratch.glob("launch-*"))


def test_a_rank_that_stays_stopped_is_named_and_one_that_goes_on_says_so(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60")
    # Over Gloo, which has a limit of its own.
    group = start("agents", horovod(2), order_deadline_s=HANG_DEADLINE_S)
    stopped = group.ranks[0].pid
    timers = [
        threading.Timer(seconds, os.kill, (stopped, signum))
        for seconds, signum in ((0.3, signal.SIGSTOP), (1.3, signal.SIGCONT))
    ]
    for timer in timers:
        timer.start()
    block = group.reports(BlockReport, "block", HANG_DEADLINE_S, kind="full", steps=50)
    for timer in timers:
        timer.join()
    assert [each.resumed for each in block] == [1, 0]
    os.kill(stopped, signal.SIGSTOP)
    failure = failure_of(lambda: group.ask("block", HANG_DEADLINE_S, kind="full", steps=5))
    assert (failure.rank, failure.of_node) == (0, True)


def test_a_damaged_record_is_named_by_a_command_for_its_directory(
    make_arm_launcher: MakeStarter, tmp_path: Path
) -> None:
    data = tmp_path / "imagenet"
    code = "import pathlib, sys; from hvdperf.models.inputs.sample_sets import write_imagenet; "
    code += "write_imagenet(pathlib.Path(sys.argv[1]), 1, 8)"
    subprocess.run([sys.executable, "-c", code, str(data)], cwd=ROOT, check=True)
    (victim,) = data.glob("train-*")
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content)
    arm_launcher = make_arm_launcher("mpirun")
    arm_launcher.data = {"imagenet": DataSource("imagenet", str(data), 1001)}
    workload = replace(WORKLOAD, dataset="imagenet")
    group = arm_launcher.start(single(workload), [BlockKind.FULL], 1, share_startup=False)
    failure = failure_of(lambda: group.wait_ready(DEADLINE_S))
    assert failure.rank == 0
    assert str(data) in failure.cause
    assert f"imagenet_files {data} --decode" in failure.cause
    assert "\n" not in failure.cause


def killed_while_stopped(group: LiveLaunch) -> None:
    group.pause()
    os.kill(group.ranks[1].pid, signal.SIGKILL)
    group.resume()
    assert failure_of(lambda: group.ask("evidence", DEADLINE_S)).rank == 1


def dropped(group: LiveLaunch) -> None:
    """Kill and end the group without an order to close, as after Ctrl-C."""
    group.kill()
    group.end()


ENDS = (
    LiveLaunch.close,
    partial(LiveLaunch.close, leave_group=True),
    killed_while_stopped,
    dropped,
)


@pytest.mark.parametrize(
    ("launcher", "strategy"),
    [*((name, Strategy.HOROVOD) for name in LAUNCHERS), ("mpirun", Strategy.BARE)],
)
def test_launches_leave_nothing_however_they_end(
    make_arm_launcher: MakeStarter, launcher: str, strategy: Strategy
) -> None:
    starter = make_arm_launcher(launcher)
    scratch_directory("the process that removes it stays")
    before = descriptors(os.getpid())
    for end in ENDS:
        group = starter.start(Arm(SWEEP, strategy, 2), (), 1, False, last_phase=Phase.INIT)
        group.wait_ready(DEADLINE_S)
        end(group)
    # Those of the server that forks ranks are its own.
    assert eventually(lambda: not launched(starter.hub.port))
    assert not list(starter.scratch.glob("launch-*"))
    assert descriptors(os.getpid()) == before
