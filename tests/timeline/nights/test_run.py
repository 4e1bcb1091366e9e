"""A night that is measured, and one that is watched."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bench.nights import FIRST, Year, nights
from hvdperf.records.documents import Kind
from hvdperf.records.outcome import Measure
from hvdperf.session.ending import EXIT_STATUS
from hvdperf.timeline.nights.night import Night, read_night, write_night
from hvdperf.timeline.nights.run import NightPlan, run
from hvdperf.timeline.nights.series import Series
from hvdperf.timeline.nights.watch import MISSING_STATUS, Watched, write_issues
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import Verdict
from tests.support.leftovers import ended
from tests.support.nights import slowed, slowed_part
from tests.support.whole_sessions import BIN, PROFILE, ROOT, completed, environment_of_sessions

OWN_CASES = {"weak_scaling[alexnet_s-np2]", "weak_scaling[vgg_16_s-np2]"}
TODAY, TOMORROW = "2026-11-24", "2026-11-25"
GATED = "the session against the reference stack"


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
    assert [part.kind for part in night.parts] == [Kind.OWN, Kind.GATE], output
    own, gate = night.parts
    assert {row.name for row in own.cases} == OWN_CASES
    assert len(gate.cases) == 4, "weak scaling of one replica, too"
    assert own.of(Measure.SPEED)
    assert not gate.results
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
    assert f"the night of {TODAY} is over" in output
    assert sessions(tmp_path) == before

    # What FAILs is measured again, and nothing else.
    slow = replace(gate.cases[-1], verdict=Verdict.FAIL, figure=0.9, lower=0.88, upper=0.95)
    failed = replace(gate, cases=(*gate.cases[:-1], slow))
    write_night(tmp_path / "results/nights", replace(night, parts=(own, failed), ended_at=None))
    _, output = finished(words)
    again = night_of(tmp_path).parts[-1]
    assert again.kind is Kind.GATE_AGAIN, output
    assert [row.name for row in again.cases] == [slow.name]


def test_what_is_slower_is_measured_again_at_once_and_counts_like_the_first_time(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    junit = tmp_path / "junit.xml"
    words = command(more=[f"--junitxml={junit}"])
    finished(words)
    night = night_of(tmp_path)
    (own,) = night.parts
    # Ten nights that were ten times as fast, each a little unlike the others.
    for back in range(10, 0, -1):
        part = replace(slowed_part(own, 10 * (1 + 0.01 * (back % 3))), disturbed="")
        date = night.night - timedelta(days=back)
        write_night(tmp_path / "results/nights", replace(night, night=date, parts=(part,)))
    (tmp_path / f"results/nights/mine/{TODAY}.json").unlink()
    for path in sessions(tmp_path):
        shutil.rmtree(path)

    junit.unlink()
    status, output = finished(words)
    night = night_of(tmp_path)
    first, again = night.parts
    assert f'tests="{len(first.cases)}"' in junit.read_text(), "that of the first session"
    assert (first.kind, again.kind) == (Kind.OWN, Kind.AGAIN), output
    assert {each.model for each in again.of(Measure.SPEED)} == {"alexnet_s", "vgg_16_s"}
    assert again.cases == ()
    both = night.speeds["vgg_16_s", 2]
    speeds = (each for part in night.parts for each in part.of(Measure.SPEED))
    parts = [each.values for each in speeds if (each.model, each.world_size) == ("vgg_16_s", 2)]
    assert list(both) == [value for values in parts for value in values]
    assert status == EXIT_STATUS[Verdict.FAIL]
    assert f"since the night of {TODAY}: " in output


def test_a_later_session_writes_none_of_the_files_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--junit-xml a.xml")
    writing = ("--log-file=a.log", "--benchmark-json", "a.json", "--np=2")
    plan = NightPlan(tmp_path, "mine", FIRST.date(), "nightly", arguments=writing)
    options = ("--junit-xml", "--benchmark-json", "--log-file")
    assert plan.later_session() == [*plan.session(), *(f"{each}=/dev/null" for each in options)]


def test_a_second_session_that_ended_is_kept_although_nothing_is_slower_any_more(
    tmp_path: Path,
) -> None:
    (night,) = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:1]
    (own,) = night.parts
    again = replace(own, session=own.session.replace("-1", "-2"), cases=(), kind=Kind.AGAIN)
    interrupted = replace(night, parts=(own, again), ended_at=None, probe={"copy": 1e9})
    write_night(tmp_path / NIGHTS, interrupted)
    plan = NightPlan(tmp_path, night.series, night.night, "nightly", pair=False)
    assert run(plan, print).parts == (own, again)


@pytest.mark.parametrize(
    "step",
    [
        "a case",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("look at this machine", "the session", GATED, "the end")
        ),
    ],
)
def test_a_night_that_is_killed_goes_on_and_loses_nothing(
    command: Callable[..., list[str]], tmp_path: Path, step: str
) -> None:
    # After the session there is nothing left to measure but against the reference stack.
    gated = step in (GATED, "the end")
    words = command(*([f"--against={BIN / 'python'}"] if gated else []))
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
    assert [part.kind for part in night.parts] == [Kind.OWN, Kind.GATE][: 1 + gated], output
    assert [len(part.cases) for part in night.parts] == [2, 4][: 1 + gated]
    assert len(sessions(tmp_path)) == 1 + gated, "no session was begun twice"
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


@pytest.mark.long
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
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
    assert [part.kind for part in night.parts] == [Kind.OWN]
    assert night.verdict is Verdict.NOT_RUN
    assert "; the session against the reference stack ended with status 4" in night.told


def test_two_nights_at_once_are_refused(command: Callable[..., list[str]], tmp_path: Path) -> None:
    process = start(command())
    assert process.stdout is not None
    assert process.stdout.readline() == "nightly: look at this machine\n"
    status, output = finished(command(night=TOMORROW))
    assert (status, output.count("\n")) == (2, 1), output
    assert "another night is being measured here; wait for its end" in output
    process.kill()
    process.communicate()


MADE = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:4]


def judged(night: Night, verdict: Verdict) -> Night:
    (part,) = night.parts
    (row,) = part.cases
    reason = "rank 3 on gpu-02 is the slowest" if verdict is Verdict.FAIL else ""
    return replace(
        night, parts=(replace(part, cases=(replace(row, verdict=verdict, reason=reason),)),)
    )


def after(hours: float, made: Sequence[Night] = MADE) -> Watched:
    ended = made[-1].ended_at
    assert ended is not None
    return Watched(Series("a100", made), ended + timedelta(hours=hours))


def test_a_night_that_is_overdue_is_missing() -> None:
    found = after(25)
    assert found.line() == "a100: PASS: night of 2025-11-27, 1 PASS"
    assert found.status == 0
    found = Watched(Series("h100", ()), FIRST)
    assert found.line() == "h100: MISSING: no complete session yet"
    found = after(29)
    assert found.line() == ("a100: MISSING: last complete session: night of 2025-11-27 (1 PASS)")
    assert found.status == MISSING_STATUS


def test_a_night_without_a_session_names_the_last_whole_one() -> None:
    broken = replace(MADE[-1], parts=(), reason="pytest ended with status 4; see its output")
    found = after(1, [*MADE[:-1], broken])
    last = "last complete session: night of 2025-11-26 (1 PASS)"
    assert found.line() == f"a100: NOT RUN: night of 2025-11-27, {broken.reason}; {last}"
    assert found.status == 10


def test_a_fail_opens_an_issue_with_what_is_needed_to_act(tmp_path: Path) -> None:
    found = after(1, [*MADE[:-1], judged(MADE[-1], Verdict.FAIL)])
    write_issues([found], tmp_path)
    text = (tmp_path / "open/a100.md").read_text()
    assert text.startswith("Night of 2025-11-27: FAIL (1 FAIL).\n")
    assert "**weak_scaling[network_0-np8]**: 0." in text
    assert ", limit at least 0.8 on gpu-01, gpu-02" in text
    assert "rank 3 on gpu-02 is the slowest" in text
    assert (
        "Again: `pytest perf/ --profile=nightly-gpu --models network_0 --world-sizes 8 "
        "-k network_0-np8`" in text
    )
    assert not (tmp_path / "close").exists()
    made = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:12]
    found = after(1, [*made[:-1], slowed(made[-1], 0.5)])
    assert found.status == 1
    write_issues([found], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["open"]
    text = (tmp_path / "open/a100.md").read_text()
    assert text.startswith(
        f"Night of {made[-1].night}: FAIL (1 PASS).\n\nSlower than before:\n- since"
    )


@pytest.mark.parametrize(
    ("last", "kinds"),
    [
        ([Verdict.FAIL, Verdict.PASS, Verdict.PASS], ["close"]),
        ([Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE], []),
        ([Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.PASS], ["close"]),
        ([Verdict.PASS, Verdict.FAIL, Verdict.PASS], []),
        ([Verdict.PASS, Verdict.PASS, Verdict.INVALID], []),
        ([Verdict.PASS, Verdict.PASS, Verdict.FAIL], ["open"]),
    ],
)
def test_only_a_fail_opens_and_only_clean_nights_close(
    tmp_path: Path, last: list[Verdict], kinds: list[str]
) -> None:
    made = [judged(night, word) for night, word in zip(MADE, last, strict=False)]
    write_issues([after(1, made)], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == kinds


def test_the_command_watches_the_named_series_and_exits_with_the_worst(tmp_path: Path) -> None:
    for night in MADE:
        write_night(tmp_path / NIGHTS, night)
    done = completed(
        [
            *(str(BIN / "hvdperf"), "nightly", "watch", f"--results={tmp_path}"),
            *("--series=a100", "--series=h100"),
        ]
    )
    assert done.returncode == MISSING_STATUS, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if line[0] != " "] == ["a100", "h100"]
    assert "  throughputs are not judged yet" in done.stdout
    assert done.stdout.count("MISSING") == 2


def test_the_issues_are_opened_updated_and_closed_by_gh(tmp_path: Path) -> None:
    """gh is a stand-in that keeps issues in a directory, since there is no GitHub here."""
    gh = tmp_path / "bin/gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)

    def night(*last: Verdict) -> list[str]:
        made = [judged(night, word) for night, word in zip(MADE, last, strict=False)]
        directory = tmp_path / f"issues-{len(last)}-{last[-1].name}"
        directory.mkdir()
        write_issues([after(1, made)], directory)
        subprocess.run(
            ["bash", "ci/github/rolling_issues.sh", str(directory)],
            cwd=ROOT,
            env={"PATH": f"{gh.parent}:/usr/bin:/bin", "ISSUES": str(tmp_path)},
            check=True,
        )
        log = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
        return [line for line in log if not line.startswith("list")]

    assert night(Verdict.PASS) == []
    assert night(Verdict.PASS, Verdict.FAIL) == ["create hvdperf: nights of a100 fail"]
    told = night(Verdict.PASS, Verdict.FAIL, Verdict.FAIL)
    assert told[1:] == ["comment 7"], "no second issue"
    told = night(Verdict.FAIL, Verdict.FAIL, Verdict.PASS, Verdict.PASS)
    assert told[2:] == ["comment 7", "close 7"]


GH = """\
#!/bin/sh
# gh issue list|create|comment|close
case $2 in
    list) echo list >> "$ISSUES/log"; if [ -e "$ISSUES/open" ]; then echo 7; fi ;;
    create) echo "create $4" >> "$ISSUES/log"; touch "$ISSUES/open" ;;
    close) echo "close $3" >> "$ISSUES/log"; rm "$ISSUES/open" ;;
    comment) echo "comment $3" >> "$ISSUES/log"; test -s "$5" ;;
esac
"""
