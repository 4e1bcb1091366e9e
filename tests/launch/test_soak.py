"""The soak sees what launches leave behind, and sound ones leave nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.soak import KINDS, compared, soak, take_census
from hvdperf.plan.options import LAUNCHERS
from hvdperf.worker.protocol import DRIVER_VARIABLE

PORT = 54321


@contextmanager
def a_process(scratch: Path):
    address = {DRIVER_VARIABLE: f"127.0.0.1:{PORT}:token"}
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], env=address, stdin=-1)
    yield
    sleeper.communicate()


@contextmanager
def a_zombie(scratch: Path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    yield
    os.waitpid(child, 0)


@contextmanager
def a_file(path: Path):
    path.touch()
    yield
    path.unlink()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which launches share memory, and where temporary files are below this
    test's own: other tests start launches meanwhile."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    made = tmp_path / "shared"
    made.mkdir()
    monkeypatch.setattr("bench.soak.SHARED_MEMORY", made)
    return made


LEFT = (
    ("processes", a_process),
    ("processes", a_zombie),
    ("file descriptors", lambda scratch: socket.socket()),
    ("shared memory", lambda scratch: a_file(scratch / "shared" / "left")),
    ("temporary files", lambda scratch: a_file(scratch / "left")),
)


@pytest.mark.usefixtures("shared")
def test_what_is_left_behind_is_named(tmp_path: Path) -> None:
    before = take_census(tmp_path, [PORT])
    for what, leave in LEFT:
        with leave(tmp_path):
            table, left = compared(before, take_census(tmp_path, [PORT]))
        assert any(line.startswith(f"left behind, of {what}: ") for line in left)
        row = next(line for line in table if line.startswith(what))
        assert int(row.split()[-1]) == 1
        assert compared(before, take_census(tmp_path, [PORT]))[1] == []


@pytest.mark.mpirun
def test_launches_leave_nothing(
    tmp_path: Path,
    shared: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hvdperf.launch.launchers.shared_memory_directory", lambda ranks: shared)
    assert {kind.launcher for kind in KINDS} == LAUNCHERS.keys()
    assert {(bool(kind.fails), kind.forked) for kind in KINDS} == {
        (fails, forked) for fails in (True, False) for forked in (True, False)
    }
    assert soak(3, tmp_path) == []
    said = capsys.readouterr().out
    assert "3 launches in" in said
    assert "   1 mpirun bare: killed while stopped" in said
