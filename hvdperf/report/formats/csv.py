"""Tables as CSV (RFC 4180) for programs, one file per figure: every column, in full precision.

A text that a spreadsheet would take for a formula gets a leading apostrophe, with which
spreadsheets themselves mark text. Numbers are unchanged. A record is one line, because every text
is put in one line.
"""

from __future__ import annotations

import csv
from io import StringIO

from hvdperf.report.content import Column, Report, Table, Value
from hvdperf.report.formats.cells import one_line, printable

# The first characters of a formula. Some spreadsheets take the full-width ones for the others.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def tables(report: Report) -> dict[str, str]:
    """Return the text of each table by the figure's name, which is a valid file name.

    Line ends are CRLF: write the text unchanged, in UTF-8.
    """
    return {figure.name: text(figure.table) for figure in printable(report).figures}


def text(table: Table) -> str:
    """Return one table as CSV; a missing figure is an empty field."""
    stream = StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow([_harmless(_heading(column)) for column in table.columns])
    for row in table.rows:
        writer.writerow([_cell(row[column.key]) for column in table.columns])
    return stream.getvalue()


def _heading(column: Column) -> str:
    """Return a heading such as `seconds [s]`: the key, because titles change."""
    return f"{column.key} [{column.unit}]" if column.unit else column.key


def _cell(value: Value) -> Value:
    return _harmless(value) if isinstance(value, str) else value


def _harmless(value: str) -> str:
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
