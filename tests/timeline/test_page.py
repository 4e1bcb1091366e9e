"""The page of all nights of a made-up year, and those of its series, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from hvdperf.records.documents import Result
from hvdperf.records.outcome import Measure
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import (
    Accepted,
    Night,
    add_accepted,
    write_night,
)
from hvdperf.timeline.pages import STRIP, write_index
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import Verdict
from tests.support.browser import Window, visit, window
from tests.support.nights import Year, nights, slowed, with_part

YEAR = Year(0.01, networks=8, world_sizes=(1, 2, 4, 8))
CALM = Year(0.01, steps={}, drift=1.0, bad=((), ()), networks=2, world_sizes=(1, 2))
A100 = "/nights/a100/index.html"


def failed(night: Night) -> Night:
    first, *others = night.parts[0].cases
    return with_part(night, cases=(replace(first, verdict=Verdict.FAIL), *others))


def with_costs(night: Night, gigabytes: float) -> Night:
    """Return the night with launches that start in 9 seconds and take so much memory."""
    (part,) = night.parts
    each = ((Measure.START, 9.0), (Measure.MEMORY, gigabytes * 1e9))
    costs = tuple(
        Result(measure, speeds.model, speeds.world_size, (0.999 * cost, cost, cost))
        for measure, cost in each
        for speeds in part.of(Measure.SPEED)
    )
    return with_part(night, results=(*part.results, *costs))


def store(directory: Path, series: str, made: Sequence[Night]) -> None:
    for night in made:
        write_night(directory / NIGHTS, replace(night, series=series))


def index(directory: Path) -> None:
    last = max(date.fromisoformat(each.stem) for each in (directory / NIGHTS).glob("*/*.json"))
    write_index(directory / "index.html", directory, directory / "pages", last)


def sessions(directory: Path, made: Sequence[Night]) -> None:
    """Write a page for the session of each of these nights."""
    (directory / "pages").mkdir(exist_ok=True)
    for night in made:
        (directory / f"pages/{night.parts[0].session}.html").write_text(
            f'<!doctype html><link rel="icon" href="data:,"><title>{night.night}</title>'
        )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A year of 64 lines, the last night of which FAILs, and a file that is broken."""
    directory = tmp_path_factory.mktemp("published")
    made = nights(YEAR, 1)
    made[-1] = failed(made[-1])
    store(directory, "a100", made)
    (directory / NIGHTS / "a100/2026-01-05.json").write_text("{")
    sessions(directory, made[-2:])
    index(directory)
    return directory


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series of which one fell in the last night, one is late, and one PASSes."""
    directory = tmp_path_factory.mktemp("many")
    made = nights(CALM, 2)[:30]
    store(directory, "a-calm", made)
    store(directory, "b-late", made[:-3])
    store(directory, "c-fell", [*made[:-1], slowed(made[-1], 0.5)])
    sessions(directory, made)
    index(directory)
    return directory


@pytest.fixture(scope="module")
def of_published(browser: Browser, published: Path) -> Iterator[Window]:
    with window(browser, published) as opened:
        yield opened


@pytest.fixture
def page(of_published: Window) -> Iterator[Page]:
    """The page of the series."""
    with of_published.visit() as opened:
        opened.goto(A100)
        yield opened


@pytest.fixture(scope="module")
def of_many(browser: Browser, many: Path) -> Iterator[Window]:
    with window(browser, many) as opened:
        yield opened


@pytest.fixture
def overview(of_many: Window) -> Iterator[Page]:
    with of_many.visit() as opened:
        opened.goto("/")
        yield opened


def rows_of(page: Page, figure: str) -> list[list[str]]:
    """Return the cells of a figure's table."""
    cells: list[list[str]] = page.locator(f"#{figure} tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return cells


def drawn(page: Page, figure: str) -> Locator:
    """Return the plot of a figure."""
    page.locator("html[data-ready=true]").wait_for()
    page.evaluate("page.plots.all()")
    return page.locator(f"#{figure} .plot svg")


def test_the_worst_series_comes_first_with_what_happened_and_what_to_type(overview: Page) -> None:
    last = nights(CALM, 2)[29].night
    rows = rows_of(overview, "series")
    assert [" ".join(row[:2]) for row in rows] == ["FAIL c-fell", "NOT RUN b-late", "PASS a-calm"]
    told = rf"Since {last}: -\S+ % \(.+\) samples/s of all 4 throughputs; 4 PASS\."
    assert re.fullmatch(told, rows[0][3])
    assert rows[1][3] == f"MISSING: no night since {last - timedelta(days=3)}; 4 PASS."
    assert overview.locator("h1").inner_text() == "1 of 3 series: FAIL"
    assert overview.locator(".blames .case").all_inner_texts() == ["c-fell", "b-late"]
    commands = overview.locator(".next pre").inner_text().splitlines()
    assert commands[-1] == "hvdperf nightly accept --series c-fell --why REASON"
    assert len(rows_of(overview, "nights")) == 3 * STRIP
    board = overview.locator("#series")
    board.get_by_role("link", name=f"{last}").first.click()
    expect(overview).to_have_title(f"{last}")
    overview.goto("/")
    board.get_by_role("link", name="a-calm").click()
    expect(overview.locator("h1")).to_have_text("a-calm: PASS")
    overview.get_by_role("link", name="all series").click()
    expect(board).to_be_visible()


def test_every_night_is_there_with_its_verdict(page: Page, published: Path) -> None:
    # Until somebody accepts that a network is 3 % slower since night 90, every night FAILs.
    failed = sum(not fall.excuse for fall in judge_speeds(nights(YEAR, 1)).falls.values())
    assert 200 < failed < 300
    rows = rows_of(page, "nights")
    assert [row[2] for row in rows].count("FAIL") == failed
    assert rows[-1][1:3] == ["2026-11-23", "FAIL"]
    assert rows[-1][3].startswith("1 FAIL, 31 PASS; -")
    told = page.locator("#Says-nights").inner_text()
    assert told.startswith(f"{failed} FAIL, {355 - failed} PASS")
    assert page.locator("h1").inner_text() == "a100: FAIL"
    # An event has no row among the lines.
    assert page.locator(".blames .case[href]").all_inner_texts() == ["weak_scaling[network_0-np1]"]
    assert (published / NIGHTS / "a100/index.html").stat().st_size < 750_000
    page.goto("/")
    page.get_by_role("link", name="see which").click()
    assert "2026-01-05.json: left out" in page.locator("#pageLeftOut").inner_text()


def test_events_are_listed_with_what_changed_that_night(page: Page) -> None:
    (of_a_driver,) = (
        row for row in rows_of(page, "events") if "gpu_driver: 535.129.03 -> 550.54.15" in row[4]
    )
    assert (of_a_driver[0], of_a_driver[3]) == ("FAIL", "until it is repaired or accepted")
    assert "network_0" in of_a_driver[2]
    facts = page.locator(".facts").text_content() or ""
    for host in ("gpu-07", "gpu-09"):
        assert f"nights on {host}, which are left out of the changes" in facts
    assert facts.count(" % on 4 nights") == 2


def test_every_line_has_its_last_figure_its_change_and_a_command(page: Page) -> None:
    rows = {row[1]: row for row in rows_of(page, "lines")}
    assert len(rows) == 64
    row = rows["weak_scaling[network_0-np1]"]
    assert (row[0], row[-1]) == (
        "FAIL",
        "pytest perf/ --profile=nightly-gpu --models network_0 --world-sizes 1 -k network_0-np1",
    )
    changed = rows["throughput[network_0-np8]"][-2]
    assert re.match(r"-10\S* % \(.*\) since 2026-08-\d\d, worse", changed)


def test_lines_of_a_network_are_chosen_drawn_and_lead_to_sessions(page: Page) -> None:
    rows = rows_of(page, "lines-by-date")
    heads = page.locator("#lines-by-date thead th").all_text_contents()
    place = [head.strip() for head in heads].index("weak_scaling of network_0")
    assert len(rows) == 355
    # Only the line on one replica FAILed in the last night.
    assert [figure[-1] == "!" for figure in rows[-1][place].split()] == [True, *[False] * 3]
    happened = {row[0]: row[1] for row in rows}
    assert "and 3 more lines of network_0" in happened["2026-05-23"]
    assert "gpu_driver: 535.129.03 -> 550.54.15" in happened["2026-05-23"]
    plot = drawn(page, "lines-by-date")
    choice = page.locator("#lines-by-date select")
    # What fell is seen first.
    assert choice.locator("option:checked").inner_text() == "throughput of network_0"
    choice.select_option(label="weak_scaling of network_0")
    legend = plot.locator(".role-legend-label text")
    expect(legend.first).to_contain_text("network_0-np1: 100 % = 0.")
    points = plot.locator(".mark-symbol.role-mark path")
    expect(points).to_have_count(4 * 355)
    # Another theme draws it again, and leaves what is chosen.
    page.emulate_media(color_scheme="dark")
    drawn(page, "lines-by-date")
    expect(legend.first).to_contain_text("network_0-np1: 100 % = 0.")
    points.last.click(force=True)
    expect(page).to_have_title("2026-11-23")


def test_what_was_accepted_is_marked(browser: Browser, tmp_path: Path) -> None:
    made = nights(replace(CALM, steps={80: 0.85}), 1)[:100]
    store(tmp_path, "a100", made)
    add_accepted(tmp_path / NIGHTS / "a100", Accepted(made[90].night, "a new driver"))
    index(tmp_path)
    with visit(browser, tmp_path) as page:
        page.goto(A100)
        assert page.locator("h1").inner_text() == "a100: PASS"
        (event,) = rows_of(page, "events")
        assert "accepted: a new driver" in event[4]
        happened = [row[1] for row in rows_of(page, "lines-by-date")]
        assert happened[90] == f"accepted up to {made[90].night}: a new driver"


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("address", ["/", A100])
def test_nothing_is_wider_than_the_window(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(address)
    drawn(page, "nights").wait_for()
    assert page.locator(".failed:visible").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_launches_take_besides_is_drawn_and_fails_where_it_became_more(tmp_path: Path) -> None:
    *before, last = nights(CALM, 1)[:40]
    store(tmp_path, "a100", [*(with_costs(each, 3.0) for each in before), with_costs(last, 4.0)])
    index(tmp_path)
    text = (tmp_path / NIGHTS / "a100/index.html").read_text()
    assert all(f"{what} of network_1 (lower is better)" in text for what in ("start", "memory"))
    assert "throughput of network_1 (" not in text
    head = text.partition("<nav")[0]
    assert re.search(r"FAIL.*\+33.3 % .*memory of all 4", head, re.DOTALL)
