"""Table cells as text for people, in Markdown and LaTeX: digits, units, intervals after estimates.

The text has no markup; each format escapes it in its own way. hvdperf/report/formats/csv.py gives
numbers in full precision instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hvdperf.report.content import Column, Row, Table, Value

# Shown where there is no figure.
NONE = "\N{EN DASH}"
# From here on, a number with a given number of digits is shown as 1.235e+16.
_LARGE = 1e15
# Parts of the keys of a lower and of an upper bound.
_BOUNDS = (("lower", "upper"), ("_low", "_high"))


@dataclass(frozen=True)
class Shown:
    """A table as text, one line per cell. numeric: for each column, whether it holds numbers."""

    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def shown(table: Table) -> Shown:
    """Return the table as text, without hidden columns.

    Bounds join their estimate, such as `0.873 [0.861, 0.884]`: a column whose key contains "lower"
    and the next one, with "upper" instead, join the column before them (as _BOUNDS pairs them).
    """
    groups = list(_with_bounds([column for column in table.columns if not column.hidden]))
    return Shown(
        tuple(heading(columns[0]) for columns in groups),
        tuple(is_numeric(table, columns[0]) for columns in groups),
        tuple(tuple(_joined(row, columns) for columns in groups) for row in table.rows),
    )


def heading(column: Column) -> str:
    """Return a heading such as `throughput [img/s]`."""
    title = one_line(column.title)
    return f"{title} [{one_line(column.unit)}]" if column.unit else title


def cell(value: Value, digits: int | None = None) -> str:
    """Return a value as people see it. digits: those of its column."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return one_line(value)
    if digits is None:
        return str(value) if isinstance(value, int) else f"{value:.6g}"
    text = f"{value:.3e}" if abs(value) >= _LARGE else f"{value:.{digits}f}"
    # A value that is rounded to zero has no sign.
    return text.removeprefix("-") if float(text) == 0 else text


def is_numeric(table: Table, column: Column) -> bool:
    """Return whether the column is flush right: it holds only numbers, or is empty and has
    digits."""
    told = [row[column.key] for row in table.rows if row[column.key] is not None]
    if not told:
        return column.digits is not None
    return not any(isinstance(value, str) for value in told)


def one_line(text: str) -> str:
    """Return the text in one line. A character that does not print is replaced by its escape:
    control characters, changes of the direction of text, lone surrogates."""
    return "".join(map(_printable, " ".join(text.split())))


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of printed output; a character that does not print becomes its escape."""
    for line in text.expandtabs().splitlines():
        yield "".join(map(_printable, line)).rstrip()


def _with_bounds(columns: list[Column]) -> Iterator[tuple[Column, ...]]:
    """Yield each column, together with the next two columns if these are its bounds."""
    i = 0
    while i < len(columns):
        bounds = columns[i + 1 : i + 3]
        found = len(bounds) == 2 and _are_bounds(columns[i], *bounds)
        yield (columns[i], *bounds) if found else (columns[i],)
        i += 3 if found else 1


def _are_bounds(figure: Column, lower: Column, upper: Column) -> bool:
    named = any(
        low in lower.key and lower.key.replace(low, high, 1) == upper.key for low, high in _BOUNDS
    )
    return named and figure.digits is not None and figure.unit == lower.unit == upper.unit


def _joined(row: Row, columns: tuple[Column, ...]) -> str:
    first, *bounds = columns
    text = cell(row[first.key], first.digits)
    if all(row[bound.key] is None for bound in bounds):
        return text
    between = ", ".join(cell(row[bound.key], bound.digits) for bound in bounds)
    return f"{text} [{between}]"
