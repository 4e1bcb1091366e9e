"""A rank that raises, exits, is killed or hangs: named, explained, and nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.launch.live_launch import LaunchFailed
from hvdperf.launch.processes import is_running
from hvdperf.plan.arms import BlockKind
from hvdperf.plan.data import DataSource
from hvdperf.plan.options import LAUNCHERS
from hvdperf.plan.questions import Fault
from hvdperf.records.rounds import BlockReport
from tests.support.groups import DEADLINE_S, WORKLOAD, MakeStarter, Start, horovod
from tests.support.leftovers import all_sockets, ended, open_sockets, shared_memory_files

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


@pytest.mark.parametrize("kind", sorted(CAUSES))
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
    with pytest.raises(LaunchFailed) as caught:
        group.ask("block", HANG_DEADLINE_S, kind="full", steps=5)
    failure = caught.value.failure
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


def test_a_hang_during_start_up_is_named(make_arm_launcher: MakeStarter) -> None:
    arm_launcher = make_arm_launcher("mpirun", Fault("hang", rank=1, phase="build"))
    group = arm_launcher.start(horovod(2), {BlockKind.FULL}, data_seed=1, share_startup=False)
    with pytest.raises(LaunchFailed) as caught:
        # By then the other rank is past its build on a busy machine, too.
        group.wait_ready(8.0)
    assert (caught.value.failure.rank, caught.value.failure.phase) == (1, "build")


# Over Gloo, which has a limit of its own.
@pytest.mark.parametrize("launcher", ["agents", pytest.param("mpirun", marks=pytest.mark.long)])
def test_a_rank_that_stays_stopped_is_named_and_one_that_goes_on_has_its_time(
    start: Start, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60")
    group = start(launcher, horovod(2), order_deadline_s=HANG_DEADLINE_S)
    stopped = group.ranks[0].pid
    timers = [
        threading.Timer(seconds, os.kill, (stopped, signum))
        for seconds, signum in ((0.3, signal.SIGSTOP), (HANG_DEADLINE_S + 1.0, signal.SIGCONT))
    ]
    for timer in timers:
        timer.start()
    block = group.reports(BlockReport, "block", HANG_DEADLINE_S, kind="full", steps=50)
    for timer in timers:
        timer.join()
    assert [each.resumed for each in block] == [1, 0]
    monkeypatch.setattr("hvdperf.launch.live_launch.STOPPED_S", 1.0)
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(LaunchFailed) as caught:
        group.ask("block", HANG_DEADLINE_S, kind="full", steps=5)
    assert (caught.value.failure.rank, caught.value.failure.of_node) == (0, True)


def test_a_stopped_group_dies_with_the_session(
    cifar10: Path, tmp_path: Path, launcher: str
) -> None:
    """SIGKILL of the driver while a group is paused: the kernel ends the ranks all the same, and
    the server that has forked them."""
    script = Path(__file__).with_name("pause_a_group.py")
    driver = subprocess.Popen(
        [sys.executable, str(script), launcher, str(cifar10), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 3
    assert all(map(is_running, pids))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert ended(pids)


def test_a_damaged_record_is_named_with_its_file(
    make_arm_launcher: MakeStarter, tmp_path: Path
) -> None:
    data = tmp_path / "imagenet"
    code = "import pathlib, sys; from hvdperf.models.inputs.sample_sets import write_imagenet; "
    command = [
        sys.executable,
        "-c",
        f"{code}write_imagenet(pathlib.Path(sys.argv[1]), 2, 8)",
        str(data),
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    (victim,) = data.glob("train-00001-of-*")
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content)
    arm_launcher = make_arm_launcher("mpirun")
    arm_launcher.data = {"imagenet": DataSource("imagenet", str(data), 1001)}
    workload = replace(WORKLOAD, dataset="imagenet")
    group = arm_launcher.start(horovod(2, workload), [BlockKind.FULL], 1, share_startup=False)
    try:
        # Two batches are made ahead of the first step: a shard has no more.
        with pytest.raises(LaunchFailed) as failed:
            group.wait_ready(DEADLINE_S)
    finally:
        group.end()
    assert failed.value.failure.rank == 1
    assert str(victim) in failed.value.failure.cause
    assert re.search(r"record \d", failed.value.failure.cause)
    assert "\n" not in failed.value.failure.cause
