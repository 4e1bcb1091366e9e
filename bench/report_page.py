"""`python -m bench.report_page`: the cost of a report's page, of the usual and of the largest size.

The cost is the seconds to write the page, its size, and the seconds until Chromium has read the
page and it answers. The browser starts once and opens each page the given number of times, from a
file, as people do. With a SESSION, that session's cases are also copied until there are about 500,
and the cost is measured from documents on disk to the page, by `hvdperf report`.
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

from hvdperf.records.documents import SESSION_FILE
from hvdperf.report.content import Report
from hvdperf.report.formats.html import page
from tests.report.sample import a_report, large
from tests.support.browser import DESKTOP, chromium

REPORTS: Mapping[str, Callable[[], Report]] = {"24 cases": a_report, "500 cases": large}
# Seconds since the browser was asked for the page.
_READY = "() => document.documentElement.dataset.ready === 'true' && performance.now() / 1000"
_DRAWN = "() => !!document.querySelector('[data-drawn=true]') && performance.now() / 1000"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report_page", description=__doc__)
    parser.add_argument("session", type=Path, nargs="?", metavar="SESSION", help="results/runs/...")
    parser.add_argument("--times", type=int, default=5, help="each page is opened (5)")
    options = parser.parse_args()
    page(a_report())  # reads beforehand what is read once
    with TemporaryDirectory() as scratch, chromium() as browser:
        path = Path(scratch) / "page.html"
        for name, make in REPORTS.items():
            print(line(name, make(), path, browser, options.times))
        if options.session is not None:
            directory = Path(scratch) / "runs" / options.session.resolve().name
            many = copies(options.session, directory, 500)
            print(line_from_disk(directory, many, path, browser, options.times))


def copies(session: Path, into: Path, cases: int) -> int:
    """Write a session of about `cases` cases, of networks with other names. Return their number."""
    documents = [path for path in session.glob("*.json") if path.name != SESSION_FILE]
    if not documents:
        sys.exit(f"bench.report_page: {session}: there is no case in it")
    into.mkdir(parents=True)
    shutil.copy(session / SESSION_FILE, into)
    written = 0
    for copy in range(-(-cases // len(documents))):
        for path in documents:
            text = path.read_text()
            model = json.loads(text)["outcome"]["comparison"]["workload"]["model"]
            other = f"{model}{copy}"
            (into / path.name.replace(model, other)).write_text(text.replace(model, other))
            written += 1
    return written


def line_from_disk(directory: Path, cases: int, path: Path, browser: Browser, times: int) -> str:
    """Return a line with the median costs from the documents on disk on."""
    command = [sys.executable, "-m", "hvdperf", "report", str(directory), "--out", str(path)]
    seconds = _seconds(lambda: subprocess.run(command, check=True, capture_output=True), times)
    megabytes = sum(each.stat().st_size for each in directory.iterdir()) / 1e6
    return (
        f"{cases} cases of {megabytes:.0f} MB on disk: {seconds:.2f} s to read and write, "
        f"{_size_and_speed(path, browser, times)}"
    )


def line(name: str, report: Report, path: Path, browser: Browser, times: int) -> str:
    """Return a line with the median costs of a page."""
    seconds = _seconds(lambda: path.write_text(page(report), encoding="utf-8"), times)
    return (
        f"{name}, {len(report.figures)} figures: {seconds:.2f} s to write, "
        f"{_size_and_speed(path, browser, times)}"
    )


def _seconds(work: Callable[[], object], times: int) -> float:
    """Return the median of the seconds that the work takes."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken)


def _size_and_speed(path: Path, browser: Browser, times: int) -> str:
    opened = [_opened(browser, path) for _ in range(times)]
    answers, draws = (median(column) for column in zip(*opened, strict=True))
    return (
        f"{path.stat().st_size / 1e6:.2f} MB, answers after {answers:.2f} s, has drawn after "
        f"{draws:.2f} s"
    )


def _opened(browser: Browser, path: Path) -> tuple[float, float]:
    """Return the seconds until the page answers, and until its first plot is there."""
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
