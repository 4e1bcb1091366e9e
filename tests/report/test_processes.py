"""Starts, phase by phase, and the growth of ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import theilslopes

from hvdperf.plan.arms import Schedule, Side
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import memory, startup, weak_scaling
from hvdperf.records.documents import Case
from hvdperf.records.rounds import Run
from hvdperf.report.content import Figure
from hvdperf.report.sections import processes
from hvdperf.report.sections.processes import MIB, PHASES, SHOWN
from hvdperf.verdict import Ceiling
from tests.report.cases import (
    case_with,
    changed,
    recorded,
    rounds_of,
    told,
)
from tests.support.rounds import WORKLOAD, outcome, run_report

STARTED = "startup-init-resnet_50_s-np2"


def figures(*cases: Case) -> dict[str, Figure]:
    return told(processes.startup(cases))


def test_phases_are_medians_of_the_slowest_ranks():
    (row,) = figures(*recorded(STARTED))["startup-resnet_50_s"].table.rows
    rounds = rounds_of(STARTED)
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
    assert (row["arm"], row["beside"]) == ("horovod, 2 ranks", "nothing")


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
    both = figures(*recorded("parity-resnet_50_s-np2", STARTED))["startup-resnet_50_s"].table.rows
    assert [row["beside"] for row in both] == ["nothing", "other arms", "other arms"]


def test_a_network_that_is_traced_only_has_no_first_step():
    def traced_only(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            for rank in measured["launches"][0]["startup_seconds"]:
                del rank["first step"], rank["broadcast"]

    (case,) = recorded(STARTED)
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
    assert (row["arm"], row["launches"]) == ("horovod, 2 ranks, beside others", 1)


def test_the_learning_rate_is_no_matter_of_the_start():
    names = [STARTED, "convergence-loss-single-resnet_50_s-np2"]
    (figure,) = figures(*recorded(*names)).values()
    assert [row["arm"] for row in figure.table.rows] == [
        "single, 1 rank, 2 passes",
        "horovod, 2 ranks",
    ]
    assert [row["launches"] for row in figure.table.rows] == [3, 9]


GREW = "memory-resnet_50_s-np2"


def only(*cases: Case) -> Figure:
    (figure,) = told(processes.memory(cases)).values()
    return figure


def readings(rank: int) -> tuple[list[int], np.ndarray]:
    """Steps, and bytes as medians over the rounds, straight from the file."""
    rounds = rounds_of(GREW)
    runs = [measured["launches"][0]["work"]["run"][rank]["memory"] for measured in rounds]
    steps = [step for step, _ in runs[0]]
    return steps, np.median([[size for _, size in run] for run in runs], axis=0)


@pytest.mark.parametrize("rank", [0, 1])
def test_resident_sets_are_those_that_were_read(rank):
    rows = [row for row in only(*recorded(GREW)).table.rows if row["rank"] == rank]
    steps, sizes = readings(rank)
    assert [row["steps"] for row in rows] == steps
    assert [row["resident_mib"] for row in rows] == pytest.approx(list(sizes / MIB))
    assert {row["rounds"] for row in rows} == {3}


@pytest.mark.parametrize("rank", [0, 1])
def test_growth_is_the_slope_once_it_has_settled(rank):
    rows = [row for row in only(*recorded(GREW)).table.rows if row["rank"] == rank]
    steps, sizes = readings(rank)
    settled = np.array(steps) >= max(steps) / 3
    slope = theilslopes(np.log(sizes[settled]), np.array(steps)[settled]).slope
    (growth,) = {row["growth"] for row in rows}
    assert growth == pytest.approx(100 * np.expm1(1000 * slope))


def test_what_is_allowed_grows_by_the_ceiling():
    rows = [row for row in only(*recorded(GREW)).table.rows if row["rank"] == 0]
    allowed = {row["steps"]: row["allowed_mib"] for row in rows}
    resident = {row["steps"]: row["resident_mib"] for row in rows}
    # A third of 1000 steps, and the factor of the case.
    assert allowed[325] is None
    assert allowed[350] == resident[350]
    assert allowed[850] == pytest.approx(resident[350] * 1.02**0.5)


def grown(world_size: int, rounds: int = 2, rule: Any = None) -> Case:
    """Rank i grows by i kB a step."""
    measured = outcome(memory(WORKLOAD, world_size), [1.0] * rounds, rule)
    for each in measured.rounds:
        for launch in each.launches:
            launch.work = Run(
                [run_report(steps=300, growth=1e3 * rank) for rank in range(world_size)]
            )
    return case_with(measured)


def test_of_many_ranks_those_that_grow_most_are_shown():
    figure = only(grown(20))
    assert {row["rank"] for row in figure.table.rows} == set(range(20 - SHOWN, 20))
    assert figure.says.startswith("Rank 19 grows most: from 477 to 482 MiB in 300 steps")
    assert f"The {SHOWN} of 20 ranks" in figure.says


def test_without_a_ceiling_nothing_is_allowed():
    assert {row["allowed_mib"] for row in only(grown(2)).table.rows} == {None}
    figure = only(grown(2, rule=Ceiling(1.05, unit="")))
    assert any(row["allowed_mib"] for row in figure.table.rows)
    assert "a factor <= 1.05" in figure.says


def test_too_few_readings_tell_no_growth():
    def cut(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            for run in measured["launches"][0]["work"]["run"]:
                del run["memory"][2:]

    (case,) = recorded(GREW)
    assert {row["growth"] for row in only(changed(case, cut)).table.rows} == {None}


def test_the_limit_begins_where_a_growth_ended():
    measured = outcome(memory(WORKLOAD, 1), [1.0], Ceiling(1.02))
    (launch,) = measured.rounds[0].launches
    full = [[step, 500 * MIB + min(step, 700) * MIB] for step in range(25, 1001, 25)]
    launch.work = Run([replace(run_report(steps=1000), memory=full)])
    rows = only(case_with(measured)).table.rows
    assert {row["growth"] for row in rows} == {0.0}
    assert {row["steps"] for row in rows if row["allowed_mib"] is None} == set(range(25, 675, 25))
