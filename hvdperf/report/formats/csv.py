"""Tables as CSV (RFC 4180), a file a figure: every column, in full precision, for programs.

A text that a spreadsheet would take for a formula begins with an apostrophe here, as spreadsheets
themselves mark what is text; numbers stay what they are. A record is a line, for texts are in one.
"""

from __future__ import annotations

import csv
from io import StringIO

from hvdperf.report.content import Column, Report, Table, Value
from hvdperf.report.formats.cells import one_line

# How a formula begins in a spreadsheet; the wide ones are taken for the others by some.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def tables(report: Report) -> dict[str, str]:
    """By the figure's name, which is good for a file's. Line ends are CRLF: to be written as they
    are, in UTF-8."""
    return {figure.name: text(figure.table) for figure in report.figures}


def text(table: Table) -> str:
    """One table; a figure that is not there is empty."""
    stream = StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow([_harmless(_heading(column)) for column in table.columns])
    for row in table.rows:
        writer.writerow([_cell(row[column.key]) for column in table.columns])
    return stream.getvalue()


def _heading(column: Column) -> str:
    """Such as `seconds [s]`: the key, since titles change."""
    return f"{column.key} [{column.unit}]" if column.unit else column.key


def _cell(value: Value) -> Value:
    return _harmless(value) if isinstance(value, str) else value


def _harmless(value: str) -> str:
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
