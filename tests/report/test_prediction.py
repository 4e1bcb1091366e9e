"""The clipped trend is the formula's; hvdperf predict tells it, or why nothing can be predicted."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.columns import WIDTH
from hvdperf.errors import UserError
from hvdperf.models.registry import NETWORKS
from hvdperf.plan.arms import Workload
from hvdperf.plan.questions import parity, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.report.prediction import (
    HEADER,
    PLAUSIBLE,
    WIDER,
    NotPredictable,
    Point,
    forecast,
    predict,
    trend,
)
from hvdperf.verdict import Band, Verdict
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session
from tests.support.warm import hvdperf


def points_of(*efficiencies: float, per_node: int = 1) -> list[Point]:
    """Of one node, of two, of four and so on."""
    return [Point(2**i, 2**i * per_node, value) for i, value in enumerate(efficiencies)]


# The trend -------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_node", [1, 4])
@pytest.mark.parametrize(
    ("half", "last", "twice", "four_times"),
    [
        # A decline of 4 %, of 7 % and of 50 % in ln E: kept, clipped at one, clipped at both.
        (0.9, 0.9 * math.exp(-0.04), -0.036, -0.06),
        (0.9, 0.9 * math.exp(-0.07), -0.054, -0.105),
        (0.9, 0.9 * math.exp(-0.5), -0.054, -0.12),
        # What gets no worse, or better, stays.
        (0.9, 0.9, 0.0, 0.0),
        (0.8, 0.9, 0.0, 0.0),
    ],
)
def test_the_last_decline_goes_on_and_is_clipped(per_node, half, last, twice, four_times):
    prediction = predict(points_of(1.0, half, last, per_node=per_node))
    assert (prediction.half.nodes, prediction.last.nodes) == (2, 4)
    sizes = [(each.nodes, each.replicas) for each in prediction.estimates]
    assert sizes == [(8, 8 * per_node), (16, 16 * per_node)]
    lost = [math.log(each.efficiency / last) for each in prediction.estimates]
    assert lost == pytest.approx([twice, four_times])


def test_the_intervals_are_wider_than_the_residuals_of_the_fitted_curves():
    twice, four_times = predict(points_of(1.0, 0.95)).estimates
    assert math.log(twice.low / twice.efficiency) == pytest.approx(WIDER * -0.09)
    assert math.log(twice.high / twice.efficiency) == pytest.approx(WIDER * 0.08)
    assert math.log(four_times.low / four_times.efficiency) == pytest.approx(WIDER * -0.23)
    assert math.log(four_times.high / four_times.efficiency) == pytest.approx(WIDER * 0.03)


def test_one_multi_node_point_is_enough():
    prediction = predict(points_of(0.95, 0.9, per_node=4))
    assert [each.replicas for each in prediction.estimates] == [16, 32]


@given(st.lists(st.floats(*PLAUSIBLE), min_size=2, max_size=6), st.sampled_from([1, 2, 8]))
def test_whatever_is_measured_a_prediction_is_not_above_the_last_one(efficiencies, per_node):
    prediction = predict(points_of(*efficiencies, per_node=per_node))
    for each in prediction.estimates:
        assert 0 < each.low < each.efficiency < each.high
        assert 0.88 * efficiencies[-1] < each.efficiency <= efficiencies[-1]


# What it rests on ------------------------------------------------------------------------------


def test_of_differently_full_nodes_the_fullest_with_a_trend_are_taken():
    single = points_of(1.0, 0.99, 0.98)
    full = points_of(0.95, 0.9, per_node=4)
    assert trend([*single, *full, Point(1, 2, 0.99)]) == tuple(full)
    assert trend([*single, full[0]]) == tuple(single[1:])


def test_all_slots_beyond_a_power_of_two_do_not_hide_the_trend():
    """Six nodes: 1, 2, 4 and 6 are measured, and 8 and 16 are still to come."""
    points = points_of(1.0, 0.95, 0.9)
    prediction = predict([*points, Point(6, 6, 0.88)])
    assert (prediction.half, prediction.last) == (points[1], points[2])
    assert [each.nodes for each in prediction.estimates] == [8, 16]


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "points", [[], [Point(1, 1, 1.0)], [Point(1, n, 0.9) for n in (1, 2, 4, 8)]]
)
def test_replicas_of_one_node_do_not_stand_for_nodes(points):
    with pytest.raises(NotPredictable, match="replicas on one node do not predict nodes") as raised:
        predict(points)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, UserError)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([Point(2, 8, 0.9)], "np 8 on 2"),
        ([Point(1, 1, 1.0), Point(4, 4, 0.9)], "np 1 on 1, np 4 on 4"),
        # Half of the nodes, but differently full.
        ([Point(1, 1, 1.0), Point(1, 2, 1.0), Point(2, 8, 0.9)], "np 1 on 1, np 2 on 1, np 8 on 2"),
        # Twice of two is measured already.
        ([Point(1, 1, 1.0), Point(2, 2, 0.9), Point(8, 8, 0.8)], "np 8 on 8"),
    ],
)
def test_sizes_without_a_trend_are_refused(points, told):
    with pytest.raises(
        NotPredictable, match="needs equally full groups of N and N / 2 nodes"
    ) as raised:
        predict(points)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("nodes", "replicas", "efficiency"),
    [
        (0, 1, 0.9),
        (1, 0, 0.9),
        (2, 5, 0.9),
        (2, 4, 0.0),
        (2, 4, -0.5),
        (2, 4, math.nan),
        (2, 4, math.inf),
        (2, 4, 1e-4),
    ],
)
def test_what_is_no_efficiency_is_no_point(nodes, replicas, efficiency):
    with pytest.raises(ValueError, match=r"not spread evenly|not an efficiency"):
        Point(nodes, replicas, efficiency)


def test_two_points_of_one_size_are_not_told_apart():
    with pytest.raises(ValueError, match="two points have the same size"):
        predict([*points_of(1.0, 0.9), Point(2, 2, 0.5)])


ROOT = Path(__file__).resolve().parents[2]
LOSSES = (0.98, 0.99, 1.0, 1.0, 1.01, 1.02)
EFFICIENCIES = {2: 1 / 1.03, 4: 1 / 1.05, 8: 1 / 1.11, 16: 1 / 1.17}
OTHER = replace(WORKLOAD, model="alexnet_s", input_size=67)
LONGEST = replace(WORKLOAD, model=max(NETWORKS, key=len), dataset="x" * 60)


def measured(
    runs: Path,
    workloads: tuple[Workload, ...] = (WORKLOAD,),
    verdicts: dict[int, Verdict] | None = None,
    slots_per_node: int = 4,
    slots: int = 16,
) -> Path:
    """A session's directory: weak scaling at all sizes, and a case that is none of it."""
    outcomes = [outcome(parity(workloads[0], 2), LOSSES, Band(0.75, 1.33))]
    for workload in workloads:
        for size, efficiency in EFFICIENCIES.items():
            ratios = [efficiency * loss for loss in LOSSES]
            verdict = (verdicts or {}).get(size, Verdict.PASS)
            outcomes.append(outcome(weak_scaling(workload, size), ratios, verdict=verdict))
    return write_session(runs, *(case_of(each, slots, slots_per_node) for each in outcomes))


