"""The index page: all nights of all series, in one HTML document without scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.nightly.lines import BadNode, Change, Line, changes, lines
from hvdperf.nightly.night import Night, own_part, read_nights
from hvdperf.nightly.watch import MISSING, command_of
from hvdperf.paths import shown
from hvdperf.report.formats.inline import without_scripts
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
    verdict: Verdict | None
    changed: str
    command: str


@dataclass(frozen=True)
class Series:
    """A series as the page shows it. counts: nights by word, in the order of the worst first."""

    name: str
    machine: str
    verdict: Verdict
    headline: str
    counts: Mapping[str, int]
    width: int
    months: Sequence[tuple[int, str]]
    squares: Sequence[Square]
    changes: Sequence[Change]
    nodes: Sequence[BadNode]
    cases: Sequence[Case]
    command: str


def write_index(path: Path, nights: Path, pages: Path, asv: Path) -> Path:
    """Write the index page of all nights below a directory. pages: the directory of the sessions'
    pages. asv: that of asv's graphs, which need not exist. Raises UserError if the page cannot be
    written."""
    found = read_nights(nights)
    where = os.path.relpath(pages, path.parent)
    series = [
        _series(name, each, lambda session: _href(pages, where, session))
        for name, each in found.of.items()
    ]
    graphs = asv / "index.html"
    style, policy = without_scripts(PAGE / "index.css")
    text = (
        _environment()
        .get_template("index.html.j2")
        .render(
            series=series,
            left_out=list(found.left_out),
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


def _series(name: str, nights: Sequence[Night], href: Href) -> Series:
    squares = list(_squares(nights, href))
    last = nights[-1]
    words = [square.kind for square in squares]
    kinds = [_kind(verdict) for verdict in Verdict] + ["missing"]
    told, nodes = changes(nights)
    return Series(
        name=name,
        machine=_machine(nights),
        verdict=last.verdict,
        headline=f"night of {last.night}: {last.told}",
        counts={kind: words.count(kind) for kind in kinds if kind in words},
        width=max(square.x for square in squares) + PITCH,
        months=_months(nights),
        squares=squares,
        changes=sorted(told, key=lambda each: each.night.night, reverse=True),
        nodes=nodes,
        cases=[_case(line, nights, told) for line in lines(nights)],
        command=last.command,
    )


def _machine(nights: Sequence[Night]) -> str:
    """Return the machine, the stack and the hosts of the last session."""
    parts = [part for night in nights if (part := own_part(night)) is not None]
    if not parts:
        return "no session yet"
    known, hosts = parts[-1].fingerprint, parts[-1].hosts
    device = f"{known['gpus']} x {', '.join(known['gpu_model'])}"
    cpu = f"{known['cores']} cores of {known['cpu_model']}"
    stack = f"TensorFlow {known['tensorflow']}, Horovod {known['horovod']}"
    return f"{device if known['gpus'] else cpu}; {stack}; {', '.join(hosts)}"


def _squares(nights: Sequence[Night], href: Href) -> Iterator[Square]:
    """Yield a square for every date from the first night to the last."""
    known = {night.night: night for night in nights}
    first, last = (date.fromisoformat(nights[i].night) for i in (0, -1))
    monday = first - timedelta(days=first.weekday())
    day = first
    while day <= last:
        place = (day - monday).days
        x, y = place // 7 * PITCH, place % 7 * PITCH
        night = known.get(f"{day}")
        if night is None:
            yield Square(x, y, "missing", "", f"{day}: {MISSING}")
        else:
            own = own_part(night)
            text = f"{day}: {night.verdict.value} ({night.told})"
            yield Square(x, y, _kind(night.verdict), href(own.session) if own else "", text)
        day += timedelta(days=1)


def _kind(verdict: Verdict) -> str:
    return verdict.name.lower()


def _months(nights: Sequence[Night]) -> list[tuple[int, str]]:
    """Return the columns of the calendar in which a month begins, with its name."""
    first, last = (date.fromisoformat(nights[i].night) for i in (0, -1))
    monday = first - timedelta(days=first.weekday())
    found = []
    day = first.replace(day=1)
    while day <= last:
        if day >= first:
            found.append(((day - monday).days // 7 * PITCH, _MONTHS[day.month - 1]))
        day = (day + timedelta(days=32)).replace(day=1)
    return found


def _case(line: Line, nights: Sequence[Night], told: Sequence[Change]) -> Case:
    low, high = min(line.figures), max(line.figures)
    span = (high - low) or 1.0
    last = len(nights) - 1 or 1

    def place(index: int, figure: float) -> tuple[float, float]:
        x = SPARK_EDGE + index / last * (SPARK_W - 2 * SPARK_EDGE)
        y = SPARK_EDGE + (high - figure) / span * (SPARK_H - 2 * SPARK_EDGE)
        return round(x, 1), round(y, 1)

    points = [place(*each) for each in zip(line.at, line.figures, strict=True)]
    bad = [
        point
        for point, verdict in zip(points, line.verdicts or (None,) * len(points), strict=True)
        if verdict is Verdict.FAIL
    ]
    own = [change for change in told if change.line.name == line.name]
    is_throughput = not line.verdicts
    digits = 0 if is_throughput else 3
    figure = f"{line.figures[-1]:.{digits}f}"
    rows = [row for part in (own_part(nights[line.at[-1]]),) if part for row in part.cases]
    row = next((row for row in rows if row.name == line.name), None)
    return Case(
        name=line.name,
        path=" ".join(f"{x},{y}" for x, y in points),
        marked=bad,
        says=f"{len(points)} nights, from {low:.{digits}f} to {high:.{digits}f}, last {figure}",
        figure=f"{figure} samples/s" if is_throughput else figure,
        verdict=line.verdicts[-1] if line.verdicts else None,
        changed=f"{change_text(own[-1])} since {own[-1].night.night}" if own else "",
        command=command_of(row) if row is not None else "",
    )


def change_text(change: Change) -> str:
    """Return the size of a change with its interval, such as `-4.9 % (-5.6 to -4.1)`."""
    step = change.step
    size, lower, upper = (100 * (each - 1) for each in (step.change, step.lower, step.upper))
    return f"{size:+.1f} % ({lower:+.1f} to {upper:+.1f})"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["change_text"] = change_text
    return environment
