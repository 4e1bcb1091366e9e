"""A real browser that opens pages of a directory, and fails a test whose page misbehaves."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def visit(browser: Browser, directory: Path) -> Iterator[Page]:
    """Yield an empty page for which the directory is "/".

    The test fails at the end if the page has asked for anything that is missing or not on this
    machine, or if anything went wrong in the page.
    """
    problems: list[str] = []
    with served(directory) as address, browser.new_context(base_url=address) as context:
        _watch(context, address, problems)
        page = context.new_page()
        page.set_viewport_size(DESKTOP)
        yield page
    if problems:
        pytest.fail("\n".join(problems))


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
    context.on("request", asks)
    context.on("response", hears)
    context.on("console", says)
    context.on("weberror", lambda error: problems.append(f"error: {error.error}"))
