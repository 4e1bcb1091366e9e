"""Curves are means over the ranks and medians over the rounds; validations are as they ended."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from hvdperf.plan.questions import fixed_time
from hvdperf.records.documents import Case
from hvdperf.records.outcome import each_launch
from hvdperf.records.rounds import Run
from hvdperf.report.content import Figure
from hvdperf.report.sections.convergence import section
from tests.report.cases import case_with, changed, launches_in, recorded, rounds_of, told
from tests.support.rounds import WORKLOAD, outcome, run_report

REAL = ["convergence-loss-single-resnet_50_s-np2", "convergence-loss-mirrored-resnet_50_s-np2"]
ARMS = {"horovod, 2 ranks", "mirrored, 2 ranks", "single, 1 rank, 2 passes"}


def figures(*cases: Case) -> dict[str, Figure]:
    found = told(section(cases))
    return {name.removesuffix("-resnet_50_s-np2"): figure for name, figure in found.items()}


def ends(metric: str) -> dict[str, list[float]]:
    """By strategy, straight from the files."""
    found: dict[str, list[float]] = {}
    for name in REAL:
        for measured in rounds_of(name):
            for launch in measured["launches"]:
                values = found.setdefault(launch["arm"]["strategy"], [])
                values.append(launch["work"]["run"][0]["validation"][metric])
    # Both cases rest on the same launches of Horovod.
    half = len(found["horovod"]) // 2
    assert found["horovod"][:half] == found["horovod"][half:]
    return {**found, "horovod": found["horovod"][:half]}


def with_curves(case: Case, every_steps: int = 100) -> Case:
    """As if every rank had kept its loss every so many steps: 10 / samples, a tenth less or more by
    rank, and half of that in the last round."""

    def add(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            scale = 0.5 if measured["number"] == 2 else 1.0
            for launch in measured["launches"]:
                for rank, run in enumerate(launch["work"]["run"]):
                    off = 0.1 * (2 * rank - 1) if len(launch["work"]["run"]) > 1 else 0.0
                    every = every_steps * launch["arm"]["passes"]
                    run["curve"] = [
                        [step, scale * 10 / step + off, 1e-3]
                        for step in range(every, run["steps"] + 1, every)
                    ]

    return changed(case, add)


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_validations_are_those_that_were_recorded(metric):
    rows = figures(*recorded(*REAL))[f"convergence-{metric}-epochs"].table.rows
    assert {row["arm"] for row in rows} == ARMS
    for row in rows:
        values = ends(metric)[str(row["arm"]).partition(",")[0]]
        assert row["middle"] == median(values)
        assert (row["lower"], row["upper"]) == (min(values), max(values))
        assert (row["rounds"], row["samples"]) == (3, 1000)
        assert row["chance"] == pytest.approx(math.log(10) if metric == "loss" else 0.1)


def test_without_curves_the_ends_are_shown():
    figure = figures(*recorded(*REAL))["convergence-curve-epochs"]
    assert {row["arm"] for row in figure.table.rows} == ARMS
    assert len(figure.table.rows) == 3
    # As many samples whoever trains: two ranks with 468 steps, one with 936.
    assert {row["samples"] for row in figure.table.rows} == {29952}


def test_curves_are_means_over_ranks_and_medians_over_rounds():
    figure = figures(*map(with_curves, recorded(*REAL)))["convergence-curve-epochs"]
    own = [row for row in figure.table.rows if row["arm"] == "horovod, 2 ranks"]
    assert [row["steps"] for row in own] == [100, 200, 300, 400]
    assert [row["samples"] for row in own] == pytest.approx([6400, 12800, 19200, 25600])
    for row in own:
        assert row["loss"] == row["upper"] == pytest.approx(10 / int(row["steps"] or 1))
        assert row["lower"] == pytest.approx(5 / int(row["steps"] or 1))
        assert row["rounds"] == 3
    single = [row for row in figure.table.rows if "single" in str(row["arm"])]
    assert [row["samples"] for row in single] == [row["samples"] for row in own]


def test_losses_that_are_none_are_left_out():
    def diverge(document: dict[str, Any]) -> None:
        for launch in launches_in(document):
            for run in launch["work"]["run"]:
                run["loss"] = run["validation"]["loss"] = None

    found = figures(*(changed(case, diverge) for case in recorded(*REAL)))
    assert found.keys() == {"convergence-accuracy-epochs"}


def trained_for_a_time(**report: Any) -> Case:
    """Rounds that ended after 100 and after 101 steps. report: of what they say besides."""
    measured = outcome(fixed_time(WORKLOAD, 2), [0.9] * 2)
    for _, each, launch in each_launch([measured]):
        own = replace(run_report(steps=100 + each.number, seconds=10.0), **report)
        launch.work = Run([own] * launch.arm.world_size)
    return case_with(measured)


def test_what_was_trained_for_a_time_is_apart():
    found = figures(*recorded(*REAL), trained_for_a_time())
    assert "10 s of wall time" in found["convergence-loss-time"].title
    assert "6 epochs" in found["convergence-loss-epochs"].title
    # As far as both rounds went.
    rows = found["convergence-curve-time"].table.rows
    assert [row["steps"] for row in rows] == [20, 40, 60, 80, 100] * 2
    assert {row["rounds"] for row in rows} == {2}


def test_ends_at_steps_of_their_own_are_held_together():
    rows = figures(trained_for_a_time(curve=[]))["convergence-curve-time"].table.rows
    assert [row["arm"] for row in rows] == ["horovod, 2 ranks", "horovod, 1 rank"]
    assert {(row["steps"], row["loss"], row["rounds"]) for row in rows} == {(100, 0.4, 2)}
