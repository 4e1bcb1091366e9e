"""A real mpirun around a session: with slots that stop or die, and with a stand-in for pytest."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdperf.launch import outer_mpirun
from hvdperf.launch.outer_mpirun import END_S
from tests.support.leftovers import children, ended, eventually
from tests.support.sleeping_case import BEGUN, OVER
from tests.support.whole_sessions import BIN, MPIRUN, ROOT, environment_of_sessions

pytestmark = pytest.mark.mpirun


def mpirun(*words: str, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [MPIRUN, *words],
        cwd=ROOT,
        env={**environment_of_sessions(), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def of_script(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    """Start a rank that is this shell script, and stands for pytest."""
    return mpirun("-np", "1", script(tmp_path / "pytest", text), TMPDIR=str(tmp_path))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "junit.xml"


@pytest.fixture
def over(tmp_path: Path) -> Path:
    """Return the path of the file that ends the case of `session`."""
    return tmp_path / "over"


@pytest.fixture
def session(report: Path, over: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """One of a single case that has begun and waits, and the processes of its ranks."""
    case, begun = "tests/support/sleeping_case.py", report.with_name("begun")
    command = str(BIN / "pytest"), case, "-q", f"--junitxml={report}"
    ranks = "-np", "2", "--oversubscribe"
    own = {BEGUN: str(begun), OVER: str(over), "TMPDIR": str(report.parent)}
    started = mpirun(*ranks, *command, **own)
    assert eventually(begun.exists, 40)
    # A slot that has connected has a directory of its own.
    assert eventually(lambda: any(report.parent.glob("hvdperf-slot-*")), 40)
    # Its other child removes its files.
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children(started.pid)}
    (orterun,) = (pid for pid, command in commands.items() if "orterun" in command)
    yield started, children(orterun)
    started.kill()
    started.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads, which the scheduler counts in nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def test_a_slot_idles_and_a_session_ends_although_it_is_stopped(session, report, over) -> None:
    started, ranks = session
    slot = max(ranks)
    assert b"OMPI_COMM_WORLD_RANK=1" in Path(f"/proc/{slot}/environ").read_bytes()
    before, began = cpu_seconds(slot), time.monotonic()
    time.sleep(2)
    assert cpu_seconds(slot) - before < 0.01 * (time.monotonic() - began), "of a core"
    os.kill(slot, signal.SIGSTOP)
    over.touch()
    output, _ = started.communicate(timeout=50)
    assert "1 passed" in output, "the report comes first"
    assert report.exists()
    gone = f"ERROR: the slot of rank 1 on {socket.gethostname()} is gone"
    assert f"{gone}: it did not answer 'leave'" in output
    assert started.returncode == 1
    assert ended(ranks)


def test_a_session_outlives_a_slot_that_dies_and_names_the_rank(session, report, over) -> None:
    started, ranks = session
    os.kill(max(ranks), signal.SIGKILL)
    time.sleep(1)
    assert not report.exists()
    over.touch()
    output, _ = started.communicate(timeout=30)
    assert report.exists()
    assert (
        f"ERROR: the slot of rank 1 on {socket.gethostname()} is gone: its process has ended"
        in output
    )
    assert started.returncode == 1
    assert ended(ranks)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("session", "status"),
    [
        ('echo 6 >"$HVDPERF_STATUS_FILE"', 6),
        ('echo 0 >"$HVDPERF_STATUS_FILE"', 0),
        ('echo running >"$HVDPERF_STATUS_FILE"; exit 3', 1),
    ],
)
def test_the_exit_status_is_the_one_that_rank_0_has_left(tmp_path, session, status):
    process = of_script(tmp_path, session)
    process.communicate(timeout=60)
    assert process.returncode == status
    assert [each.name for each in tmp_path.iterdir() if "status" in each.name] == []


def test_an_mpirun_that_does_not_end_after_rank_0_is_ended(tmp_path):
    process = of_script(tmp_path, 'echo 6 >"$HVDPERF_STATUS_FILE"; echo $$; exec sleep 600')
    assert process.stdout is not None
    rank = int(process.stdout.readline())
    began = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 6
    assert time.monotonic() - began < 3 * END_S
    assert ended([rank])


def test_a_signal_reaches_rank_0_once_which_then_takes_its_time(tmp_path):
    waits = 'trap "echo ending; sleep 0.3; echo 2 >$HVDPERF_STATUS_FILE; exit" TERM'
    process = of_script(tmp_path, f"{waits}; echo runs; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert (output.count("ending\n"), process.returncode) == (1, 2)


def test_a_checkout_with_a_blank_starts_daemons_and_a_host_without_one_is_named(tmp_path):
    own = Path(outer_mpirun.__file__).parent
    package = tmp_path / "a blank" / "hvdperf"
    launch = shutil.copytree(own, package / "launch")
    shutil.copy(own.parent / "__init__.py", package)
    shell = script(tmp_path / "shell", f'echo "$1" >{tmp_path}/called; exit 255')
    command = [
        sys.executable,
        "-I",
        "-S",
        launch / "outer_mpirun.py",
        Path(MPIRUN).with_name("orterun"),
    ]
    done = subprocess.run(
        [*command, "--host", "nowhere:1", "-np", "1", script(tmp_path / "pytest", "exit 0")],
        env={
            **environment_of_sessions(),
            "OMPI_MCA_plm_rsh_agent": shell,
            "OMPI_MCA_plm_rsh_args": "-p 22",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 255
    assert (tmp_path / "called").read_text() == "-p\n"
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ERROR: nowhere: Open MPI's daemon does not start: {shell} returned")
    assert f"see whether `{shell} -p 22 nowhere true` works" in last
