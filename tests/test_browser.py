"""tests/support/browser.py: a page that goes astray fails its test."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.browser import DESKTOP, Window, chromium, visit, window

PAGE = '<!doctype html><link rel="icon" href="data:,"><title>A page</title>'


def open_page(browser: Browser, directory: Path) -> None:
    with visit(browser, directory) as page:
        page.goto("/")


def test_a_page_that_is_whole_passes(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE)
    open_page(browser, tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('<script src="http://192.0.2.1/a.js"></script>', "asks elsewhere: http://192.0.2.1/a.js"),
        ('<img src="//elsewhere.example/a.png">', "asks elsewhere: http://elsewhere.example/a.png"),
        ('<link rel="stylesheet" href="missing.css">', "404: http://127.0.0.1:"),
        ('<script>console.error("so and so")</script>', "console: so and so"),
        ('<script>throw new Error("so and so")</script>', "error: so and so"),
    ],
)
def test_a_page_that_goes_astray_fails(
    browser: Browser, tmp_path: Path, content: str, problem: str
) -> None:
    (tmp_path / "index.html").write_text(PAGE + content)
    with pytest.raises(pytest.fail.Exception) as raised:
        open_page(browser, tmp_path)
    assert problem in str(raised.value)


def test_a_window_that_a_page_opens_is_watched_too(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE + '<script>open("http://192.0.2.1/")</script>')

    def open_both() -> None:
        with (
            visit(browser, tmp_path) as page,
            page.context.expect_event("request", lambda request: "192.0.2.1" in request.url),
        ):
            page.goto("/")

    with pytest.raises(pytest.fail.Exception, match=r"asks elsewhere: http://192\.0\.2\.1/"):
        open_both()


def test_a_visitor_finds_nothing_of_the_one_before(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE)
    dark = "matchMedia('(prefers-color-scheme: dark)').matches"
    with window(browser, tmp_path) as shared:
        with shared.visit() as page:
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size({"width": 360, "height": 740})
            page.goto("/#place")
            page.evaluate("localStorage.theme = 'dark'")
            with page.context.expect_page():
                page.evaluate("open('/')")
        with shared.visit() as page:
            page.goto("/")
            assert page.url.endswith("/")
            assert page.viewport_size == DESKTOP
            assert page.evaluate(f"[localStorage.length, {dark}]") == [0, False]
            assert page.context.pages == [page]


def test_a_visitor_is_not_told_what_the_one_before_did_wrong(
    browser: Browser, tmp_path: Path
) -> None:
    def visit_and_say(shared: Window, text: str) -> None:
        with shared.visit() as page:
            page.goto("/")
            page.evaluate(text)

    (tmp_path / "index.html").write_text(PAGE)
    with window(browser, tmp_path) as shared:
        with pytest.raises(pytest.fail.Exception, match="so and so"):
            visit_and_say(shared, "console.error('so and so')")
        visit_and_say(shared, "console.log('so and so')")


def test_a_machine_without_a_browser_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"), chromium():
        pass
