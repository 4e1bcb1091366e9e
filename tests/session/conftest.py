"""Fixtures of whole sessions."""

from __future__ import annotations

import subprocess
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
    """Return a function that runs a session to its end. made_up: it starts no ranks, with these
    settings of tests.support.made_up_ranks."""

    def session(
        *arguments: str, ranks: int = 0, made_up: bool = False, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        words = ["perf/", *options, *arguments]
        if made_up:
            warm: Warm = request.getfixturevalue("warm")
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
        return Terminal(
            started,
            whole_sessions.ROOT,
            {**whole_sessions.environment_of_sessions(), "MADE_UP_SECONDS": "1.5"},
        )

    return session


@pytest.fixture
def press_ctrl_c(sit_before: whole_sessions.SitBefore, tmp_path: Path) -> whole_sessions.Press:
    """Return a function that presses Ctrl-C in the first round of a session before a terminal,
    checks how it ends, and returns the terminal. capture: pytest's option. ranks: of an outer
    mpirun; without one, the session starts no ranks."""

    def pressed(capture: str, ranks: int = 0) -> Terminal:
        junit = tmp_path / "junit.xml"
        written = f"--capture={capture}", f"--junitxml={junit}"
        asked = ["-k", "efficiency", "--inject=hang:rank=1", *written]
        there = sit_before(*asked, ranks=ranks, made_up=not ranks)
        there.wait_for(b"round 1 of 8")
        workers = whole_sessions.wait_for_workers(there.pid) if ranks else []
        there.press(b"\x03")
        assert there.end() == 2
        lines = there.shown()
        at = [number for number, line in enumerate(lines) if "round 1 of 8" in line]
        assert len(at) == 1, "the line of progress, and nothing else"
        assert any("KeyboardInterrupt" in line for line in lines)
        assert any("hvdperf: nothing measured" in line for line in lines)
        assert any("exit status 2: interrupted" in line for line in lines)
        assert not any("Benchmark" in line for line in lines), "there was nothing to record"
        assert whole_sessions.documents(tmp_path)["session.json"]["exit_status"] == 2
        assert "round 1" not in junit.read_text()
        assert leftovers.ended(workers)
        return there

    return pressed
