"""Speedups and efficiencies by world size, from cases of both kinds of scaling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.explain.speedup import scaling_breakdown
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import strong_scaling, wall_time, weak_scaling
from hvdperf.report.sections import scaling
from hvdperf.verdict import Verdict
from tests.report.cases import assert_sound, case_with, cases_with, figures_of, known, of_workload
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome
from tests.support.with_timestamps import round_with_timestamps

WEAK, WEAK_4 = weak_scaling(WORKLOAD, 2), weak_scaling(WORKLOAD, 4)
STRONG = strong_scaling(WORKLOAD, 2)
WEAK_TIME, STRONG_TIME = wall_time(WORKLOAD, 2)
RATIOS = (0.88, 0.89, 0.9, 0.91, 0.92, 0.93, 0.9, 0.9)


def rows_of(section, name: str) -> dict[int, dict]:
    """The rows of a figure by world size, of a section about one network."""
    return {row["world_size"]: row for row in figures_of(section)[name].table.rows}


def timed(asked: Comparison):
    """An outcome by wall time, and its breakdown."""
    rounds = tuple(round_with_timestamps(asked, number) for number in range(6))
    told = scaling_breakdown(asked, rounds)
    return replace(outcome(asked, [0.5] * 6), rounds=rounds, breakdown=told), told


def test_a_speedup_is_the_efficiency_times_the_replicas_and_the_throughput_that_of_all():
    cases = cases_with(outcome(WEAK, RATIOS), outcome(STRONG, RATIOS))
    section, figure = scaling.section(cases), known(cases[0].figure)
    assert_sound(section)
    for name in ("scaling-weak-steady_state", "scaling-strong-split"):
        rows = rows_of(section, name)
        assert rows[1]["speedup"] == rows[1]["efficiency"] == 1
        two = rows[2]
        throughputs = [row["samples_per_second"] for row in rows.values()]
        assert throughputs == pytest.approx([1000, 1800], rel=0.01)
        assert two["efficiency"] == figure.estimate
        assert two["speedup"] == 2 * figure.estimate
        assert two["speedup_low"] == 2 * figure.lower
        assert two["speedup_high"] == 2 * figure.upper


def test_the_wall_time_has_figures_of_its_own():
    training, told = timed(WEAK_TIME)
    alone = scaling.section(cases_with(training))
    two = rows_of(alone, "scaling-weak-steady_state")[2]
    assert two["speedup"] == pytest.approx(told.steady_state.estimate)
    section = scaling.section(cases_with(outcome(WEAK, [0.9] * 6), training))
    assert_sound(section)
    speed, time, job = (
        rows_of(section, f"scaling-weak-{w}")[2] for w in ("steady_state", "training", "end_to_end")
    )
    assert speed["speedup"] == pytest.approx(1.8)
    assert time["speedup"] == pytest.approx(told.training.estimate)
    assert job["efficiency"] == pytest.approx(told.end_to_end.estimate / 2)


def test_a_divided_batch_and_divided_steps_are_not_one_figure():
    of_steps, told = timed(STRONG_TIME)
    of_a_batch = outcome(STRONG, [0.6] * 6)
    both, training, batch = (
        scaling.section(cases_with(*outcomes))
        for outcomes in ((of_a_batch, of_steps), (of_steps,), (of_a_batch,))
    )
    for section in (both, training, batch):
        assert_sound(section)
    assert rows_of(both, "scaling-strong-split")[2]["speedup"] == pytest.approx(1.2)
    for section in (both, training):
        two = rows_of(section, "scaling-strong-training")[2]
        assert two["speedup"] == pytest.approx(told.training.estimate)
    assert figures_of(training).keys() == {
        f"scaling-strong-{way}" for way in ("training", "end_to_end")
    }
    assert figures_of(batch).keys() == {"scaling-strong-split"}


def test_too_few_rounds_have_no_interval():
    section = scaling.section(cases_with(outcome(WEAK, [0.9, 0.91])))
    assert_sound(section)
    two = rows_of(section, "scaling-weak-steady_state")[2]
    assert two["efficiency"] is not None
    assert two["efficiency_low"] is two["efficiency_high"] is None


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.INFO])
def test_what_is_not_to_be_trusted_is_in_the_table_alone(verdict):
    """Such as a speed where replicas share cores (INFO)."""
    broken = outcome(WEAK_4, [0.99] * 6, verdict=verdict, reason="replicas differ")
    section = scaling.section(cases_with(outcome(WEAK, [0.9] * 6), broken))
    assert_sound(section)
    figure = figures_of(section)["scaling-weak-steady_state"]
    alone, two, last = figure.table.rows
    assert (alone["verdict"], alone["drawn"], two["drawn"]) == (None, "yes", "yes")
    assert (last["verdict"], last["drawn"]) == (verdict.value, "no")
    assert last["speedup"] == pytest.approx(3.96)


def test_where_only_a_threshold_is_missing_the_speedup_is_drawn():
    new = replace(outcome(WEAK, [0.9] * 6, verdict=Verdict.INVALID), threshold_line="x = 1")
    rows = rows_of(scaling.section(cases_with(new)), "scaling-weak-steady_state")
    assert (rows[2]["verdict"], rows[2]["drawn"]) == ("INVALID", "yes")


def test_with_nothing_to_rely_on_there_is_no_plot():
    section = scaling.section(cases_with(outcome(WEAK_4, [0.45] * 6, verdict=Verdict.INFO)))
    assert_sound(section)
    (figure,) = section.figures
    assert figure.plot is None


def test_the_sound_case_of_a_world_size_is_the_one_that_is_drawn():
    training, told = timed(WEAK_TIME)
    broken = outcome(WEAK, [0.3] * 6, verdict=Verdict.INVALID, reason="replicas differ")
    section = scaling.section(cases_with(broken, training))
    two = rows_of(section, "scaling-weak-steady_state")[2]
    assert (two["verdict"], two["drawn"]) == ("INVALID", "yes")
    assert two["speedup"] == pytest.approx(told.steady_state.estimate)


def test_all_networks_are_in_one_figure():
    other = weak_scaling(replace(WORKLOAD, model="vgg_16_s"), 2)
    cases = cases_with(outcome(WEAK, [0.9] * 6), outcome(other, [0.7] * 6))
    figure = figures_of(scaling.section(cases))["scaling-weak-steady_state"]
    assert {row["model"] for row in figure.table.rows} == {"resnet_50_s", "vgg_16_s"}


def with_networks(count: int):
    """The section of a session with this many networks on 1, 2 and 4 replicas."""
    outcomes = [
        outcome(weak_scaling(replace(WORKLOAD, model=f"network_{number}"), n), [0.9] * 6)
        for number in range(count)
        for n in (2, 4)
    ]
    section = scaling.section(cases_with(*outcomes))
    assert_sound(section)
    return section


@pytest.mark.parametrize("name", ["scaling-throughput", "scaling-weak-steady_state"])
def test_a_network_has_a_line_unless_there_are_too_many_to_be_told_apart(name):
    few, many = (
        figures_of(with_networks(count))[name].plot
        for count in (scaling.MOST_LINES, scaling.MOST_LINES + 1)
    )
    lines, rows = ([layer["mark"] for layer in plot["layer"]] for plot in (few, many))
    assert "line" in lines
    assert "line" not in rows
    # The axes of a curve begin at zero.
    assert few["encoding"]["x"]["scale"]["domain"][0] == 0
    y = [layer["encoding"]["y"] for layer in few["layer"]]
    assert all(channel.get("scale", {}).get("zero", True) for channel in y)


def test_a_throughput_has_the_interval_of_its_launches_and_an_ideal():
    several, single = (
        scaling.section(cases_with(outcome(WEAK, ratios))) for ratios in ((0.9, 0.8, 1.0), (0.9,))
    )
    one, two = rows_of(several, "scaling-throughput").values()
    assert two["launches"] == 3
    assert two["samples_per_second_low"] < 1600 < 2000 < two["samples_per_second_high"]
    assert 2 * one["ideal"] == two["ideal"] == pytest.approx(2 * one["samples_per_second"])
    assert_sound(single)
    two = rows_of(single, "scaling-throughput")[2]
    assert two["samples_per_second"] == pytest.approx(1800)
    assert two["samples_per_second_low"] is None


def test_two_workloads_of_a_network_are_told_apart():
    case = case_with(outcome(WEAK, [0.9] * 6))
    half = of_workload(case, precision="mixed_float16")
    figure = figures_of(scaling.section([case, half]))["scaling-weak-steady_state"]
    assert {row["model"] for row in figure.table.rows} == {
        "resnet_50_s, float32",
        "resnet_50_s, mixed_float16",
    }


# Nodes -----------------------------------------------------------------------------------------


def test_a_row_has_the_layout_of_its_ranks_over_nodes(tmp_path):
    uneven = outcome(weak_scaling(WORKLOAD, 3), [0.5] * 6)
    cases = cases_of(
        tmp_path, uneven, outcome(WEAK, [0.9] * 6), outcome(WEAK_4, [0.8] * 6), slots=4
    )
    curves = scaling.section(cases)
    for name in ("scaling-throughput", "scaling-weak-steady_state"):
        layouts = {size: row["layout"] for size, row in rows_of(curves, name).items()}
        assert layouts == {1: "1 x 1", 2: "1 x 2", 3: "2 + 1", 4: "2 x 2"}


def test_the_efficiency_against_one_node_is_of_the_same_rounds(tmp_path):
    # What both sizes share in a round is not in their ratio.
    shared = [0.9, 0.95, 1.0, 0.92, 0.97, 0.94, 0.91]
    noise = [1, 1.001, 0.999, 1.002, 0.998, 1, 1]
    cases = cases_of(
        tmp_path,
        outcome(WEAK, [0.9 * each for each in shared]),
        outcome(WEAK_4, [0.72 * a * b for a, b in zip(shared, noise, strict=True)]),
        slots=4,
        per_node=2,
    )
    section = scaling.section(cases)
    assert_sound(section)
    _, one, row = rows_of(section, "scaling-weak-steady_state").values()
    assert one["against"] is None
    assert row["layout"] == "2 x 2"
    assert row["against"] == pytest.approx(0.8, rel=1e-3)
    assert row["against_high"] - row["against_low"] < 0.004
    several = scaling.section(cases, [cases, cases, cases])
    assert rows_of(several, "scaling-weak-steady_state")[4]["against"] == pytest.approx(0.8, 1e-3)


def test_with_one_replica_a_node_there_is_no_efficiency_against_one(tmp_path):
    cases = cases_of(tmp_path, outcome(WEAK, [0.9] * 6), slots=2, per_node=1)
    rows = rows_of(scaling.section(cases), "scaling-weak-steady_state")
    assert not any("against" in row for row in rows.values())
