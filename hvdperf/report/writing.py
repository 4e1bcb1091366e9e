"""Writes a report to files in the format that was asked for."""

from __future__ import annotations

from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.paths import shown
from hvdperf.report.content import Report
from hvdperf.report.formats.csv import tables
from hvdperf.report.formats.html import page
from hvdperf.report.formats.latex import latex
from hvdperf.report.formats.markdown import markdown

FORMATS = ("html", "markdown", "csv", "latex")


def write(report: Report, form: str, out: Path | None, place: Path) -> str:
    """Write the report to `out` and return the text to print: the path, or else the report itself.

    Without `out`, html and csv are written beside `place` (a path without suffix), and markdown and
    latex are only returned. Raises UserError if a file cannot be written.
    """
    if form == "csv":
        directory = out or place.with_name(f"{place.name}-csv")
        for name, text in tables(report).items():
            _write(directory / f"{name}.csv", text)
        return shown(directory)
    if form == "html":
        return shown(_write(out or place.with_name(f"{place.name}.html"), page(report)))
    text = markdown(report) if form == "markdown" else latex(report)
    return shown(_write(out, text)) if out is not None else text


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, text)
    except OSError as error:
        raise UserError(
            f"{shown(path)} cannot be written: {error.strerror}; give another path by --out"
        ) from None
