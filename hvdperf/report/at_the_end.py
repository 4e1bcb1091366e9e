"""A pytest plugin that makes the tables at the end of a session, as `--format terminal` does."""

from __future__ import annotations

from hvdperf.records.archive import Archive
from hvdperf.report.formats.terminal import lines_of
from hvdperf.report.session import brief_report


def pytest_hvdperf_tables(archive: Archive, earlier: Archive | None) -> list[str]:
    return lines_of(brief_report(archive, earlier))