def lines_of(archive: Archive) -> tuple[str, ...]:
    found = forecast(archive)
    assert found.refusals == ()
    return found.lines


# The text --------------------------------------------------------------------------------------


def test_the_table_is_what_the_model_says(tmp_path):
    archive = read_session(measured(tmp_path))
    lines = lines_of(archive)
    start = len(HEADER)
    assert lines[: start + 2] == (*HEADER, "", "resnet_50_s/cifar10/32/batch32, 4 replicas a node")
    figures = {case.world_size: case.figure for case in archive.cases if case.figure is not None}
    nodes = {4: 1, 8: 2, 16: 4}
    prediction = predict([Point(nodes[np], np, figures[np].estimate) for np in nodes])
    rests_on = (prediction.half, prediction.last)
    rows = [line.split() for line in lines[start + 2 :]]
    assert [row[:3] for row in rows] == [
        ["np", "nodes", "figure"],
        *([str(p.replicas), str(p.nodes), f"{p.efficiency:.3f}"] for p in rests_on),
        ["np", "nodes", "figure"],
        *([str(e.replicas), str(e.nodes), f"{e.efficiency:.3f}"] for e in prediction.estimates),
    ]
    assert [each.replicas for each in prediction.estimates] == [32, 64]
    for row, each in zip(rows[-2:], prediction.estimates, strict=True):
        assert row[3:] == [f"[{each.low:.3f},", f"{each.high:.3f}]"]


def test_measured_points_have_their_intervals(tmp_path):
    archive = read_session(measured(tmp_path))
    (row,) = (line for line in lines_of(archive) if line.split()[:2] == ["8", "2"])
    assert row.split()[2:] == ["0.901", "[0.883,", "0.919]"]


