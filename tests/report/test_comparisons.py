"""Ratios in their bands, and A/A cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import (
    aa,
    against,
    communication,
    fixed_epochs,
    fixed_time,
    parity,
    throughput,
    weak_scaling,
)
from hvdperf.report.cases import at_95
from hvdperf.report.sections import comparisons
from hvdperf.stats import Interval
from hvdperf.verdict import (
    REGRESSION,
    Band,
    Floor,
    SpeedFloor,
    Verdict,
    decide,
    smallest_detectable_effect,
)
from tests.report.cases import assert_sound
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome

PARITY, WEAK = parity(WORKLOAD, 2), weak_scaling(WORKLOAD, 2)


def test_a_ratio_stands_with_its_interval_and_its_band(tmp_path):
    cases = cases_of(tmp_path, outcome(PARITY, [0.97, 0.98, 0.99, 1.0, 1.01, 1.02], Band(0.9, 1.1)))
    section = comparisons.parity(cases)
    assert_sound(section)
    (figure,) = section.figures
    (row,), told = figure.table.rows, at_95(cases[0])
    assert told is not None
    assert (row["ratio"], row["lower"], row["upper"]) == (told.estimate, told.lower, told.upper)
    assert (row["low"], row["high"]) == (0.9, 1.1)
    assert "1 of 1 case PASS" in figure.says


def test_what_has_a_floor_has_no_upper_end(tmp_path):
    asked = communication(WORKLOAD, 2), fixed_time(WORKLOAD, 2)
    cases = cases_of(tmp_path, *(outcome(each, [0.9] * 6, Floor.at(0.6)) for each in asked))
    section = comparisons.others(cases)
    assert_sound(section)
    rows = [row for figure in section.figures for row in figure.table.rows]
    assert {(row["low"], row["high"]) for row in rows} == {(0.6, None)}
    assert [figure.name for figure in section.figures] == ["communication", "fixed_time"]


def test_a_throughput_is_no_ratio(tmp_path):
    cases = cases_of(tmp_path, outcome(throughput(WORKLOAD, 2), [7.0] * 6, SpeedFloor.at(900)))
    (figure,) = comparisons.others(cases).figures
    columns = {column.key: column.heading for column in figure.table.columns}
    assert columns["ratio"] == "result [samples/s]"
    assert columns["low"] == "at least [samples/s]"
    assert "'datum': 1" not in str(figure.plot)


def test_a_question_of_blocks_has_a_figure_whatever_its_name(tmp_path):
    """The figures follow from what is compared, so a new question needs no line in the report."""
    within = replace(communication(WORKLOAD, 2), question=Question.RECIPE)
    cases = cases_of(tmp_path, outcome(within, [0.9] * 6, Floor.at(0.6)))
    assert [figure.name for figure in comparisons.others(cases).figures] == ["recipe"]


def test_another_stack_has_a_section_of_its_own(tmp_path):
    asked = against(WEAK)
    assert asked is not None
    cases = cases_of(tmp_path, outcome(asked, [0.9] * 6, Floor(0.98, 0.95), Verdict.FAIL))
    section = comparisons.against(cases)
    assert section is not None
    assert_sound(section)
    (figure,) = section.figures
    assert figure.table.rows[0]["ratio"] == pytest.approx(0.9)
    assert figure.says.startswith("Speed of this stack / speed of the other one, 0 of 1 case PASS")
    # Whatever is chosen by its question on the board, this says nothing against it.
    assert "question" not in figure.tags
    assert comparisons.parity(cases).figures == ()


@pytest.mark.parametrize(("ratio", "limit"), [(0.97, 0.98), (0.985, 0.95)])
def test_at_least_is_the_limit_that_decided(tmp_path, ratio, limit):
    asked = against(WEAK)
    assert asked is not None
    figure = Interval(ratio, ratio, ratio, 0.025, 6)
    verdict = decide(REGRESSION, figure, figure)
    section = comparisons.against(
        cases_of(tmp_path, outcome(asked, [ratio] * 6, REGRESSION, verdict))
    )
    assert section is not None
    assert section.figures[0].table.rows[0]["low"] == limit


def test_a_loss_under_another_stack_is_not_called_a_speed(tmp_path):
    asked = against(fixed_epochs(WORKLOAD, 2)[0])
    assert asked is not None
    section = comparisons.against(cases_of(tmp_path, outcome(asked, [1.1] * 6, Band(0.9, 1.1))))
    assert section is not None
    assert section.figures[0].says.startswith(
        "Speed, or validation result: this stack / the other one"
    )


def test_behind_a_figure_stands_what_it_was_called_unless_it_passed(tmp_path):
    band = Band(0.9, 1.1)
    broken = parity(replace(WORKLOAD, model="vgg_16_s"), 2)
    cases = cases_of(
        tmp_path,
        outcome(PARITY, [1.0] * 6, band),
        outcome(broken, [1.0] * 6, band, Verdict.INVALID, "replicas differ"),
    )
    (figure,) = comparisons.parity(cases).figures
    passed, invalid = figure.says.split("PASS: ")[1].split("; ")
    assert passed.endswith("1.000]")
    assert invalid.endswith("1.000] INVALID. Intervals: 95 % confidence.")


def test_without_another_stack_there_is_no_such_section(tmp_path):
    assert comparisons.against(cases_of(tmp_path, outcome(WEAK, [0.9] * 6))) is None


def test_a_against_a_is_no_parity(tmp_path):
    cases = cases_of(tmp_path, outcome(aa(WORKLOAD, 2), [1.0] * 6, Band(0.9, 1.1)))
    assert comparisons.parity(cases).missing
    assert comparisons.others(cases).missing


def test_tonights_noise_is_shown(tmp_path):
    ratios = [0.99, 1.01, 1.0, 0.98, 1.02, 1.0]
    cases = cases_of(tmp_path, outcome(aa(WORKLOAD, 2), ratios, Band(0.9, 1.1)))
    section = comparisons.trust(cases)
    assert_sound(section)
    (row,) = section.figures[0].table.rows
    figure = cases[0].figure
    assert figure is not None
    assert row["minimum_detectable_effect"] == 100 * smallest_detectable_effect(figure)


def test_an_a_a_case_that_differs_is_called_so(tmp_path):
    noisy = outcome(aa(WORKLOAD, 2), [0.8] * 6, Band(0.9, 1.1), Verdict.INVALID, "they differ")
    (figure,) = comparisons.trust(cases_of(tmp_path, noisy)).figures
    assert figure.says.endswith("0.800 [0.800, 0.800] INVALID. Intervals: 95 % confidence.")
    assert "do not differ" not in figure.says
