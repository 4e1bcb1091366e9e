"""A report as one HTML document that needs nothing else: no network, no other file.

Its tables are the only copy of the numbers: each cell also keeps its exact value, and scripts in
the page draw the plots from them.
"""

from __future__ import annotations

from functools import cache
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from hvdperf.inline import PAGE, assets, json_text
from hvdperf.report import text as texts
from hvdperf.report.content import Column, Report, Row, Table
from hvdperf.verdict import Verdict, counted

# Of a longer note only the first paragraph is seen, because more would push away what comes next.
_LONG_NOTE = 280
# A list of at most so many is read at a glance, and not folded.
_FEW = 6
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


def page(report: Report) -> str:
    """Return the HTML document. UTF-8 can encode all of its text."""
    report = texts.printable(report)
    template = environment().get_template("page.html.j2")
    return template.render(
        report=report,
        assets=assets(),
        headline=report.headline or counted(report.counts) or "Nothing was measured",
        blames=texts.blames(report),
        neutral=texts.neutral(report),
        cases={row["case"] for row in report.board.table.rows},
    )


def slug(verdict: Verdict) -> str:
    """Return the verdict's name in classes and colours."""
    return verdict.name.lower()


def body(table: Table) -> Markup:
    """Return the rows of an HTML table. A number's element also holds its value with all digits."""
    named = _names(table)
    rows = (
        Markup("").join(_cell(row, each, each is named) for each in table.columns)
        for row in table.rows
    )
    return Markup("\n").join(Markup("<tr>%s</tr>") % row for row in rows)


@cache
def environment() -> Environment:
    """Return the templates of the page."""
    found = Environment(
        loader=FileSystemLoader(PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(
        Verdict=Verdict,
        meanings=texts.MEANINGS,
        body=body,
        is_numeric=texts.is_numeric,
        slug=slug,
        json=json_text,
        only=_only,
        alike=texts.alike,
        long_note=_LONG_NOTE,
        few=_FEW,
    )
    return found


def _only(case: str) -> str:
    """Return the part of an address after # that selects a case by the words of its name."""
    return urlencode({"text": texts.one_line(case), "at": "pageBoard"})


def _names(table: Table) -> Column:
    """Return the column that says what a row is about: that of cases, or the first that people see
    beside verdicts."""
    seen = [column for column in table.columns if not column.hidden] or list(table.columns)
    cases = [column for column in seen if column.key == "case"]
    others = [column for column in seen if not column.key.startswith("verdict")]
    return [*cases, *others, *seen][0]


def _cell(row: Row, column: Column, names: bool) -> Markup:
    """Return an element without its end tag, which HTML does not need. names: whether it says what
    its row is about."""
    hidden = Markup(" hidden" if column.hidden else "")
    tag = Markup('th scope="row"' if names else "td")
    return Markup("<%s%s>%s") % (tag, hidden, _content(row, column))


def _content(row: Row, column: Column) -> Markup:
    value = row[column.key]
    # A cell is empty only if there is no value: a style shows an empty cell as a dash.
    if value is None:
        return Markup("")
    if not isinstance(value, str):
        shown = texts.number_text(value, column.digits)
        return Markup(f'<data value="{value!r}">{shown}</data>')
    text = escape(value)
    if column.key.startswith("verdict") and value in _VERDICTS:
        return Markup(f'<span class="verdict {slug(_VERDICTS[value])}">{text}</span>')
    # Only text of other scripts can change the direction of its surroundings.
    if not value or not value.isascii():
        text = Markup("<bdi>%s</bdi>") % text
    if column.link and row[column.link]:
        return Markup('<a href="%s">%s</a>') % (row[column.link], text)
    return text
