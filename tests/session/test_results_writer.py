"""What is on disk while a session runs, and what becomes of a disk that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.machine.disturbance import Culprit, Disturbance, Usage
from hvdperf.plan.questions import parity, weak_scaling
from hvdperf.records.archive import read_document, read_session
from hvdperf.records.documents import Case, SessionDocument, Summary
from hvdperf.session.ending import NOT_WRITTEN
from hvdperf.session.results_writer import Earlier, ResultsWriter, clock_problem
from hvdperf.verdict import Band, Verdict
from tests.support.filesystems import fill, make_read_only, small_disk
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import SESSION, case_of, placed, session_of_cases

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
ONE, OTHER = outcome(WEAK, RATIOS), outcome(PARITY, RATIOS, Band(0.75, 1.33))


def results_writer(
    runs: Path, *earlier: Case, disturbances: Sequence[Disturbance] = (), **document: Any
) -> ResultsWriter:
    """Return the writer of a session. document: fields of its document."""
    session: Any = SimpleNamespace(
        timed_seconds=1.5,
        disturbances=disturbances,
        arm_launcher=SimpleNamespace(slots=placed(), hub=SimpleNamespace(stopped_seconds=0.0)),
    )
    directory = runs / SESSION
    directory.mkdir(parents=True)
    made = replace(session_of_cases(), **document)
    before = Earlier(cases={each.name: each for each in earlier})
    return ResultsWriter(directory, made, session, before, began=0.0)


def written(kept: ResultsWriter) -> SessionDocument:
    return read_document(kept.directory / "session.json", SessionDocument)


def test_a_session_can_be_read_from_its_beginning(tmp_path):
    kept = results_writer(tmp_path)
    archive = read_session(kept.directory)
    assert archive.left_out == ()
    assert archive.session is not None
    assert archive.session.exit_status is None
    assert archive.session.verdicts == {}
    assert "still runs, or was killed" in archive.unfinished


def test_a_case_is_on_disk_the_moment_it_is_decided(tmp_path):
    kept = results_writer(tmp_path)
    assert kept.keep(ONE) == ""
    archive = read_session(kept.directory)
    assert [case.name for case in archive.cases] == [WEAK.name]
    assert written(kept).verdicts == {WEAK.name: Verdict.PASS}
    assert written(kept).budget_spent_seconds > 0
    assert kept.end(0) == 0
    assert written(kept).exit_status == 0
    assert read_session(kept.directory).unfinished == ""


def summary(kept: ResultsWriter) -> Summary:
    return read_document(kept.directory / "summary.json", Summary)


def test_the_summary_has_every_case_of_all_parts_and_the_status(tmp_path):
    kept = results_writer(tmp_path, case_of(OTHER))
    kept.keep(ONE)
    document = summary(kept)
    assert [case.name for case in document.cases] == [PARITY.name, WEAK.name]
    assert document.exit_status is None
    assert document.disturbance is None
    assert document.session == kept.directory.name
    kept.end(0)
    assert summary(kept).exit_status == 0


def test_what_others_did_meanwhile_is_in_the_summary(tmp_path):
    usage = Usage(1.0, 2, 2.0, 1.0, 0.0, wait_seconds=1.0, throttled_seconds=0.0)
    found = Disturbance(0.0, usage, 1.0, 1.0, (Culprit("python", 1234, 0.9, (1,)),))
    kept = results_writer(tmp_path, disturbances=[found])
    kept.end(0)
    told = summary(kept).disturbance
    assert told is not None
    assert told.foreign_share == 0.5
    assert [(each.name, each.pid) for each in told.culprits] == [("python", 1234)]


def test_the_parts_of_a_session_are_added_up(tmp_path):
    failed = case_of(outcome(PARITY, RATIOS, Band(0.75, 1.33), Verdict.FAIL))
    kept = results_writer(tmp_path, failed, elapsed_seconds=1e9, budget_spent_seconds=1e9)
    kept.keep(ONE)
    document = written(kept)
    assert document.elapsed_seconds > 1e9
    assert document.budget_spent_seconds > 1e9
    assert document.verdicts == {PARITY.name: Verdict.FAIL, WEAK.name: Verdict.PASS}


def test_a_full_disk_is_found_before_anything_is_measured(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        fill(disk)
        with pytest.raises(UserError, match="No space left on device; make room") as caught:
            results_writer(disk / "runs")
    assert "\n" not in str(caught.value)


def test_a_disk_that_fills_up_costs_no_figure_but_the_status(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        kept = results_writer(disk)
        kept.keep(ONE)
        fill(disk)
        said = kept.keep(OTHER)
        assert said.startswith(f"NOT WRITTEN {PARITY.name}: ")
        assert said.endswith("No space left on device; the session continues")
        assert kept.end(0) == NOT_WRITTEN
        assert any(PARITY.name in line for line in kept.lines(0))
        archive = read_session(kept.directory)
        # Whole, or as it was before; nothing half-written is left there.
        assert [case.name for case in archive.cases] == [WEAK.name]
        assert archive.left_out == ()
        assert archive.session is not None
        kept.close()


def test_the_worst_verdict_comes_before_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        kept = results_writer(disk)
        fill(disk)
        kept.keep(ONE)
        assert kept.end(1) == 1
        kept.close()


def test_what_could_not_be_written_is_tried_again_at_the_end(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        kept = results_writer(disk)
        ballast = fill(disk)
        assert kept.keep(ONE)
        ballast.unlink()
        assert kept.end(0) == 0
        assert kept.lines(0) == []
        assert [case.name for case in read_session(kept.directory).cases] == [WEAK.name]
        kept.close()


def test_a_disk_that_turns_read_only_costs_no_figure_either(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        kept = results_writer(disk)
        make_read_only(disk)
        assert "Read-only file system" in kept.keep(ONE)
        assert kept.end(0) == NOT_WRITTEN


def test_a_directory_is_written_by_one_session_at_a_time(tmp_path):
    kept = results_writer(tmp_path)
    # Another process, as another session is.
    code = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX | 4)"
    command = [sys.executable, "-c", code, str(kept.directory)]
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    kept.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_a_clock_that_was_set_back_is_told(tmp_path):
    here = tmp_path / "20260131T120000Z-4711"
    for name in (here.name, "20260131T115959Z-9", "20260131T120000Z-9999", "notes"):
        (tmp_path / name).mkdir()
    assert clock_problem(here) == ""
    (tmp_path / "20260201T000000Z-1").mkdir()
    said = clock_problem(here)
    assert said.startswith("the clock was set back: ")
    assert "20260201T000000Z-1 has a later date" in said


def test_how_to_go_on_is_told(tmp_path):
    kept = results_writer(tmp_path)
    (line,) = kept.lines(3)
    assert line == f"3 cases are left; to continue: --resume {os.path.abspath(kept.directory)}"
    kept.close()
