"""`python -m bench.report_page`: what a report's page costs, usual or as large as they become.

That is: seconds to write it, its size, and seconds until Chromium has read it and it answers. The
browser starts once, and opens each page as often as said, from a file, as people do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser

from report.content import Report
from report.formats.html import page
from tests.report.sample import a_report, large
from tests.support.browser import DESKTOP, chromium

REPORTS: Mapping[str, Callable[[], Report]] = {"24 cases": a_report, "500 cases": large}
# Since the browser was asked for the page.
_READY = "() => document.documentElement.dataset.ready === 'true' && performance.now() / 1000"
_DRAWN = "() => !!document.querySelector('[data-drawn=true]') && performance.now() / 1000"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report_page", description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="each page is opened (5)")
    options = parser.parse_args()
    page(a_report())  # what is read once is read
    with TemporaryDirectory() as directory, chromium() as browser:
        for name, make in REPORTS.items():
            print(line(name, make(), Path(directory) / "page.html", browser, options.times))


def line(name: str, report: Report, path: Path, browser: Browser, times: int) -> str:
    """Medians of what a page costs."""
    written = []
    for _ in range(times):
        start = time.perf_counter()
        text = page(report)
        written.append(time.perf_counter() - start)
    path.write_text(text, encoding="utf-8")
    opened = [_opened(browser, path) for _ in range(times)]
    answers, draws = (median(column) for column in zip(*opened, strict=True))
    return (
        f"{name}, {len(report.figures)} figures: {median(written):.2f} s to write, "
        f"{path.stat().st_size / 1e6:.2f} MB, answers after {answers:.2f} s, "
        f"has drawn after {draws:.2f} s"
    )


def _opened(browser: Browser, path: Path) -> tuple[float, float]:
    """Seconds until the page answers, and until its first plot is there."""
    opened = browser.new_page(viewport=DESKTOP)
    try:
        opened.goto(path.as_uri(), wait_until="commit")
        ready = opened.wait_for_function(_READY).json_value()
        opened.evaluate("scrollTo(0, document.querySelector('.plot').offsetTop)")
        return ready, opened.wait_for_function(_DRAWN).json_value()
    finally:
        opened.close()


if __name__ == "__main__":
    main()
