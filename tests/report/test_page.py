"""The page in a real browser.

That it asks nobody for anything, and that nothing goes wrong in it, is checked for every one of
them (tests/support/browser.py).
"""

from __future__ import annotations

import csv
import io
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Download, Locator, Page, ViewportSize, expect

from hvdperf.inline import themes
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Report, Row, Section, Table
from hvdperf.report.html import page as document
from hvdperf.report.markup import table_csv
from hvdperf.report.session import read_sessions, session_report
from hvdperf.report.text import printable
from hvdperf.verdict import Verdict, counted
from tests.report.cases import recorded_session
from tests.report.sample import HOSTILE, WORDS, a_report, hostile
from tests.support.browser import Window, served, visit, window

USUAL = a_report()
PHONE: ViewportSize = {"width": 360, "height": 740}
DRAWN = "document.querySelectorAll('[data-drawn]').length"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """The reports by name. "session": of one with every recorded case."""
    directory = recorded_session(tmp_path_factory.mktemp("results"))
    session = session_report(read_sessions(directory))
    return {"usual": USUAL, "hostile": hostile(), "session": session}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, reports: dict[str, Report]) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    for name, report in reports.items():
        (directory / f"{name}.html").write_text(document(report), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def shared(browser: Browser, pages: Path) -> Iterator[Window]:
    with window(browser, pages) as opened:
        yield opened


@pytest.fixture
def blank(shared: Window) -> Iterator[Page]:
    with shared.visit() as opened:
        yield opened


@pytest.fixture
def page(blank: Page) -> Page:
    """The usual report."""
    open_page(blank)
    return blank


@pytest.fixture(scope="module")
def drawn(browser: Browser, pages: Path) -> Iterator[Page]:
    """The usual report with all of its plots, for tests that only look at it."""
    with visit(browser, pages) as opened:
        open_page(opened)
        draw_all(opened)
        yield opened


def open_page(page: Page, name: str = "usual", choices: str = "") -> None:
    page.goto(f"/{name}.html{choices}")
    page.locator("html[data-ready=true]").wait_for()


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")


def draw_all(page: Page) -> None:
    unfold(page)
    page.evaluate("page.plots.all()")


def drawn_figures(report: Report) -> list[Figure]:
    return [figure for figure in report.figures if figure.plot is not None]


def as_shown(figure: Figure) -> list[dict[str, object]]:
    """The rows of a figure with its texts as a page has them, and its numbers as they are."""
    keys = [column.key for column in figure.table.columns]
    return [{key: printable(row[key]) for key in keys} for row in figure.table.rows]


def shown_rows(page: Page) -> Locator:
    return page.locator(".board tbody tr:visible")


def column(page: Page, key: str) -> list[str]:
    place = [each.key for each in USUAL.board.table.columns].index(key) + 1
    return shown_rows(page).locator(f"> :nth-child({place})").all_inner_texts()


def saved(page: Page, figure: str, what: str) -> tuple[str, bytes]:
    """The name and the content of what a button of a figure saves."""
    with page.expect_download() as waited:
        page.locator(f"#{figure} button[data-do={what}]").click()
    download: Download = waited.value
    return download.suggested_filename, Path(download.path()).read_bytes()


# Plots and numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["usual", "hostile", "session"])
def test_tables_and_plots_have_captions_row_headers_and_the_numbers_of_the_report(
    blank: Page, name: str, reports: dict[str, Report]
) -> None:
    open_page(blank, name)
    draw_all(blank)
    for figure in reports[name].figures:
        rows = blank.evaluate("name => page.rowsOf(document.getElementById(name))", figure.name)
        assert rows == as_shown(figure)
        table = blank.locator(f"#{figure.name} table")
        assert table.locator("caption").text_content() == printable(figure.title)
        for heads in ("th[scope=row]", "tr:has(> th[scope=row])"):
            assert table.locator(f"tbody {heads}").count() == len(rows)
        if figure.plot is not None and figure.name != "broken":
            plot = blank.locator(f"#{figure.name}[data-drawn=true] .plot")
            data = plot.evaluate("place => place.view.data('table')")
            assert [{key: row[key] for key in rows[0]} for row in data] == rows


def test_no_figure_is_a_dash_and_takes_part_in_no_number(drawn: Page) -> None:
    empty = drawn.locator("#environment tbody tr:nth-child(3) > *")
    assert empty.all_inner_texts() == [""] * 4
    dashes = empty.evaluate_all("cells => cells.map(c => getComputedStyle(c, '::before').content)")
    assert dashes == ['"\u2013"'] * 4


def test_a_figure_says_what_there_is_to_see(drawn: Page) -> None:
    for figure in drawn_figures(USUAL):
        plot = drawn.locator(f"#{figure.name}").get_by_role("img", name=figure.title, exact=True)
        described = plot.get_attribute("aria-describedby")
        assert drawn.locator(f"#{described}").inner_text() == figure.says
    # Its marks would be told one by one.
    assert drawn.locator(".plot > :not([aria-hidden=true])").count() == 0


def test_names_of_places_are_unique_and_links_lead_to_them(drawn: Page) -> None:
    ids = drawn.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
    links = drawn.locator("a[href^='#']").evaluate_all("all => all.map(a => a.hash.slice(1))")
    assert {link for link in links if "=" not in link} <= set(ids)
    measured = (section.name for section in USUAL.sections if section.figures)
    assert {f"Section-{name}" for name in measured} <= set(links)


def test_what_is_missing_or_left_out_is_told(page: Page) -> None:
    bound = USUAL.sections[-1]
    assert page.locator(f"#Section-{bound.name}").count() == 0
    page.locator("#pageMissing summary", has_text=bound.title).click()
    assert bound.missing in page.locator("#pageMissing li").inner_text()
    assert page.locator("#pageLeftOut li").all_inner_texts() == list(USUAL.left_out)
    assert "1 file could not be read" in page.locator("header .warnings").inner_text()


def test_output_is_shown_as_it_was_printed(page: Page) -> None:
    noted = next(note for note in USUAL.notes if note.output)
    note = page.locator(f"header li[data-case='{noted.case}']")
    assert not note.locator("pre").is_visible()
    note.locator("summary").click()
    assert note.locator("pre").text_content() == "\n".join(noted.output) + "\n"


def test_a_mark_tells_its_numbers(drawn: Page) -> None:
    drawn.locator("#shares .plot .mark-rect path").first.hover()
    tip = drawn.locator("#vg-tooltip-element")
    assert tip.locator(".key").all_inner_texts() == ["Model", "part", "seconds"]
    drawn.mouse.move(0, 0)
    expect(tip).not_to_be_visible()


def test_nothing_of_a_session_is_cut_that_is_read_first(blank: Page) -> None:
    open_page(blank, "session")
    draw_all(blank)
    for width in (1440, 1280):
        blank.set_viewport_size({"width": width, "height": 900})
        cut = blank.evaluate("""() => [
            document.documentElement,
            ...document.querySelectorAll('nav ul, .board .box, .wide .box'),
        ]
            .filter(each => each.scrollWidth > each.clientWidth)
            .map(each => `${each.tagName} ${each.className} ${each.scrollWidth}`)
        """)
        assert cut == [], width
    assert blank.locator(".wide .box, .board .box").count() == 2
    assert "samples/s" in blank.locator("main table").first.inner_text()


def test_what_explains_is_drawn_when_a_link_has_opened_it(page: Page, pages: Path) -> None:
    sections = tuple(replace(each, explains=each.name == "parity") for each in USUAL.sections)
    report = replace(USUAL, sections=sections)
    (pages / "folded.html").write_text(document(report), encoding="utf-8")
    open_page(page, "folded")
    page.evaluate("document.getElementById('Section-parity').scrollIntoView()")
    page.evaluate("page.plots.all()")
    assert page.locator("#rounds[data-drawn]").count() == 0
    page.locator("nav a[href='#Section-parity']").click()
    page.locator("#rounds[data-drawn=true]").wait_for()
    assert page.locator("#rounds .plot svg").is_visible()
    # A link from elsewhere opens it, too.
    open_page(page)
    open_page(page, "folded", "#rounds")
    assert page.locator("#rounds .says").is_visible()


# Choosing and sorting ---------------------------------------------------------------------------


def test_words_leave_their_cases_and_are_part_of_the_address(page: Page) -> None:
    cases = [str(row["case"]) for row in USUAL.board.table.rows]
    page.locator("input[name=text]").fill("VGG parity")
    left = [case for case in cases if "vgg" in case and "parity" in case]
    assert column(page, "case") == left
    assert page.locator("#pageCount").inner_text() == f"{len(left)} of {len(cases)} cases"
    page.reload()
    page.locator("html[data-ready=true]").wait_for()
    assert column(page, "case") == left
    page.locator("input[name=text]").fill("no such words")
    assert shown_rows(page).count() == 0
    assert page.locator(".board .nothing").is_visible()
    page.locator("input[name=text]").fill("")
    expect(shown_rows(page)).to_have_count(len(cases))
    assert "#" not in page.url


def test_words_and_a_place_are_taken_from_the_address(blank: Page) -> None:
    open_page(blank, choices="#text=parity+VGG_16_S/2&at=Section-parity")
    assert column(blank, "case") == ["parity/vgg_16_s/2"]
    assert blank.locator("#Section-parity h2").is_visible()
    assert blank.evaluate("scrollY") > 0


def test_a_tile_chooses_its_verdict_and_lets_it_go(page: Page) -> None:
    tile = page.locator(".tiles button[data-verdict=PASS]")
    tile.click()
    assert set(column(page, "verdict")) == {"PASS"}
    assert tile.get_attribute("aria-pressed") == "true"
    tile.click()
    assert shown_rows(page).count() == len(USUAL.board.table.rows)


def test_links_to_sections_keep_the_words(page: Page) -> None:
    page.locator("input[name=text]").fill("parity")
    page.locator("nav a[href='#Section-tables']").click()
    assert page.url.endswith("#text=parity&at=Section-tables")
    assert page.locator("input[name=text]").input_value() == "parity"


def test_a_note_leads_to_its_case(page: Page) -> None:
    # The page's head has those that somebody has to look at.
    seen = (note for note in USUAL.notes if note.verdict is not Verdict.INFO)
    noted = next(note for note in seen if not note.output)
    page.locator(f"header li[data-case='{noted.case}'] a").click()
    expect(shown_rows(page)).to_have_count(1)
    assert column(page, "case") == [noted.case]
    assert page.evaluate("scrollY") > 0


def test_the_board_is_sorted_by_its_columns(page: Page) -> None:
    before = column(page, "case")
    head = page.get_by_role("columnheader", name="Figure")
    known = sorted(f"{row['figure']:.3f}" for row in USUAL.board.table.rows if row["figure"])
    unknown = [""] * (len(before) - len(known))
    for direction, order in (("ascending", known), ("descending", known[::-1])):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        assert column(page, "figure") == order + unknown
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none"
    assert column(page, "case") == before
    # Verdicts have an order of their own.
    page.get_by_role("columnheader", name="Verdict").get_by_role("button").click()
    found = column(page, "verdict")
    assert found == sorted(found, key=WORDS.index)
    assert set(found) == set(WORDS)


# Taking along -----------------------------------------------------------------------------------


def records(content: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content, newline=""), strict=True))


