"""Times of steps, rank by rank; starts, phase by phase; and the growth of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hvdperf.plan.arms import AA, AGAINST, BlockKind, Schedule, Side
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import memory, parity, weak_scaling
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome, each_launch
from hvdperf.records.rounds import Run
from hvdperf.report.content import Figure, Row
from hvdperf.report.sections import launches
from hvdperf.report.sections.launches import MIB, PHASES, SHOWN
from hvdperf.verdict import Verdict
from tests.report.cases import case_with, changed, launches_in, parts, recorded, rounds_of, told
from tests.support.rounds import WORKLOAD, change_reports, outcome, run_report

WEAK, PARITY = "weak_scaling-resnet_50_s-np2", "parity-resnet_50_s-np2"
STARTED, GREW = "startup-init-resnet_50_s-np2", "memory-resnet_50_s-np2"


def steps(*cases: Case) -> dict[str, Figure]:
    return told(launches.steps(cases))


def starts(*cases: Case) -> Sequence[Row]:
    (figure,) = told(launches.startup(cases)).values()
    return figure.table.rows


def growth(*cases: Case) -> Figure:
    (figure,) = told(launches.memory(cases)).values()
    return figure


def step_seconds(name: str, side: int, rank: int | None = None) -> list[float]:
    """Of whole steps, straight from the file; of one rank, or of all."""
    return [
        seconds
        for measured in rounds_of(name)
        for block in measured["launches"][side]["work"]["blocks"]
        if block["kind"] == "full"
        for number, report in enumerate(block["ranks"])
        if rank in (None, number)
        for seconds in report["step_seconds"]
    ]


def with_clocks(measured: Outcome, seconds: Sequence[float]) -> Outcome:
    """The same, had the candidate's ranks taken so long for every block."""
    for each in measured.rounds:
        change_reports(
            each.of(measured.comparison.candidate.arm),
            lambda rank, report: replace(
                report, seconds=seconds[rank], step_seconds=[seconds[rank] / 10] * 10
            ),
        )
    return measured


def test_quantiles_are_those_of_the_steps_that_were_recorded():
    found = steps(*recorded(WEAK))
    assert list(found) == ["steps-ranks-resnet_50_s-np1", "steps-ranks-resnet_50_s-np2"]
    rows = found["steps-ranks-resnet_50_s-np2"].table.rows
    assert [row["rank"] for row in rows] == [0, 1]
    for rank, row in enumerate(rows):
        own = step_seconds(WEAK, 0, rank)
        for share in (1, 5, 25, 50, 75, 95, 99):
            assert row[f"q{share:02}_ms"] == pytest.approx(1000 * np.percentile(own, share))
        assert row["max_ms"] == 1000 * max(own)
        assert row["steps"] == len(own)


def test_launches_that_cases_share_count_once():
    alone, together = steps(*recorded(WEAK)), steps(*recorded(WEAK, PARITY))
    name = "steps-ranks-resnet_50_s-np2"
    assert together[name].table.rows == alone[name].table.rows
    assert steps(*recorded(PARITY))[name].table.rows == alone[name].table.rows


@pytest.mark.parametrize(
    ("rounds", "clocks", "named"),
    [
        (6, [1.0, 1.0, 1.3, 1.1], [2]),
        # Of 2 ranks always the same in 9 blocks has a chance of 1 in 512, in 12 of 1 in 4096.
        (3, [1.0, 1.1], []),
        (4, [1.0, 1.1], [1]),
        # If both take as long, none is the slowest.
        (8, [1.0, 1.0], []),
    ],
)
def test_a_rank_is_named_if_it_is_slowest_more_often_than_by_chance(rounds, clocks, named):
    n = len(clocks)
    slow = with_clocks(outcome(weak_scaling(WORKLOAD, n), [0.9] * rounds), clocks)
    figure = steps(case_with(slow))[f"steps-ranks-resnet_50_s-np{n}"]
    assert [row["rank"] for row in figure.table.rows if row["named"] == "yes"] == named
    slowest = [100 * (clocks.count(each) == 1 and each == max(clocks)) for each in clocks]
    assert [row["slowest"] for row in figure.table.rows] == slowest
    (mark,) = [each for each in parts(figure.plot) if "'style': 'named'" in str(each.get("mark"))]
    assert mark["transform"] == [{"filter": "datum.named === 'yes'"}]


def test_hundreds_of_ranks_have_a_row_each():
    clocks = [1.0 + (rank == 200) for rank in range(256)]
    slow = with_clocks(outcome(weak_scaling(WORKLOAD, 256), [0.9, 0.9]), clocks)
    figure = steps(case_with(slow))["steps-ranks-resnet_50_s-np256"]
    assert len(figure.table.rows) == 256
    assert [row["rank"] for row in figure.table.rows if row["named"] == "yes"] == [200]
    assert figure.plot is not None
    assert figure.plot["height"] < 2000


def test_other_kinds_of_blocks_do_not_count():
    def local_only(document: dict[str, Any]) -> None:
        for launch in launches_in(document):
            for block in launch["work"]["blocks"]:
                block["kind"] = BlockKind.LOCAL.value

    (case,) = recorded(WEAK)
    assert launches.steps([changed(case, local_only)]).figures == ()


