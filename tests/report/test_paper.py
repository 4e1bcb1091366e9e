"""Figures and tables of a paper: what their readers see, and that it is of the documents."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.models.registry import NETWORKS, Scale
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import communication, parity, strong_scaling, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.outcome import Outcome
from hvdperf.report.cases import number
from hvdperf.report.content import Figure, Section
from hvdperf.report.methods import methods
from hvdperf.report.paper import MOST_FIGURES, paper_figures, paper_tables
from hvdperf.report.pooled import pooled
from hvdperf.report.words import published_name
from hvdperf.verdict import Band, Verdict
from tests.report.cases import assert_sound, recorded_session
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome

VGG = replace(WORKLOAD, model="vgg_16_s")
RATIOS = (0.88, 0.89, 0.9, 0.91, 0.92, 0.93, 0.9, 0.9)


def archive_of(results: Path, *outcomes: Outcome, slots: int = 4, per_node: int = 4) -> Archive:
    return read_session(session_of(results, *outcomes, slots=slots, per_node=per_node))


def everything(workloads: Sequence[Workload] = (WORKLOAD, VGG)) -> list[Outcome]:
    """Outcomes of every question that a figure shows, but wall time."""
    asked: list[Comparison] = []
    for workload in workloads:
        for n in (2, 4):
            asked += [weak_scaling(workload, n), strong_scaling(workload, n)]
            asked += [communication(workload, n), parity(workload, n)]
    return [outcome(each, RATIOS) for each in asked]


def named(archive: Archive) -> dict[str, Figure]:
    found = paper_figures(archive)
    assert_sound(Section("paper", "Paper", "", tuple(found)))
    return {figure.name: figure for figure in found}


def test_the_curves_come_first_and_there_are_few_figures(tmp_path: Path) -> None:
    found = list(named(archive_of(tmp_path, *everything())))
    assert found[:2] == ["throughput", "speedup"]
    assert {"speedup-strong", "parity", "communication", "efficiency"} <= set(found)
    assert len(found) <= MOST_FIGURES
    recorded = read_session(recorded_session(tmp_path / "recorded"))
    assert "wall-time" in named(recorded)


def test_no_name_of_a_case_and_no_verdict_is_in_a_figure(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, *everything())
    for figure in (*paper_figures(archive), *paper_tables(archive)):
        columns = {column.key for column in figure.table.columns}
        seen = json.dumps([figure.plot, figure.says, figure.title]) + " ".join(
            str(row[key]) for row in figure.table.rows for key in columns - {"verdict"}
        )
        for unwanted in (*NETWORKS, *(verdict.value for verdict in Verdict)):
            assert not re.search(rf"\b{unwanted}\b", seen), figure.name
        marks = [layer["mark"] for layer in (figure.plot or {}).get("layer", ())]
        styles = {mark.get("style") for mark in marks if not isinstance(mark, str)}
        assert not styles & {"band", "limit"}


def test_every_network_has_a_name_of_its_own_that_papers_use() -> None:
    names = {model: published_name(model) for model in NETWORKS}
    assert len(set(names.values())) == len(names)
    assert published_name("vgg_16_s") == "VGG-16 (small)"
    assert published_name("resnet_50") == "ResNet-50"
    assert published_name("papernet") == "papernet"
    small = [name for model, name in names.items() if NETWORKS[model].scale is Scale.SMALL]
    assert all(name.endswith("(small)") for name in small)


def test_a_network_has_the_same_colour_in_every_figure(tmp_path: Path) -> None:
    # Strong scaling was measured of one network alone.
    weak = [outcome(weak_scaling(each, 2), RATIOS) for each in (WORKLOAD, VGG)]
    archive = archive_of(tmp_path, *weak, outcome(strong_scaling(VGG, 2), RATIOS))
    found = named(archive)
    channels = [
        layer["encoding"]["color"]
        for name in ("throughput", "speedup", "speedup-strong")
        for layer in (found[name].plot or {})["layer"]
        if "color" in layer["encoding"]
    ]
    assert len({tuple(channel["scale"]["domain"]) for channel in channels}) == 1
    # Without those that a figure does not show.
    assert channels[-1]["legend"]["values"] == ["VGG-16 (small)"]


def test_sessions_with_other_layouts_have_curves_of_their_own(tmp_path: Path) -> None:
    asked = [outcome(weak_scaling(WORKLOAD, n), RATIOS) for n in (2, 4)]
    wide, narrow = (
        archive_of(tmp_path / str(per_node), *asked, slots=4, per_node=per_node)
        for per_node in (4, 1)
    )
    found = {figure.name: figure for figure in paper_figures(wide, narrow)}
    (table,) = paper_tables(wide, narrow)
    for figure in (found["throughput"], found["speedup"], table):
        layouts = {row["layout"] for row in figure.table.rows if row["world_size"] == 4}
        assert layouts == {"1 x 4", "4 x 1"}
        assert len({row["model"] for row in figure.table.rows}) == 2
    with pytest.raises(UserError, match="ranks a node"):
        paper_figures(wide, wide)


def test_of_several_sessions_each_is_one_observation(tmp_path: Path) -> None:
    """However many rounds and launches they have."""
    asked = weak_scaling(WORKLOAD, 2)
    archives = [
        read_session(session_of(tmp_path, outcome(asked, [0.9 * day] * 8), name=name))
        for day, name in ((1.0, "20260131T000000Z-1"), (1.1, "20260201T000000Z-2"))
    ]
    alone, together = named(archives[0]), named(pooled(archives))
    for figure in together.values():
        assert "over 2 sessions" in figure.says
    wide, narrow = (
        next(row for row in found["throughput"].table.rows if row["world_size"] == 2)
        for found in (together, alone)
    )
    assert wide["launches"] == 2
    assert narrow["launches"] == 8
    assert wide["samples_per_second"] == pytest.approx(1800 * 1.1**0.5)
    # Days that differ by 10 %.
    assert number(wide["samples_per_second_high"]) > 1.1 * number(wide["samples_per_second"])
    text = " ".join(methods(pooled(archives)))
    assert "Every session is one observation" in text
    assert "Wilcoxon" not in text


def test_a_caption_names_networks_machine_rounds_and_confidence(tmp_path: Path) -> None:
    for figure in named(archive_of(tmp_path, *everything())).values():
        for said in ("VGG-16 (small)", "ResNet-50 (small)", "TensorFlow 2.18.1", "2 cores"):
            assert said in figure.says, figure.name
        assert re.search(r"9\d(\.\d)? % intervals over 8", figure.says), figure.name


def test_a_figure_with_too_few_rounds_says_so(tmp_path: Path) -> None:
    few = outcome(weak_scaling(WORKLOAD, 2), [0.9, 0.91])
    assert "too few" in named(archive_of(tmp_path, few))["speedup"].says


def test_unsound_cases_are_in_no_figure_and_no_table(tmp_path: Path) -> None:
    broken = outcome(weak_scaling(VGG, 2), RATIOS, verdict=Verdict.INVALID)
    archive = archive_of(tmp_path, outcome(weak_scaling(WORKLOAD, 2), RATIOS), broken)
    for figure in (*paper_figures(archive), *paper_tables(archive)):
        assert {row["model"] for row in figure.table.rows} == {"ResNet-50 (small)"}


def test_exposed_communication_is_what_the_ratio_leaves(tmp_path: Path) -> None:
    asked = outcome(communication(WORKLOAD, 2), RATIOS)
    figure = named(archive_of(tmp_path, asked))["communication"]
    (row,) = figure.table.rows
    ratio = asked.judgement.figure
    assert ratio is not None
    assert row["share"] == pytest.approx(100 * (1 - ratio.estimate))
    assert row["share_low"] == pytest.approx(100 * (1 - ratio.upper))
    assert row["share_high"] == pytest.approx(100 * (1 - ratio.lower))


def test_parity_has_a_row_per_network_and_number_of_replicas(tmp_path: Path) -> None:
    asked = [outcome(parity(WORKLOAD, n), RATIOS, Band(0.9, 1.1)) for n in (2, 4)]
    rows = named(archive_of(tmp_path, *asked))["parity"].table.rows
    assert [row["world_size"] for row in rows] == [2, 4]
    assert all(row["ratio"] == pytest.approx(0.9, abs=0.01) for row in rows)


def test_the_shares_of_the_wall_time_add_up_to_what_its_terms_explain(tmp_path: Path) -> None:
    figure = named(read_session(recorded_session(tmp_path)))["wall-time"]
    trainings = {row["what"] for row in figure.table.rows}
    assert len(trainings) == 4
    for training in trainings:
        shares = [row["share"] for row in figure.table.rows if row["what"] == training]
        assert sum(float(str(share)) for share in shares) == pytest.approx(100, abs=1)


def test_the_table_has_throughput_speedup_and_efficiency_with_intervals(tmp_path: Path) -> None:
    weak, strong = paper_tables(archive_of(tmp_path, *everything([WORKLOAD]), per_node=4))
    one, two, _ = weak.table.rows
    assert one["speedup"] == 1
    assert one["speedup_low"] is None
    for key in ("samples_per_second", "speedup", "efficiency"):
        assert two[f"{key}_low"] <= two[key] <= two[f"{key}_high"]  # type: ignore[operator]
    keys = {column.key for column in strong.table.columns}
    assert "speedup" in keys
    assert "samples_per_second" not in keys


def test_several_nodes_have_their_layout_in_the_table(tmp_path: Path) -> None:
    sizes = (2, 4, 8, 16, 32)
    asked = [outcome(weak_scaling(WORKLOAD, n), RATIOS) for n in sizes]
    one_node, nodes = (
        paper_tables(archive_of(tmp_path / str(per_node), *asked, slots=32, per_node=per_node))[0]
        for per_node in (32, 4)
    )
    assert "layout" not in {column.key for column in one_node.table.columns}
    assert "layout" in {column.key for column in nodes.table.columns}
    assert [row["layout"] for row in nodes.table.rows] == [
        "1 x 1",
        "1 x 2",
        "1 x 4",
        "2 x 4",
        "4 x 4",
        "8 x 4",
    ]
