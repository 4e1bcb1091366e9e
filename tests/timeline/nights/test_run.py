"""Nights as a user starts them. Their sessions start no ranks of their own (made_up_ranks)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hvdperf.session.ending import EXIT_STATUS
from hvdperf.timeline.nights.night import Night, read_night
from hvdperf.verdict import Verdict
from tests.support.leftovers import ended
from tests.support.whole_sessions import BIN, PROFILE, ROOT, environment_of_sessions

OWN_CASES = {"weak_scaling[alexnet_s-np2]", "weak_scaling[vgg_16_s-np2]"}
TODAY, TOMORROW = "2026-11-24", "2026-11-25"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that returns the command line of a night."""
    profile = tmp_path / "tiny.toml"
    profile.write_text(PROFILE.replace('["alexnet_s"]', '["alexnet_s", "vgg_16_s"]'))

    def words(*options: str, night: str = TODAY, more: Sequence[str] = ()) -> list[str]:
        asked = ["--series=mine", f"--night={night}", "--no-pair", f"--profile={profile}"]
        made_up = ["-p", "tests.support.made_up_ranks", "-q", "--np=2", "--oversubscribe"]
        chosen = ["-k", "weak_scaling"]
        results = f"--results={tmp_path / 'results'}"
        start = [str(BIN / "hvdperf"), "nightly", "run", *asked, results, *options]
        return [*start, "--", *made_up, *chosen, *more]

    return words


def start(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment_of_sessions(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(words: Sequence[str]) -> tuple[int, str]:
    with start(words) as process:
        output, _ = process.communicate(timeout=120)
    return process.returncode, output


def night_of(tmp_path: Path, date: str = TODAY) -> Night:
    return read_night(tmp_path / f"results/nights/mine/{date}.json")


def sessions(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "results/runs").glob("*"))


def wait_for_a_case(tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    while not list((tmp_path / "results").glob("runs/*/weak_scaling-*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(process: int) -> list[int]:
    return [
        int(pid)
        for path in Path(f"/proc/{process}/task").glob("*/children")
        for pid in path.read_text().split()
    ]


def test_a_night_measures_gates_and_is_done_once(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    words = command(f"--against={BIN / 'python'}")
    status, output = finished(words)
    night = night_of(tmp_path)
    assert [part.is_gate for part in night.parts] == [False, True], output
    own, gate = night.parts
    assert {row.name for row in own.cases} == OWN_CASES
    assert len(gate.cases) == 4, "weak scaling of one replica, too"
    assert own.speeds
    assert not gate.speeds
    assert len(own.hosts) == 1
    assert night.ended_at is not None
    assert night.command.startswith("pytest perf/ --profile=")
    expected = EXIT_STATUS[night.verdict]
    assert status == expected
    assert f"mine, night of {TODAY}: {night.verdict.value} (" in output
    assert (tmp_path / "results/nights/index.html").exists()

    before = sessions(tmp_path)
    status, output = finished(words)
    assert status == expected
    assert f"the night of {TODAY} is over: " in output
    assert sessions(tmp_path) == before


@pytest.mark.parametrize(
    "step",
    [
        "a case",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("look at this machine", "the session", "the reference stack", "the end")
        ),
    ],
)
def test_a_night_that_is_killed_goes_on_and_loses_nothing(
    command: Callable[..., list[str]], tmp_path: Path, step: str
) -> None:
    words = command(f"--against={BIN / 'python'}")
    process = start(words)
    assert process.stdout is not None
    if step == "a case":
        wait_for_a_case(tmp_path)
    else:
        said = f"mine, night of {TODAY}: " if step == "the end" else f"nightly: {step}"
        while not process.stdout.readline().startswith(said):
            assert process.poll() is None
    children = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert ended(children), "the session does not outlive its night"
    decided = {path.name for path in (tmp_path / "results").glob("runs/*/*-np2.json")}

    _, output = finished(words)
    night = night_of(tmp_path)
    assert [part.is_gate for part in night.parts] == [False, True], output
    assert [len(part.cases) for part in night.parts] == [2, 4]
    assert len(sessions(tmp_path)) == 2, "no session was begun twice"
    assert night.ended_at is not None
    assert decided <= {path.name for path in (tmp_path / "results").glob("runs/*/*-np2.json")}


@pytest.mark.long
def test_the_next_night_keeps_what_a_killed_one_had_decided(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    process = start(command())
    wait_for_a_case(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    first = night_of(tmp_path)
    assert first.parts == ()

    finished(command(night=TOMORROW))
    first = night_of(tmp_path)
    (part,) = first.parts
    assert part.exit_status is None
    assert part.cases
    assert first.ended_at is not None
    assert first.verdict in (Verdict.NOT_RUN, Verdict.FAIL)
    second = night_of(tmp_path, TOMORROW)
    assert second.ended_at is not None
    assert second.parts[0].session != part.session


def test_a_night_that_cannot_be_measured_says_why(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    status, output = finished(command(more=["--models=vgg_17"]))
    assert status == 10, output
    night = night_of(tmp_path)
    assert night.verdict is Verdict.NOT_RUN
    assert re.search(r"the session ended with status 4; see its output", night.reason)
    assert "unknown network 'vgg_17'" in output


@pytest.mark.parametrize(
    "signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_night_that_is_interrupted_is_not_over(
    command: Callable[..., list[str]], tmp_path: Path, signum: int
) -> None:
    # The session goes on for a minute.
    process = start(command(more=["--budget=1"]))
    wait_for_a_case(tmp_path)
    # A terminal sends Ctrl-C to the session, too.
    for pid in [process.pid, *(children_of(process.pid) if signum == signal.SIGINT else [])]:
        os.kill(pid, signum)
    output, _ = process.communicate(timeout=60)
    night = night_of(tmp_path)
    assert process.returncode == 10, output
    assert "interrupted; the same command on the same date goes on" in output
    assert night.ended_at is None
    assert night.verdict is Verdict.NOT_RUN
    assert "a session did not end" in night.told
    finished(command())
    night = night_of(tmp_path)
    assert night.ended_at is not None
    assert len(sessions(tmp_path)) == 1


def test_a_gate_that_cannot_start_is_not_overlooked(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    status, _ = finished(command("--against=/no/such/python"))
    night = night_of(tmp_path)
    assert status == 10
    assert [part.is_gate for part in night.parts] == [False]
    assert night.verdict is Verdict.NOT_RUN
    assert "; the session against the reference stack ended with status 4" in night.told


def test_two_nights_at_once_are_refused(command: Callable[..., list[str]], tmp_path: Path) -> None:
    process = start(command())
    assert process.stdout is not None
    assert process.stdout.readline() == "nightly: look at this machine\n"
    status, output = finished(command(night=TOMORROW))
    assert (status, output.count("\n")) == (2, 1), output
    assert "another night is being measured here; wait for its end" in output
    process.communicate(timeout=60)
