"""The page of a session in a real browser: its plots are drawn from what its tables say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page

from hvdperf.report.content import Report
from hvdperf.report.html import page as document
from hvdperf.report.session import read_sources, session_report
from tests.report.cases import recorded_session
from tests.support.browser import chromium, visit

Rows = list[dict[str, Any]]


class Opened(NamedTuple):
    """figures: of what is drawn, the rows by name."""

    page: Page
    figures: Mapping[str, Rows]
    report: Report


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A session of every recorded case."""
    results = tmp_path_factory.mktemp("results")
    report = session_report(read_sources(recorded_session(results)))
    assert report.left_out == ()
    Path(results, "page.html").write_text(document(report), encoding="utf-8")
    with chromium() as browser, visit(browser, results) as page:
        page.goto("/page.html")
        page.locator("html[data-ready=true]").wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(all => { all.open = true; })")
        page.evaluate("page.plots.all()")
        plots = [figure.name for figure in report.figures if figure.plot is not None]
        drawn = page.locator("[data-drawn=true]").evaluate_all("all => all.map(each => each.id)")
        assert sorted(drawn) == sorted(plots)
        figures = {
            name: page.locator(f"#{name} .plot").evaluate("at => at.view.data('table')")
            for name in plots
        }
        yield Opened(page, figures, report)


def test_every_section_that_was_measured_is_drawn(opened: Opened) -> None:
    wanted = "scaling throughput parity wall_time steps startup bandwidth convergence memory"
    assert {name.partition("-")[0] for name in opened.figures} >= set(wanted.split())


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
    first = opened.page.locator("main table").first
    assert first.is_visible()
    assert "samples/s" in first.inner_text()


def test_what_is_drawn_is_what_the_tables_say(opened: Opened) -> None:
    for figure in opened.report.figures:
        if figure.plot is not None:
            keys = [column.key for column in figure.table.columns]
            drawn, told = opened.figures[figure.name], figure.table.rows
            assert [[row[key] for key in keys] for row in drawn] == [
                [row[key] for key in keys] for row in told
            ]
