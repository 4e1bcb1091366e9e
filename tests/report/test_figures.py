"""Figures for papers, as SVG and PDF of a physical width."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from hvdperf.__main__ import parser
from hvdperf.cli import run
from hvdperf.errors import UserError
from hvdperf.plan.questions import weak_scaling
from hvdperf.records.archive import read_session
from hvdperf.report.content import Figure
from hvdperf.report.formats import figures
from hvdperf.report.formats.text import printable
from hvdperf.report.paper import paper_figures
from hvdperf.report.sections import scaling
from tests.report.cases import HOSTILE, of_workload, recorded, recorded_session
from tests.report.sample import hostile
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome

MM = 72 / 25.4


def session(results: Path) -> Path:
    return recorded_session(results, "weak_scaling-resnet_50_s-np2", "parity-resnet_50_s-np2")


def command(*words: object) -> int:
    return run(parser(), command_line=["report", *map(str, words)])


def of_networks(results: Path, *networks: str, name: str = "scaling-weak-steady_state") -> Figure:
    """The curves on 1, 2 and 4 replicas."""
    outcomes = [
        outcome(weak_scaling(replace(WORKLOAD, model=network), n), [0.9] * 6)
        for network in networks
        for n in (2, 4)
    ]
    cases = cases_of(results, *outcomes, slots=4, per_node=4)
    return next(each for each in scaling.figures(scaling.Measured(cases)) if each.name == name)


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


@pytest.mark.parametrize("millimetres", [88, 180])
def test_a_drawing_has_its_width_and_legible_letters(millimetres: int, tmp_path: Path) -> None:
    figure = of_networks(tmp_path, "vgg_16_s", "resnet_50_s")
    root = ET.fromstring(figures.drawing(figure, "svg", millimetres * MM))
    assert root.attrib["width"] == f"{millimetres:.2f}mm"
    of_a_pixel = millimetres * MM / float(root.attrib["viewBox"].split()[2])
    sizes = {
        float(text.attrib["font-size"].removesuffix("px")) * of_a_pixel
        for text in root.iter("{http://www.w3.org/2000/svg}text")
    }
    assert sizes
    assert 6.9 <= min(sizes) <= max(sizes) <= 8
    pdf = figures.drawing(figure, "pdf", millimetres * MM)
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ", pdf)
    assert box is not None
    assert float(box[1]) == pytest.approx(millimetres * MM, abs=0.1)


# Content -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scaling-throughput", "scaling-weak-steady_state"])
def test_every_network_of_a_plot_is_in_its_legend(name: str, tmp_path: Path) -> None:
    figure = of_networks(tmp_path, "vgg_16_s", "resnet_50_s", name=name)
    root = ET.fromstring(figures.drawing(figure, "svg", 250))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("vgg_16_s") == texts.count("resnet_50_s") == 1


def test_a_plot_that_cannot_be_drawn_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (broken,) = (figure for figure in hostile().figures if figure.name == "broken")
    with pytest.raises(UserError, match="figure broken cannot be drawn"):
        figures.drawing(broken, "svg", 250)


@pytest.mark.parametrize("model", ["resnet_50_s", *HOSTILE])
def test_whatever_a_network_is_called_its_figures_can_be_drawn(model: str, tmp_path: Path) -> None:
    archive = read_session(recorded_session(tmp_path))
    cases = tuple(of_workload(case, model=model) for case in recorded())
    drawn = printable(tuple(paper_figures(replace(archive, cases=cases))))
    assert drawn
    for figure in drawn:
        root = ET.fromstring(figures.drawing(figure, "svg", 250))
        assert float(root.attrib["width"].removesuffix("mm")) == pytest.approx(88.2, abs=0.1)


def test_the_colours_are_told_apart_in_grey() -> None:
    def lightness(colour: str) -> float:
        """L* of CIELAB."""
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        luminance = sum(f * p for f, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        return float(116 * luminance ** (1 / 3) - 16)

    found = [lightness(colour) for colour in figures.CATEGORIES]
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
    texts = {"captions.md", "captions.tex", "results.tex", "methods.md", "methods.tex"}
    assert {path.name for path in out.iterdir()} == {*texts, *(f"{n}.{form}" for n in names)}
    assert all(text in told for text in texts)
    for name in names:
        assert f"`{name}`" in (out / "captions.md").read_text()
        assert rf"width=\linewidth]{{{name}}}" in (out / "captions.tex").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "svg"], "give their directory, --figures DIR"),
        (["--width", "88mm"], "give their directory, --figures DIR"),
        (["--with", "x"], "give their directory, --figures DIR"),
        (["--figures", "x", "--format", "csv"], "give --format svg or pdf"),
        (["--figures", "x", "--out", "y"], "give one of them"),
        (["--figures", "x", "--width", "88"], "with its unit"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(session(tmp_path), *options) == 2
    assert said in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert command(session(tmp_path), "--figures", tmp_path / "file" / "x") == 2
    assert "give another path by --figures" in capsys.readouterr().err
