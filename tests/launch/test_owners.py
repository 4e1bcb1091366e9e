"""A process ends with those that it belongs to, and outlives those that it was detached from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hvdperf.launch.ends.owners import LOOK_S
from hvdperf.launch.processes import is_running
from tests.support.leftovers import ended

# Prints its id and then sleeps; it stands for a session.
SESSION = f"""
import os, signal, sys, time
sys.path.insert(0, {str(Path.cwd())!r})
from hvdperf.launch.ends.owners import end_with, owners
signal.signal(signal.SIGTERM, signal.default_int_handler)
end_with(owners())
print(os.getpid(), flush=True)
try:
    time.sleep(60)
finally:
    STUCK and time.sleep(60)
"""


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Ids of processes that end with the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def start(pids: list[int], command: str, stuck: bool = False) -> tuple[subprocess.Popen[str], int]:
    """Start a shell's command line, in which SESSION stands for the session; return the shell and
    the id of the session's process."""
    code = SESSION.replace("STUCK", str(stuck))
    shell = subprocess.Popen(
        ["sh", "-c", command.replace("SESSION", '"$0" -c "$1"'), sys.executable, code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    session = int(shell.stdout.readline())
    pids += [shell.pid, session]
    return shell, session


BELOW_A_TIMEOUT = 'timeout 60 sh -c \'"$0" -c "$1" & wait\' "$0" "$1" & wait'


@pytest.mark.parametrize(
    ("command", "stuck"),
    [("SESSION & wait", False), (BELOW_A_TIMEOUT, False), ("SESSION & wait", True)],
)
def test_a_session_ends_with_each_of_its_ancestors(started, command, stuck):
    shell, session = start(started, command, stuck)
    shell.kill()
    shell.wait()
    assert ended([session])


@pytest.mark.parametrize("command", ["setsid SESSION & wait", "nohup SESSION & wait"])
def test_a_detached_session_lives_on(started, command):
    shell, session = start(started, command)
    shell.kill()
    shell.wait()
    time.sleep(3 * LOOK_S)
    assert is_running(session)


def test_a_directory_is_gone_after_a_process_was_killed(tmp_path):
    code = (
        "import sys, time; from hvdperf.launch.ends.scratch import scratch_directory;"
        "print(scratch_directory('hvdperf-'), flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip())
    (directory / "below").mkdir()
    assert directory.parent == tmp_path
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
