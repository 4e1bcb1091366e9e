"""The process that forks ranks: it, its stubs or its ranks fail or hang, and nothing stays behind.

Here TensorFlow is a module that does what the test wants, so that a start takes little time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.launch.processes import is_running
from hvdperf.worker.process import stat_fields
from tests.support.groups import MakeStarter, failure_of, horovod
from tests.support.leftovers import ended, launched

pytestmark = pytest.mark.mpirun
SOON = 20.0
# In ranks whoever uses it waits; the server's import of the strategies fails.
HANGS_IN_RANKS = """
import time

def __getattr__(name):
    with open("/proc/self/comm") as comm:
        if comm.read().startswith("hvd-rank") and not name.startswith("__"):
            time.sleep(600)
    raise AttributeError(name)
"""
STARTS_A_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=[600], daemon=True).start()
"""
Import = Callable[[str], None]


@pytest.fixture
def tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Have `import tensorflow` run some code. Horovod is empty."""
    packages = tmp_path / "packages"
    (packages / "horovod").mkdir(parents=True)
    for name in ("__init__", "tensorflow"):
        (packages / "horovod" / f"{name}.py").touch()
    # For the ranks of this file, and for the process of this file that forks them.
    monkeypatch.setenv("PYTHONPATH", str(packages))

    def write(code: str) -> None:
        (packages / "tensorflow.py").write_text(code)

    return write


@pytest.fixture
def make_arm_launcher(arm_launchers: MakeStarter) -> Iterator[MakeStarter]:
    """Yield a function that makes launchers of arms, each with a server of its own that forks their
    ranks until the test ends."""
    with ExitStack() as end:

        def make(launcher: str) -> ArmLauncher:
            made = arm_launchers(launcher)
            end.enter_context(made.forking(pytest.fail))
            return made

        yield make


def start(arm_launcher: ArmLauncher) -> LiveLaunch:
    return arm_launcher.start(horovod(2), (), data_seed=1, share_startup=False)


def start_importing(arm_launcher: ArmLauncher) -> LiveLaunch:
    """Wait until both ranks are in their import phase."""
    group = start(arm_launcher)
    assert arm_launcher.hub.pump_until(
        lambda: [rank.phase for rank in group.ranks] == ["import"] * 2, time.monotonic() + SOON
    )
    return group


def processes(arm_launcher: ArmLauncher, name: str = "hvd-") -> dict[int, str]:
    """Those that the starter's launches consist of, with their names."""
    return {
        pid: its for pid, its in launched(arm_launcher.hub.port).items() if its.startswith(name)
    }


def parent_of(pid: int) -> int:
    return int(stat_fields(pid)[1])


def test_every_process_says_what_it_is_and_ends_with_its_launch(
    make_arm_launcher: MakeStarter, launcher: str, tensorflow: Import
) -> None:
    tensorflow(HANGS_IN_RANKS)
    arm_launcher = make_arm_launcher(launcher)
    first, second = start_importing(arm_launcher), start_importing(arm_launcher)
    names = sorted(processes(arm_launcher).values())
    assert names == ["hvd-rank-0"] * 2 + ["hvd-rank-1"] * 2 + ["hvd-server"] + ["hvd-stub"] * 4
    (server,) = processes(arm_launcher, "hvd-server")
    ranks = processes(arm_launcher, "hvd-rank")
    assert {parent_of(rank) for rank in ranks} == {server}
    assert {os.getsid(rank) for rank in ranks} == set(ranks)
    assert sorted(rank.pid for group in (first, second) for rank in group.ranks) == sorted(ranks)
    first.end()
    assert ended([rank.pid for rank in first.ranks])
    assert len(processes(arm_launcher, "hvd-rank")) == 2, "the other launch goes on"
    second.end()
    assert ended([rank.pid for rank in second.ranks])
    assert list(processes(arm_launcher).values()) == ["hvd-server"]


