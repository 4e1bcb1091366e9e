"""A report as one HTML document that needs nothing else: no network, no other file.

Its tables are the only copy of the numbers; scripts in the page draw the plots from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hvdperf.report.content import Figure, Report
from hvdperf.report.formats.headline import MEANINGS, blames, headline, neutral, others
from hvdperf.report.formats.html_cells import body, is_number, printable, slug, value_text
from hvdperf.report.formats.inline import PAGE, assets, json_text
from hvdperf.verdict import Verdict

# The page's filters: keys of the board's columns and of figures' tags, with their labels.
CHOSEN_BY = {
    "verdict": "Verdict",
    "question": "Question",
    "model": "Model",
    "world_size": "World size",
}
# A note of more characters is folded, because its text would push the next note away.
_LONG_NOTE = 280
_USUAL_HEIGHT = 260
_ORDER = {verdict.value: place for place, verdict in enumerate(Verdict)}


def page(report: Report) -> str:
    """Return the HTML document. UTF-8 can encode all of its text."""
    template = _environment().get_template("page.html.j2")
    return template.render(
        report=report,
        assets=assets(),
        headline=headline(report),
        others=others(report),
        worst=Verdict.NOT_JUDGED if report.verdict is None else report.verdict,
        bar=_bar(report),
        blames=blames(report),
        neutral=neutral(report),
        choices=_choices(report),
        labels=CHOSEN_BY,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals.update(
        Verdict=Verdict,
        meanings=MEANINGS,
        body=body,
        is_number=is_number,
        slug=slug,
        spec=_spec,
        height=_height,
        tags=_tags,
        only=_only,
        long_note=_LONG_NOTE,
    )
    return environment


def _shown(value: object) -> object:
    """Return a value as a template shows it. Markup is unchanged, because this package made it."""
    return printable(value) if type(value) is str else value


def _bar(report: Report) -> list[tuple[Verdict, int, int]]:
    """Return the counts as parts of a bar: verdict, start of the part, and number of cases."""
    found, start = [], 0
    for verdict in Verdict:
        count = report.counts.get(verdict, 0)
        if count:
            found.append((verdict, start, count))
        start += count
    return found


def _choices(report: Report) -> Mapping[str, Sequence[tuple[str, int]]]:
    """Return the values of each filter with their numbers of cases, by key of the columns."""
    columns = {column.key: column for column in report.board.table.columns}
    found = {}
    for key in CHOSEN_BY:
        values = [row[key] for row in report.board.table.rows if key in columns]
        counts = Counter(value for value in values if value is not None)
        known = list(counts)
        if key == "verdict":
            known.sort(key=lambda value: _ORDER.get(str(value), len(_ORDER)))
        elif key != "question":
            known.sort(key=lambda value: (isinstance(value, str), value))
        found[key] = [(value_text(value, columns[key].digits), counts[value]) for value in known]
    return found


def _tags(figure: Figure) -> str:
    """Return a figure's tags as JSON, which the page's scripts compare with the chosen filters."""
    return str(json_text({key: printable(value) for key, value in figure.tags.items()}))


def _only(case: str) -> str:
    """Return the part of an address after # that selects a case by the words of its name."""
    return urlencode({"text": " ".join(printable(case).split()), "at": "pageBoard"})


def _spec(figure: Figure) -> str:
    """Return the figure's plot as JSON for a <script>."""
    return json_text(_printable(figure.plot))


def _printable(value: Any) -> Any:
    """Return a copy of a JSON value in which all text is printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_printable(each) for each in value]
    return value


def _height(figure: Figure) -> int:
    """Return the height of the plot in pixels, so that nothing moves when the plot is drawn."""
    height = (figure.plot or {}).get("height")
    return height if isinstance(height, int) else _USUAL_HEIGHT
