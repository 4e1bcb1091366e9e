"""The page of a session in a real browser: what plots are drawn from is what documents say.

Numbers are read back from the drawn plots and held against the session's own files, by arithmetic
of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Page

from hvdperf.report.formats.html import page as document
from hvdperf.report.session import read_sources, session_report
from tests.report.cases import RECORDED
from tests.support.browser import chromium, visit
from tests.support.reports import session_of
from tests.support.stores import SESSION

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Opened:
    """figures: of what is drawn, the rows by name. documents: of the session, by file."""

    page: Page
    figures: Mapping[str, Rows]
    documents: Mapping[str, dict[str, Any]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A session of every recorded case."""
    results = tmp_path_factory.mktemp("results")
    directory = session_of(results)
    documents = {}
    for path in RECORDED.glob("*.json"):
        documents[path.stem] = {**json.loads(path.read_text()), "session": SESSION}
        (directory / path.name).write_text(json.dumps(documents[path.stem]))
    report = session_report(read_sources(directory, results))
    assert report.left_out == ()
    Path(results, "page.html").write_text(document(report), encoding="utf-8")
    with chromium() as browser, visit(browser, results) as page:
        page.goto("/page.html")
        page.locator("html[data-ready=true]").wait_for()
        page.evaluate("page.plots.all()")
        plots = [figure.name for figure in report.figures if figure.plot is not None]
        drawn = page.locator("[data-drawn=true]").evaluate_all("all => all.map(each => each.id)")
        assert sorted(drawn) == sorted(plots)
        figures = {
            name: page.locator(f"#{name} .plot").evaluate("at => at.view.data('table')")
            for name in plots
        }
        yield Opened(page, figures, documents)


def test_every_section_that_was_measured_is_drawn(opened: Opened) -> None:
    beginnings = {name.partition("-")[0] for name in opened.figures}
    assert beginnings >= {
        "board",
        "scaling",
        "throughput",
        "parity",
        "wall_time",
        "steps",
        "startup",
        "bandwidth",
        "convergence",
        "memory",
    }


def test_the_board_has_every_verdict(opened: Opened) -> None:
    rows = {row["case"]: row for row in opened.figures["board"]}
    assert len(rows) == len(opened.documents)
    for told in opened.documents.values():
        row, verdict = rows[told["name"]], told["outcome"]["judgement"]
        assert row["verdict"] == verdict["verdict"]
        assert row["figure"] == verdict["figure"]["estimate"]
        assert row["rounds"] == verdict["rounds"]


@pytest.mark.parametrize("width", [1280, 1440])
def test_nothing_is_cut_that_is_read_first(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 900})
    cut = opened.page.evaluate("""() =>
        [document.documentElement, ...document.querySelectorAll('nav ul, .board .box, .wide .box')]
            .filter(each => each.scrollWidth > each.clientWidth)
            .map(each => `${each.tagName} ${each.className} ${each.scrollWidth}`)
    """)
    assert cut == []
    assert opened.page.locator(".wide .box, .board .box").count() == 2


def test_the_overview_comes_first_with_its_table(opened: Opened) -> None:
    first = opened.page.locator("main table").first
    assert first.is_visible()
    assert "samples/s" in first.inner_text()


def test_a_speedup_is_the_efficiency_times_the_replicas(opened: Opened) -> None:
    told = opened.documents["weak_scaling-resnet_50_s-np2"]["outcome"]["judgement"]["figure"]
    (two,) = (
        row
        for row in opened.figures["scaling-weak-speed"]
        if (row["model"], row["world_size"]) == ("resnet_50_s", 2)
    )
    assert two["efficiency"] == told["estimate"]
    assert two["speedup"] == pytest.approx(2 * told["estimate"], rel=1e-12)


def test_parity_is_that_of_the_verdict(opened: Opened) -> None:
    told = opened.documents["parity-resnet_50_s-np2"]["outcome"]["judgement"]
    (row,) = opened.figures["parity"]
    assert row["ratio"] == told["figure"]["estimate"]
    assert (row["low"], row["high"]) == (told["rule"]["low"], told["rule"]["high"])


def test_the_waterfall_ends_at_the_wall_time(opened: Opened) -> None:
    breakdown = opened.documents["wall_time-weak-resnet_50_s-np2"]["outcome"]["breakdown"]
    rows = opened.figures["wall_time-waterfall-weak-resnet_50_s-np2"]
    assert rows[0]["to_s"] == pytest.approx(breakdown["reference"]["wall_seconds"])
    assert rows[-1]["to_s"] == pytest.approx(breakdown["candidate"]["wall_seconds"])
    between = [row["excess_s"] for row in rows[1:-1]]
    assert rows[0]["to_s"] + sum(between) == pytest.approx(rows[-1]["to_s"])


def test_ranks_have_the_median_of_their_steps(opened: Opened) -> None:
    blocks = [
        block
        for measured in opened.documents["weak_scaling-resnet_50_s-np2"]["outcome"]["rounds"]
        for launch in measured["launches"]
        if launch["arm"]["world_size"] == 2
        for block in launch["blocks"]
        if block["kind"] == "full"
    ]
    for row in opened.figures["steps-ranks-resnet_50_s-np2"]:
        steps = [s for block in blocks for s in block["ranks"][row["rank"]]["step_seconds"]]
        assert row["steps"] == len(steps)
        assert row["q50_ms"] == pytest.approx(1000 * median(steps))


def test_bandwidths_follow_from_bytes_and_seconds(opened: Opened) -> None:
    series = [
        each
        for measured in opened.documents["collective_overhead-allreduce-sweep-np2"]["outcome"][
            "rounds"
        ]
        for launch in measured["launches"]
        if launch["arm"]["strategy"] == "bare"
        for each in launch["series"]
    ]
    for row in opened.figures["bandwidth-allreduce-np2"]:
        # Of two ranks an allreduce's busbw is its algbw.
        ranks = [s["ranks"] for s in series if s["ranks"][0]["bytes"] == row["bytes"]]
        seconds = [
            median(map(max, zip(*(rank["seconds"] for rank in each), strict=True)))
            for each in ranks
        ]
        widths = [row["bytes"] / each for each in seconds]
        assert 1e9 * row["bare"] == pytest.approx(median(widths))


def test_start_up_is_that_of_the_launch(opened: Opened) -> None:
    (measured,) = opened.documents["wall_time-weak-vgg_16_s-np2"]["outcome"]["rounds"]
    (alone,) = (each for each in measured["launches"] if each["arm"]["world_size"] == 1)
    ((told,),) = (alone["startup_seconds"],)
    rows = {row["arm"]: row for row in opened.figures["startup-vgg_16_s"]}
    shown = rows["horovod, np 1"]
    assert {key: shown[key.replace(" ", "_")] for key in told} == told
    assert shown["all_phases"] == pytest.approx(sum(told.values()))


def test_a_tables_cells_are_the_plots_numbers(opened: Opened) -> None:
    shown = opened.page.locator("#parity td data").evaluate_all("all => all.map(e => +e.value)")
    (row,) = opened.figures["parity"]
    numbers = [value for value in row.values() if isinstance(value, int | float)]
    assert sorted(shown) == sorted(numbers)
