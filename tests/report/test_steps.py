"""Times of steps: rank by rank, and strategies side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hvdperf.plan.arms import AA, AGAINST, BlockKind, Side
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import parity, weak_scaling
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from hvdperf.report.cases import finite, quantiles
from hvdperf.report.content import Figure
from hvdperf.report.sections.steps import section
from hvdperf.verdict import Verdict
from hvdperf.work.blocks import turns_of
from tests.report.cases import (
    case_with,
    changed,
    parts,
    recorded,
    rounds_of,
    told,
)
from tests.support.rounds import WORKLOAD, outcome

WEAK, PARITY = "weak_scaling-resnet_50_s-np2", "parity-resnet_50_s-np2"


def figures(*cases: Case) -> dict[str, Figure]:
    return told(section(cases))


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
        launch = each.of(measured.comparison.candidate.arm)
        turns_of(launch).blocks = [
            replace(
                block,
                ranks=[
                    replace(report, seconds=own, step_seconds=[own / 10] * 10)
                    for report, own in zip(block.ranks, seconds, strict=True)
                ],
            )
            for block in launch.blocks
        ]
    return measured


def test_quantiles_are_those_of_the_steps_that_were_recorded():
    found = figures(*recorded(WEAK))
    rows = found["steps-ranks-resnet_50_s-np2"].table.rows
    assert [row["rank"] for row in rows] == [0, 1]
    for rank, row in enumerate(rows):
        own = step_seconds(WEAK, 0, rank)
        for share in (1, 5, 25, 50, 75, 95, 99):
            assert row[f"q{share:02}_ms"] == pytest.approx(1000 * np.percentile(own, share))
        assert row["max_ms"] == 1000 * max(own)
        assert row["steps"] == len(own)


def test_launches_that_cases_share_count_once():
    alone, together = figures(*recorded(WEAK)), figures(*recorded(WEAK, PARITY))
    name = "steps-ranks-resnet_50_s-np2"
    assert together[name].table.rows == alone[name].table.rows
    assert figures(*recorded(PARITY))[name].table.rows == alone[name].table.rows


def test_the_reference_of_weak_scaling_is_no_candidate():
    assert list(figures(*recorded(WEAK))) == [
        "steps-ranks-resnet_50_s-np1",
        "steps-ranks-resnet_50_s-np2",
    ]


def test_strategies_stand_side_by_side_where_parity_was_asked():
    figure = figures(*recorded(WEAK, PARITY))["steps-strategies-resnet_50_s"]
    rows = {str(row["strategy"]): row for row in figure.table.rows}
    assert rows.keys() == {"horovod", "mirrored"}
    for side, strategy in enumerate(("horovod", "mirrored")):
        pooled = step_seconds(PARITY, side)
        assert rows[strategy]["steps"] == len(pooled)
        assert rows[strategy]["q50_ms"] == pytest.approx(1000 * np.median(pooled))
        assert rows[strategy]["launches"] == 3
    assert "steps-strategies-resnet_50_s" not in figures(*recorded(WEAK))


def test_a_rank_that_is_always_slowest_is_named():
    slow = with_clocks(outcome(weak_scaling(WORKLOAD, 4), [0.9] * 6), [1.0, 1.0, 1.3, 1.1])
    figure = figures(case_with(slow))["steps-ranks-resnet_50_s-np4"]
    assert [row["named"] for row in figure.table.rows] == ["no", "no", "yes", "no"]
    assert [row["slowest"] for row in figure.table.rows] == [0, 0, 100, 0]
    assert "Slowest in more blocks than chance explains: rank 2 in 100 %." in figure.says
    assert figure.plot is not None
    (named,) = [each for each in parts(figure.plot) if "'style': 'named'" in str(each.get("mark"))]
    assert named["transform"] == [{"filter": "datum.named === 'yes'"}]


def test_a_rank_that_is_slowest_in_as_many_blocks_as_chance_allows_is_not():
    """Of 2 ranks always the same in 9 blocks has a chance of 1 in 512, in 12 of 1 in 4096."""
    for rounds, named in ((3, "no"), (4, "yes")):
        slow = with_clocks(outcome(weak_scaling(WORKLOAD, 2), [0.9] * rounds), [1.0, 1.1])
        figure = figures(case_with(slow))["steps-ranks-resnet_50_s-np2"]
        assert figure.table.rows[1]["named"] == named


def test_of_ranks_that_take_as_long_none_is_the_slowest():
    alike = with_clocks(outcome(weak_scaling(WORKLOAD, 2), [0.9] * 8), [1.0, 1.0])
    figure = figures(case_with(alike))["steps-ranks-resnet_50_s-np2"]
    assert [(row["slowest"], row["named"]) for row in figure.table.rows] == [(0, "no")] * 2
    assert "No rank is the slowest" in figure.says


def test_hundreds_of_ranks_have_a_row_each():
    clocks = [1.0 + (rank == 200) for rank in range(256)]
    slow = with_clocks(outcome(weak_scaling(WORKLOAD, 256), [0.9, 0.9]), clocks)
    figure = figures(case_with(slow))["steps-ranks-resnet_50_s-np256"]
    assert len(figure.table.rows) == 256
    assert [row["rank"] for row in figure.table.rows if row["named"] == "yes"] == [200]
    assert figure.plot is not None
    assert figure.plot["height"] < 2000


def test_other_kinds_of_blocks_do_not_count():
    def local_only(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            for launch in measured["launches"]:
                for block in launch["work"]["blocks"]:
                    block["kind"] = BlockKind.LOCAL.value

    (case,) = recorded(WEAK)
    assert section([changed(case, local_only)]).figures == ()


@pytest.mark.parametrize("other", [{"stack": AGAINST}, {"injected": AA}])
def test_launches_under_another_stack_or_with_an_injected_fault_are_left_out(other):
    plain = weak_scaling(WORKLOAD, 2)
    odd = Side(replace(plain.candidate.arm, **other))
    measured = outcome(replace(plain, candidate=odd, reference=odd, question=Question.AA), [1.0])
    assert section([case_with(measured)]).figures == ()
    twin = outcome(replace(plain, candidate=odd, reference=plain.candidate), [1.0])
    found = figures(case_with(twin))["steps-ranks-resnet_50_s-np2"]
    assert found.table.rows[0]["steps"] == 30, "those of the other one"


def test_steps_without_a_time_are_left_out():
    def forget(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            for launch in measured["launches"]:
                for block in launch["work"]["blocks"]:
                    block["ranks"][0]["step_seconds"][:1] = [None]
                    for rank in block["ranks"][1:]:
                        rank["step_seconds"] = []

    (case,) = recorded(WEAK)
    found = figures(changed(case, forget))["steps-ranks-resnet_50_s-np2"]
    (row,) = found.table.rows
    assert row["steps"] == len(step_seconds(WEAK, 0, 0)) - 6


def test_a_case_whose_evidence_is_against_it_is_left_out():
    measured = outcome(parity(WORKLOAD, 2), [1.0], verdict=Verdict.INVALID, reason="other weights")
    assert section([case_with(measured)]).figures == ()
    unjudged = replace(measured, threshold_line='"parity" = {...}')
    assert section([case_with(unjudged)]).figures


def test_quantiles_lie_between_values():
    assert quantiles([4.0, 1.0, 2.0, 3.0], [0.0, 0.5, 0.75, 1.0]) == [1.0, 2.5, 3.25, 4.0]


def test_what_is_no_number_is_left_out():
    assert finite([1.0, None, math.nan, math.inf, 0.0]) == [1.0, 0.0]