@pytest.mark.parametrize("name", ["usual", "hostile"])
def test_a_table_is_saved_as_the_report_writes_it(
    blank: Page, name: str, reports: dict[str, Report]
) -> None:
    """But for its headings, which are those of the page."""
    open_page(blank, name)
    for figure in reports[name].figures:
        file, content = saved(blank, figure.name, "csv")
        assert file == f"{figure.name}.csv"
        assert content.endswith(b"\r\n")
        assert records(content.decode())[1:] == records(table_csv(printable(figure.table)))[1:]


def test_no_text_that_is_taken_along_is_a_formula(blank: Page) -> None:
    blank.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(blank, "hostile")
    _, content = saved(blank, "formulas", "csv")
    blank.locator("#formulas button[data-do=copy]").click()
    blank.locator("#pageSaid", has_text="Copied").wait_for()
    assert blank.evaluate("navigator.clipboard.readText()") == content.decode()
    heads, *rows = records(content.decode())
    assert heads == ["'=1+1 (s)", "'\uff20x", "'-1 (s)"]
    # What is a number stays one, and what begins as no formula stays as it is.
    assert rows[0] == ["'=1+1", "1=1", "-5.25"]


def test_only_what_is_chosen_is_saved(page: Page) -> None:
    page.locator("input[name=text]").fill("FAIL")
    _, content = saved(page, "board", "csv")
    assert [record[0] for record in records(content.decode())] == ["Verdict", "FAIL"]


