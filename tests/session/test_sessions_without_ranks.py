"""Whole sessions that start no ranks: their rounds are made up (tests/support/made_up_ranks.py), or
they end before they measure."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.leftovers import eventually
from tests.support.warm import Warm
from tests.support.whole_sessions import (
    BIN,
    CASE_OF_SWEEP,
    PROFILE,
    ROOT,
    SWEEP,
    Press,
    Run,
    SitBefore,
    assert_every_figure_is_written,
    command,
    completed,
    documents,
    environment_of_sessions,
    verdicts,
)


def test_x_stops_at_inconclusive(run: Run) -> None:
    both = "-k", "efficiency or strong_scaling"
    stopped = run("-x", *both, "--benchmark-columns=median", made_up=True)
    assert stopped.returncode == 6
    assert "hvdperf: 2 INCONCLUSIVE" in stopped.stdout
    assert " 1 inconclusive in " in stopped.stdout
    assert 0 < stopped.stdout.find("benchmark 'strong_scaling'") < stopped.stdout.find("hvdperf:")


def test_what_was_decided_along_with_the_case_that_x_stopped_at_is_told(run: Run) -> None:
    done = run("-x", "-k", "parity", "--inject=raise:rank=1", made_up=True)
    assert "\x1b" not in done.stdout + done.stderr, "it goes to no terminal"
    assert " 1 inconclusive in " in done.stdout, "pytest does not come to the other one"
    assert "rank 1 failed in phase 'block': InjectedFault" in " ".join(done.stdout.split())
    assert done.returncode == 1, "the worst verdict is that of the session"


@pytest.mark.parametrize(
    ("factor", "status", "words", "told"),
    [
        ("1", 0, {"PASS", "INFO"}, "the smallest slowdown that this session can detect is"),
        ("1.3", 7, {"INVALID"}, "would PASS, but the A/A test failed: two identical groups differ"),
    ],
)
def test_where_identical_groups_differ_nothing_of_their_network_passes(
    run: Run,
    tmp_path: Path,
    factor: str,
    status: int,
    words: set[str],
    told: str,
) -> None:
    early = PROFILE.replace("budget_s = 1", "budget_s = 60")
    early = early.replace("early = false\nturns_min = 1\nturns_max = 1", "turns_min = 4")
    (tmp_path / "tiny.toml").write_text(early)
    done = run("-k", "weak_scaling or efficiency or aa", made_up=True, MADE_UP_PAIR=factor)
    assert done.returncode == status, done.stdout + done.stderr
    assert set(verdicts(tmp_path).values()) == words, "the documents"
    (summary,) = (tmp_path / "results/runs").glob("*/summary.json")
    assert {case["verdict"] for case in json.loads(summary.read_text())["cases"]} == words
    assert (" 3 invalid in " in done.stdout) == (words == {"INVALID"}), "pytest's own count"
    assert told in " ".join(done.stdout.split())


def test_a_sweep_shows_its_table_and_writes_every_figure(run: Run, tmp_path: Path) -> None:
    done = run(*SWEEP, made_up=True)
    assert done.returncode == 6, done.stdout
    lines = done.stdout.splitlines()
    begin = next(i for i, text in enumerate(lines) if text.startswith("size "))
    assert [text.split()[:2] for text in lines[begin + 1 : begin + 8]] == [
        *(["64", "KB"], ["256", "KB"], ["1", "MB"], ["4", "MB"]),
        *(["16", "MB"], ["64", "MB"], ["128", "MB"]),
    ]
    assert_every_figure_is_written(documents(tmp_path)[CASE_OF_SWEEP])


def test_pytest_alone_measures_and_collects_none_of_the_suites_own_tests(
    warm: Warm,
) -> None:
    arguments = "--collect-only", "-q", "--np=2", "--oversubscribe", "--models=lstm_s"
    done = warm.run(arguments, {})
    assert done.returncode == 0, done.stdout
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    assert cases
    assert all(case.startswith("perf/") and "lstm_s" in case for case in cases)


def test_a_question_that_is_not_asked_has_no_case(plan: Run) -> None:
    done = plan("--collect-only", "-q", "--world-sizes=1")
    assert done.returncode == 0, done.stdout
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    names = {case.partition("::")[2] for case in cases}
    assert len(names) == 9
    assert {name.partition("[")[0] for name in names} == {
        *("test_horovod_overhead", "test_memory", "test_parity", "test_recipe", "test_startup")
    }
    assert "9 tests collected" in done.stdout


def test_sizes_above_the_cores_are_marked(plan: Run) -> None:
    ranks = 2 * len(os.sched_getaffinity(0))
    done = plan("--collect-only", "-q", f"--np={ranks}", f"--world-sizes=1,{ranks}")
    assert done.returncode == 0, done.stdout
    assert f"world sizes 1, {ranks} (oversubscribed)" in done.stdout
    assert f"test_weak_scaling[alexnet_s-np{ranks}]" in done.stdout


def test_a_file_that_is_named_asks_what_the_profile_does_not(plan: Run) -> None:
    files = "perf/test_wall_time.py", "tests/../perf/test_memory.py"
    done = plan("--collect-only", "-q", "--profile=smoke", *files)
    cases = [line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    assert "perf/test_scaling.py::test_weak_scaling" in cases, "of perf/ as the profile says"
    assert "perf/test_wall_time.py::test_wall_time" in cases
    assert "perf/test_memory.py::test_memory" in cases
    assert "perf/test_startup.py::test_startup" not in cases


def test_nothing_selected_is_no_pass(plan: Run) -> None:
    assert plan("-k", "no_such_case").returncode == 5


def test_the_value_of_an_option_is_no_place_of_tests(tmp_path: Path) -> None:
    done = completed([str(BIN / "pytest"), "--data-dir", str(tmp_path), "--dry-run"])
    assert done.returncode == 4
    assert f"--data-dir: {tmp_path}: holds no cifar10" in done.stderr
    options = ["--results", str(tmp_path), "--profile", "smoke", "--dry-run", "-q"]
    alone, named = (
        completed([str(BIN / "pytest"), *places, *options]) for places in ([], ["perf/"])
    )
    nodes = [line for line in named.stdout.splitlines() if line.startswith("perf/")]
    assert nodes
    assert [line for line in alone.stdout.splitlines() if "::" in line] == nodes


def test_a_dry_run_lists_the_arms_and_starts_none(plan: Run, tmp_path: Path) -> None:
    done = plan("--dry-run")
    assert done.returncode == 0
    assert "alexnet_s horovod@2" in done.stdout
    assert documents(tmp_path) == {}


# Before a terminal -----------------------------------------------------------------------------


def test_a_terminal_shows_progress_and_colours(sit_before: SitBefore) -> None:
    # Of one arm: several start in an order that is drawn.
    there = sit_before("-k", "efficiency", made_up=True)
    assert there.end() == 6
    assert b"\x1b[33mINCONCLUSIVE\x1b[0m" in there.output
    lines = [line for line in there.shown() if "round 1 of 8" in line]
    assert [line.endswith("alexnet_s  round 1 of 8: start horovod@2") for line in lines] == [True]


def test_a_session_without_a_terminal_reporter_is_measured(run: Run, tmp_path: Path) -> None:
    assert run("-k", "parity and np1", "-p", "no:terminal", made_up=True).returncode == 6
    assert "parity-alexnet_s-np1.json" in documents(tmp_path)


@pytest.mark.parametrize("capture", ["fd", "no"])
def test_ctrl_c_at_a_terminal_leaves_a_report(press_ctrl_c: Press, capture: str) -> None:
    press_ctrl_c(capture)


# Before, between and after ---------------------------------------------------------------------


def test_a_killed_session_goes_on_where_it_was(
    run: Run, options: list[str], tmp_path: Path
) -> None:
    """Every round is on disk before the next begins."""
    two_workloads = ["-k", "efficiency or (test_sweep and broadcast)"]
    process = subprocess.Popen(
        command(["perf/", *options, *two_workloads, "--budget=3"], made_up=True),
        cwd=ROOT,
        env={**environment_of_sessions(), "MADE_UP_SECONDS": "0.7"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    undecided = "collective_overhead-broadcast-sweep-np2.json"
    assert eventually(lambda: undecided in documents(tmp_path), seconds=150)
    process.kill()
    process.wait()
    before = documents(tmp_path)
    assert before.keys() == {undecided, "session.json"}, "it was killed too late"
    assert before["session.json"]["exit_status"] is None
    recorded = before[undecided]["outcome"]["rounds"]
    assert recorded
    (directory,) = (tmp_path / "results" / "runs").iterdir()
    go_on = *two_workloads, f"--resume={directory}", "--budget=2"
    resumed = run(*go_on, made_up=True, MADE_UP_SECONDS="0.05")
    after = documents(tmp_path)
    assert after.keys() == {*before, "communication-alexnet_s-np2.json"}
    assert after[undecided]["outcome"]["rounds"][: len(recorded)] == recorded
    session = after["session.json"]
    assert session["exit_status"] == resumed.returncode == 0, resumed.stdout
    assert session["taken_over"] == ["collective_overhead[broadcast-sweep-np2]"]
    assert len(session["resumed_at"]) == 1
    assert session["elapsed_seconds"] > before["session.json"]["elapsed_seconds"]
    assert "broadcast on 2 ranks: bus" in resumed.stdout