@pytest.mark.parametrize("victim", ["hvd-server", "hvd-stub", "hvd-rank-1"])
def test_whichever_process_is_killed_the_launch_ends_and_is_explained(
    make_arm_launcher: MakeStarter, launcher: str, tensorflow: Import, victim: str
) -> None:
    tensorflow(HANGS_IN_RANKS)
    arm_launcher = make_arm_launcher(launcher)
    group = start_importing(arm_launcher)
    everything = processes(arm_launcher)
    (killed, *_) = processes(arm_launcher, victim)
    os.kill(killed, signal.SIGKILL)
    failure = failure_of(lambda: group.wait_ready(SOON))
    assert failure.phase == "import"
    assert "the process ended without a report" in failure.cause
    # mpirun tells the end of one rank only, which may be another one.
    assert "(killed by signal 9, SIGKILL)" in failure.cause
    server_ended = "hvd-server, which forks ranks, ended (killed by signal 9, SIGKILL)"
    assert (server_ended in failure.cause) == (victim == "hvd-server")
    if victim == "hvd-rank-1":
        assert failure.rank == 1
    left = [pid for pid, name in everything.items() if name != "hvd-server" or pid == killed]
    assert ended(left)
    # The next launch of the round starts all the same.
    start_importing(arm_launcher).end()


def test_whichever_processes_are_stopped_nothing_of_the_launch_stays(
    make_arm_launcher: MakeStarter, launcher: str, tensorflow: Import
) -> None:
    tensorflow(HANGS_IN_RANKS)
    arm_launcher = make_arm_launcher(launcher)
    group = start_importing(arm_launcher)
    everything = processes(arm_launcher)
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    other = start(arm_launcher)
    failure = failure_of(lambda: other.wait_ready(2.0))
    assert failure.rank == 0
    assert "it never connected (hvd-server, which forks ranks, is stopped)" in failure.cause
    group.end()
    assert ended([pid for pid, name in everything.items() if name != "hvd-server"])


def test_a_stopped_group_dies_with_the_session(
    tensorflow: Import, launcher: str, tmp_path: Path
) -> None:
    """SIGKILL of the driver while a group is paused: the kernel ends the ranks all the same, and
    the server that has forked them."""
    tensorflow(HANGS_IN_RANKS)
    script = Path(__file__).with_name("pause_a_group.py")
    command = [sys.executable, str(script), launcher, str(tmp_path / "scratch")]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 3
    assert all(map(is_running, pids))
    driver.kill()
    driver.wait()
    assert ended(pids)


def test_an_import_that_hangs_is_named_with_its_place(
    make_arm_launcher: MakeStarter, tensorflow: Import
) -> None:
    tensorflow("import time\ntime.sleep(600)")
    group = start(make_arm_launcher("mpirun"))
    failure = failure_of(lambda: group.wait_ready(4.0))
    assert (failure.rank, failure.phase) == (0, "import")
    assert "hvd-server, which forks ranks, still imports TensorFlow and Horovod" in failure.cause
    assert "raise startup_deadline_s" in failure.cause
    assert [line for line in failure.tail if "[hvd-server]" in line and "tensorflow.py" in line]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("raise ImportError('no libcudart')", "ImportError: no libcudart"),
        ("import os\nos._exit(7)", "the process ended without a report (exit status 7)"),
    ],
)
def test_an_import_that_fails_is_that_of_the_rank(
    arm_launchers: MakeStarter, tensorflow: Import, code: str, cause: str
) -> None:
    tensorflow(code)
    arm_launcher, told = arm_launchers("agents"), list[str]()
    with arm_launcher.forking(told.append):
        group = start(arm_launcher)
        failure = failure_of(lambda: group.wait_ready(SOON))
    assert failure.rank is not None
    assert failure.phase == "import"
    assert cause in failure.cause
    assert told == (
        [f"the ranks were started as fresh processes: {cause}"] if "libcudart" in cause else []
    )


def test_a_process_with_several_threads_is_not_forked(
    arm_launchers: MakeStarter, tensorflow: Import
) -> None:
    tensorflow(STARTS_A_THREAD + HANGS_IN_RANKS)
    arm_launcher, told = arm_launchers("mpirun"), list[str]()
    with arm_launcher.forking(told.append):
        group = start_importing(arm_launcher)
        (server,) = processes(arm_launcher, "hvd-server")
        assert server not in map(parent_of, processes(arm_launcher, "hvd-rank"))
        group.end()
    assert len(told) == 1
    assert "these threads run after the import: " in told[0]
