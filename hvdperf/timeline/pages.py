"""The pages of nights: an overview of all series, and a page of each series beside its nights."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain
from pathlib import Path
from statistics import median

from hvdperf.records.documents import Summary
from hvdperf.records.outcome import Measure
from hvdperf.report import html, plots
from hvdperf.report.commands import write_file
from hvdperf.report.content import CaseNote, Column, Figure, Plot, Report, Section, Table
from hvdperf.report.words import machine, stack
from hvdperf.timeline import store
from hvdperf.timeline.lines import Line, percent
from hvdperf.timeline.nights import changes
from hvdperf.timeline.nights.falls import What
from hvdperf.timeline.nights.night import joined, read_accepted, read_night
from hvdperf.timeline.nights.series import Finding, Series
from hvdperf.timeline.nights.watch import MISSING
from hvdperf.verdict import Verdict, counted, worst

# So many nights are shown in the overview.
STRIP = 14
# The next night may still go on or be to come on the day after the last one.
_LATE_DAYS = 1
# Lines across a plot, in percent of the median, so that noise of 1 % fills a tenth of the height.
SPAN = (90.0, 110.0)
# The channels of a date, whatever the time zone of the browser, and of the address of its session.
_NIGHT = plots.field(
    "night",
    "temporal",
    axis={"title": None},
    timeUnit="utcyearmonthdate",
    scale={"padding": 8},
)
_PAGE = plots.field("page", "nominal")


@dataclass(frozen=True)
class Place:
    """Where the pages are. index: the file of the overview. root: the directory with the folder of
    all nights. pages: the directory of the sessions' pages. until: today: a series that nobody
    measures any more shows what is missing."""

    index: Path
    root: Path
    pages: Path
    until: date

    def link(self, start: Path, part: Summary | None) -> str:
        """Return the address of a session's page as seen from another one; "" without one."""
        path = self.pages / f"{part.session if part else ''}.html"
        return os.path.relpath(path, start.parent) if path.exists() else ""


def _texts(*titles: str) -> list[Column]:
    """Return columns with their titles as keys."""
    return [Column(title.replace(" ", "_"), title) for title in titles]


# The overview ---------------------------------------------------------------------------------


def write_index(path: Path, root: Path, pages: Path, until: date) -> Path:
    """Write the page of all documents below root, and that of each series. pages: the directory of
    the sessions' pages. until: today. Raises UserError if a page cannot be written."""
    names = sorted({each.parent.name for each in store.documents(root / store.NIGHTS)})
    place = Place(path, root, pages, until)
    left_out: list[str] = []
    found = [each for name in names if (each := write_series(place, name, left_out)) is not None]
    rank = [*Verdict].index
    found.sort(key=lambda each: (rank(each[1].verdict), -sum(e.size for e in _open(each[0])[:1])))
    rows = []
    for series, report in found:
        last = series.last or series.nights[-1]
        page = os.path.relpath(root / store.NIGHTS / series.name / store.INDEX, path.parent)
        told, session = " ".join(report.lead), place.link(path, last.part())
        rows.append((report.verdict.value, series.name, f"{last.night}", told, page, session))
    columns = (
        *_texts("verdict"),
        Column("case", "series", link="page"),
        Column("night", "last night", link="session"),
        *_texts("what matters"),
        *(Column(key, "", hidden=True) for key in ("page", "session")),
    )
    counts = Counter(report.verdict for _, report in found)
    verdict = worst([*counts])
    told = f"{counts[verdict]} of {len(found)} series: {verdict.value}"
    report = Report(
        "hvdperf: nights",
        verdict,
        counts,
        {},
        board=Figure("series", "Series", "The worst first.", Table.filled(columns, rows)),
        notes=tuple(
            _note(series.name, report.verdict, report.lead, _open(series)[:1])
            for series, report in found
            if report.verdict is not Verdict.PASS
        ),
        sections=(_last_nights(place, [series for series, _ in found]),),
        left_out=tuple(store.shortened(left_out)),
        next_steps=tuple(chain.from_iterable(report.next_steps for _, report in found)),
        headline=told if found else "There is no night yet: `hvdperf nightly run` measures one",
    )
    return write_file(path, html.page(report), "--results")


def _open(series: Series) -> list[Finding]:
    """Return the findings that make a series FAIL, the largest first."""
    return sorted((each for each in series.findings if each.is_open), key=lambda each: -each.size)


