"""The index page of a made-up year, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.nights import Year, nights
from hvdperf.timeline.nights.night import Night, read_nights, write_night
from hvdperf.timeline.nights.series import findings, judge_speeds
from hvdperf.timeline.page.index import SPARK_EDGE, SPARK_W, write_index
from hvdperf.timeline.store import HISTORY, NIGHTS
from hvdperf.verdict import Verdict
from tests.support.browser import chromium, visit
from tests.support.histories import raw_result, written

YEAR = Year(0.01, networks=8, world_sizes=(1, 2, 4, 8))


def failed(night: Night) -> Night:
    (part,) = night.parts
    row = replace(part.cases[0], verdict=Verdict.FAIL)
    return replace(night, parts=(replace(part, cases=(row, *part.cases[1:])),))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A year of 64 lines, the last night of which FAILs, and a file that is broken."""
    directory = tmp_path_factory.mktemp("published")
    made = nights(YEAR, 1)
    made[-1] = failed(made[-1])
    for night in made:
        write_night(directory / NIGHTS, night)
    (directory / NIGHTS / "a100/2026-01-05.json").write_text("{")
    pages = directory / "pages"
    pages.mkdir()
    session = made[-1].parts[0].session
    (pages / f"{session}.html").write_text(
        '<!doctype html><link rel="icon" href="data:,"><title>the session</title>'
    )
    write_index(directory / "index.html", directory, pages, directory / "asv")
    return directory


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, published: Path) -> Iterator[Page]:
    with visit(browser, published) as opened:
        opened.goto("/")
        yield opened


def test_the_calendar_has_every_date_with_its_verdict(page: Page, published: Path) -> None:
    # Until somebody accepts that a network is 3 % slower since night 90, every night FAILs.
    failed = len(judge_speeds(nights(YEAR, 1)).falls)
    assert 200 < failed < 300
    squares = page.locator(".calendar rect")
    assert squares.count() == 365
    assert page.locator(".calendar rect.pass").count() == 355 - failed
    assert page.locator(".calendar rect.missing").count() == 10
    last = page.locator(".calendar rect.fail title").last.text_content() or ""
    assert last.startswith("2026-11-23: FAIL (1 FAIL, 31 PASS; -")
    legend = page.locator(".legend span")
    assert [legend.nth(i).inner_text() for i in range(3)] == [
        f"{failed} FAIL",
        f"{355 - failed} PASS",
        "10 MISSING",
    ]
    assert page.locator("h2 .verdict").inner_text() == "FAIL"
    assert "samples/s of network_0" in page.locator(".slower").first.inner_text()
    assert "2026-01-05.json: left out" in page.locator("header").inner_text()
    assert (published / "index.html").stat().st_size < 1_000_000


def test_a_series_at_half_its_speed_is_red_although_every_case_passes(
    browser: Browser, tmp_path: Path
) -> None:
    made = nights(YEAR, 1)[:20]
    (part,) = made[-1].parts
    speeds = tuple(
        replace(each, samples_per_second=tuple(x / 2 for x in each.samples_per_second))
        for each in part.speeds
    )
    made[-1] = replace(made[-1], parts=(replace(part, speeds=speeds),))
    for night in made:
        write_night(tmp_path / NIGHTS, night)
    write_index(tmp_path / "index.html", tmp_path, tmp_path / "pages", tmp_path / "asv")
    with visit(browser, tmp_path) as page:
        page.goto("/")
        assert page.locator("h2 .verdict").inner_text() == "FAIL"
        assert "samples/s of all 32 throughputs" in page.locator(".slower").first.inner_text()
        title = page.locator(".calendar rect.fail title").text_content() or ""
        assert title.startswith(f"{made[-1].night}: FAIL (32 PASS; -")


def test_a_night_leads_to_its_session(page: Page) -> None:
    page.locator(".calendar a").click()
    expect(page).to_have_title("the session")  # waits for the page


def test_lasting_changes_are_listed_with_what_changed_that_night(page: Page) -> None:
    rows = page.locator(".changes tbody tr")
    texts = [rows.nth(i).inner_text() for i in range(rows.count())]
    of_a_driver = [text for text in texts if "throughput[network_0-np8]" in text]
    assert len(of_a_driver) == 3
    assert sum("gpu_driver: 535.129.03 -> 550.54.15" in text for text in of_a_driver) == 1
    assert all("worse" in text for text in of_a_driver)
    nodes = page.locator("ul").inner_text()
    assert "gpu-01, gpu-07: -7.9 % in 32 lines, 4 nights." in nodes
    assert "gpu-01, gpu-09: -8.2 % in 32 lines, 4 nights." in nodes


def test_every_line_is_drawn_and_can_be_repeated(page: Page) -> None:
    assert page.locator(".cases tbody tr").count() == 64
    row = page.locator(".cases tbody tr", has_text="weak_scaling[network_0-np1]")
    points = row.locator("polyline").get_attribute("points")
    assert points is not None
    assert len(points.split()) == 355
    assert row.locator("circle").count() == 1, "the night that FAILs"
    row.locator("summary").click()
    assert row.locator("code").inner_text() == (
        "pytest perf/ --profile=nightly-gpu --models network_0 --world-sizes 1 -k network_0-np1"
    )


def test_a_lasting_change_is_drawn_at_its_night(page: Page, published: Path) -> None:
    """The nights on bad nodes, of which there are some before it, do not move it."""
    made = read_nights(published / NIGHTS).of["a100"]
    (last,) = [
        change
        for change in findings(made).changes
        if change.line.name == "throughput[network_0-np8]" and change.since > "2026-08"
    ]
    share = last.at / (len(made) - 1)
    row = page.locator(".cases tbody tr", has_text="throughput[network_0-np8]")
    drawn = float(row.locator("line.step").last.get_attribute("x1") or "nan")
    assert drawn == pytest.approx(SPARK_EDGE + share * (SPARK_W - 2 * SPARK_EDGE), abs=0.06)


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_releases_stand_below_the_nights_with_their_changes(
    browser: Browser, tmp_path: Path
) -> None:
    for number, version in enumerate(("2.15.1", "2.16.2", "2.17.1")):
        speed = 90.0 if number == 2 else 100.0
        speeds = [speed + 0.1 * launch for launch in (3, 0, 6, 1, 7, 2, 5, 4)]
        result = raw_result(tensorflow=version, speeds={("vgg_16_s", 1): speeds}, number=number)
        written(tmp_path / HISTORY, result)
    graphs = tmp_path / "asv"
    graphs.mkdir()
    (graphs / "index.html").write_text(
        '<!doctype html><link rel="icon" href="data:,"><title>asv</title>'
    )
    write_index(tmp_path / "index.html", tmp_path, tmp_path / "pages", graphs)
    with visit(browser, tmp_path) as page:
        page.goto("/")
        assert "hvdperf nightly run" in page.locator("header").inner_text()
        (row,) = page.locator(".releases tbody tr").all()
        assert "throughput[vgg_16_s-np1]" in row.inner_text()
        assert "-10.0 %" in row.inner_text()
        assert [t.text_content() for t in row.locator(".tick title").all()] == [
            "2.15.1",
            "2.16.2",
            "2.17.1",
        ]
        assert row.locator("line.step").count() == 1
        row.locator("summary").click()
        assert (
            row.locator("code")
            .inner_text()
            .endswith("--at 0.28.1 --from 2.16.2 --to 2.17.1 --model vgg_16_s --np 1")
        )
        page.get_by_text("Throughput by release").click()
        expect(page).to_have_title("asv")
