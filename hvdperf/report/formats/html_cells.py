"""Values as people see them, and cells of a page's tables, which also keep the exact values."""

from __future__ import annotations

from markupsafe import Markup, escape

from hvdperf.report.content import Column, Table, Value
from hvdperf.verdict import Verdict

# Control characters, on which a terminal or a browser would act, are shown as pictures. C1 and lone
# surrogates, which no document may hold, have no picture.
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    # Vega breaks a line at these.
    **dict.fromkeys((0x2028, 0x2029), "\u2424"),
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"),
}
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


def printable(text: str) -> str:
    """Return the text with a picture for every control character but line feed and tab."""
    return text.translate(_PICTURES)


def slug(verdict: Verdict) -> str:
    """Return the verdict's name in classes and colours."""
    return verdict.name.lower()


def number_text(value: float, digits: int | None) -> str:
    """Return a number as people see it. A small number is not rounded to zero."""
    if digits is None:
        return str(value) if isinstance(value, int) else f"{value:.6g}"
    shown = f"{value:.{digits}f}"
    return f"{value:.2g}" if value != 0 and float(shown) == 0 else shown


def value_text(value: Value, digits: int | None = None) -> str:
    """Return a value as people see it; return "" for None."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else number_text(value, digits)


def body(table: Table) -> Markup:
    """Return the rows of an HTML table. A number's element also holds its value with all digits."""
    return Markup("\n").join(
        Markup("<tr>%s</tr>")
        % Markup("").join(_cell(row[column.key], column) for column in table.columns)
        for row in table.rows
    )


def is_number(table: Table, column: Column) -> bool:
    """Return whether the column holds a number."""
    return any(isinstance(row[column.key], int | float) for row in table.rows)


def _cell(value: Value, column: Column) -> Markup:
    return Markup("<td%s>%s</td>") % (
        Markup(" hidden" if column.hidden else ""),
        _content(value, column),
    )


def _content(value: Value, column: Column) -> Markup:
    # A cell is empty only if there is no value: a style shows an empty cell as a dash.
    if value is None:
        return Markup("")
    if not isinstance(value, str):
        shown = number_text(value, column.digits)
        return Markup(f'<data value="{value!r}">{shown}</data>')
    text = escape(printable(value))
    if column.key.startswith("verdict") and value in _VERDICTS:
        return Markup(f'<span class="verdict {slug(_VERDICTS[value])}">{text}</span>')
    return Markup(f"<bdi>{text}</bdi>")
