"""The overview: throughput by network and world size, with the ratios beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.questions import (
    against,
    fixed_time,
    parity,
    startup,
    strong_scaling,
    trials,
    weak_scaling,
)
from hvdperf.report.cases import number
from hvdperf.report.content import Section
from hvdperf.report.sections.board import overview
from hvdperf.verdict import Band, Ceiling, Verdict
from tests.report.cases import recorded
from tests.report.checks import assert_sound
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome

WEAK = weak_scaling(WORKLOAD, 2)
OTHER = replace(WORKLOAD, model="vgg_16_s")


def test_a_row_has_the_throughput_of_all_replicas_and_the_ratios(tmp_path):
    weak, strong = weak_scaling(WORKLOAD, 2), strong_scaling(WORKLOAD, 2)
    failed = outcome(parity(WORKLOAD, 2), [0.5] * 6, Band(0.9, 1.1), Verdict.FAIL)
    # The cases share launches, of which the last case's are read.
    outcomes = (failed, outcome(strong, [0.8] * 6), outcome(weak, [0.9] * 6))
    figure = overview(cases_of(tmp_path, *outcomes))
    assert figure is not None
    assert_sound(Section("overview", "Overview", "", (figure,)))
    one, two = figure.table.rows
    assert (one["world_size"], one["weak"], one["verdict"]) == (1, None, None)
    assert one["samples_per_second"] == pytest.approx(1000)
    assert two["samples_per_second"] == pytest.approx(1800)
    assert (two["weak"], two["strong"], two["parity"]) == pytest.approx((0.9, 0.8, 0.5))
    assert two["verdict"] == "FAIL"
    assert "resnet_50_s 1,800 samples/s on 2 replicas" in figure.says


def test_every_network_has_its_rows(tmp_path):
    both = (outcome(weak_scaling(each, 2), [0.9] * 6) for each in (WORKLOAD, OTHER))
    figure = overview(cases_of(tmp_path, *both))
    assert figure is not None
    assert [(row["model"], row["world_size"]) for row in figure.table.rows] == [
        ("resnet_50_s", 1),
        ("resnet_50_s", 2),
        ("vgg_16_s", 1),
        ("vgg_16_s", 2),
    ]


def test_the_range_is_that_of_the_rounds_of_a_real_session():
    figure = overview(recorded("weak_scaling-resnet_50_s-np2"))
    assert figure is not None
    for row in figure.table.rows:
        slowest, middle, fastest = (
            number(row[key]) for key in ("slowest", "samples_per_second", "fastest")
        )
        assert 0 < slowest <= middle <= fastest


def test_a_ratio_without_a_throughput_has_a_row_and_what_is_only_started_has_none(tmp_path):
    broken = outcome(weak_scaling(OTHER, 2), (), verdict=Verdict.FAIL)
    started = outcome(startup(OTHER, 4)[0], [1.1] * 6, Ceiling(2.0))
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6), broken, started, slots=4, per_node=4)
    figure = overview(cases)
    assert figure is not None
    row = figure.table.rows[-1]
    assert (row["model"], row["world_size"], row["verdict"]) == ("vgg_16_s", 2, "FAIL")
    assert row["samples_per_second"] is row["weak"] is None
    assert "vgg_16_s" not in figure.says


@pytest.mark.parametrize("verdict", Verdict)
def test_the_worst_verdict_of_all_cases_of_a_network_counts(tmp_path, verdict):
    """Also of one that trains a variant of the workload."""
    other = outcome(fixed_time(WORKLOAD, 2), [1.0] * 6, verdict=verdict)
    figure = overview(cases_of(tmp_path, outcome(WEAK, [0.9] * 6), other))
    assert figure is not None
    expected = Verdict.PASS if verdict is Verdict.NOT_JUDGED else verdict
    assert figure.table.rows[-1]["verdict"] == expected.value


def test_a_regression_and_an_injected_fault_are_no_efficiency(tmp_path):
    injected = next(c for c in trials(WORKLOAD, 2) if c.variant == "slow10")
    held = against(WEAK)
    assert held is not None
    for name, comparison in (("held", held), ("injected", injected)):
        figure = overview(cases_of(tmp_path / name, outcome(comparison, [0.9] * 6)))
        assert figure is not None
        (row,) = (row for row in figure.table.rows if row["world_size"] == 2)
        assert [row[key] for key in ("weak", "strong", "parity")] == [None] * 3


def test_without_a_throughput_there_is_no_overview():
    assert overview([]) is None
    assert overview(recorded("startup-init-resnet_50_s-np2")) is None