def test_commands_are_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".next button").click()
    page.locator("#pageSaid", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "\n".join(USUAL.next_steps)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_plot_is_saved_with_its_title_and_background(blank: Page, theme: str) -> None:
    blank.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    open_page(blank)
    figure = drawn_figures(USUAL)[-1]
    file, content = saved(blank, figure.name, "svg")
    assert file == f"{figure.name}.svg"
    root = ET.fromstring(content)
    assert figure.title in "".join(root.itertext())
    grounds = [element.get("fill") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert themes()[theme]["panel"] in grounds
    assert b"var(" not in content
    file, pixels = saved(blank, figure.name, "png")
    assert file == f"{figure.name}.png"
    size = [float(root.get(side, "0")) for side in ("width", "height")]
    assert pixels.startswith(b"\x89PNG\r\n\x1a\n")
    in_pixels = struct.unpack(">II", pixels[16:24])
    assert in_pixels == pytest.approx([2 * length for length in size], abs=2)
    assert size[0] > 700


# Who looks, and how -----------------------------------------------------------------------------


def test_the_page_is_as_dark_as_the_machine(page: Page) -> None:
    draw_all(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) != light
    line = f"#{drawn_figures(USUAL)[1].name}"
    page.locator(line).scroll_into_view_if_needed()
    page.locator(f"{line}[data-drawn-in=dark]").wait_for()
    colour = themes()["dark"]["categories"][0]
    page.locator(f"{line} .plot svg path[stroke='{colour}']").first.wait_for(state="attached")


def test_everything_is_reached_by_keyboard_and_seen_to_be(page: Page) -> None:
    reached = []
    for _ in range(120):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(({tagName, id, name, dataset, textContent}) => ({tagName, what: "
            "dataset.verdict ?? dataset.do ?? (id || name || textContent), outline: "
            "getComputedStyle(document.activeElement).outlineStyle}))(document.activeElement)"
        )
        if focused["tagName"] == "BODY":
            break
        assert focused["outline"] == "solid", focused
        reached.append(focused["what"])
    assert reached[0] == "Skip to the cases"
    wanted = {"FAIL", "pagePrint", "text", "Figure", "svg", "png", "csv"}
    assert wanted <= set(reached)
    assert reached.count("copy") == len(USUAL.figures) + 1


@pytest.mark.parametrize("name", ["hostile", "session"])
def test_a_phone_scrolls_no_page_sideways(blank: Page, name: str) -> None:
    blank.set_viewport_size(PHONE)
    open_page(blank, name)
    draw_all(blank)
    assert blank.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_paper_has_the_facts_and_folds_them_again(page: Page) -> None:
    facts = page.locator("header details.more")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert facts.locator("dl").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not facts.locator("dl").is_visible()


def test_no_table_is_cut_on_paper(page: Page) -> None:
    page.emulate_media(media="print")
    heights = page.locator(".box").evaluate_all(
        "all => all.map(b => getComputedStyle(b).maxHeight)"
    )
    page.emulate_media(media="null")
    assert set(heights) == {"none"}


def test_paper_has_every_open_plot_in_light_colours(blank: Page) -> None:
    blank.emulate_media(color_scheme="dark")
    open_page(blank)
    figures = len(drawn_figures(USUAL))
    assert blank.evaluate(DRAWN) < figures
    assert blank.pdf().startswith(b"%PDF-")
    assert blank.locator("[data-drawn=true]").count() == figures
    # Whatever is in sight is dark again afterwards; what is far away is drawn when it comes.
    assert blank.locator("[data-drawn-in=light]").count() > 0


def test_without_scripts_there_are_all_tables(browser: Browser, pages: Path) -> None:
    with (
        served(pages) as address,
        browser.new_context(base_url=address, java_script_enabled=False) as context,
    ):
        page = context.new_page()
        page.goto("/usual.html")
        assert page.locator("table").count() == len(USUAL.figures)
        assert page.locator("noscript").inner_text() != ""
        assert page.locator("h1").inner_text() == counted(USUAL.counts)


# Texts that want to be more ---------------------------------------------------------------------


def test_a_hostile_page_shows_its_texts_and_runs_none(blank: Page) -> None:
    open_page(blank, "hostile")
    draw_all(blank)
    shown = [printable(text) for text in HOSTILE]
    cells = blank.locator("#board tbody th")
    assert cells.evaluate_all("cells => cells.map(cell => cell.textContent)") == shown
    for places in ("header .warnings li bdi", "#pageLeftOut li"):
        found = blank.locator(places).evaluate_all("all => all.map(each => each.textContent)")
        assert found == shown
    titles = blank.locator("h3 bdi").evaluate_all("all => all.map(each => each.textContent)")
    assert titles[:2] == shown[1:3]
    assert blank.title().endswith(shown[0] + shown[4])
    for text in shown:
        blank.locator("input[name=text]").fill(text.split("\n")[0])
    blank.locator("input[name=text]").fill("")
    blank.locator("#titled .plot .mark-rect path").last.hover()
    assert blank.locator("#vg-tooltip-element").text_content() == shown[-1]
    assert blank.evaluate("window.ran") is None
    assert blank.locator("script").count() == blank.evaluate("document.scripts.length")
    assert blank.locator("img, iframe, object, embed").count() == 0


def test_a_plot_that_cannot_be_drawn_says_so_and_shows_its_table(blank: Page) -> None:
    open_page(blank, "hostile")
    draw_all(blank)
    broken = blank.locator("#broken")
    assert broken.get_attribute("data-drawn") == "failed"
    said = broken.locator(".failed")
    assert said.inner_text() == "this plot could not be drawn; its table is below"
    assert broken.locator("table").is_visible()
    assert blank.locator("#titled[data-drawn=true]").count() == 1
    broken.locator("button[data-do=svg]").click()
    blank.locator("#pageSaid", has_text="could not be drawn").wait_for()


def test_an_injected_script_would_not_run(browser: Browser, pages: Path) -> None:
    # Not watched: that the browser complains is what is asked for.
    with served(pages) as address, browser.new_context(base_url=address) as context:
        page = context.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.goto("/usual.html")
        page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = 'window.ran = 1';
                const image = document.createElement('img');
                image.setAttribute('onerror', 'window.ran = 1');
                image.src = 'data:,';
                document.body.append(script, image);
            }"""
        )
        page.wait_for_timeout(200)
        assert page.evaluate("window.ran") is None
        assert sum("Content Security Policy" in text for text in refused) >= 2


# A large page -----------------------------------------------------------------------------------


def test_a_large_page_answers_before_it_draws(blank: Page, pages: Path) -> None:
    every = [(figure, n) for n in range(40) for figure in USUAL.sections[0].figures]
    figures = tuple(replace(figure, name=f"{figure.name}-{n}") for figure, n in every)
    report = replace(USUAL, sections=(Section("many", "Many", "", figures),))
    (pages / "large.html").write_text(document(report), encoding="utf-8")
    open_page(blank, "large")
    assert blank.evaluate(DRAWN) < len(figures) / 4
    blank.locator(f"#{figures[-1].name}").scroll_into_view_if_needed()
    blank.locator(f"#{figures[-1].name}[data-drawn=true]").wait_for()
    assert blank.evaluate(DRAWN) < len(figures) / 2
    blank.locator("input[name=text]").fill("vgg_16_s")
    rows = [row for row in report.board.table.rows if row["model"] == "vgg_16_s"]
    assert shown_rows(blank).count() == len(rows)


def test_a_legend_of_columns_side_by_side_fits_a_phone(blank: Page, pages: Path) -> None:
    names = {f"way_{n}": f"by the wall time of a part {n}" for n in range(4)}
    rows: tuple[Row, ...] = tuple({"n": n, **dict.fromkeys(names, float(n))} for n in (1, 2))
    columns = tuple(Column(key, names.get(key, key)) for key in rows[0])
    table = Table(columns, rows)
    plot = plots.curve(table, plots.field("n"), plots.field("value"), sides=tuple(names))
    figure = Figure("ways", "Ways", "Four.", table, plot)
    report = replace(USUAL, sections=(Section("one", "One", "", (figure,)),))
    (pages / "legend.html").write_text(document(report), encoding="utf-8")
    blank.set_viewport_size(PHONE)
    open_page(blank, "legend")
    draw_all(blank)
    texts = blank.locator("#ways .role-legend-label text")
    expect(texts).to_have_count(len(names))
    right = blank.locator("#ways .plot svg").evaluate("svg => svg.getBoundingClientRect().right")
    ends = texts.evaluate_all("all => all.map(text => text.getBoundingClientRect().right)")
    assert max(ends) <= right
