"""Sessions in which faults were planted, counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.trust import counts, of_newest, page, share
from harness import questions
from harness.archive import Archive, read_session
from harness.attribution import Blame
from harness.session import Outcome
from harness.trust import Noticed
from harness.verdict import Band, Floor, Verdict
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import make_store

TRIED = {each.variant: each for each in questions.trials(WORKLOAD, 2)}
RIGHT = Blame("between steps", 1, 0.1)
RULE = Floor(0.98, 0.95)


def said(trial: str, verdict: Verdict, called: Verdict, blame: Blame = RIGHT) -> Outcome:
    made: Outcome = outcome(TRIED[trial], [0.9] * 6, RULE, verdict, noticed=Noticed(called, blame))
    return made


CAUGHT = said("slow10", Verdict.PASS, Verdict.FAIL)
MISNAMED = said("slow10", Verdict.FAIL, Verdict.FAIL, Blame("compute", 0, 0.1))
MISSED = said("slow10", Verdict.FAIL, Verdict.PASS)
OPEN = said("slow10", Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
QUIET = said("twin", Verdict.PASS, Verdict.PASS, Blame())
ALARM = said("twin", Verdict.FAIL, Verdict.FAIL, Blame())


@pytest.fixture
def archives(tmp_path: Path) -> list[Archive]:
    sessions: Sequence[Sequence[Outcome]] = (
        (CAUGHT, QUIET),
        (MISNAMED, QUIET),
        (MISSED, ALARM),
        (OPEN, QUIET),
    )
    found = []
    for number, outcomes in enumerate(sessions):
        store = make_store(tmp_path, session=f"session-{number}")
        for each in outcomes:
            store.write_case(each)
        found.append(read_session(store.directory))
    assert [archive.left_out for archive in found] == [()] * 4
    return found


def test_what_was_called_and_who_was_blamed_are_counted_apart(archives):
    nothing, slow = counts(case for archive in archives for case in archive.cases)
    assert (nothing.trial, nothing.decided, nothing.called, nothing.inconclusive) == (
        "twin",
        4,
        3,
        0,
    )
    assert (slow.trial, slow.decided, slow.called, slow.blamed) == ("slow10", 3, 2, 1)
    assert slow.inconclusive == 1
    assert slow.figures == pytest.approx([0.9] * 4)


def test_a_launch_that_failed_has_not_noticed_anything(tmp_path):
    failed = outcome(TRIED["slow10"], [], RULE, Verdict.FAIL, "rank 1 failed in phase 'build'")
    store = make_store(tmp_path)
    store.write_case(failed)
    store.write_case(outcome(questions.same(WORKLOAD, 2), [1.0] * 6, Band(0.9, 1.1)))
    (slow,) = counts(read_session(store.directory).cases)
    assert (slow.trial, slow.decided, slow.called, slow.blamed) == ("slow10", 1, 0, 0)


def test_networks_and_world_sizes_are_counted_apart(tmp_path):
    (alone,) = questions.trials(WORKLOAD, 1)
    store = make_store(tmp_path)
    for comparison in (alone, TRIED["twin"]):
        found = Noticed(Verdict.PASS, Blame())
        store.write_case(outcome(comparison, [1.0] * 6, RULE, Verdict.PASS, noticed=found))
    counted = counts(read_session(store.directory).cases)
    assert [(count.model, count.world_size) for count in counted] == [
        ("resnet_50_s", 1),
        ("resnet_50_s", 2),
    ]


def test_a_share_has_the_interval_of_clopper_and_pearson():
    # The rule of three, exactly: 1 - 0.025 ** (1 / 20).
    assert share(20, 20) == "20 of 20 (83-100 %)"
    assert share(0, 40) == "0 of 40 (0-9 %)"
    assert share(0, 0) == "-"


def test_the_page_has_a_line_for_each_trial(archives):
    lines = page(archives)
    (slow,) = [line for line in lines if line.startswith("| slow10")]
    assert "FAIL, for between steps of rank 1" in slow
    assert "2 of 3" in slow
    assert "1 of 2" in slow
    assert any("4 sessions on" in line for line in lines)
    assert "No session has been measured yet." in page([])


def test_sessions_of_another_machine_are_not_counted(archives):
    strange = archives[0]
    for case in strange.cases:
        case.fingerprint["cpu_model"] = "Another CPU"
    alike, others = of_newest(archives)
    assert (alike, others) == (archives[1:], [strange])
    assert of_newest([]) == ([], [])
