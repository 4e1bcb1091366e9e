"""Speedups and efficiencies by world size, from cases of both kinds of scaling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.judge.scaling_breakdown import scaling_breakdown
from hvdperf.plan.question import Question
from hvdperf.plan.questions import strong_scaling, wall_time, weak_scaling
from hvdperf.report.sections import nodes, scaling
from hvdperf.verdict import Floor, Verdict
from tests.report.cases import of_workload
from tests.report.checks import assert_sound
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome
from tests.support.with_timestamps import round_with_timestamps

WEAK, WEAK_4 = weak_scaling(WORKLOAD, 2), weak_scaling(WORKLOAD, 4)
STRONG = strong_scaling(WORKLOAD, 2)
RATIOS = (0.88, 0.89, 0.9, 0.91, 0.92, 0.93, 0.9, 0.9)


def figures_of(section) -> dict:
    return {figure.name: figure for figure in section.figures}


def test_a_speedup_is_the_efficiency_times_the_replicas(tmp_path):
    cases = cases_of(tmp_path, outcome(WEAK, RATIOS), outcome(STRONG, RATIOS))
    section = scaling.section(cases)
    assert_sound(section)
    found, figure = figures_of(section), cases[0].figure
    assert figure is not None
    for kind, way in (("weak", "speed"), ("strong", "split")):
        one, two = found[f"speedup-{kind}-resnet_50_s"].table.rows
        assert one[f"speedup_{way}"] == one[f"efficiency_{way}"] == 1
        assert two[f"efficiency_{way}"] == figure.estimate
        assert two[f"speedup_{way}"] == 2 * figure.estimate
        assert two[f"speedup_{way}_low"] == 2 * figure.lower
        assert two[f"speedup_{way}_high"] == 2 * figure.upper


def test_the_throughput_is_that_of_all_replicas(tmp_path):
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6), outcome(STRONG, [0.8] * 6))
    found = figures_of(scaling.section(cases))
    one, two = found["speedup-weak-resnet_50_s"].table.rows
    assert one["samples_per_second"] == pytest.approx(1000)
    assert two["samples_per_second"] == pytest.approx(1800)
    assert found["speedup-strong-resnet_50_s"].table.rows[1]["samples_per_second"] == (
        pytest.approx(1600)
    )


def test_the_wall_time_stands_beside_the_speed(tmp_path):
    asked = next(c for c in wall_time(WORKLOAD, 2) if c.question is Question.WALL_TIME_WEAK)
    rounds = tuple(round_with_timestamps(asked, number) for number in range(6))
    told = scaling_breakdown(asked, rounds)
    by_time = replace(outcome(asked, [0.5] * 6), rounds=rounds, breakdown=told)
    section = scaling.section(cases_of(tmp_path, outcome(WEAK, [0.9] * 6), by_time))
    assert_sound(section)
    two = figures_of(section)["speedup-weak-resnet_50_s"].table.rows[1]
    assert two["speedup_speed"] == pytest.approx(1.8)
    assert two["speedup_time"] == pytest.approx(told.by_time.estimate)
    assert two["efficiency_job"] == pytest.approx(told.by_job.estimate / 2)


def test_of_wall_time_alone_the_breakdown_tells_the_speed(tmp_path):
    asked = next(c for c in wall_time(WORKLOAD, 2) if c.question is Question.WALL_TIME_WEAK)
    rounds = tuple(round_with_timestamps(asked, number) for number in range(6))
    told = scaling_breakdown(asked, rounds)
    case = replace(outcome(asked, [0.5] * 6), rounds=rounds, breakdown=told)
    two = figures_of(scaling.section(cases_of(tmp_path, case)))[
        "speedup-weak-resnet_50_s"
    ].table.rows[1]
    assert two["speedup_speed"] == pytest.approx(told.by_speed.estimate)


def test_a_divided_batch_and_divided_steps_are_not_one_column(tmp_path):
    asked = next(c for c in wall_time(WORKLOAD, 2) if c.question is Question.WALL_TIME_STRONG)
    rounds = tuple(round_with_timestamps(asked, number) for number in range(6))
    told = scaling_breakdown(asked, rounds)
    of_steps = replace(outcome(asked, [0.5] * 6), rounds=rounds, breakdown=told)
    of_a_batch = outcome(STRONG, [0.6] * 6)
    both, by_time, batch = (
        scaling.section(cases_of(tmp_path / str(number), *outcomes))
        for number, outcomes in enumerate(((of_a_batch, of_steps), (of_steps,), (of_a_batch,)))
    )
    for section in (both, by_time, batch):
        assert_sound(section)
    figure = figures_of(both)["speedup-strong-resnet_50_s"]
    two = figure.table.rows[1]
    assert two["speedup_split"] == pytest.approx(1.2)
    assert two["speedup_speed"] == pytest.approx(told.by_speed.estimate)
    assert two["speedup_time"] == pytest.approx(told.by_time.estimate)
    assert "1.20 by speed of a divided batch (60 %)" in figure.says
    assert f"{told.by_speed.estimate:.2f} by speed of divided steps" in figure.says
    # Each alone fills its own columns, and none of the other's.
    of_time = figures_of(by_time)["speedup-strong-resnet_50_s"].table
    assert not any("split" in column.key for column in of_time.columns)
    assert of_time.rows[1]["speedup_speed"] == pytest.approx(told.by_speed.estimate)
    of_batch = figures_of(batch)["speedup-strong-resnet_50_s"].table
    assert not any("_speed" in column.key for column in of_batch.columns)


def test_too_few_rounds_have_no_interval(tmp_path):
    section = scaling.section(cases_of(tmp_path, outcome(WEAK, [0.9, 0.91])))
    assert_sound(section)
    two = figures_of(section)["efficiency-weak-resnet_50_s"].table.rows[1]
    assert two["efficiency_speed"] is not None
    assert two["efficiency_speed_low"] is two["efficiency_speed_high"] is None


def test_where_replicas_share_cores_the_row_says_so(tmp_path):
    shared = outcome(WEAK_4, [0.45] * 6, verdict=Verdict.NOT_JUDGED)
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6), shared, slots=4, per_node=4)
    rows = figures_of(scaling.section(cases))["speedup-weak-resnet_50_s"].table.rows
    assert [(row["world_size"], row["verdict"], row["drawn"]) for row in rows] == [
        (1, None, "yes"),
        (2, "PASS", "yes"),
        (4, "NOT JUDGED", "no"),
    ]


def test_what_is_not_to_be_trusted_is_in_the_table_alone(tmp_path):
    broken = outcome(WEAK_4, [0.99] * 6, verdict=Verdict.INVALID, reason="replicas differ")
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6), broken, slots=4, per_node=4)
    section = scaling.section(cases)
    assert_sound(section)
    figure = figures_of(section)["speedup-weak-resnet_50_s"]
    last = figure.table.rows[-1]
    assert (last["verdict"], last["drawn"]) == ("INVALID", "no")
    assert last["speedup_speed"] == pytest.approx(3.96)
    assert "on 2 replicas the speedup is 1.80" in figure.says
    assert figure.says.endswith("Only in the table: 4 replicas INVALID.")
    assert figures_of(section)["weak-scaling"].says.startswith("The lowest of 1 efficiency")


def test_where_only_a_threshold_is_missing_the_speedup_is_drawn(tmp_path):
    new = replace(outcome(WEAK, [0.9] * 6, verdict=Verdict.INVALID), threshold_line="x = 1")
    (figure, *_) = scaling.section(cases_of(tmp_path, new)).figures
    assert [(row["verdict"], row["drawn"]) for row in figure.table.rows] == [
        (None, "yes"),
        ("INVALID", "yes"),
    ]


def test_with_nothing_to_rely_on_there_is_no_plot(tmp_path):
    shared = outcome(WEAK_4, [0.45] * 6, verdict=Verdict.NOT_JUDGED)
    section = scaling.section(cases_of(tmp_path, shared, slots=4, per_node=4))
    assert_sound(section)
    assert all(figure.plot is None for figure in section.figures)
    assert "no speedup is valid. Only in the table: 4 replicas NOT JUDGED." in (
        figures_of(section)["speedup-weak-resnet_50_s"].says
    )


def test_the_sound_case_of_a_world_size_is_the_one_that_is_drawn(tmp_path):
    asked = next(c for c in wall_time(WORKLOAD, 2) if c.question is Question.WALL_TIME_WEAK)
    rounds = tuple(round_with_timestamps(asked, number) for number in range(6))
    told = scaling_breakdown(asked, rounds)
    by_time = replace(outcome(asked, [0.5] * 6), rounds=rounds, breakdown=told)
    broken = outcome(WEAK, [0.3] * 6, verdict=Verdict.INVALID, reason="replicas differ")
    figure = scaling.section(cases_of(tmp_path, broken, by_time)).figures[1]
    two = figure.table.rows[1]
    assert (two["verdict"], two["drawn"]) == ("INVALID", "yes")
    assert two["speedup_speed"] == pytest.approx(told.by_speed.estimate)


def test_every_network_has_its_bar(tmp_path):
    other = replace(WORKLOAD, model="vgg_16_s")
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6), outcome(weak_scaling(other, 2), [0.7] * 6))
    bars = figures_of(scaling.section(cases))["weak-scaling"]
    assert {row["model"] for row in bars.table.rows} == {"resnet_50_s", "vgg_16_s"}
    assert "70.0 %: vgg_16_s on 2 replicas" in bars.says


def test_two_workloads_of_a_network_are_told_apart(tmp_path):
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6))
    half = of_workload(cases[0], precision="mixed_float16")
    titles = [figure.title for figure in scaling.section([*cases, half]).figures]
    assert "resnet_50_s, float32: speedup, weak scaling" in titles
    assert "resnet_50_s, mixed_float16: speedup, weak scaling" in titles


def test_nothing_measured_says_what_would():
    section = scaling.section([])
    assert section.figures == ()
    assert "perf/test_scaling.py" in section.missing


# Nodes -----------------------------------------------------------------------------------------


def test_one_node_has_no_table_of_nodes(tmp_path):
    assert nodes.section(cases_of(tmp_path, outcome(WEAK, [0.9] * 6))) is None


def test_rows_are_nodes_and_columns_replicas_on_each(tmp_path):
    cases = cases_of(
        tmp_path,
        outcome(WEAK, [0.9] * 6, Floor.at(0.8)),
        outcome(WEAK_4, [0.8] * 6, Floor.at(0.8)),
        slots=4,
        per_node=2,
    )
    section = nodes.section(cases)
    assert section is not None
    assert_sound(section)
    efficiency = figures_of(section)["nodes-efficiency-resnet_50_s"].table
    assert [column.key for column in efficiency.columns] == ["nodes", "width_2"]
    assert [row["nodes"] for row in efficiency.rows] == [1, 2]
    assert [row["width_2"] for row in efficiency.rows] == [pytest.approx(0.9), pytest.approx(0.8)]
    throughput = figures_of(section)["nodes-throughput-resnet_50_s"].table
    assert throughput.rows[1]["width_2"] == pytest.approx(0.8 * 4 * 1000)


def test_of_one_shape_the_even_group_is_shown_whatever_is_read_first(tmp_path):
    uneven = outcome(weak_scaling(WORKLOAD, 6), [0.5] * 6)
    even = outcome(weak_scaling(WORKLOAD, 8), [0.8] * 6)
    for number, group in enumerate(((even, uneven), (uneven, even))):
        section = nodes.section(cases_of(tmp_path / str(number), *group, slots=8, per_node=4))
        assert section is not None
        figure = figures_of(section)["nodes-efficiency-resnet_50_s"]
        assert figure.table.rows[0]["width_4"] == pytest.approx(0.8)
        assert "on 2 nodes with 4 replicas each" in figure.says


def test_an_uneven_group_is_not_said_to_be_even(tmp_path):
    uneven = outcome(weak_scaling(WORKLOAD, 6), [0.5] * 6)
    section = nodes.section(cases_of(tmp_path, uneven, slots=8, per_node=4))
    assert section is not None
    assert "on 2 nodes with at most 4 replicas each" in section.figures[0].says