def test_one_replica_a_node_may_rest_on_one_replica(tmp_path):
    """Its efficiency is 1 by definition, and so a point."""
    unsound = dict.fromkeys((4, 8, 16), Verdict.INVALID)
    lines = lines_of(read_session(measured(tmp_path, verdicts=unsound, slots_per_node=1)))
    assert "    1     1  1.000 by definition" in lines
    assert "resnet_50_s/cifar10/32/batch32, 1 replica a node" in lines


def test_every_network_has_its_table(tmp_path):
    lines = lines_of(read_session(measured(tmp_path, (OTHER, WORKLOAD))))
    assert [line.partition("/")[0] for line in lines if "a node" in line] == [
        "alexnet_s",
        "resnet_50_s",
    ]


def test_no_line_is_wider_than_a_terminal_but_a_longer_word(tmp_path):
    lines = lines_of(read_session(measured(tmp_path, (LONGEST,), {2: Verdict.INVALID})))
    assert [line for line in lines if len(line) > WIDTH and " " in line] == []


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.INFO])
def test_what_is_not_sound_is_not_used(tmp_path, verdict):
    """Without world size 8 there is no half of four nodes."""
    found = forecast(read_session(measured(tmp_path, verdicts={8: verdict})))
    assert found.lines == ()
    (refusal,) = found.refusals
    assert refusal.startswith("resnet_50_s/cifar10/32/batch32: no prediction: the model needs")
    assert f"np 8 was not used: {verdict.value}" in refusal


def test_nodes_that_are_unevenly_full_are_not_used(tmp_path):
    found = forecast(read_session(measured(tmp_path, slots_per_node=6)))
    (refusal,) = found.refusals
    assert "np 8 was not used: unevenly on nodes, 6, 2" in refusal


def test_what_is_no_efficiency_is_not_used(tmp_path):
    case = case_of(outcome(weak_scaling(WORKLOAD, 8), [50.0] * 6), 8, 4)
    (refusal,) = forecast(read_session(write_session(tmp_path, case))).refusals
    assert "np 8 was not used: 50 is not an efficiency of weak scaling" in refusal


# The command -----------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    result = hvdperf("predict", *arguments)
    assert "Traceback" not in result.stderr
    return result


def test_the_command_prints_the_table(tmp_path):
    directory = measured(tmp_path)
    result = run(str(directory))
    assert (result.returncode, result.stderr) == (0, "")
    assert tuple(result.stdout.splitlines()) == lines_of(read_session(directory))


def test_a_file_that_is_left_out_is_named_and_the_rest_is_predicted(tmp_path):
    directory = measured(tmp_path)
    broken = directory / "parity-resnet_50_s-np2.json"
    broken.write_text(broken.read_text()[:500])
    result = run(str(directory))
    assert result.returncode == 0
    assert result.stdout.startswith("model, not measured")
    (line,) = result.stderr.splitlines()
    assert "parity-resnet_50_s-np2.json: left out: not valid JSON" in line


def test_a_network_that_cannot_be_predicted_does_not_hide_another(tmp_path):
    directory = measured(tmp_path, (OTHER, WORKLOAD))
    (directory / "weak_scaling-alexnet_s-np8.json").unlink()
    result = run(str(directory))
    assert result.returncode == 2
    assert "resnet_50_s/cifar10/32/batch32, 4 replicas" in result.stdout
    assert "alexnet_s/" not in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("alexnet_s/cifar10/67/batch32: no prediction: ")


def test_replicas_of_one_host_do_not_stand_for_nodes(tmp_path):
    result = run(str(measured(tmp_path, slots_per_node=16)))
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "no prediction: all cases ran on one node" in line


def test_a_session_without_weak_scaling_is_refused(tmp_path):
    result = run(str(write_session(tmp_path)))
    assert result.returncode == 2
    assert "no prediction: the session has no case of weak scaling" in result.stderr


def test_a_path_that_is_no_session_is_refused(tmp_path):
    result = run(str(tmp_path / "missing"))
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "missing: No such file or directory; give the directory of a session" in line


def test_text_that_the_terminal_cannot_show_is_escaped(tmp_path):
    directory = measured(tmp_path)
    for path in directory.rglob("*.json"):
        path.write_text(path.read_text().replace('"cifar10"', '"\\u00e9"'))
    result = subprocess.run(
        [sys.executable, "-m", "hvdperf", "predict", str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "resnet_50_s/\\xe9/32/batch32" in result.stdout
