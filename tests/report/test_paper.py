"""What a paper has: figures as SVG and PDF of a physical width, their captions, and tables."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from hvdperf.__main__ import parser
from hvdperf.cli import run
from hvdperf.errors import UserError
from hvdperf.models.registry import NETWORKS, Scale
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import communication, parity, strong_scaling, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.outcome import Outcome
from hvdperf.report import paper as figures
from hvdperf.report.cases import number
from hvdperf.report.content import Figure, Section
from hvdperf.report.methods import methods
from hvdperf.report.paper import paper_figures, paper_tables
from hvdperf.report.session import pooled
from hvdperf.report.text import printable
from hvdperf.report.words import published_name
from hvdperf.verdict import Verdict
from tests.report.cases import (
    assert_sound,
    known,
    luminance,
    of_every_name,
    recorded,
    recorded_session,
)
from tests.report.sample import hostile
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


def test_the_curves_come_first_and_captions_tell_what_was_measured(
    tmp_path: Path,
) -> None:
    found = named(archive_of(tmp_path, *everything()))
    assert list(found)[:2] == ["throughput", "speedup"]
    assert found.keys() >= {"speedup-strong", "parity", "communication"}
    assert [row["world_size"] for row in found["parity"].table.rows] == [2, 4] * 2
    for figure in found.values():
        for said in ("VGG-16 (small)", "ResNet-50 (small)", "TensorFlow 2.18.1", "2 cores"):
            assert said in figure.says, figure.name
        assert re.search(r"9\d(\.\d)? % intervals over 8", figure.says), figure.name


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
    ratio = known(asked.judgement.figure)
    assert row["share"] == pytest.approx(100 * (1 - ratio.estimate))
    assert row["share_low"] == pytest.approx(100 * (1 - ratio.upper))
    assert row["share_high"] == pytest.approx(100 * (1 - ratio.lower))


def test_the_shares_of_the_wall_time_add_up_to_what_its_terms_explain(tmp_path: Path) -> None:
    figure = named(read_session(recorded_session(tmp_path)))["wall-time"]
    assert len(figure.table.rows) == 4
    for row in figure.table.rows:
        shares = [each for each in row.values() if isinstance(each, float)]
        assert sum(shares) == pytest.approx(100, abs=1)


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
    layouts = ["1 x 1", "1 x 2", "1 x 4", "2 x 4", "4 x 4", "8 x 4"]
    assert [row["layout"] for row in nodes.table.rows] == layouts


MM = 72 / 25.4


def command(*words: object) -> int:
    return run(parser(), command_line=["report", *map(str, words)])


# Widths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "points"), [("88mm", 88 * MM), ("8.8 cm", 88 * MM), ("3.5in", 252), ("250pt", 250)]
)
def test_a_width_has_a_unit(width: str, points: float) -> None:
    assert figures.points_of(width) == pytest.approx(points)


@pytest.mark.parametrize("width", ["88", "mm", "88px", "-88mm", "1mm", "2000mm", "nanmm", ""])
def test_another_width_is_refused(width: str) -> None:
    with pytest.raises(UserError, match="40mm to 1000mm with its unit"):
        figures.points_of(width)


@pytest.mark.parametrize("name", ["throughput", "speedup"])
@pytest.mark.parametrize("millimetres", [88, 180])
def test_a_drawing_has_its_width_a_legend_and_legible_letters(
    name: str, millimetres: int, tmp_path: Path
) -> None:
    weak = [outcome(weak_scaling(each, n), RATIOS) for each in (WORKLOAD, VGG) for n in (2, 4)]
    figure = named(archive_of(tmp_path, *weak))[name]
    root = ET.fromstring(figures.drawing(figure, "svg", millimetres * MM))
    assert root.attrib["width"] == f"{millimetres:.2f}mm"
    of_a_pixel = millimetres * MM / float(root.attrib["viewBox"].split()[2])
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    shown = [text.text for text in texts]
    assert shown.count("VGG-16 (small)") == shown.count("ResNet-50 (small)") == 1
    sizes = [float(text.attrib["font-size"].removesuffix("px")) * of_a_pixel for text in texts]
    assert 6.9 <= min(sizes) <= max(sizes) <= 8
    pdf = figures.drawing(figure, "pdf", millimetres * MM)
    box = known(re.search(rb"/MediaBox \[0 0 ([\d.]+) ", pdf))
    assert float(box[1]) == pytest.approx(millimetres * MM, abs=0.1)


def test_a_plot_that_cannot_be_drawn_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (broken,) = (figure for figure in hostile().figures if figure.name == "broken")
    with pytest.raises(UserError, match="figure broken cannot be drawn"):
        figures.drawing(broken, "svg", 250)


def test_whatever_networks_are_called_their_figures_can_be_drawn(tmp_path: Path) -> None:
    archive = read_session(recorded_session(tmp_path))
    cases = tuple(of_every_name(recorded()))
    drawn = printable(tuple(paper_figures(replace(archive, cases=cases))))
    assert drawn
    for figure in drawn:
        root = ET.fromstring(figures.drawing(figure, "svg", 250))
        assert float(root.attrib["width"].removesuffix("mm")) == pytest.approx(88.2, abs=0.1)


def test_the_colours_are_told_apart_in_grey() -> None:
    # L* of CIELAB.
    found = [116 * luminance(colour) ** (1 / 3) - 16 for colour in figures.CATEGORIES]
    assert min(abs(a - b) for a, b in combinations(found, 2)) > 7
    assert min(abs(a - b) for a, b in pairwise(found)) > 15


# The command -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_each_figure_is_a_file_beside_the_texts_of_the_paper(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, directory = tmp_path / "figures", recorded_session(tmp_path)
    assert command(directory, "--figures", out, "--format", form) == 0
    told = capsys.readouterr().out
    names = [figure.name for figure in paper_figures(read_session(directory))]
    texts = {"captions.txt", "captions.tex", "results.tex", "methods.txt", "methods.tex"}
    assert {path.name for path in out.iterdir()} == {*texts, *(f"{n}.{form}" for n in names)}
    assert all(text in told for text in texts)
    for name in names:
        assert f"{name}: " in (out / "captions.txt").read_text()
        assert rf"width=\linewidth]{{{name}}}" in (out / "captions.tex").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "svg"], "give their directory, --figures DIR"),
        (["--figures", "x", "--format", "csv"], "give --format svg or pdf"),
        (["--figures", "x", "--out", "y"], "give one of them"),
        (["--figures", "x", "--width", "88"], "with its unit"),
        (["--figures", "/dev/null/x"], "give another path by --figures"),
    ],
)
def test_options_that_contradict_each_other_or_cannot_be_followed_are_refused(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(recorded_session(tmp_path, "parity-resnet_50_s-np2"), *options) == 2
    assert said in capsys.readouterr().err
