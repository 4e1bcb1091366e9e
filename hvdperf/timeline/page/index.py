"""The page of both axes: all nights of all series by date, and throughputs by release, in one HTML
document without scripts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from hvdperf.errors import refusing
from hvdperf.files import write_whole
from hvdperf.inline import templates, without_scripts
from hvdperf.paths import shown
from hvdperf.timeline.lines import Change, Line
from hvdperf.timeline.nights.night import Night, read_nights
from hvdperf.timeline.nights.series import Series, lines, repeat, verdict_of
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


# What a template shows, by name.
Shown = dict[str, Any]


def write_index(path: Path, store: Path, pages: Path, asv: Path, until: date | None = None) -> Path:
    """Write the page of all documents of a store. pages: the directory of the sessions' pages. asv:
    that of asv's graphs, which need not exist. until: the last date of the calendars, if that is
    later than the last night of all. Raises UserError if the page cannot be written."""
    found = read_nights(store / NIGHTS)
    results, refused = read_history(store / HISTORY)
    where = os.path.relpath(pages, path.parent)
    # A series that nobody measures any more shows what is missing.
    dates = [night.night for each in found.of.values() for night in each]
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
                _series(Series(name, each, found.accepted[name]), last, href)
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
    with refusing(f"{shown(path)} cannot be written: ", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, text)


# By date ---------------------------------------------------------------------------------------


def _series(series: Series, until: date, href: Href) -> Shown:
    nights = series.nights
    squares = list(_squares(series, until, href))
    last, gates = nights[-1], lines(nights, gates=True)
    words = Counter(square["kind"] for square in squares)
    kinds = [_kind(verdict) for verdict in Verdict] + ["missing"]
    days = (nights[0].night + timedelta(days=index) for index in range(len(squares)))
    return {
        "series": series,
        "machine": _machine(nights),
        "last": last,
        "pages": [
            ("reference stack" if part.is_gate else "again" if part.again else "session", address)
            for part in last.parts
            if (address := href(part.session))
        ],
        "counts": {kind: words[kind] for kind in kinds if words[kind]},
        "width": max(square["x"] for square in squares) + PITCH,
        "months": [
            (square["x"], f"{day:%b}")
            for day, square in zip(days, squares, strict=True)
            if day.day == 1
        ],
        "squares": squares,
        "cases": [_case(line, series) for line in (*series.found.lines, *gates)],
        "without_figure": [row for _, row in last.cases if row.figure is None],
    }


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


def _squares(series: Series, until: date, href: Href) -> Iterator[Shown]:
    """Yield a square for every date from the first night on, a column a week, with its verdict as
    a class of the style sheet."""
    known = {
        night.night: (night, series.falls.get(index)) for index, night in enumerate(series.nights)
    }
    first = series.nights[0].night
    for number in range((until - first).days + 1):
        day = first + timedelta(days=number)
        column, row = divmod(number + first.weekday(), 7)
        x, y = column * PITCH, row * PITCH
        night, fall = known.get(day, (None, None))
        if night is None:
            yield {"x": x, "y": y, "kind": "missing", "href": "", "says": f"{day}: {MISSING}"}
            continue
        own = night.part()
        verdict = verdict_of(night, fall)
        told = f"{night.told}{f'; {fall.told}' if fall else ''}"
        text = f"{day}: {verdict.value} ({told})"
        link = href(own.session) if own else ""
        yield {"x": x, "y": y, "kind": _kind(verdict), "href": link, "says": text}


def _kind(verdict: Verdict) -> str:
    return verdict.name.lower()


def _case(line: Line, series: Series) -> Shown:
    nights, found = series.nights, series.found
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
        date="" if newest is nights[-1] else f"{newest.night}",
        command=repeat(newest, line),
    )


# By release ------------------------------------------------------------------------------------


def _of_releases(series: by_release.Series) -> Iterator[Shown]:
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
) -> Shown:
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
    return {
        "name": name,
        "path": " ".join(f"{x},{y}" for x, y in points),
        "marked": [p for p, v in zip(points, line.verdicts, strict=False) if v is Verdict.FAIL],
        "says": f"{len(points)} points, from {low:.{digits}f} to {high:.{digits}f}, last {figure}",
        "figure": figure if line.verdicts else f"{figure} samples/s",
        "verdict": line.verdicts[-1] if line.verdicts else None,
        "changed": f"{newest.size} since {newest.since}" if newest else "",
        "steps": [across(place) for place, _ in changes],
        "ticks": [(across(place), says) for place, says in ticks.items()],
        "date": date,
        "command": command,
    }