@pytest.mark.parametrize("other", [{"stack": AGAINST}, {"injected": AA}])
def test_launches_under_another_stack_or_with_an_injected_fault_are_left_out(other):
    plain = weak_scaling(WORKLOAD, 2)
    odd = Side(replace(plain.candidate.arm, **other))
    measured = outcome(replace(plain, candidate=odd, reference=odd, question=Question.AA), [1.0])
    assert launches.steps([case_with(measured)]).figures == ()
    twin = outcome(replace(plain, candidate=odd, reference=plain.candidate), [1.0])
    found = steps(case_with(twin))["steps-ranks-resnet_50_s-np2"]
    assert found.table.rows[0]["steps"] == 30, "those of the other one"


def test_steps_without_a_time_are_left_out():
    def forget(document: dict[str, Any]) -> None:
        for launch in launches_in(document):
            for block in launch["work"]["blocks"]:
                block["ranks"][0]["step_seconds"][:1] = [None]
                for rank in block["ranks"][1:]:
                    rank["step_seconds"] = []

    (case,) = recorded(WEAK)
    found = steps(changed(case, forget))["steps-ranks-resnet_50_s-np2"]
    (row,) = found.table.rows
    assert row["steps"] == len(step_seconds(WEAK, 0, 0)) - 6


def test_a_case_whose_evidence_is_against_it_is_left_out():
    measured = outcome(parity(WORKLOAD, 2), [1.0], verdict=Verdict.INVALID, reason="other weights")
    assert launches.steps([case_with(measured)]).figures == ()
    unjudged = replace(measured, threshold_line='"parity" = {...}')
    assert launches.steps([case_with(unjudged)]).figures


# Starts and memory ----------------------------------------------------------------------------


def test_phases_are_medians_of_the_slowest_ranks():
    (row,) = starts(*recorded(STARTED))
    rounds = rounds_of(STARTED)
    launched = [measured["launches"][0]["startup_seconds"] for measured in rounds]
    assert row["launches"] == len(launched) == 6
    every = 0.0
    for phase in PHASES:
        seconds = np.median([max(rank[phase] for rank in ranks) for ranks in launched])
        assert row[phase.replace(" ", "_")] == pytest.approx(seconds)
        every += seconds
    assert row["all_phases"] == pytest.approx(every)
    assert (row["arm"], row["beside"]) == ("horovod, 2 ranks", "nothing")


def test_arms_that_start_beside_others_are_rows_of_their_own():
    measured = outcome(weak_scaling(WORKLOAD, 2), [0.9] * 2)
    alone = replace(
        measured, rounds=tuple(replace(each, schedule=Schedule.FRESH) for each in measured.rounds)
    )
    for what, beside in ((measured, "other arms"), (alone, "nothing")):
        rows = starts(case_with(what))
        assert [row["world_size"] for row in rows] == [1, 2]
        assert {row["beside"] for row in rows} == {beside}
        assert all(("beside" in str(row["arm"])) == (beside == "other arms") for row in rows)
    both = starts(*recorded("parity-resnet_50_s-np2", STARTED))
    assert [row["beside"] for row in both] == ["nothing", "other arms", "other arms"]


def test_a_network_that_is_traced_only_has_no_first_step():
    def traced_only(document: dict[str, Any]) -> None:
        for launch in launches_in(document):
            for rank in launch["startup_seconds"]:
                del rank["first step"], rank["broadcast"]

    (case,) = recorded(STARTED)
    (row,) = starts(changed(case, traced_only))
    assert row["first_step"] is row["broadcast"] is None
    assert row["trace"] is not None


def test_injected_faults_are_left_out():
    plain = weak_scaling(WORKLOAD, 2)
    busy = replace(plain.candidate.arm, injected="trace")
    trial = replace(
        plain, question=Question.STARTUP_TRACE, candidate=Side(busy), reference=plain.candidate
    )
    (row,) = starts(case_with(outcome(trial, [1.0])))
    assert (row["arm"], row["launches"]) == ("horovod, 2 ranks, beside others", 1)


def test_the_learning_rate_is_no_matter_of_the_start():
    names = [STARTED, "convergence-loss-single-resnet_50_s-np2"]
    assert [(row["arm"], row["launches"]) for row in starts(*recorded(*names))] == [
        ("single, 1 rank, 2 passes", 3),
        ("horovod, 2 ranks", 9),
    ]


def readings(rank: int) -> tuple[list[int], np.ndarray]:
    """Steps, and bytes as medians over the rounds, straight from the file."""
    rounds = rounds_of(GREW)
    runs = [measured["launches"][0]["work"]["run"][rank]["memory"] for measured in rounds]
    steps = [step for step, _ in runs[0]]
    return steps, np.median([[size for _, size in run] for run in runs], axis=0)


@pytest.mark.parametrize("rank", [0, 1])
def test_resident_sets_are_those_that_were_read(rank):
    rows = [row for row in growth(*recorded(GREW)).table.rows if row["rank"] == rank]
    steps, sizes = readings(rank)
    assert [row["steps"] for row in rows] == steps
    assert [row["resident_mib"] for row in rows] == pytest.approx(list(sizes / MIB))
    assert {row["rounds"] for row in rows} == {3}


def grown(world_size: int, rounds: int = 2) -> Case:
    """Rank i grows by i kB a step."""
    measured = outcome(memory(WORKLOAD, world_size), [1.0] * rounds)
    for _, _, launch in each_launch([measured]):
        launch.work = Run([run_report(steps=300, growth=1e3 * r) for r in range(world_size)])
    return case_with(measured)


def test_of_many_ranks_those_that_grow_most_are_shown():
    figure = growth(grown(20))
    assert {row["rank"] for row in figure.table.rows} == set(range(20 - SHOWN, 20))
    assert f"The {SHOWN} of 20 ranks" in figure.says
