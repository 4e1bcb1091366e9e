"""The tables of cases: the board with its notes, the overview, and two stacks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hvdperf.models.registry import SCRIPT
from hvdperf.plan.arms import Workload
from hvdperf.plan.questions import (
    aa,
    against,
    fault_cases,
    fixed_epochs,
    fixed_time,
    parity,
    startup,
    strong_scaling,
    weak_scaling,
)
from hvdperf.records.outcome import Failure, each_launch
from hvdperf.records.rounds import Turns
from hvdperf.report.content import Section
from hvdperf.report.sections import board
from hvdperf.report.sections.board import overview
from hvdperf.stats import Interval
from hvdperf.verdict import (
    REGRESSION,
    Band,
    Ceiling,
    Floor,
    Verdict,
    decide,
)
from tests.report.cases import assert_sound, case_with, cases_with, known, recorded
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import session_of_cases

WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
PAIR = known(against(WEAK))
OTHER = replace(WORKLOAD, model="vgg_16_s")
(SLOW,) = (each for each in fault_cases(WORKLOAD, 2) if each.variant == "slow10")


def test_a_minimum_detectable_effect_is_told_of_a_comparison_of_stacks_only():
    ratios = [0.98, 0.99, 1.0, 1.0, 1.01, 1.02]
    held, compared = cases_with(outcome(WEAK, [0.9] * 6), outcome(PAIR, ratios))
    key = "minimum_detectable_effect"
    assert key not in [column.key for column in board.board([held]).table.columns]
    table = board.board([held, compared]).table
    assert key in [column.key for column in table.columns]
    assert [row[key] is None for row in table.rows] == [True, False]


def test_the_worst_verdicts_come_first():
    failed = outcome(PARITY, [0.5] * 6, Band(0.9, 1.1), Verdict.FAIL)
    figure = board.board(cases_with(outcome(WEAK, [0.9] * 6), failed))
    assert_sound(Section("board", "Board", "", (figure,)))
    assert [row["verdict"] for row in figure.table.rows] == ["FAIL", "PASS"]
    first, second = figure.table.rows
    assert first["case"] == PARITY.name
    assert first["figure"] == pytest.approx(0.5)
    assert second["figure"] == pytest.approx(0.9)
    assert ": 1 of 2" in figure.says


def test_a_figure_that_is_not_to_be_trusted_keeps_no_threshold():
    invalid = case_with(outcome(PARITY, [1.0] * 6, Band(0.9, 1.1), Verdict.INVALID))
    figure = board.board([case_with(outcome(WEAK, [0.9] * 6)), invalid])
    assert ": 1 of 1" in figure.says
    assert [row["verdict"] for row in figure.table.rows] == ["INVALID", "PASS"]
    assert "No result" in board.board([invalid]).says


def test_without_an_interval_there_are_no_bounds():
    nothing = outcome(PARITY, [], verdict=Verdict.INVALID, reason="a rank diverged")
    unmeasured, row = board.board(cases_with(outcome(WEAK, [0.9, 0.9]), nothing)).table.rows
    assert row["figure"] == pytest.approx(0.9)
    assert row["lower"] is row["upper"] is None
    assert unmeasured["figure"] is unmeasured["lower"] is None
    assert board.board([]).table.rows == ()


def test_an_injected_fault_is_named():
    cases = cases_with(outcome(SLOW, [0.9] * 6), outcome(aa(WORKLOAD, 2), [1.0] * 6))
    injected, twin = board.board(cases).table.rows
    assert injected["question"] == "fault: slow10"
    assert twin["question"] == "A/A"


def test_a_note_tells_what_the_row_lacks():
    failure = Failure("resnet_50_s horovod@2", 1, "trace", "killed by signal 9", ["1: gone"])
    passed, below, died = (
        board.note(case)
        for case in cases_with(
            outcome(WEAK, [0.9] * 6),
            outcome(WEAK, [0.5] * 6, verdict=Verdict.FAIL),
            outcome(WEAK, [], verdict=Verdict.FAIL, reason=str(failure), failure=failure),
        )
    )
    assert passed is None
    assert known(below).paragraphs == (
        "Result 0.500 [0.500, 0.500] after 6 rounds, with the confidence that a verdict needs; "
        "limit: >= 0.8",
    )
    assert known(died).output == ("1: gone",)
    assert known(died).paragraphs == (str(failure),)


def test_the_limit_that_decided_is_told_and_what_fails_by_it_keeps_neither():
    ratios = [0.965, 0.967, 0.97, 0.97, 0.973, 0.975]
    slower = case_with(outcome(PAIR, ratios, REGRESSION, Verdict.FAIL))
    figure, note = board.board([slower]), known(board.note(slower))
    (row,) = figure.table.rows
    assert row["must_be"] == "not < 0.98"
    assert ": 0 of 1" in figure.says
    assert note.paragraphs[0].endswith("; limit: not < 0.98")


# What a PASS leaves open ------------------------------------------------------------------------


def shares(says: str) -> list[tuple[str, str]]:
    return re.findall(r"(\S+ %) \((\w+)\[", says)


def seen(comparison, figure, rule, verdict=Verdict.PASS):
    measured = outcome(comparison, [0.9] * 6, rule, verdict)
    return replace(measured, judgement=replace(measured.judgement, figure=figure))


def test_what_a_pass_of_a_threshold_means_is_told():
    figure = Interval(0.9, 0.85, 0.95, alpha=0.025, observations=6)
    passed = seen(PARITY, figure, Band(0.75, 1.33))
    failed = seen(strong_scaling(WORKLOAD, 2), figure, Floor.at(1.0), Verdict.FAIL)
    assert "PASS means within the limit" in board.board(cases_with(passed, failed)).says
    assert "PASS means" not in board.board(cases_with(failed)).says


def test_what_a_pass_against_another_stack_could_have_missed_is_told():
    figure = Interval(1.0, 1 / 1.04, 1.01, alpha=0.025, observations=6)
    says = board.board(cases_with(seen(PAIR, figure, REGRESSION))).says
    assert "Minimum detectable effect" in says
    assert "PASS means" not in says
    assert shares(says) == [("6.0 %", "weak_scaling")]


# The overview -----------------------------------------------------------------------------------


def test_a_row_has_the_throughput_of_all_replicas_and_the_ratios(tmp_path):
    failed = outcome(PARITY, [0.5] * 6, Band(0.9, 1.1), Verdict.FAIL)
    # The cases share launches, of which the first case's are written.
    outcomes = (outcome(WEAK, [0.9] * 6), outcome(strong_scaling(WORKLOAD, 2), [0.8] * 6), failed)
    figure = known(overview(cases_of(tmp_path, *outcomes)))
    assert_sound(Section("overview", "Overview", "", (figure,)))
    one, two = figure.table.rows
    assert (one["world_size"], one["weak"], one["verdict"]) == (1, None, None)
    assert one["samples_per_second"] == pytest.approx(1000)
    assert two["samples_per_second"] == pytest.approx(1800)
    assert (two["weak"], two["strong"], two["parity"]) == pytest.approx((90, 80, 0.5))
    assert two["verdict"] == "FAIL"
    assert "resnet_50_s 90 %" in figure.lead


@pytest.mark.parametrize(("batch", "told"), [(1, 1), (32, 0)])
def test_a_script_whose_steps_count_as_samples_is_named(batch, told):
    script = Workload("train.py", SCRIPT, input_size=0, batch=batch)
    figure = known(overview(cases_with(outcome(weak_scaling(script, 2), [0.9] * 6))))
    assert figure.says.count("counts as one sample") == told


def test_a_ratio_without_a_throughput_has_a_row_and_what_is_only_started_has_none():
    broken = outcome(weak_scaling(OTHER, 2), (), verdict=Verdict.FAIL)
    started = outcome(startup(OTHER, 4)[0], [1.1] * 6, Ceiling(2.0))
    for _, _, launch in each_launch([started]):
        launch.work = Turns([], [])
    figure = known(overview(cases_with(outcome(WEAK, [0.9] * 6), broken, started)))
    row = figure.table.rows[-1]
    assert (row["model"], row["world_size"], row["verdict"]) == ("vgg_16_s", 2, "FAIL")
    assert row["samples_per_second"] is row["weak"] is None
    assert "vgg_16_s" not in figure.says


@pytest.mark.parametrize("verdict", Verdict)
def test_the_worst_verdict_of_all_cases_of_a_network_counts(verdict):
    """Also of one that trains a variant of the workload."""
    other = outcome(fixed_time(WORKLOAD, 2), [1.0] * 6, verdict=verdict)
    figure = known(overview(cases_with(outcome(WEAK, [0.9] * 6), other)))
    expected = Verdict.PASS if verdict is Verdict.INFO else verdict
    assert figure.table.rows[-1]["verdict"] == expected.value


@pytest.mark.parametrize("asked", [PAIR, SLOW])
def test_a_regression_and_an_injected_fault_are_no_efficiency(asked):
    for row in known(overview(cases_with(outcome(asked, [0.9] * 6)))).table.rows:
        assert not {"weak", "strong", "parity"} & row.keys()


def test_without_a_throughput_there_is_no_overview():
    assert overview([]) is None
    assert overview(recorded("startup-init-resnet_50_s-np2")) is None


def test_another_stack_has_a_section_of_its_own():
    cases = cases_with(outcome(PAIR, [0.9] * 6, Floor(0.98, 0.95), Verdict.FAIL))
    section = known(board.against(cases, session_of_cases()))
    assert_sound(section)
    (figure,) = section.figures
    assert figure.table.rows[0]["ratio"] == pytest.approx(0.9)
    assert "'speed of this stack / speed of the other one'" in str(figure.plot)
    assert board.against(cases_with(outcome(WEAK, [0.9] * 6)), session_of_cases()) is None


@pytest.mark.parametrize(("ratio", "limit"), [(0.97, 0.98), (0.985, 0.95)])
def test_at_least_is_the_limit_that_decided(ratio, limit):
    figure = Interval(ratio, ratio, ratio, 0.025, 6)
    verdict = decide(REGRESSION, figure, figure)
    section = known(
        board.against(
            cases_with(outcome(PAIR, [ratio] * 6, REGRESSION, verdict)), session_of_cases()
        )
    )
    assert section.figures[0].table.rows[0]["low"] == limit


def test_a_loss_under_another_stack_is_not_called_a_speed():
    asked = known(against(fixed_epochs(WORKLOAD, 2)[0]))
    section = known(
        board.against(cases_with(outcome(asked, [1.1] * 6, Band(0.9, 1.1))), session_of_cases())
    )
    assert "'speed, or validation result: " in str(section.figures[0].plot)
