"""Whole sessions with real ranks: exit status, reports, interruption, slots."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pytest

from tests.session.test_bad_input import refused
from tests.support.leftovers import ended
from tests.support.whole_sessions import (
    BIN,
    CASE_OF_SWEEP,
    PROFILE,
    Press,
    Run,
    SitBefore,
    assert_every_figure_is_written,
    documents,
    last_words,
    wait_for_workers,
)

pytestmark = pytest.mark.mpirun


def test_a_failed_launch_fails_its_cases_and_no_other(run: Run, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    cases = "efficiency or weak_scaling or (parity and np1)"
    done = run("--inject=raise:rank=1", "-k", cases, f"--junitxml={junit}")
    assert done.returncode == 1, done.stdout
    words = {
        name: found["outcome"]["judgement"]["verdict"]
        for name, found in documents(tmp_path).items()
        if "outcome" in found
    }
    assert words == {
        "communication-alexnet_s-np2.json": "FAIL",
        "weak_scaling-alexnet_s-np2.json": "FAIL",
        "parity-alexnet_s-np1.json": "INCONCLUSIVE",
    }
    assert "rank 1 failed in phase 'block': InjectedFault" in done.stdout
    (page,) = (tmp_path / "results" / "report").glob("*.html")
    assert f"report: {page}" in done.stdout
    assert "InjectedFault" in page.read_text()
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "3")
    told = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in suite.iter("testcase")
    }
    assert told["test_weak_scaling[alexnet_s-np2]"]["verdict"] == "FAIL"
    assert told["test_parity[alexnet_s-np1]"].keys() == {"verdict", "figure", "limit"}
    assert last_words(done.stdout) == (
        "exit status 1: FAIL, 2 of 3 cases missed their limit or crashed (see above)"
    )
    assert "To repeat a case that is FAIL, alone (the first of 2):" in done.stdout
    assert "pytest 'perf/test_scaling.py::test_weak_scaling[alexnet_s-np2]' \\" in done.stdout
    assert "To decide 1 INCONCLUSIVE (up to " in done.stdout
    assert "Benchmark" not in done.stdout + done.stderr, "there was nothing to record"


# mpirun under mpirun is started by the interrupted session below, and by those of two hosts.
def test_a_session_under_mpirun_has_one_report(run: Run) -> None:
    done = run("-k", "efficiency", "--inject=kill:rank=1", "--launcher=agents", ranks=2)
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("test session starts") == 1
    assert "round 1 of 8" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "rank 1 failed in phase 'block'" in done.stdout
    assert "SIGKILL" in done.stdout


def test_the_fault_of_a_case_and_one_of_the_session_are_caught(run: Run, tmp_path: Path) -> None:
    """The one of the session corrupts what a sweep sends, and nothing that the case sends."""
    profile = tmp_path / "injected.toml"
    # The first round decides both.
    cases = '[fault_cases]\ndata = ["alexnet_s"]\n'
    profile.write_text(PROFILE.replace("budget_s = 1\n", "budget_s = 100\n") + cases)
    asked = "test_faults or (test_sweep and broadcast)"
    done = run(f"--profile={profile}", "-k", asked, "--inject=corrupt:rank=0")
    assert done.returncode == 7, done.stdout
    written = documents(tmp_path)
    sweep = written[CASE_OF_SWEEP]
    assert "number 0 is 1 instead of 0" in sweep["outcome"]["judgement"]["reason"]
    assert_every_figure_is_written(sweep)
    trial = written["trust-data-alexnet_s-np2.json"]["outcome"]
    assert trial["judgement"]["verdict"] == "PASS"
    assert trial["detection"]["reported"] == "INVALID"
    assert trial["comparison"]["candidate"]["arm"]["injected"] == "data"
    assert "injected data:rank=1: INVALID" in " ".join(done.stdout.split())


def test_two_stacks_are_measured_each_by_its_interpreter(run: Run, tmp_path: Path) -> None:
    """An environment whose interpreter notes that it was started, and is pytest's own otherwise,
    against pytest's own: a stack may be compared with itself."""
    environment, own = tmp_path / "environment", BIN.parent
    (environment / "bin").mkdir(parents=True)
    for name in ("lib", "bin/mpirun", "etc", "share"):
        if (own / name).exists():
            (environment / name).symlink_to(own / name)
    python, started = environment / "bin" / "python", tmp_path / "started"
    python.write_text(f'#!/bin/sh\necho "$3" >> {started}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    record = tmp_path / "benchmark.json"
    two = f"--stack={python}", f"--against={sys.executable}", f"--benchmark-json={record}"
    done = run(*two, "-k", "parity and np1")
    assert done.returncode == 6, done.stdout
    assert last_words(done.stdout).startswith("exit status 6: INCONCLUSIVE, 1 of 1 cases could not")
    assert "Benchmark" not in done.stdout, "its tables are shown on request"
    assert "none, both are the same stack" in " ".join(done.stdout.split())
    written = documents(tmp_path)
    case = written["parity-alexnet_s-np1.json"]["outcome"]
    arms = [case["comparison"][side]["arm"] for side in ("candidate", "reference")]
    assert [arm["stack"] for arm in arms] == ["", "against"]
    assert arms[0]["strategy"] == "mirrored"
    (measured,) = case["rounds"]
    ours, theirs = (launch["work"]["blocks"] for launch in measured["launches"])
    # One turn, and once more where other programs disturbed it.
    assert 1 <= len(ours) == len(theirs) <= 2
    assert case["judgement"]["rule"]["fail_below"] == 0.98
    (recorded,) = json.loads(record.read_text())["benchmarks"]
    assert recorded["extra_info"]["word"] == "INCONCLUSIVE"
    assert recorded["stats"]["data"] == pytest.approx(
        [max(rank["seconds"] for rank in block["ranks"]) for block in ours]
    )
    session = written["session.json"]
    assert (session["against"], session["changed"]) == (sys.executable, [])
    # A launch of one rank, for which a server forks it.
    names = [Path(line).name for line in started.read_text().split()]
    assert sorted(names) == ["fork_stub.py", "hvdperf.worker.fork_server"]


# Of tests/session/bad_input.md, one that each rank finds, and one that rank 0 finds once it knows
# the slots: a start of mpirun takes seconds.
@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("-n2", "several cases at the same time"),
        ("--resume=tests", "there is no session.json in it"),
    ],
)
def test_bad_input_under_mpirun_is_one_line_before_anything_is_launched(
    run: Run, argument: str, told: str, tmp_path: Path
) -> None:
    refused(partial(run, ranks=2), tmp_path, told, argument)


# mpirun kills its ranks a second after it has told them to end: the report is written by then.
def test_ctrl_c_at_the_terminal_of_an_mpirun_leaves_a_report(press_ctrl_c: Press) -> None:
    there = press_ctrl_c("fd", ranks=2)
    assert b"\x1b[33m" in there.output, "the terminal behind mpirun has colours"


def test_a_terminal_that_is_closed_leaves_nothing(
    sit_before: SitBefore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    there = sit_before("-k", "efficiency", "--inject=hang:rank=1")
    there.wait_for(b"round 1 of 8")
    workers = wait_for_workers(there.pid)
    assert list(temporary.glob("hvdperf-*"))
    there.close()
    assert documents(tmp_path)["session.json"]["exit_status"] == 2
    assert list(temporary.glob("hvdperf-*")) == []
    assert ended(workers)
