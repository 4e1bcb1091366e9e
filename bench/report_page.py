"""`python -m bench.report_page`: what a report's page costs, usual or as large as they become.

That is: seconds to write it, its size, and seconds until Chromium has read it and it answers. The
browser starts once, and opens each page as often as said, from a file, as people do. With a session
also that session's cases over and over, as if it had 500: from documents on disk to the page, by
`hvdperf report`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser

from hvdperf.report.content import Report
from hvdperf.report.formats.html import page
from hvdperf.results.documents import SESSION_FILE
from tests.report.sample import a_report, large
from tests.support.browser import DESKTOP, chromium

REPORTS: Mapping[str, Callable[[], Report]] = {"24 cases": a_report, "500 cases": large}
# Since the browser was asked for the page.
_READY = "() => document.documentElement.dataset.ready === 'true' && performance.now() / 1000"
_DRAWN = "() => !!document.querySelector('[data-drawn=true]') && performance.now() / 1000"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report_page", description=__doc__)
    parser.add_argument("session", type=Path, nargs="?", metavar="SESSION", help="results/runs/...")
    parser.add_argument("--times", type=int, default=5, help="each page is opened (5)")
    options = parser.parse_args()
    page(a_report())  # what is read once is read
    with TemporaryDirectory() as scratch, chromium() as browser:
        path = Path(scratch) / "page.html"
        for name, make in REPORTS.items():
            print(line(name, make(), path, browser, options.times))
        if options.session is not None:
            directory = Path(scratch) / "runs" / options.session.resolve().name
            many = copies(options.session, directory, 500)
            print(line_from_disk(directory, many, path, browser, options.times))


def copies(session: Path, into: Path, cases: int) -> int:
    """A session of about so many cases, of networks with other names; how many there are."""
    documents = [path for path in session.glob("*.json") if path.name != SESSION_FILE]
    if not documents:
        sys.exit(f"bench.report_page: {session}: there is no case in it")
    into.mkdir(parents=True)
    shutil.copy(session / SESSION_FILE, into)
    written = 0
    for copy in range(-(-cases // len(documents))):
        for path in documents:
            text = path.read_text()
            model = json.loads(text)["plan"]["workload"]["model"]
            other = f"{model}{copy}"
            (into / path.name.replace(model, other)).write_text(text.replace(model, other))
            written += 1
    return written


def line_from_disk(directory: Path, cases: int, path: Path, browser: Browser, times: int) -> str:
    """Medians of what it costs from the documents on."""
    command = [sys.executable, "-m", "hvdperf", "report", str(directory), "--out", str(path)]
    written = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        written.append(time.perf_counter() - start)
    megabytes = sum(each.stat().st_size for each in directory.iterdir()) / 1e6
    return (
        f"{cases} cases of {megabytes:.0f} MB on disk: {median(written):.2f} s to read and write, "
        f"{_size_and_speed(path, browser, times)}"
    )


def line(name: str, report: Report, path: Path, browser: Browser, times: int) -> str:
    """Medians of what a page costs."""
    written = []
    for _ in range(times):
        start = time.perf_counter()
        text = page(report)
        written.append(time.perf_counter() - start)
    path.write_text(text, encoding="utf-8")
    return (
        f"{name}, {len(report.figures)} figures: {median(written):.2f} s to write, "
        f"{_size_and_speed(path, browser, times)}"
    )


def _size_and_speed(path: Path, browser: Browser, times: int) -> str:
    opened = [_opened(browser, path) for _ in range(times)]
    answers, draws = (median(column) for column in zip(*opened, strict=True))
    return (
        f"{path.stat().st_size / 1e6:.2f} MB, answers after {answers:.2f} s, has drawn after "
        f"{draws:.2f} s"
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
