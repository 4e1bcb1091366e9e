"""Writes a report to files in the format that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.paths import shown
from hvdperf.report.cases import plural
from hvdperf.report.content import Report
from hvdperf.report.formats import figures
from hvdperf.report.formats.html import page
from hvdperf.report.formats.markdown import line, markdown
from hvdperf.report.formats.tables import latex, tables, tex
from hvdperf.report.formats.terminal import terminal
from hvdperf.report.formats.text import printable

FORMATS = ("html", "markdown", "csv", "latex", "terminal")


def write(report: Report, form: str, out: Path | None, place: Path) -> str:
    """Write the report to `out` and return the text to print: the path, or else the report itself.

    Without `out`, html and csv are written beside `place` (a path without suffix), and the others
    are only returned. Raises UserError if a file cannot be written.
    """
    if form == "csv":
        directory = out or place.with_name(f"{place.name}-csv")
        for name, text in tables(report).items():
            _write(directory / f"{name}.csv", text)
        return shown(directory)
    if form == "html":
        return shown(_write(out or place.with_name(f"{place.name}.html"), page(report)))
    text = _TEXTS[form](report)
    return shown(_write(out, text)) if out is not None else text


_TEXTS: Mapping[str, Callable[[Report], str]] = {
    "markdown": markdown,
    "latex": latex,
    "terminal": terminal,
}


def write_figures(
    report: Report, methods: Sequence[str], form: str, points: float, directory: Path
) -> str:
    """Write each plot of the report to NAME.svg or NAME.pdf in the directory, and the paragraph to
    methods.md and methods.tex. Return the text to print.

    methods: sentences. form: svg or pdf. points: width of the figures. Raises UserError if a file
    cannot be written.
    """
    drawn = [figure for figure in printable(report).figures if figure.plot is not None]
    sentences = printable(tuple(methods))
    paragraph = " ".join(map(line, sentences))
    _write(directory / "methods.md", f"# Methods\n\n{paragraph}\n", "--figures")
    _write(directory / "methods.tex", f"{' '.join(map(tex, sentences))}\n", "--figures")
    for figure in drawn:
        content = figures.drawing(figure, form, points)
        _write(directory / f"{figure.name}.{form}", content, "--figures")
    return f"{shown(directory)}: {plural(len(drawn), 'figure')}, methods.md and methods.tex"


def _write(path: Path, content: str | bytes, option: str = "--out") -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, content)
    except OSError as error:
        raise UserError(
            f"{shown(path)} cannot be written: {error.strerror}; give another path by {option}"
        ) from None
