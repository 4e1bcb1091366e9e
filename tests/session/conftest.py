"""Fixtures of whole sessions."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import leftovers, whole_sessions
from tests.support.terminals import Terminal
from tests.support.warm import Warm


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    profile = tmp_path / "tiny.toml"
    profile.write_text(whole_sessions.PROFILE)
    return [
        f"--profile={profile}",
        f"--results={tmp_path / 'results'}",
        "--np=2",
        "--oversubscribe",
    ]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    process = Warm("pytest", whole_sessions.environment_of_sessions())
    yield process
    process.close()


@pytest.fixture
def run(options: list[str], request: pytest.FixtureRequest) -> whole_sessions.Run:
    """Return a function that runs a session to its end. made_up: it starts no ranks."""

    def session(
        *arguments: str, ranks: int = 0, made_up: bool = False
    ) -> subprocess.CompletedProcess[str]:
        words = ["perf/", *options, *arguments]
        if made_up:
            warm: Warm = request.getfixturevalue("warm")
            settings = {name: os.environ[name] for name in os.environ if name.startswith("MADE_UP")}
            return warm.run(["-p", "tests.support.made_up_ranks", *words], settings)
        return whole_sessions.completed(whole_sessions.command(words, ranks))

    return session


@pytest.fixture
def plan(warm: Warm, options: list[str]) -> whole_sessions.Run:
    """Return a function that runs a session which ends before it measures."""

    def session(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return warm.run(["perf/", *options, *arguments], settings)

    return session


@pytest.fixture
def sit_before(options: list[str]) -> whole_sessions.SitBefore:
    """Return a function that starts a session before a terminal."""

    def session(*arguments: str, ranks: int = 0, made_up: bool = False) -> Terminal:
        started = whole_sessions.command(["perf/", *options, *arguments], ranks, made_up)
        # A round in which the live line is rewritten at least once.
        return Terminal(
            started,
            whole_sessions.ROOT,
            {**whole_sessions.environment_of_sessions(), "MADE_UP_SECONDS": "1.5"},
        )

    return session


@pytest.fixture
def interrupt(options: list[str], tmp_path: Path) -> whole_sessions.Interrupt:
    """Return a function that interrupts a session in its first round, by a signal, and checks how
    it ends."""

    def interrupted(how: signal.Signals, ranks: int = 0, made_up: bool = False) -> None:
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        arguments = ["perf/", *options, "-k", "efficiency", "--inject=hang:rank=1"]
        process = subprocess.Popen(
            whole_sessions.command(arguments, ranks, made_up),
            cwd=whole_sessions.ROOT,
            env={**whole_sessions.environment_of_sessions(), "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell that runs the tests in the background has them, and their children, ignore it.
            preexec_fn=lambda: signal.signal(how, signal.SIG_DFL),
        )
        assert process.stdout is not None
        late = threading.Timer(120, process.kill)
        late.start()
        output = ""
        while "round 1 of 8" not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
        workers = [] if made_up else whole_sessions.wait_for_workers(process.pid)
        process.send_signal(how)
        output += process.stdout.read()
        process.wait()
        late.cancel()
        assert process.returncode != 0
        assert "KeyboardInterrupt" in output
        assert "hvdperf:" in output, "no summary was written"
        assert "exit status 2: interrupted" in output
        assert "Benchmark" not in output, "there was nothing to record"
        assert whole_sessions.documents(tmp_path)["session.json"]["exit_status"] == 2
        assert leftovers.ended(workers)
        if ranks == 0:  # else mpirun may have killed them before they were done
            assert list(temporary.glob("hvdperf-*")) == []

    return interrupted


@pytest.fixture
def press_ctrl_c(sit_before: whole_sessions.SitBefore, tmp_path: Path) -> whole_sessions.Press:
    """Return a function that presses Ctrl-C in the first round of a session before a terminal,
    checks how it ends, and returns the terminal. capture: pytest's option."""

    def pressed(capture: str, made_up: bool = False) -> Terminal:
        junit = tmp_path / "junit.xml"
        written = f"--capture={capture}", f"--junitxml={junit}"
        there = sit_before("-k", "efficiency", "--inject=hang:rank=1", *written, made_up=made_up)
        # Once for good, and twice in a line that is rewritten.
        there.wait_for(b"round 1 of 8", times=3)
        workers = [] if made_up else whole_sessions.wait_for_workers(there.pid)
        there.press(b"\x03")
        assert there.end() == 2
        lines = there.shown()
        at = [number for number, line in enumerate(lines) if "round 1 of 8" in line]
        assert len(at) == 1, "the line of progress, and nothing else"
        assert any("KeyboardInterrupt" in line for line in lines)
        assert any("hvdperf: nothing measured" in line for line in lines)
        assert "round 1" not in junit.read_text()
        assert leftovers.ended(workers)
        return there

    return pressed
