"""A real browser that opens pages of a directory, and fails a test whose page misbehaves."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    ViewportSize,
    sync_playwright,
)

DESKTOP: ViewportSize = {"width": 1440, "height": 900}
# A page without content, at every address.
EMPTY = "empty-page"
# The environment variable with the directory where pictures of tested pages are saved.
SCREENSHOTS = "HVDPERF_SCREENSHOTS"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield Debian's Chromium, without a window and without a way off this machine. The test fails
    if it is not installed."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.fail("chromium is missing: run ci/browser.sh as root, or apt-get install chromium")
    alone = ["--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_playwright() as playwright:
        # Without Chromium's sandbox, which does not work for root; only our own pages are opened.
        browser = playwright.chromium.launch(
            executable_path=executable, args=alone, chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True)
class Window:
    """A window of a browser that one visitor after the other uses. It keeps what it has compiled of
    the scripts of a page, which costs more than all else that a page does. problems: what went
    wrong since the last visit."""

    page: Page
    problems: list[str]

    @contextmanager
    def visit(self) -> Iterator[Page]:
        """Yield an empty page, as somebody has it who has never been here.

        The test fails at the end if the page has asked for anything that is missing or not on this
        machine, or if anything went wrong in the page.
        """
        self.page.set_viewport_size(DESKTOP)
        yield self.page
        self._forget()
        problems = "\n".join(self.problems)
        self.problems.clear()
        if problems:
            pytest.fail(problems)

    def _forget(self) -> None:
        """Leave nothing of a visitor to the next one."""
        for other in self.page.context.pages:
            if other is not self.page:
                other.close()
        # Of the same origin: at another place the browser would take another process.
        self.page.goto(f"/{EMPTY}")
        self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.page.emulate_media(color_scheme="light")
        self.page.context.clear_permissions()
        self.page.mouse.move(0, 0)


@contextmanager
def window(browser: Browser, directory: Path) -> Iterator[Window]:
    """Yield a window for whose pages the directory is "/"."""
    problems: list[str] = []
    with served(directory) as address, browser.new_context(base_url=address) as context:
        _watch(context, address, problems)
        yield Window(context.new_page(), problems)


@contextmanager
def visit(browser: Browser, directory: Path) -> Iterator[Page]:
    """Yield an empty page in a window of its own (`Window.visit`)."""
    with window(browser, directory) as opened, opened.visit() as page:
        yield page


def screenshot(page: Page, name: str) -> None:
    """Save a picture of the page if SCREENSHOTS is set in the environment."""
    if SCREENSHOTS in os.environ:
        page.screenshot(path=Path(os.environ[SCREENSHOTS]) / f"{name}.png")


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve the directory on loopback and yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=directory)) as server:
        # 0.01: seconds between two checks of whether to end.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing: the page reports errors."""


def _watch(context: BrowserContext, address: str, problems: list[str]) -> None:
    def elsewhere(url: str) -> bool:
        return not url.startswith((address, "data:", "blob:"))

    def asks(request: Request) -> None:
        if elsewhere(request.url):
            problems.append(f"asks elsewhere: {request.url}")

    def hears(response: Response) -> None:
        if response.status >= 400:
            problems.append(f"{response.status}: {response.url}")

    def says(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"console: {message.text}")

    context.route(elsewhere, lambda route: route.abort())
    empty = {"content_type": "text/html", "body": '<link rel="icon" href="data:,">'}
    context.route(f"{address}{EMPTY}", lambda route: route.fulfill(**empty))
    context.on("request", asks)
    context.on("response", hears)
    context.on("console", says)
    context.on("weberror", lambda error: problems.append(f"error: {error.error}"))
