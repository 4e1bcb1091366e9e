"""The index page: all nights of all series, in one HTML document without scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.nightly.lines import BadNode, Change, Findings, Line, findings, lines, repeat
from hvdperf.nightly.night import Night, read_nights
from hvdperf.nightly.slower import Fall, Standing, slower, standings, verdict_of
from hvdperf.nightly.watch import MISSING
from hvdperf.paths import shown
from hvdperf.report.formats.inline import templates, without_scripts
from hvdperf.verdict import Verdict

PAGE = Path(__file__).parent / "page"
# A night of the calendar: the edge of its square and the distance to the next one, in pixels.
SQUARE, PITCH = 11, 14
# Width and height of a sparkline, and the room around it.
SPARK_W, SPARK_H, SPARK_EDGE = 240, 28, 3
# Returns the address of a session's page, or "" without one.
Href = Callable[[str], str]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


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
class Case:
    """A line of the table of cases. path: the drawn line, as SVG takes it. marked: places of nights
    that FAIL. says: the line in words. changed: the last change, in words; "" without one."""

    name: str
    path: str
    marked: Sequence[tuple[float, float]]
    says: str
    figure: str
    date: str
    verdict: Verdict | None
    changed: str
    command: str
    steps: Sequence[float]
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Series:
    """A series as the page shows it. pages: those of the last night's sessions, with their names.
    remarks: on the machine in the last night. counts: nights by word, the worst first.
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
    cases: Sequence[Case]
    without_figure: Sequence[str]
    command: str


def write_index(
    path: Path, nights: Path, pages: Path, asv: Path, until: date | None = None
) -> Path:
    """Write the index page of all nights below a directory. pages: the directory of the sessions'
    pages. asv: that of asv's graphs, which need not exist. until: the last date of the calendars,
    if that is later than the last night of all. Raises UserError if the page cannot be written."""
    found = read_nights(nights)
    where = os.path.relpath(pages, path.parent)
    # A series that nobody measures any more shows what is missing.
    dates = [date.fromisoformat(night.night) for each in found.of.values() for night in each]
    last = max([*dates, *([] if until is None else [until])], default=date.min)
    series = [
        _series(
            name,
            each,
            last,
            lambda session: _href(pages, where, session),
            found.accepted.get(name, ""),
        )
        for name, each in found.of.items()
    ]
    graphs = asv / "index.html"
    style, policy = without_scripts(PAGE / "index.css")
    text = (
        templates(PAGE)
        .get_template("index.html.j2")
        .render(
            change_text=change_text,
            series=series,
            left_out=found.left_out,
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


def _href(pages: Path, where: str, session: str) -> str:
    return f"{where}/{session}.html" if (pages / f"{session}.html").exists() else ""


def _series(
    name: str, nights: Sequence[Night], until: date, href: Href, accepted: str = ""
) -> Series:
    found = findings(nights)
    state = slower(name, nights, accepted, found)
    squares = list(_squares(nights, until, href, state.falls))
    last = nights[-1]
    words = [square.kind for square in squares]
    kinds = [_kind(verdict) for verdict in Verdict] + ["missing"]
    drawn = [*found.lines, *lines(nights, gates=True)]
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
        counts={kind: words.count(kind) for kind in kinds if kind in words},
        width=max(square.x for square in squares) + PITCH,
        months=_months(nights, until),
        squares=squares,
        changes=list(zip(found.changes, standings(found.changes, accepted), strict=True))[::-1],
        slower=list(state.lines()),
        nodes=found.nodes,
        cases=[_case(line, nights, found) for line in drawn],
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
    """Yield a square for every date from the first night on. falls: by index of the night."""
    known = {night.night: (night, falls.get(index)) for index, night in enumerate(nights)}
    first = date.fromisoformat(nights[0].night)
    day = first
    while day <= until:
        place = (day - _monday(first)).days
        x, y = place // 7 * PITCH, place % 7 * PITCH
        night, fall = known.get(f"{day}", (None, None))
        if night is None:
            yield Square(x, y, "missing", "", f"{day}: {MISSING}")
        else:
            own = night.part()
            verdict = verdict_of(night, fall)
            told = f"{night.told}{f'; {len(fall.changes)} throughputs fell' if fall else ''}"
            text = f"{day}: {verdict.value} ({told})"
            yield Square(x, y, _kind(verdict), href(own.session) if own else "", text)
        day += timedelta(days=1)


def _monday(day: date) -> date:
    """Return the Monday of the week, with which a column of the calendar begins."""
    return day - timedelta(days=day.weekday())


def _kind(verdict: Verdict) -> str:
    return verdict.name.lower()


def _months(nights: Sequence[Night], until: date) -> list[tuple[int, str]]:
    """Return the columns of the calendar in which a month begins, with its name."""
    first = date.fromisoformat(nights[0].night)
    found = []
    day = first.replace(day=1)
    while day <= until:
        if day >= first:
            found.append(((day - _monday(first)).days // 7 * PITCH, _MONTHS[day.month - 1]))
        day = (day + timedelta(days=32)).replace(day=1)
    return found


def _case(line: Line, nights: Sequence[Night], found: Findings) -> Case:
    low, high = min(line.figures), max(line.figures)
    span = (high - low) or 1.0
    last = len(nights) - 1 or 1

    def across(index: int) -> float:
        return round(SPARK_EDGE + index / last * (SPARK_W - 2 * SPARK_EDGE), 1)

    def place(index: int, figure: float) -> tuple[float, float]:
        y = SPARK_EDGE + (high - figure) / span * (SPARK_H - 2 * SPARK_EDGE)
        return across(index), round(y, 1)

    points = [place(*each) for each in zip(line.at, line.figures, strict=True)]
    verdicts = line.verdicts or (None,) * len(points)
    own = [each for each in found.changes if each.line.name == line.name and not line.is_gate]
    digits = 3 if line.verdicts else 0
    figure = f"{line.figures[-1]:.{digits}f}"
    newest = nights[line.at[-1]]
    return Case(
        name=f"{line.name} against the reference stack" if line.is_gate else line.name,
        path=" ".join(f"{x},{y}" for x, y in points),
        marked=[p for p, word in zip(points, verdicts, strict=True) if word is Verdict.FAIL],
        says=f"{len(points)} nights, from {low:.{digits}f} to {high:.{digits}f}, last {figure}",
        figure=figure if line.verdicts else f"{figure} samples/s",
        date="" if newest is nights[-1] else newest.night,
        verdict=verdicts[-1],
        changed=f"{change_text(own[-1])} since {own[-1].night.night}" if own else "",
        command=repeat(newest, line),
        # A change counts the nights of its own line, which lacks those on bad nodes.
        steps=[across(each.line.at[each.step.at]) for each in own],
        ticks=[
            (across(at), f"{nights[at].night}: {'; '.join(texts)}")
            for at, texts in found.marks.items()
        ],
    )


def change_text(change: Change) -> str:
    """Return the size of a change with its interval, such as `-4.9 % (-5.6 to -4.1)`."""
    step = change.step
    size, lower, upper = (100 * (each - 1) for each in (step.change, step.lower, step.upper))
    return f"{size:+.1f} % ({lower:+.1f} to {upper:+.1f})"
