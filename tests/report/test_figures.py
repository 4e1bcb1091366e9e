"""Figures for papers, as SVG and PDF of a physical width."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from hvdperf.__main__ import parser
from hvdperf.cli import run
from hvdperf.errors import UserError
from hvdperf.report.content import Column, Figure, Report, Row, Table
from hvdperf.report.formats import figures
from hvdperf.report.formats.text import printable
from hvdperf.report.sections.scaling import efficiency
from hvdperf.report.session import read_sources, session_report
from tests.report.cases import recorded_session
from tests.report.sample import a_report, hostile

MM = 72 / 25.4


def session(results: Path) -> Path:
    return recorded_session(results, "weak_scaling-resnet_50_s-np2", "parity-resnet_50_s-np2")


def report_of_all(results: Path) -> Report:
    return session_report(read_sources(recorded_session(results), results))


def command(*words: object) -> int:
    return run(parser(), command_line=["report", *map(str, words)])


def scaling(*networks: str) -> Figure:
    sizes = (1, 2, 4)
    rows: tuple[Row, ...] = tuple(
        {
            "model": network,
            "world_size": size,
            "drawn": "yes",
            "efficiency": 1 / (size + place),
            "efficiency_low": 0.9 / (size + place),
            "efficiency_high": 1.1 / (size + place),
        }
        for place, network in enumerate(networks)
        for size in sizes
    )
    columns = tuple(Column(key, key) for key in rows[0])
    plot = efficiency(networks, sizes)
    return Figure("scaling", "Scaling", "Lines.", Table(columns, rows), plot)


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
def test_a_drawing_has_its_width_and_legible_letters(millimetres: int) -> None:
    figure = scaling("vgg_16_s", "resnet_50_s")
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


def test_every_network_of_a_plot_is_in_its_legend() -> None:
    root = ET.fromstring(figures.drawing(scaling("vgg_16_s", "resnet_50_s"), "svg", 250))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("vgg_16_s") == texts.count("resnet_50_s") == 1


def test_verdicts_have_shapes_and_colours_of_their_own(tmp_path: Path) -> None:
    board = report_of_all(tmp_path).board
    assert board.plot is not None
    spec = figures.specification(board.plot, board.table.rows, 400)
    present = {str(row["verdict"]) for row in board.table.rows}
    (point,) = (each for each in spec["layer"] if "shape" in each["encoding"])
    shapes, colours = (point["encoding"][name]["scale"] for name in ("shape", "color"))
    assert set(shapes["domain"]) == set(colours["domain"]) == present
    assert len(set(shapes["range"])) == len(set(colours["range"])) == len(present)
    assert len(present) > 1
    assert shapes["range"][shapes["domain"].index("PASS")] == "circle"
    assert all(colour.startswith("#") for colour in colours["range"])


def test_a_plot_that_cannot_be_drawn_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (broken,) = (figure for figure in hostile().figures if figure.name == "broken")
    with pytest.raises(UserError, match="figure broken cannot be drawn"):
        figures.drawing(broken, "svg", 250)


@pytest.mark.parametrize("which", ["usual", "hostile", "recorded"])
def test_whatever_a_page_draws_can_be_drawn_for_paper(which: str, tmp_path: Path) -> None:
    report = {"usual": a_report, "hostile": hostile, "recorded": lambda: report_of_all(tmp_path)}
    drawn = [figure for figure in printable(report[which]()).figures if figure.plot is not None]
    assert drawn
    for figure in drawn:
        if figure.name != "broken":
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
def test_each_figure_is_a_file_beside_the_paragraph(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures"
    assert command(session(tmp_path), "--figures", out, "--format", form) == 0
    names = {path.name for path in out.iterdir()}
    assert names >= {f"scaling-weak-speed.{form}", f"throughput.{form}", f"parity.{form}"}
    assert names >= {"methods.md", "methods.tex"}
    assert f"{len(names) - 2} figures, methods.md and methods.tex" in capsys.readouterr().out
    assert "resnet_50_s" in (out / "methods.md").read_text()
    assert r"resnet\_50\_s" in (out / "methods.tex").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "svg"], "give their directory, --figures DIR"),
        (["--width", "88mm"], "give their directory, --figures DIR"),
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
