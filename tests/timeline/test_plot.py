"""A line as it is drawn."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hvdperf.timeline.lines import Line
from hvdperf.timeline.pages import HEIGHT, LABEL, Shown, plot_of
from hvdperf.verdict import Verdict

NOISE = random.Random(1)
FIGURES = tuple(400 * NOISE.gauss(1, 0.005) for _ in range(100))
LINE = Line("throughput[a-np1]", "a", 1, tuple(range(100)), FIGURES)


def heights(plot: Shown) -> list[int]:
    return list(map(int, plot["path"].removeprefix("M").split()[1::2]))


def test_noise_of_one_percent_fills_a_small_part_of_the_height() -> None:
    drawn = heights(plot_of(LINE, LINE.at, 100))
    assert max(drawn) - min(drawn) < HEIGHT / 5


def test_a_collapse_is_within_the_axis() -> None:
    plot = plot_of(replace(LINE, figures=(*FIGURES[:-1], 40.0)), LINE.at, 100)
    assert 0 < max(heights(plot)) < HEIGHT
    assert float(plot["low"]) < 40
    assert plot["figures"].split(" ")[-1] == "40.0"


def test_the_band_holds_most_nights_on_both_sides_of_a_change() -> None:
    line = replace(LINE, figures=(*FIGURES[:50], *(0.8 * each for each in FIGURES[50:])))
    plot = plot_of(line, LINE.at, 100, [(50, "-20.0 %")])
    (_, above, width, height), (x, below, _, _) = plot["bands"]
    assert (width, x) == (50, 50)
    assert above + height < below
    inside = [above <= each <= above + height for each in heights(plot)[:50]]
    assert 45 <= sum(inside) < 50


def test_a_failure_is_a_dot_at_its_place() -> None:
    verdicts = tuple(Verdict.FAIL if at == 7 else Verdict.PASS for at in range(100))
    at = (*range(50), *range(51, 101))
    plot = plot_of(replace(LINE, verdicts=verdicts, at=at), at, 101, failed=[60, 50])
    assert [dot.split()[0] for dot in plot["dots"].split("M")[1:]] == ["7", "60"]
    assert plot["figures"].split(" ")[50] == "", "a night without a figure"


@pytest.mark.parametrize(
    ("places", "kept"),
    [([10, 50], [10, 50]), ([40, 50], [50]), ([70, 95], [95]), ([55, 95], [55, 95])],
)
def test_sizes_of_changes_do_not_lie_on_each_other(places: list[int], kept: list[int]) -> None:
    plot = plot_of(LINE, LINE.at, 101, [(place, "-1.0 %") for place in places])
    assert [place for place, _, _ in plot["rules"]] == places
    assert [place for place, _, size in plot["rules"] if size] == kept
    assert LABEL == 20
