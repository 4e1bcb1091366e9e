"""The report of a session, or of several as one: its parts, what is broken, and its writing."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.questions import parity, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Asked, ThresholdsFile
from hvdperf.records.outcome import Outcome, each_launch
from hvdperf.report.html import page
from hvdperf.report.methods import methods
from hvdperf.report.plugin import write_apart
from hvdperf.report.session import (
    by_session,
    newest_session,
    pooled,
    read_sessions,
    session_report,
)
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Floor, Verdict
from tests.report.cases import assert_sound, edit, known, of_workload, recorded
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, disturbance, outcome
from tests.support.stores import SESSION
from tests.support.warm import hvdperf

WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
GOOD = outcome(WEAK, [0.9] * 6)
BAD = outcome(PARITY, [0.5] * 6, Band(0.9, 1.1), Verdict.FAIL)


def report_of(directory: Path):
    return session_report(read_sessions(directory))


def test_a_session_has_its_sections(tmp_path):
    report = report_of(session_of(tmp_path, GOOD, BAD))
    assert report.verdict is Verdict.FAIL
    assert report.counts == {Verdict.FAIL: 1, Verdict.PASS: 1}
    assert [note.verdict for note in report.notes] == [Verdict.FAIL]
    for section in report.sections:
        assert_sound(section)
        assert section.figures or section.missing
    names = [figure.name for figure in report.figures]
    assert len(names) == len(set(names))
    # What answers stands open, and the rest explains.
    explains = {section.name: section.explains for section in report.sections}
    wanted = {"scaling": False, "wall_time": False, "steps": True, "machine": True}
    assert {name: explains[name] for name in wanted} == wanted


def test_the_head_tells_when_where_and_how_a_session_was_measured(tmp_path):
    command, launched = "pytest perf/ -k 'weak or strong'", "mpirun --bind-to none"
    asked = Asked(thresholds=ThresholdsFile("cpu-unknown.toml", "863b84ae"))
    directory = session_of(
        tmp_path, GOOD, hosts=("node7",), asked=asked, command=command, launched=launched
    )
    settings = {"horovod_cycle_time_ms": 100, "thread_settings": ["OMP_NUM_THREADS=1"]}
    edit(directory, settings, "fingerprint")
    report = report_of(directory)
    wanted = {
        "began": "Saturday, 31 January 2026, 23:59 UTC",
        "host": "node7",
        "thresholds": "cpu-unknown.toml, hash 863b84ae",
        "command": command,
        # Nothing is told of a library of MPI that is not known.
        "stack": "TensorFlow 2.18.1, Horovod 0.28.1",
        "world sizes": "1, 2",
        "ranks": launched,
    }
    assert {name: report.facts[name] for name in wanted} == wanted
    for name in ("HOROVOD_CYCLE_TIME=100", "OMP_NUM_THREADS=1"):
        assert sum(name in warning for warning in report.warnings) == 1


def test_the_head_names_every_case_that_was_measured_before_a_session_was_resumed(tmp_path):
    kept = [weak_scaling(replace(WORKLOAD, model=f"m{i}"), 2) for i in range(8)]
    cases = [replace(outcome(each, [0.9] * 6), taken_over=True) for each in kept]
    resumed = (datetime(2026, 2, 1, tzinfo=UTC),)
    directory = session_of(tmp_path, *cases, GOOD, resumed_at=resumed)
    (told,) = (each for each in report_of(directory).warnings if "Resumed" in each)
    assert told.count("2026-02-01") == 1
    assert all(each.name in told for each in kept)
    assert GOOD.comparison.name not in told


def test_the_head_tells_the_other_stack_and_a_disturbance_that_no_case_tells(tmp_path):
    busy = (disturbance(0.31, 70.0),)
    for name, verdict, told in (("sure", Verdict.PASS, 1), ("undecided", Verdict.INCONCLUSIVE, 0)):
        case = outcome(WEAK, [0.9] * 6, verdict=verdict)
        changed = ("keras: 2 -> 3",)
        directory = session_of(
            tmp_path / name, case, against="old/python", changed=changed, disturbances=busy
        )
        warnings = report_of(directory).warnings
        assert [("old/python" in each) for each in warnings if "keras: 2 -> 3" in each] == [True]
        assert sum(text.startswith("Disturbed turns") for text in warnings) == told


def test_the_commands_of_the_session_are_shown_as_they_were_printed(tmp_path):
    steps = ("To go on:", "  pytest --resume <x>")
    made = report_of(session_of(tmp_path, GOOD, next_steps=steps))
    assert "pytest --resume &lt;x&gt;" in page(made)


def test_what_is_broken_is_named_and_breaks_nothing(tmp_path):
    directory = session_of(tmp_path, GOOD, BAD, exit_status=None)
    (directory / "half.partial").write_text('{"format"')
    (directory / "torn.json").write_text('{"format": 1')
    report = report_of(directory)
    assert sum(report.counts.values()) == 2
    for name in ("half.partial", "torn.json"):
        assert sum(name in line for line in report.left_out) == 1
    assert any("still runs" in text for text in report.warnings)
    empty = report_of(session_of(tmp_path / "empty"))
    assert (empty.verdict, empty.counts) == (Verdict.INFO, {})


def test_where_there_is_no_session_the_error_says_how_to_have_one(tmp_path):
    with pytest.raises(UserError, match="make perf"):
        newest_session(tmp_path)


def test_figures_of_one_name_are_told_apart(tmp_path):
    archive = read_sessions(session_of(tmp_path, GOOD))
    (case,) = recorded("memory-resnet_50_s-np2")
    shouted = of_workload(case, model="RESNET_50_S")
    archive = replace(archive, cases=(case, shouted))
    names = [each.name for each in session_report(archive).figures]
    assert len(names) == len(set(names))
    assert sum(name.startswith("memory-") for name in names) == 2


def test_what_is_said_of_two_ways_to_train_a_network_is_labelled_with_the_way(tmp_path):
    archive = read_sessions(session_of(tmp_path, GOOD))
    cases = recorded()
    halves = [of_workload(case, precision="mixed_float16") for case in cases]
    archive = replace(archive, cases=(*cases, *halves))
    labelled = [each.name for each in session_report(archive).figures if "float16" in each.name]
    kinds = "startup steps-ranks loss memory wall_time-waterfall"
    assert all(any(kind in name for name in labelled) for kind in kinds.split())


# As a user calls it ------------------------------------------------------------------------------


def test_the_page_is_below_the_results_and_its_path_is_printed(tmp_path):
    directory = session_of(tmp_path, GOOD, BAD)
    done = hvdperf("report", directory, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"report/{directory.name}.html\n"
    assert "parity[resnet_50_s-np2]" in (tmp_path / "report" / f"{directory.name}.html").read_text()


def test_without_a_session_it_is_the_newest_one(tmp_path):
    for day in (1, 3, 2):
        session_of(tmp_path / "there", GOOD, name=f"2026010{day}T000000Z-1")
    done = hvdperf("report", "--results", "there", cwd=tmp_path)
    assert done.stdout == "there/report/20260103T000000Z-1.html\n"


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (["report", ".", "--format=terminal"], "parity, 2 ranks\n"),
        (["compare", ".", ".", "--format=terminal"], "weak scaling"),
    ],
)
def test_text_goes_to_stdout_and_tables_to_a_directory(tmp_path, words, holds):
    directory = session_of(tmp_path, GOOD, BAD)
    done = hvdperf(*words, cwd=directory)
    assert (done.returncode, done.stderr) == (0, "")
    assert holds in done.stdout
    done = hvdperf(words[0], *words[1:-1], "--format=csv", "--out", "tables", cwd=directory)
    assert done.stdout == "tables\n"
    assert "verdict" in (directory / "tables" / "board.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere: No such file or directory; give the directory of a session"),
        (["loop"], "loop: Too many levels of symbolic links"),
        (["empty"], "empty: there is no session.json in it; give the directory of a session"),
        (["torn"], "torn/session.json: not valid JSON"),
        ([f"runs/{SESSION}", "--out", ""], ". cannot be written: Is a directory"),
        ([f"runs/{SESSION}", "--out", "/dev/null/page.html"], "give another path by --out"),
        (["empty", "--results", "."], "--results"),
    ],
)
def test_bad_input_is_a_line(tmp_path, words, says):
    session_of(tmp_path, GOOD)
    (tmp_path / "loop").symlink_to("loop")
    for name in ("empty", "torn"):
        (tmp_path / name).mkdir()
    (tmp_path / "torn" / "session.json").write_text("{")
    done = hvdperf("report", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_session_whose_only_case_cannot_be_read_is_no_success(tmp_path):
    directory = session_of(tmp_path, GOOD)
    cases = [each for each in directory.glob("*.json") if "[" in each.name or "-np" in each.name]
    for each in cases:
        each.write_text(each.read_text()[:100])
    done = hvdperf("report", str(directory), "--format", "terminal", cwd=tmp_path)
    assert cases
    assert "left out" in done.stderr
    assert done.returncode == 2


def test_a_page_that_is_not_written_is_a_line_with_the_command_that_writes_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    directory = session_of(tmp_path / "results", GOOD)
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'a warning' >&2; echo 'the disk is full' >&2; exit 2\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    assert write_apart(directory, tmp_path) == (
        f"no report: the disk is full; to write it: hvdperf report results/runs/{directory.name}"
    )


# Rounds of a quiet session.
RATIOS = (0.898, 0.899, 0.9, 0.901, 0.902, 0.9, 0.9, 0.9)
DAYS = ("20260130T000000Z-1", "20260131T000000Z-2", "20260201T000000Z-3", "20260202T000000Z-4")


def of_day(factor: float) -> Outcome:
    return outcome(WEAK, [factor * ratio for ratio in RATIOS])


def sessions(tmp_path: Path, *days: list[Outcome]) -> list[Archive]:
    return [
        read_session(session_of(tmp_path, *outcomes, name=name))
        for name, outcomes in zip(DAYS, days, strict=False)
    ]


def only_figure(archive: Archive) -> Interval:
    (case,) = archive.cases
    return known(case.figure)


def test_days_that_differ_widen_the_interval_beyond_that_of_their_rounds(tmp_path):
    archives = sessions(tmp_path, *([of_day(factor)] for factor in (0.97, 1.0, 1.03, 1.0)))
    figure = only_figure(pooled(archives))
    own = list(map(only_figure, archives))
    logs = [math.log(each.estimate) for each in own]
    # The quantile of Student's t with 3 degrees of freedom, from a printed table.
    half = 3.182 * stdev(logs) / 2
    assert math.log(figure.estimate) == pytest.approx(fmean(logs))
    assert math.log(figure.upper / figure.estimate) == pytest.approx(half, rel=1e-3)
    assert all(each.upper - each.lower < figure.upper - figure.lower for each in own)


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.8, Verdict.PASS), (0.9, Verdict.INCONCLUSIVE), (0.99, Verdict.FAIL)]
)
def test_the_pooled_interval_decides(tmp_path, limit, verdict):
    day = outcome(WEAK, RATIOS, rule=Floor.at(limit))
    other = outcome(WEAK, [1.01 * ratio for ratio in RATIOS], rule=Floor.at(limit))
    assert pooled(sessions(tmp_path, [day], [other], [day], [other])).cases[0].verdict is verdict


def test_launches_of_all_sessions_are_kept_apart(tmp_path):
    made = pooled(sessions(tmp_path, [of_day(1)], [of_day(1)], [of_day(1)]))
    assert len(list(each_launch(made.cases))) == 3 * 2 * len(RATIOS)


def test_a_case_of_one_session_is_left_out_and_named(tmp_path):
    made = pooled(sessions(tmp_path, [of_day(1), outcome(PARITY, RATIOS)], [of_day(1)]))
    assert [case.name for case in made.cases] == [WEAK.name]
    assert any(PARITY.name in line for line in made.left_out)


def test_a_report_of_several_shows_each(tmp_path):
    first, *others = (session_of(tmp_path, of_day(1), name=name) for name in DAYS[:3])
    archive = read_sessions(first, others)
    shown = known(by_session(archive))
    assert_sound(shown)
    (row,) = shown.figures[0].table.rows
    assert row["sessions"] == 3
    assert session_report(archive).sections
    assert methods(archive)


def test_cases_of_one_name_that_ask_another_thing_are_not_averaged(tmp_path):
    (first,) = sessions(tmp_path, [of_day(1)])
    batch = outcome(weak_scaling(replace(WORKLOAD, batch=64), 2), RATIOS)
    other = read_session(session_of(tmp_path, batch, name=DAYS[1]))
    with pytest.raises(UserError, match="batch 32 in A, 64 in B"):
        pooled([first, other])
    spread = read_session(session_of(tmp_path, of_day(1), per_node=1, name=DAYS[2]))
    with pytest.raises(UserError, match="rank_cores"):
        pooled([first, spread])


def test_what_differs_but_does_not_matter_is_told_of_all(tmp_path):
    other = session_of(tmp_path, of_day(1), name=DAYS[1], suite="9.9 (abc)", hosts=("n2",))
    made = known(pooled([*sessions(tmp_path, [of_day(1)]), read_session(other)]).session)
    assert "9.9 (abc)" in made.suite
    assert "n2" in made.hosts


def test_another_stack_or_the_same_session_is_refused(tmp_path):
    directories = [session_of(tmp_path, of_day(1), name=name) for name in DAYS[:2]]
    first = read_session(directories[0])
    with pytest.raises(UserError, match="given twice"):
        pooled([first, first])
    edit(directories[1], {"tensorflow": "1.0"}, "fingerprint")
    with pytest.raises(UserError, match="tensorflow"):
        pooled([first, read_session(directories[1])])
