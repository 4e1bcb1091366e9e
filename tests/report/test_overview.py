"""The overview: throughput by network and world size, with the ratios beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.questions import parity, strong_scaling, weak_scaling
from hvdperf.report.content import Section
from hvdperf.report.numbers import number
from hvdperf.report.sections.overview import overview
from hvdperf.verdict import Band, Verdict
from tests.report.cases import recorded
from tests.report.checks import assert_sound
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome


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
    other = replace(WORKLOAD, model="vgg_16_s")
    both = (outcome(weak_scaling(each, 2), [0.9] * 6) for each in (WORKLOAD, other))
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


def test_without_a_throughput_there_is_no_overview():
    assert overview([]) is None
    assert overview(recorded("startup-init-resnet_50_s-np2")) is None
