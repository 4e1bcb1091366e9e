"""The page of both axes: all nights of all series by date, and throughputs by release, in one HTML
document without scripts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.inline import templates, without_scripts
from hvdperf.paths import shown
from hvdperf.timeline.lines import Change, Line
from hvdperf.timeline.nights.by_date import BadNode, Findings, findings, lines, repeat
from hvdperf.timeline.nights.night import Night, read_nights
from hvdperf.timeline.nights.slower import Fall, Standing, slower, standings, verdict_of
from hvdperf.timeline.nights.watch import MISSING
from hvdperf.timeline.releases import by_release
from hvdperf.timeline.releases.raw import read_history
from hvdperf.timeline.store import HISTORY, NIGHTS
from hvdperf.verdict import Verdict

PAGE = Path(__file__).parent
INDEX = "index.html"
# A night of the calendar: the edge of its square and the distance to the next one, in pixels.
SQUARE, PITCH = 11, 14
# Width and height of a sparkline, and the room around it.
SPARK_W, SPARK_H, SPARK_EDGE = 240, 28, 3
# Returns the address of a session's page, or "" without one.
Href = Callable[[str], str]


@dataclass(frozen=True)
class Square:
    """A date of the calendar. kind: the verdict as a class of the style sheet, or "missing".
    href: the page of its session; "" without one. says: for people."""

    x: int
    y: int
    kind: str
    href: str
    says: str


@dataclass(frozen=True)
class Drawn:
    """A line as the page shows it. path: as SVG takes it. marked: places of nights that FAIL. says:
    the line in words. changed: the last change, in words; "" without one. steps: places of lasting
    changes. ticks: places where the stack changes, each with what changed."""

    name: str
    path: str
    marked: Sequence[tuple[float, float]]
    says: str
    figure: str
    verdict: Verdict | None
    changed: str
    steps: Sequence[float]
    ticks: Sequence[tuple[float, str]]
    date: str = ""
    command: str = ""


@dataclass(frozen=True)
class Series:
    """A series of nights as the page shows it. pages: those of the last night's sessions, with
    their names. remarks: on the machine in the last night. counts: nights by word, the worst first.
    verdict: of the series, which FAILs, too, if it is slower than it was. slower: what is so.
    without_figure: cases of the last night that have no figure, with their verdicts."""

    name: str
    machine: str
    verdict: Verdict
    headline: str
    pages: Sequence[tuple[str, str]]
    remarks: Sequence[str]
    counts: Mapping[str, int]
    width: int
    months: Sequence[tuple[int, str]]
    squares: Sequence[Square]
    changes: Sequence[tuple[Change, Standing]]
    slower: Sequence[str]
    nodes: Sequence[BadNode]
    cases: Sequence[Drawn]
    without_figure: Sequence[str]
    command: str


def write_index(path: Path, store: Path, pages: Path, asv: Path, until: date | None = None) -> Path:
    """Write the page of all documents of a store. pages: the directory of the sessions' pages. asv:
    that of asv's graphs, which need not exist. until: the last date of the calendars, if that is
    later than the last night of all. Raises UserError if the page cannot be written."""
    found = read_nights(store / NIGHTS)
    results, refused = read_history(store / HISTORY)
    where = os.path.relpath(pages, path.parent)
    # A series that nobody measures any more shows what is missing.
    dates = [date.fromisoformat(night.night) for each in found.of.values() for night in each]
    last = max([*dates, *filter(None, [until])], default=date.min)

    def href(session: str) -> str:
        return f"{where}/{session}.html" if (pages / f"{session}.html").exists() else ""

    graphs = asv / INDEX
    if not graphs.exists():
        graphs = asv / "horovod" / INDEX
    style, policy = without_scripts(PAGE / "index.css")
    text = (
        templates(PAGE)
        .get_template("index.html.j2")
        .render(
            series=[
                _series(name, each, last, href, found.accepted.get(name, ""))
                for name, each in found.of.items()
            ],
            releases=[
                (each.heading, _of_releases(each))
                for each in by_release.series_of(results)
                if any(map(each.can_change, each.lines))
            ],
            left_out=(*found.left_out, *refused),
            style=style,
            policy=policy,
            asv=os.path.relpath(graphs, path.parent) if graphs.exists() else "",
            edge=SQUARE,
            spark=(SPARK_W, SPARK_H),
        )
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, text)
    except OSError as error:
        raise UserError(f"{shown(path)} cannot be written: {error.strerror}") from None


# By date ---------------------------------------------------------------------------------------


def _series(name: str, nights: Sequence[Night], until: date, href: Href, accepted: str) -> Series:
    found = findings(nights)
    state = slower(name, nights, accepted, found)
    squares = list(_squares(nights, until, href, state.falls))
    last = nights[-1]
    words = Counter(square.kind for square in squares)
    kinds = [_kind(verdict) for verdict in Verdict] + ["missing"]
    first = date.fromisoformat(nights[0].night)
    days = [first + timedelta(days=index) for index in range(len(squares))]
    return Series(
        name=name,
        machine=_machine(nights),
        verdict=state.verdict(last.verdict),
        headline=f"Night of {last.night}: {last.told}.",
        pages=[
            ("reference stack" if part.is_gate else "session", address)
            for part in last.parts
            if (address := href(part.session))
        ],
        remarks=[*filter(None, [last.pair]), *(f"Unfit: {line}" for line in last.unfit)],
        counts={kind: words[kind] for kind in kinds if words[kind]},
        width=max(square.x for square in squares) + PITCH,
        months=[
            (square.x, f"{day:%b}")
            for day, square in zip(days, squares, strict=True)
            if day.day == 1
        ],
        squares=squares,
        changes=list(zip(found.changes, standings(found.changes, accepted), strict=True))[::-1],
        slower=list(state.lines()),
        nodes=found.nodes,
        cases=[_case(line, nights, found) for line in (*found.lines, *lines(nights, gates=True))],
        without_figure=[
            f"{row.name}: {row.verdict.value}" for _, row in last.cases if row.figure is None
        ],
        command=last.command,
    )


def _machine(nights: Sequence[Night]) -> str:
    """Return the machine, the stack and the hosts of the last session."""
    parts = [part for night in nights if (part := night.part()) is not None]
    if not parts:
        return "no session yet"
    known, hosts = parts[-1].fingerprint, parts[-1].hosts
    device = f"{known['gpus']} x {', '.join(known['gpu_model'])}"
    cpu = f"{known['cores']} cores of {known['cpu_model']}"
    stack = f"TensorFlow {known['tensorflow']}, Horovod {known['horovod']}"
    return f"{device if known['gpus'] else cpu}; {stack}; {', '.join(hosts)}"


def _squares(
    nights: Sequence[Night], until: date, href: Href, falls: Mapping[int, Fall]
) -> Iterator[Square]:
    """Yield a square for every date from the first night on, a column a week. falls: by index of
    the night."""
    known = {night.night: (night, falls.get(index)) for index, night in enumerate(nights)}
    first = date.fromisoformat(nights[0].night)
    for number in range((until - first).days + 1):
        day = first + timedelta(days=number)
        column, row = divmod(number + first.weekday(), 7)
        x, y = column * PITCH, row * PITCH
        night, fall = known.get(f"{day}", (None, None))
        if night is None:
            yield Square(x, y, "missing", "", f"{day}: {MISSING}")
            continue
        own = night.part()
        verdict = verdict_of(night, fall)
        told = f"{night.told}{f'; {len(fall.changes)} throughputs fell' if fall else ''}"
        text = f"{day}: {verdict.value} ({told})"
        yield Square(x, y, _kind(verdict), href(own.session) if own else "", text)


def _kind(verdict: Verdict) -> str:
    return verdict.name.lower()


def _case(line: Line, nights: Sequence[Night], found: Findings) -> Drawn:
    own = [each for each in found.changes if each.line.name == line.name and not line.is_gate]
    newest = nights[line.at[-1]]
    return _drawn(
        f"{line.name} against the reference stack" if line.is_gate else line.name,
        line,
        line.at,
        len(nights),
        # A change counts the nights of its own line, which lacks those on bad nodes.
        [(each.at, each) for each in own],
        {at: f"{nights[at].night}: {'; '.join(texts)}" for at, texts in found.marks.items()},
        date="" if newest is nights[-1] else newest.night,
        command=repeat(newest, line),
    )


# By release ------------------------------------------------------------------------------------


def _of_releases(series: by_release.Series) -> Iterator[Drawn]:
    """Yield the lines of two releases or more, a launch a point."""
    for line in filter(series.can_change, series.lines):
        versions = [series.version(line, place) for place in range(len(line.at))]
        begins = [0, *(i + 1 for i, (old, new) in enumerate(pairwise(versions)) if old != new)]
        own = [each for each in series.changes if each.line is line]
        of_releases = [each for each in own if each.before != each.since]
        command = by_release.bisect_command(series, of_releases[-1]) if of_releases else ""
        yield _drawn(
            f"{line.name}, {line.replica}",
            line,
            range(len(versions)),
            len(versions),
            [(each.step.at, each) for each in own],
            {at: versions[at] for at in begins},
            command=command,
            date=versions[-1],
        )


# Both ------------------------------------------------------------------------------------------


def _drawn(
    name: str,
    line: Line,
    places: Sequence[int],
    count: int,
    changes: Sequence[tuple[int, Change]],
    ticks: Mapping[int, str],
    date: str,
    command: str,
) -> Drawn:
    """Return a line as it is drawn. places: of its figures, among `count` from left to right.
    changes, ticks: with their places, or by them. date: of the last figure."""
    low, high = min(line.figures), max(line.figures)

    def across(place: int) -> float:
        return round(SPARK_EDGE + place / (count - 1 or 1) * (SPARK_W - 2 * SPARK_EDGE), 1)

    def down(figure: float) -> float:
        share = (high - figure) / (high - low or 1.0)
        return round(SPARK_EDGE + share * (SPARK_H - 2 * SPARK_EDGE), 1)

    points = [(across(x), down(y)) for x, y in zip(places, line.figures, strict=True)]
    digits = 3 if line.verdicts else 0
    figure = f"{line.figures[-1]:.{digits}f}"
    newest = changes[-1][1] if changes else None
    return Drawn(
        name,
        path=" ".join(f"{x},{y}" for x, y in points),
        marked=[p for p, v in zip(points, line.verdicts, strict=False) if v is Verdict.FAIL],
        says=f"{len(points)} points, from {low:.{digits}f} to {high:.{digits}f}, last {figure}",
        figure=figure if line.verdicts else f"{figure} samples/s",
        verdict=line.verdicts[-1] if line.verdicts else None,
        changed=f"{newest.size} since {newest.since}" if newest else "",
        steps=[across(place) for place, _ in changes],
        ticks=[(across(place), says) for place, says in ticks.items()],
        date=date,
        command=command,
    )
