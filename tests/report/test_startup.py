"""Of each phase the slowest rank's seconds, medians over the launches of an arm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hvdperf.plan.arms import Schedule, Side
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import startup, weak_scaling
from hvdperf.records.documents import Case
from hvdperf.report.content import Figure
from hvdperf.report.sections.startup import PHASES, section
from tests.report.cases import RECORDED, case_with, changed, of_every_name, recorded
from tests.report.checks import assert_told, told
from tests.support.rounds import WORKLOAD, outcome

REAL = "startup-init-resnet_50_s-np2"


def figures(*cases: Case) -> dict[str, Figure]:
    return told(section(cases))


def test_phases_are_medians_of_the_slowest_ranks():
    (row,) = figures(*recorded(REAL))["startup-resnet_50_s"].table.rows
    rounds = json.loads((RECORDED / f"{REAL}.json").read_text())["outcome"]["rounds"]
    starts = [measured["launches"][0]["startup_seconds"] for measured in rounds]
    assert row["launches"] == len(starts) == 6
    expected = {
        phase: np.median([max(rank[phase] for rank in ranks) for ranks in starts])
        for phase in PHASES
    }
    assert len(expected) == 8
    for phase, seconds in expected.items():
        assert row[phase.replace(" ", "_")] == pytest.approx(seconds)
    assert row["all_phases"] == pytest.approx(sum(expected.values()))
    assert (row["arm"], row["beside"]) == ("horovod, np 2", "nothing")


def test_four_questions_on_the_same_starts_count_them_once():
    asked = [outcome(comparison, [1.0] * 3) for comparison in startup(WORKLOAD, 2)]
    cases = [case_with(each) for each in asked]
    (row,) = figures(*cases)["startup-resnet_50_s"].table.rows
    assert row["launches"] == 3


def test_arms_that_start_beside_others_are_rows_of_their_own():
    measured = outcome(weak_scaling(WORKLOAD, 2), [0.9] * 2)
    alone = replace(
        measured, rounds=tuple(replace(each, schedule=Schedule.FRESH) for each in measured.rounds)
    )
    for what, beside in ((measured, "other arms"), (alone, "nothing")):
        rows = figures(case_with(what))["startup-resnet_50_s"].table.rows
        assert [row["world_size"] for row in rows] == [1, 2]
        assert {row["beside"] for row in rows} == {beside}
        assert all(("beside" in str(row["arm"])) == (beside == "other arms") for row in rows)
    both = figures(*recorded("parity-resnet_50_s-np2", REAL))["startup-resnet_50_s"].table.rows
    assert [row["beside"] for row in both] == ["nothing", "other arms", "other arms"]


def test_a_network_that_is_traced_only_has_no_first_step():
    def traced_only(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            for rank in measured["launches"][0]["startup_seconds"]:
                del rank["first step"], rank["broadcast"]

    (case,) = recorded(REAL)
    (row,) = figures(changed(case, traced_only))["startup-resnet_50_s"].table.rows
    assert row["first_step"] is row["broadcast"] is None
    assert row["trace"] is not None


def test_injected_faults_are_left_out():
    plain = weak_scaling(WORKLOAD, 2)
    busy = replace(plain.candidate.arm, injected="trace")
    trial = replace(
        plain, question=Question.STARTUP_TRACE, candidate=Side(busy), reference=plain.candidate
    )
    (row,) = figures(case_with(outcome(trial, [1.0])))["startup-resnet_50_s"].table.rows
    assert (row["arm"], row["launches"]) == ("horovod, np 2, beside others", 1)


def test_the_learning_rate_is_no_matter_of_the_start():
    names = [REAL, "convergence-loss-single-resnet_50_s-np2"]
    (figure,) = figures(*recorded(*names)).values()
    assert [row["arm"] for row in figure.table.rows] == ["single, np 1, 2 passes", "horovod, np 2"]
    assert [row["launches"] for row in figure.table.rows] == [3, 9]


def test_hostile_names_have_figures():
    assert len(figures(*of_every_name(recorded(REAL)))) == 9


def test_without_launches_it_is_told_how_to_get_them():
    found = section([])
    assert_told(found)
    assert found.missing.endswith("pytest perf/test_startup.py")
