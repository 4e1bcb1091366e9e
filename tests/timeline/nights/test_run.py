"""A night that is measured, and one that is watched."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from bench.nights import FIRST
from hvdperf.errors import UserError
from hvdperf.plan.questions import weak_scaling
from hvdperf.records.documents import Kind
from hvdperf.records.outcome import Measure
from hvdperf.timeline.nights.night import Night, read_night, read_nights, write_night
from hvdperf.timeline.nights.run import NightPlan, run
from hvdperf.timeline.nights.series import Series
from hvdperf.timeline.nights.watch import MISSING_STATUS, Watched, write_issues
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import EXIT_STATUS, Verdict
from tests.support.leftovers import ended
from tests.support.nights import Year, nights, slowed, slowed_part, with_part
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session
from tests.support.warm import hvdperf
from tests.support.whole_sessions import BIN, PROFILE, ROOT, environment_of_sessions

OWN_CASES = {"weak_scaling[alexnet_s-np2]", "weak_scaling[vgg_16_s-np2]"}
TODAY = "2026-11-24"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that returns the command line of a night, against this stack itself.

    more: further options of pytest.
    """
    profile = tmp_path / "tiny.toml"
    profile.write_text(PROFILE.replace('["alexnet_s"]', '["alexnet_s", "vgg_16_s"]'))

    def words(*more: str) -> list[str]:
        asked = ["--series=mine", f"--night={TODAY}", f"--profile={profile}"]
        made_up = ["-p", "tests.support.made_up_ranks", "-q", "--np=2", "--oversubscribe"]
        where = [f"--results={tmp_path / 'results'}", f"--against={BIN / 'python'}"]
        start = [str(BIN / "hvdperf"), "nightly", "run", *asked, *where]
        return [*start, "--", *made_up, "-k", "weak_scaling", *more]

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


def night_of(tmp_path: Path) -> Night:
    return read_night(tmp_path / f"results/nights/mine/{TODAY}.json")


def sessions(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "results/runs").glob("*"))


def cases_of(tmp_path: Path) -> set[str]:
    """Return the files of the cases of two ranks that have been decided."""
    return {path.name for path in (tmp_path / "results").glob("runs/*/weak_scaling-*-np2.json")}


