"""Values as people are shown them, and cells of a page's tables, which keep the values, too."""

from __future__ import annotations

from markupsafe import Markup, escape

from hvdperf.report.content import Column, Table, Value
from hvdperf.verdict import Verdict

# What would make a terminal or a browser do something, by a picture of it; C1 and lone surrogates,
# which no document may hold, have none.
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    # Vega takes them for the end of a line of its own.
    **dict.fromkeys((0x2028, 0x2029), "\u2424"),
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"),
}
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


def printable(text: str) -> str:
    """The text with every control character, but for line feed and tab, seen instead of obeyed."""
    return text.translate(_PICTURES)


def slug(verdict: Verdict) -> str:
    """Of classes and colours."""
    return verdict.name.lower()


def number_text(value: float, digits: int | None) -> str:
    """As people are shown it. A small number is not rounded to nothing."""
    if digits is None:
        return str(value) if isinstance(value, int) else f"{value:.6g}"
    shown = f"{value:.{digits}f}"
    return f"{value:.2g}" if value != 0 and float(shown) == 0 else shown


def value_text(value: Value, digits: int | None = None) -> str:
    """As people are shown it; empty for None."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else number_text(value, digits)


def body(table: Table) -> Markup:
    """The rows of an HTML table. A number's element has its value with all digits."""
    return Markup("\n").join(
        Markup("<tr>%s</tr>")
        % Markup("").join(_cell(row[column.key], column) for column in table.columns)
        for row in table.rows
    )


def is_number(table: Table, column: Column) -> bool:
    """Whether there are numbers in the column."""
    return any(isinstance(row[column.key], int | float) for row in table.rows)


def _cell(value: Value, column: Column) -> Markup:
    return Markup("<td%s>%s</td>") % (
        Markup(" hidden" if column.hidden else ""),
        _content(value, column),
    )


def _content(value: Value, column: Column) -> Markup:
    # Only where there is no value is a cell empty: a style shows it as a dash.
    if value is None:
        return Markup("")
    if not isinstance(value, str):
        shown = number_text(value, column.digits)
        return Markup(f'<data value="{value!r}">{shown}</data>')
    text = escape(printable(value))
    if column.key.startswith("verdict") and value in _VERDICTS:
        return Markup(f'<span class="verdict {slug(_VERDICTS[value])}">{text}</span>')
    return Markup(f"<bdi>{text}</bdi>")