def _note(name: str, verdict: Verdict, lead: Iterable[str], found: Sequence[Finding]) -> CaseNote:
    """Return a note with what else is known of findings, and their commands."""
    notes = (note for each in found for note in each.notes)
    return CaseNote(name, verdict, (*lead, *notes), output=tuple(_steps(found)))


def _steps(found: Iterable[Finding]) -> Iterator[str]:
    """Yield the commands of events, each below what it is for."""
    for event in found:
        for what, command in event.commands:
            yield from (f"# {what}", command)


def _nights(name: str, series: Series, pages: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each of the last nights. pages: of their sessions."""
    for index, page in enumerate(pages, len(series.nights) - len(pages)):
        night, fall = series.nights[index], series.falls.get(index)
        told = f"{night.told}{f'; {fall.told}' if fall else ''}"
        yield name, f"{night.night}", series.verdict_of(index).value, told, page


def _last_nights(place: Place, found: Sequence[Series]) -> Section:
    """Return the section of the last nights of each series."""
    rows: list[tuple[str, ...]] = []
    for series in found:
        pages = [place.link(place.index, night.part()) for night in series.nights[-STRIP:]]
        rows += _nights(series.name, series, pages)
    names = [series.name for series in found]
    y = plots.field("series", "nominal", axis={"title": None}, sort=names)
    figure = _nights_drawn(rows, _NIGHT, y, plots.rows_high(len(found), 26))
    return Section("nights", "Last nights", "", (figure,) if rows else ())


def _nights_drawn(
    rows: Sequence[tuple[str, ...]], x: plots.Channel, y: plots.Channel, height: int
) -> Figure:
    """Return the figure of these rows of _nights, a night a point that leads to its session."""
    columns = (
        *_texts("series"),
        Column("night", "night", link="page"),
        *_texts("verdict", "cases"),
        Column("page", "", hidden=True),
    )
    counts = Counter(Verdict(verdict) for _, _, verdict, _, _ in rows)
    by = plots.field("verdict", "nominal", legend=plots.LEGEND)
    tip = plots.tooltip(each for each in columns if not each.hidden)
    point = {"type": "point", "size": 40}
    plot = plots.layered(
        plots.layer(point, x=x, y=y, color=by, shape=by, href=_PAGE, tooltip=tip), height=height
    )
    says = f"{counted(counts)}. A gap is a night that is missing."
    return Figure("nights", "Nights by date", says, Table.filled(columns, rows), plot)


# A series ---------------------------------------------------------------------------------------


def write_series(place: Place, name: str, left_out: list[str]) -> tuple[Series, Report] | None:
    """Write the page of a series, and return both; None if none of its nights can be read.
    left_out: takes a line for each document that is left out. Raises UserError if the page cannot
    be written."""
    directory = place.root / store.NIGHTS / name
    read, refused = store.read_all(sorted(directory.glob("*.json")), read_night)
    left_out += refused
    if not read:
        return None
    series = Series(name, joined(read), read_accepted(directory))
    doing = _open(series)
    path, last = directory / store.INDEX, series.last or series.nights[-1]
    is_late = place.until - last.night > timedelta(days=_LATE_DAYS)
    verdict = worst([series.verdict, *[Verdict.NOT_RUN] * is_late])
    pages = [place.link(path, night.part()) for night in series.nights]
    links = [("all series", os.path.relpath(place.index, path.parent))]
    for part in last.parts:
        which = "reference stack" if part.kind.is_gate else "session"
        links.append((f"{which}{' again' * part.kind.is_again}", place.link(path, part)))
    board = _last_figures(series)
    week = {**_NIGHT, "timeUnit": "utcyearweek"}
    weekday = plots.field("night", "ordinal", axis={"title": None}, timeUnit="utcday")
    calendar = _nights_drawn(list(_nights(name, series, pages)), week, weekday, 160)
    told = _told(series, is_late)
    report = Report(
        f"hvdperf: nights of {name}",
        verdict,
        Counter(Verdict(row["verdict"]) for row in board.table.rows if row["verdict"]),
        {
            "last night": f"{last.night}: {last.told}",
            **_machine(series),
            "command": last.command,
        },
        warnings=tuple(f"unfit: {line}" for line in last.unfit),
        board=board,
        notes=tuple(
            _note(f"since {each.since}", Verdict.FAIL, [each.told], [each]) for each in doing
        ),
        sections=(
            _by_date(series, pages),
            Section("nights", "Every night", "", (calendar,)),
            _events(series.findings),
        ),
        next_steps=tuple(_steps(doing[:1])),
        headline=f"{name}: {verdict.value}",
        lead=(f"{told[:1].upper()}{told[1:]}.",),
        links=tuple((words, address) for words, address in links if address),
    )
    write_file(path, html.page(report), "--results")
    return series, report


def _told(series: Series, is_late: bool) -> str:
    """Return what matters of a series, in a sentence. is_late: whether the next night is."""
    last = series.last or series.nights[-1]
    found = sorted(series.current, key=lambda each: (not each.is_open, -each.size))
    told = [f"{MISSING}: no night since {last.night}"] * is_late
    told += [f"since {each.since}: {each.told}" for each in found[:1]]
    if len(found) > 1:
        told.append(f"and {len(found) - 1} more finding{'s' * (len(found) > 2)}")
    told.append(last.told)
    if series.speeds.waits:
        told.append(series.speeds.waits)
    return "; ".join(told)


def _machine(series: Series) -> dict[str, str]:
    """Return facts of the last session: the machine, the stack, and hosts."""
    part = next((part for night in reversed(series.nights) if (part := night.part())), None)
    if part is None:
        return {}
    known = part.fingerprint
    found = {"machine": machine(known), "stack": stack(known), "hosts": ", ".join(part.hosts)}
    for node in series.found.nodes:
        found[f"nights on {', '.join(node.hosts)}, which are left out of the changes"] = (
            f"{percent(node.change)} on {node.nights} nights"
        )
    return found


def _events(happened: Sequence[Finding]) -> Section:
    rows = [
        (
            Verdict.FAIL.value if each.is_open else None,
            *(each.since, each.told),
            "until it is repaired or accepted" if each.is_open else each.standing.value,
            "; ".join(each.notes),
        )
        for each in happened
    ]
    columns = _texts("verdict", "since", "what", "standing", "what else is known")
    figure = Figure("events", "Events", "", Table.filled(columns, rows))
    intro = "Falls, lasting changes and alarms of the gate: those that FAIL first, then the newest."
    none = "No fall, no lasting change and no alarm of a gate is known."
    return Section("events", "Events", intro, (figure,) if rows else (), none)


# Lines ------------------------------------------------------------------------------------------


def _lines(series: Series) -> list[Line]:
    """Return the lines of a series: its own, those of the gate, and costs of launches."""
    costs = (changes.lines_of(series.nights, each) for each in Measure if each != Measure.SPEED)
    gates = changes.lines(series.nights, gates=True)
    return [*series.found.lines, *gates, *chain.from_iterable(costs)]


def _kind(line: Line) -> str:
    """Return what a line is of, such as weak_scaling."""
    return line.name.partition("[")[0] + " against the reference stack" * line.is_gate


def _unit(line: Line) -> str:
    return changes.OF_LAUNCHES[line.measure][1] if line.measure else ""


def _last_figures(series: Series) -> Figure:
    """Return a row for each line, first those that make the series FAIL."""
    slow = {each.line.name for each in series.open}
    last_change = {each.line.name: each for each in series.changes}
    rows = []
    for line in sorted(_lines(series), key=lambda line: line.name not in slow or line.is_gate):
        night, change = series.nights[line.at[-1]], last_change.get(line.name)
        told = f"{change.size} since {change.since}, {change.standing.value}" if change else None
        rows.append(
            (
                line.verdicts[-1].value if line.verdicts else None,
                *(line.name, _kind(line), line.model, line.world_size),
                *(line.figures[-1], _unit(line), f"{night.night}"),
                *(None if line.is_gate else told, changes.repeat(night, line)),
            )
        )
    columns = (
        Column("verdict", "verdict"),
        Column("case", "line"),
        Column("question", "what", hidden=True),
        Column("model", "network", hidden=True),
        Column("world_size", "ranks"),
        *_texts("figure", "unit", "night", "last change", "measure it again"),
    )
    says = "The last figure of each line, and its last change for good."
    return Figure("lines", "Lines", says, Table.filled(columns, rows))


def _by_date(series: Series, pages: Sequence[str]) -> Section:
    """Return the figure of all lines, of which a reader chooses a network's. pages: of nights."""
    nights = [night.night for night in series.nights]
    told: dict[int, list[str]] = {at: [*marks] for at, marks in series.found.marks.items()}
    for event in series.findings:
        told.setdefault(event.at, []).append(event.told)
    for each in series.accepted:
        at = bisect_right(nights, each.night) - 1
        told.setdefault(at, []).append(f"accepted up to {each.night}: {each.why}")
    # First those that make the series FAIL.
    slow = [each.line.name for each in series.open]
    lines = sorted(_lines(series), key=lambda line: line.name not in slow or line.is_gate)
    groups: dict[str, list[Line]] = {}
    for line in lines:
        better = " (lower is better)" * line.lower_is_better
        groups.setdefault(f"{_kind(line)} of {line.model}{better}", []).append(line)
    fell = {at: fall.what for at, fall in series.falls.items()}
    figures = [_percents(own, fell, len(nights)) for own in groups.values()]
    rows = [
        (f"{night}", "; ".join(told.get(at, ())) or None, *cells, pages[at])
        for at, (night, *cells) in enumerate(zip(nights, *figures, strict=True))
    ]
    titles = {f"lines_{number}": title for number, title in enumerate(groups)}
    columns = (
        Column("night", "night", link="page"),
        Column("told", "what happened"),
        *(Column(key, title) for key, title in titles.items()),
        Column("page", "", hidden=True),
    )
    names = {key: [*map(_legend, own)] for key, own in zip(titles, groups.values(), strict=True)}
    says = (
        "A night is a point, in percent of the median of its line, and leads to its session. A "
        "mark at the top is a night on which one of the lines FAILs or fell; the table has them "
        "side by side, with a ! after these. A vertical line is an event, another machine, stack "
        "or setting, or what was accepted."
    )
    table = Table.filled(columns, rows)
    figure = Figure("lines-by-date", "Lines by date", says, table, _drawn(titles, names))
    return Section("by-date", "By date", "", (figure,) if groups else ())


def _legend(line: Line) -> str:
    name = line.name.partition("[")[2].rstrip("]")
    return f"{name}: 100 % = {median(line.figures):.4g} {_unit(line)}".rstrip()


def _percents(lines: Sequence[Line], fell: Mapping[int, Sequence[What]], count: int) -> list[str]:
    """Return for each night the figures of lines in percent of their medians, with a blank between
    them, a "!" after one that FAILs or fell, and "-" in place of a missing one."""
    found = [["-"] * len(lines) for _ in range(count)]
    for place, line in enumerate(lines):
        own = [(at, key) for at, what in fell.items() for unit, key in what if unit is line.measure]
        bad = {at for at, key in own if key.covers(line)}
        verdicts = zip(line.at, line.verdicts, strict=False)
        bad |= {at for at, verdict in verdicts if verdict is Verdict.FAIL}
        middle = median(line.figures)
        for at, figure in zip(line.at, line.figures, strict=True):
            found[at][place] = f"{100 * figure / middle:.1f}{'!' * (at in bad)}"
    return [" ".join(cells) for cells in found]


def _drawn(titles: Mapping[str, str], names: Mapping[str, Sequence[str]]) -> Plot:
    """Return the plot of the lines by date of a column that is chosen. titles: of columns, by key.
    names: of the lines in a column."""
    select = {"input": "select", "options": [*titles], "labels": [*titles.values()], "name": " "}
    y = plots.field("percent", "quantitative", "% of the median", scale={"zero": False})
    legend = {**plots.LEGEND, "columns": 1, "labelLimit": 0}
    at = {"y": y, "color": plots.field("line", "nominal", legend=legend)}
    tip = (*_texts("night", "line"), Column("percent", "of the median", "%", 1))
    chosen = [
        {"filter": "isValid(datum[chosen])"},
        {"calculate": "split(datum[chosen], ' ')", "as": "figure"},
        {"calculate": f"{json.dumps(names)}[chosen]", "as": "line"},
        {"flatten": ["figure", "line"]},
        {"calculate": "parseFloat(datum.figure)", "as": "percent"},
        {"calculate": "indexof(datum.figure, '!') > 0", "as": "fails"},
        plots.known("percent"),
    ]
    drawn = [
        plots.layer({"type": "line", "strokeWidth": 1.2}, **at),
        plots.layer({"type": "point", "size": 14}, **at, href=_PAGE, tooltip=plots.tooltip(tip)),
        plots.layer(
            {"type": "rule", "style": "limit"},
            {"filter": "datum.fails"},
            y={"value": 0},
            y2={"value": 8},
        ),
    ]
    return plots.layered(
        *(plots.line("quiet", y={"datum": end}) for end in SPAN),
        plots.layer(
            {"type": "rule", "style": "ideal"},
            {"filter": "datum.told !== null"},
            tooltip=plots.field("told", "nominal"),
        ),
        {"transform": chosen, "layer": drawn},
        height=320,
        encoding={"x": _NIGHT},
        params=[{"name": "chosen", "value": next(iter(titles), ""), "bind": select}],
    )