def wait_for_a_case(tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    while not cases_of(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_a_line(process: subprocess.Popen[str], part: str) -> None:
    assert process.stdout is not None
    while part not in process.stdout.readline():
        assert process.poll() is None


def children_of(process: int) -> list[int]:
    return [
        int(pid)
        for path in Path(f"/proc/{process}/task").glob("*/children")
        for pid in path.read_text().split()
    ]


def test_a_night_measures_gates_measures_again_what_is_slower_and_is_done_once(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    junit = tmp_path / "junit.xml"
    words = command(f"--junitxml={junit}")
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
    assert status == EXIT_STATUS[night.verdict]
    assert f"mine, night of {TODAY}: {night.verdict.value} (" in output
    assert (tmp_path / "results/nights/index.html").exists()

    # What FAILs or is slower than on ten nights, each a little unlike the others, is measured again
    # at once, and nothing else.
    slow = replace(gate.cases[-1], verdict=Verdict.FAIL, figure=0.9, lower=0.88, upper=0.95)
    failed = replace(gate, cases=(*gate.cases[:-1], slow))
    store = tmp_path / "results/nights"
    write_night(store, replace(night, parts=(own, failed), ended_at=None))
    for back in range(10, 0, -1):
        part = slowed_part(own, 10 * (1 + 0.01 * (back % 3)))
        write_night(store, replace(night, night=night.night - timedelta(days=back), parts=(part,)))
    status, output = finished(words)
    night = night_of(tmp_path)
    _, _, again, gate_again = night.parts
    assert (again.kind, gate_again.kind) == (Kind.AGAIN, Kind.GATE_AGAIN), output
    # On a busy machine there may be time for one network only.
    assert again.of(Measure.SPEED)
    assert again.cases == ()
    assert [row.name for row in gate_again.cases] == [slow.name]
    speeds = (each for part in (own, again) for each in part.of(Measure.SPEED))
    parts = [each.values for each in speeds if (each.model, each.world_size) == ("vgg_16_s", 2)]
    assert [*night.speeds["vgg_16_s", 2]] == [value for values in parts for value in values]
    assert status == EXIT_STATUS[Verdict.FAIL]
    assert f"since the night of {TODAY}: " in output
    assert f'tests="{len(own.cases)}"' in junit.read_text(), "that of the night's own session"

    before = sessions(tmp_path)
    assert len(before) == 4
    status, output = finished(words)
    assert status == EXIT_STATUS[Verdict.FAIL]
    assert f"the night of {TODAY} is over" in output
    assert sessions(tmp_path) == before


def test_a_later_session_writes_none_of_the_files_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--junit-xml a.xml")
    writing = ("--log-file=a.log", "--benchmark-json", "a.json", "--np=2")
    plan = NightPlan(tmp_path, "mine", FIRST.date(), "nightly", arguments=writing)
    options = ("--junit-xml", "--benchmark-json", "--log-file")
    assert plan.later_session() == [*plan.session(), *(f"{each}=/dev/null" for each in options)]


def test_a_night_that_is_killed_or_interrupted_again_and_again_loses_nothing(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    def kill(process: subprocess.Popen[str]) -> None:
        children = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert ended(children), "the session does not outlive its night"

    for step in ("nightly: look at this machine", "a case"):
        process = start(command())
        if step == "a case":
            wait_for_a_case(tmp_path)
        else:
            wait_for_a_line(process, step)
        kill(process)
    decided = cases_of(tmp_path)
    for signum in (signal.SIGTERM, signal.SIGINT):
        # The session goes on for a minute.
        process = start(command("--budget=1"))
        wait_for_a_line(process, ": start horovod@2")
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
    for step in ("nightly: the session against the reference stack", f"mine, night of {TODAY}: "):
        process = start(command())
        wait_for_a_line(process, step)
        kill(process)

    _, output = finished(command())
    night = night_of(tmp_path)
    assert [part.kind for part in night.parts] == [Kind.OWN, Kind.GATE], output
    assert [len(part.cases) for part in night.parts] == [2, 4]
    assert len(sessions(tmp_path)) == 2, "no session was begun twice"
    assert night.ended_at is not None
    assert decided
    assert decided <= cases_of(tmp_path)


MADE = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:4]
# What a machine does without Horovod is not measured again.
LAST = replace(MADE[-1], ended_at=None, probe={"copy": 1e9})


def plan_of(tmp_path: Path, night: Night, *options: str, against: str = "") -> NightPlan:
    write_night(tmp_path / NIGHTS, night)
    asked = (night.series, night.night, "smoke", against)
    return NightPlan(tmp_path, *asked, arguments=options)


def test_a_second_session_that_ended_is_kept_although_nothing_is_slower_any_more(
    tmp_path: Path,
) -> None:
    (own,) = LAST.parts
    again = replace(own, session=own.session.replace("-1", "-2"), cases=(), kind=Kind.AGAIN)
    plan = plan_of(tmp_path, replace(LAST, parts=(own, again)))
    assert run(plan, print).parts == (own, again)


def test_the_next_night_keeps_what_a_killed_one_had_decided(tmp_path: Path) -> None:
    killed = replace(MADE[0], parts=(), ended_at=None)
    write_night(tmp_path / NIGHTS, killed)
    case = case_of(outcome(weak_scaling(WORKLOAD, 2), [0.9] * 6))
    label = f"{killed.series} {killed.night}"
    write_session(tmp_path / "runs", case, label=label, exit_status=None)
    last = run(plan_of(tmp_path, LAST), print)
    first, *_ = read_nights(tmp_path / NIGHTS).of[killed.series]
    assert last.parts == LAST.parts
    (part,) = first.parts
    assert part.exit_status is None
    assert [row.name for row in part.cases] == [case.name]
    assert first.ended_at is not None
    assert first.verdict is Verdict.NOT_RUN


def test_a_night_that_cannot_be_measured_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    night = run(plan_of(tmp_path, replace(LAST, parts=()), "--models=vgg_17"), print)
    assert night.verdict is Verdict.NOT_RUN
    assert night.reason == "the session ended with status 4; see its output"
    assert "unknown network 'vgg_17'" in "".join(capfd.readouterr())


def test_a_gate_that_cannot_start_is_not_overlooked(tmp_path: Path) -> None:
    night = run(plan_of(tmp_path, LAST, against="/no/such/python"), print)
    assert night.parts == LAST.parts
    assert night.verdict is Verdict.NOT_RUN
    assert "; the session against the reference stack ended with status 4" in night.told


def test_two_nights_at_once_are_refused(tmp_path: Path) -> None:
    plan, said = plan_of(tmp_path, MADE[0]), []

    def begin_another(line: str) -> None:
        said.append(line)
        with pytest.raises(UserError, match="another night is being measured here; wait for its"):
            run(replace(plan, night=MADE[1].night), print)

    run(plan, begin_another)
    assert said


def judged(night: Night, verdict: Verdict) -> Night:
    (row,) = night.parts[0].cases
    reason = "rank 3 on gpu-02 is the slowest" if verdict is Verdict.FAIL else ""
    return with_part(night, cases=(replace(row, verdict=verdict, reason=reason),))


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
    assert ": weak_scaling[network_0-np8]: 0." in text
    assert ", limit at least 0.8 on gpu-01, gpu-02" in text
    assert "rank 3 on gpu-02 is the slowest" in text
    assert (
        "reproduce: pytest perf/ --profile=nightly-gpu --models network_0 --world-sizes 8 "
        "-k network_0-np8" in text
    )
    assert not (tmp_path / "close").exists()
    made = nights(Year(0.01, networks=1, world_sizes=(8,)), 1)[:12]
    found = after(1, [*made[:-1], slowed(made[-1], 0.5)])
    assert found.status == 1
    write_issues([found], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["open"]
    text = (tmp_path / "open/a100.md").read_text()
    assert text.startswith(f"Night of {made[-1].night}: FAIL (1 PASS).\n\n- since")


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
    which = ("--series=a100", "--series=h100")
    done = hvdperf("nightly", "watch", f"--results={tmp_path}", *which)
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


def test_a_night_that_has_not_come_yet_is_left_out(tmp_path: Path) -> None:
    later = replace(MADE[-1], night=date(2099, 1, 1))
    for night in (*MADE, later):
        write_night(tmp_path, night)
    read = read_nights(tmp_path)
    assert [night.night for night in read.of["a100"]] == [night.night for night in MADE]
    (line,) = read.left_out
    assert "2099-01-01, has not come yet" in line
