"""The mpirun of a session, with a stand-in for pytest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvdperf.launch import outer_mpirun
from hvdperf.launch.outer_mpirun import END_S
from tests.support.leftovers import ended
from tests.support.whole_sessions import MPIRUN, environment_of_sessions

pytestmark = pytest.mark.mpirun


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def mpirun(
    tmp_path: Path, session: str, *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    """Start a rank that is this shell script."""
    return subprocess.Popen(
        [MPIRUN, *(arguments or ("-np", "1")), script(tmp_path / "pytest", session)],
        env={**environment_of_sessions(), "TMPDIR": str(tmp_path), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("session", "status"),
    [
        ('echo 6 >"$HVDPERF_STATUS_FILE"', 6),
        ('echo 0 >"$HVDPERF_STATUS_FILE"', 0),
        ('echo running >"$HVDPERF_STATUS_FILE"; exit 3', 1),
    ],
)
def test_the_exit_status_is_the_one_that_rank_0_has_left(tmp_path, session, status):
    process = mpirun(tmp_path, session)
    process.communicate(timeout=60)
    assert process.returncode == status
    assert [each.name for each in tmp_path.iterdir() if "status" in each.name] == []


def test_an_mpirun_that_does_not_end_after_rank_0_is_ended(tmp_path):
    process = mpirun(tmp_path, 'echo 6 >"$HVDPERF_STATUS_FILE"; echo $$; exec sleep 600')
    assert process.stdout is not None
    rank = int(process.stdout.readline())
    began = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 6
    assert time.monotonic() - began < 3 * END_S
    assert ended([rank])


def test_a_signal_reaches_rank_0_once_which_then_takes_its_time(tmp_path):
    waits = 'trap "echo ending; sleep 0.3; echo 2 >$HVDPERF_STATUS_FILE; exit" TERM'
    process = mpirun(tmp_path, f"{waits}; echo runs; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == ("ending\n", 2)


def test_a_host_without_a_daemon_is_named_in_the_last_line(tmp_path):
    shell = script(tmp_path / "shell", "echo no route; exit 255")
    process = mpirun(
        tmp_path, "exit 0", *("--host", "nowhere:1", "-np", "1"), OMPI_MCA_plm_rsh_agent=shell
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 255
    last = errors.splitlines()[-1]
    assert last.startswith(f"ERROR: nowhere: Open MPI's daemon does not start: {shell} returned")
    assert f"see whether `{shell} nowhere true` works" in last


def test_a_checkout_whose_path_has_a_blank_starts_its_daemons(tmp_path):
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
        Path(MPIRUN).parent / "orterun",
    ]
    session = script(tmp_path / "pytest", "exit 0")
    done = subprocess.run(
        [*command, "--host", "nowhere:1", "-np", "1", session],
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
    assert (tmp_path / "called").read_text() == "-p\n"
    assert done.stderr.splitlines()[-1].startswith("ERROR: nowhere: ")
