"""The documents of a session while it runs, and how another one goes on with it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.machine.disturbance import Culprit, Disturbance
from hvdperf.machine.placement import Offer
from hvdperf.plan.options import Options
from hvdperf.plan.questions import aa, parity, startup, weak_scaling
from hvdperf.plan.session_plan import SessionPlan, plan_session
from hvdperf.records.archive import Archive, read_document, read_session
from hvdperf.records.documents import SUMMARY_FORMAT, Case, SessionDocument, Summary
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.session.ending import NOT_WRITTEN
from hvdperf.session.results_writer import (
    Earlier,
    ResultsWriter,
    asked,
    earlier_parts,
    open_directory,
    session_document,
)
from hvdperf.verdict import Band, Verdict
from tests.support.filesystems import fill, make_read_only, small_disk
from tests.support.rounds import WORKLOAD, disturbance, outcome
from tests.support.stores import MACHINE, SESSION, STACK, case_of, placed, session_of_cases

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
# A case with rounds of its own.
ELSEWHERE = startup(WORKLOAD, 2)[0]
ONE, OTHER = outcome(WEAK, RATIOS), outcome(PARITY, RATIOS, Band(0.75, 1.33))


def results_writer(
    runs: Path, *earlier: Case, disturbances: Sequence[Disturbance] = (), **document: Any
) -> ResultsWriter:
    """Return the writer of a session. document: fields of its document."""
    session: Any = SimpleNamespace(
        timed_seconds=1.5,
        disturbances=disturbances,
        arm_launcher=SimpleNamespace(slots=placed()),
    )
    directory = runs / SESSION
    directory.mkdir(parents=True, exist_ok=True)
    made = replace(session_of_cases(), **document)
    before = Earlier(cases={each.name: each for each in earlier})
    return ResultsWriter(directory, made, session, before, began=0.0)


def written(kept: ResultsWriter) -> SessionDocument:
    return read_document(kept.directory / "session.json", SessionDocument)


def test_a_session_can_be_read_from_its_beginning_and_a_case_the_moment_it_is_decided(tmp_path):
    kept = results_writer(tmp_path)
    archive = read_session(kept.directory)
    assert archive.left_out == ()
    assert archive.session is not None
    assert archive.session.exit_status is None
    assert archive.session.verdicts == {}
    assert "still runs, or was killed" in archive.unfinished
    (line,) = kept.lines(3)
    assert line == f"3 cases are left; to continue: --resume {os.path.abspath(kept.directory)}"
    assert kept.keep(ONE) == ""
    assert [case.name for case in read_session(kept.directory).cases] == [WEAK.name]
    assert written(kept).verdicts == {WEAK.name: Verdict.PASS}
    assert written(kept).budget_spent_seconds > 0
    assert kept.end(0) == 0
    assert written(kept).exit_status == 0
    assert read_session(kept.directory).unfinished == ""


def summary(kept: ResultsWriter) -> Summary:
    return read_document(kept.directory / "summary.json", Summary, SUMMARY_FORMAT)


def test_the_parts_of_a_session_are_added_up_also_in_the_summary(tmp_path):
    failed = case_of(outcome(PARITY, RATIOS, Band(0.75, 1.33), Verdict.FAIL))
    kept = results_writer(tmp_path, failed, elapsed_seconds=1e9, budget_spent_seconds=1e9)
    kept.keep(ONE)
    document = written(kept)
    assert document.elapsed_seconds > 1e9
    assert document.budget_spent_seconds > 1e9
    assert document.verdicts == {PARITY.name: Verdict.FAIL, WEAK.name: Verdict.PASS}
    told = summary(kept)
    assert [case.name for case in told.cases] == [PARITY.name, WEAK.name]
    assert told.exit_status is None
    assert told.disturbed == ""
    assert told.session == kept.directory.name
    kept.end(1)
    assert summary(kept).exit_status == 1


def test_what_others_did_meanwhile_is_in_the_summary(tmp_path):
    found = disturbance(0.5, 0.0, Culprit("python", 1234, 9.0, (1,)))
    kept = results_writer(tmp_path, disturbances=[found])
    kept.end(0)
    told = summary(kept).disturbed
    assert told.startswith("other programs took 50 % of the cores")
    assert "python, pid 1234" in told


def test_a_disk_that_fills_up_costs_no_figure_but_the_status_unless_there_is_room_in_the_end(
    tmp_path,
):
    with small_disk(tmp_path / "disk", "1m") as disk:
        kept = results_writer(disk)
        kept.keep(ONE)
        ballast = fill(disk)
        said = kept.keep(OTHER)
        assert said.startswith(f"NOT WRITTEN {PARITY.name}: ")
        assert said.endswith("No space left on device; the session continues")
        assert kept.end(1) == 1, "the worst verdict comes first"
        assert kept.end(0) == NOT_WRITTEN
        assert any(PARITY.name in line for line in kept.lines(0))
        archive = read_session(kept.directory)
        # Whole, or as it was before; nothing half-written is left there.
        assert [case.name for case in archive.cases] == [WEAK.name]
        assert archive.left_out == ()
        assert archive.session is not None
        ballast.unlink()
        assert kept.end(0) == 0
        assert kept.lines(0) == []
        assert len(read_session(kept.directory).cases) == 2
        kept.close()


def test_a_directory_is_written_by_one_session_at_a_time(tmp_path):
    kept = results_writer(tmp_path)
    with pytest.raises(UserError, match="still running"):
        results_writer(tmp_path)
    kept.close()
    results_writer(tmp_path).close()


@pytest.fixture
def plan(tmp_path: Path):
    """A session on two cores; options: what of its command line is otherwise."""
    own = Options(models=("resnet_50_s",), dataset="synthetic", results=str(tmp_path / "results"))

    def planned(**options: object) -> SessionPlan:
        offers = [Offer(rank, "host", (0, 1)) for rank in range(2)]
        return plan_session(replace(own, **options), MACHINE, offers)  # type: ignore[arg-type]

    return planned


def facts(stack=STACK):
    return fingerprint(MACHINE, stack, "mpirun", (), {})


DISTURBANCES = (disturbance(0.3),)


def writer(
    session_plan: SessionPlan, earlier: Earlier, command: str = "pytest perf/ -k weak"
) -> ResultsWriter:
    session: Any = SimpleNamespace(
        timed_seconds=1.5,
        disturbances=DISTURBANCES,
        arm_launcher=SimpleNamespace(slots=session_plan.slots),
    )
    document = session_document(session_plan, facts(), (), earlier, (), command)
    directory = open_directory(session_plan, document.session, earlier)
    return ResultsWriter(directory, document, session, earlier, began=0.0)


@pytest.fixture
def interrupted(plan) -> Archive:
    """A session that was killed after its first case."""
    results_writer = writer(plan(), Earlier())
    results_writer.keep(ONE)
    results_writer.close()
    return read_session(results_writer.directory)


def test_what_was_decided_is_taken_over_in_the_same_directory(interrupted, plan):
    earlier = earlier_parts(interrupted, facts(), plan(), (), [WEAK, PARITY])
    (comparison,) = earlier.outcomes
    assert comparison == WEAK
    assert earlier.outcomes[WEAK].judgement == ONE.judgement
    assert earlier.cases.keys() == {WEAK.name}
    assert earlier.document == interrupted.session
    assert earlier.messages == ("1 of 2 cases are already decided",)
    results_writer = writer(plan(), earlier, "pytest perf/ --resume it")
    assert results_writer.directory == interrupted.directory
    results_writer.keep(outcome(PARITY, RATIOS, Band(0.75, 1.33)))
    results_writer.close()
    archive = read_session(results_writer.directory)
    assert [case.name for case in archive.cases] == [PARITY.name, WEAK.name]
    assert {case.session for case in archive.cases} == {results_writer.directory.name}
    document = archive.session
    assert document is not None
    assert document.command == "pytest perf/ -k weak", "of the first part"
    assert interrupted.session is not None
    assert document.seed == interrupted.session.seed
    assert document.timed_seconds == 1.5
    assert document.disturbances == DISTURBANCES
    assert document.budget_spent_seconds > 0
    assert document.taken_over == (WEAK.name,)
    assert len(document.resumed_at) == 1


@pytest.mark.parametrize(
    ("spoil", "told"),
    [(fill, "No space left on device"), (make_read_only, "Read-only file system")],
)
def test_a_disk_that_takes_nothing_is_found_before_anything_is_measured(
    plan, tmp_path, spoil, told
):
    with small_disk(tmp_path / "disk") as disk:
        session_plan = plan(results=str(disk))
        spoil(disk)
        with pytest.raises(UserError, match=f"{told}; make room") as caught:
            writer(session_plan, Earlier())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("others", "pair_goes_on"),
    [([WEAK], False), ([WEAK, PARITY], True), ([WEAK, ELSEWHERE], False)],
)
def test_an_a_a_pair_goes_on_with_the_cases_of_its_rounds(interrupted, plan, others, pair_goes_on):
    pair = aa(WORKLOAD, 2)
    results_writer = writer(plan(), earlier_parts(interrupted, facts(), plan(), (), [WEAK]))
    results_writer.keep(outcome(pair, RATIOS, Band(0.9, 1.11), Verdict.INFO))
    results_writer.close()
    killed = read_session(results_writer.directory)
    earlier = earlier_parts(killed, facts(), plan(), (), [*others, pair])
    assert (pair in earlier.undecided, pair in earlier.outcomes) == (pair_goes_on, not pair_goes_on)


def test_a_case_that_is_not_selected_keeps_its_verdict(interrupted, plan):
    earlier = earlier_parts(interrupted, facts(), plan(), (), [PARITY])
    assert earlier.outcomes == {}
    assert {name: case.verdict for name, case in earlier.cases.items()} == {WEAK.name: Verdict.PASS}


def refused(archive: Archive, session_plan: SessionPlan, stack=STACK, comparison=WEAK) -> str:
    with pytest.raises(UserError) as caught:
        earlier_parts(archive, facts(stack), session_plan, (), [comparison])
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith("or leave out --resume to begin a new session")
    return said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": 16}, "batch: 32 -> 16"),
        ({"inject": ("kill:rank=1",)}, "inject:  -> kill:rank=1"),
        ({"models": ("vgg_16_s",)}, "models: ['resnet_50_s'] -> ['vgg_16_s']"),
        ({"policy": "mixed_bfloat16"}, "mixed_bfloat16"),
        ({"image_size": 64}, "/64/"),
        ({"thresholds": "ci/thresholds/gpu-v100.toml"}, "thresholds: cpu-unknown.toml"),
    ],
)
def test_another_question_is_refused(interrupted, plan, options, told):
    assert told in refused(interrupted, plan(**options))


def test_another_stack_is_refused(interrupted, plan):
    assert "keras: 3.15.1 -> 3.16.0" in refused(
        interrupted, plan(), stack=replace(STACK, keras="3.16.0")
    )


def test_of_many_differences_only_the_first_are_told(interrupted, plan):
    said = refused(interrupted, plan(batch_size=16, world_sizes="1", models=("vgg_16_s",)))
    assert said.count(" -> ") == 3
    assert re.search(r"; and \d+ more\.", said)


def test_more_time_is_no_other_question(plan):
    assert asked(plan(budget_minutes=30.0), ()) == asked(plan(), ())


def test_a_stack_to_compare_with_is_a_part_of_the_question(plan):
    session_plan = plan(against="python")
    same, other = asked(session_plan, ()), asked(session_plan, ["keras: 2.15.0 -> 3.15.1"])
    assert len({asked(plan(), ()).against, same.against, other.against}) == 3


def test_a_case_of_the_same_name_that_asks_otherwise_is_refused(interrupted, plan):
    other = weak_scaling(replace(WORKLOAD, input_size=64), 2)
    assert other.name == WEAK.name
    assert f"the plan of {WEAK.name}" in refused(interrupted, plan(), comparison=other)


def test_a_case_with_a_launch_too_few_is_measured_again(interrupted, plan):
    (path,) = interrupted.directory.glob("rounds/*.json")
    document = json.loads(path.read_text())
    document["rounds"][0]["launches"].pop()
    path.write_text(json.dumps(document))
    archive = read_session(interrupted.directory)
    earlier = earlier_parts(archive, facts(), plan(), (), [WEAK, PARITY])
    assert earlier.outcomes == {}
    assert earlier.cases == {}
    assert "round 0 is not in rounds/" in earlier.messages[0]


def test_a_session_that_begins_has_a_seed_and_nothing_else(plan):
    earlier = earlier_parts(None, facts(), plan(), (), [WEAK])
    assert earlier == Earlier()
    assert session_document(plan(), facts(), (), earlier, ()).seed > 0


def test_a_case_whose_writing_was_interrupted_is_written_at_the_end(tmp_path, monkeypatch):
    kept = results_writer(tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("hvdperf.records.archive.Store.write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            kept.keep(ONE)
    assert kept.end(2) == 2
    assert [case.name for case in read_session(kept.directory).cases] == [WEAK.name]
    assert kept.lines(0) == []
