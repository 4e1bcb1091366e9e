"""The pages of both axes: an overview of all series by date, and throughputs by release; and a page
of each series beside its nights. All are HTML documents that need no other file."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from hvdperf.errors import refusing
from hvdperf.files import write_whole
from hvdperf.inline import json_text, light, templates
from hvdperf.paths import shown
from hvdperf.records.documents import Summary
from hvdperf.records.outcome import Measure
from hvdperf.timeline import history
from hvdperf.timeline.history import machine_words, of_kinds, read_history
from hvdperf.timeline.lines import LEAST_CHANGE, Line, percent
from hvdperf.timeline.nights import changes
from hvdperf.timeline.nights.falls import Fall
from hvdperf.timeline.nights.night import Night, joined, read_accepted, read_night
from hvdperf.timeline.nights.series import Event, Series, events
from hvdperf.timeline.nights.speed import ALL, Key, Scope
from hvdperf.timeline.nights.watch import MISSING
from hvdperf.timeline.store import HISTORY, INDEX, NIGHTS, documents, named, read_all, shortened
from hvdperf.verdict import Verdict

# Templates, styles and the script.
PAGE = Path(__file__).parent / "page"
# So many dates are shown in the overview.
STRIP = 14
# The next night may still go on or be to come on the day after the last one.
_LATE_DAYS = 1
# The words in which a series stands, worst first.
_WORST_FIRST = ("fail", "missing", "invalid", "not_run", "inconclusive", "pass", "info")
# What a template shows, by name.
Shown = dict[str, Any]
# An axis shows at least this much above and below the median of its line, as a share of it, so that
# noise of 1 % fills a tenth of the height.
LEAST_SPAN = 0.1
# The height, in units of the drawing, and the part of it above and below the outermost figure.
HEIGHT, EDGE = 120, 0.05
# Two standard deviations, of figures that are as the middle half of them.
_TWO_SD = 2 * 1.4826
# The width of the size of a change on a phone, in percent of that of the drawing.
LABEL = 20
# The fewest figures of which it is said what is usual.
_FEWEST = 7


@dataclass(frozen=True)
class Place:
    """Where the pages are. index: the file of the overview. store: the directory with the folder of
    all nights. pages: the directory of the sessions' pages. until: today: a series that nobody
    measures any more shows what is missing."""

    index: Path
    store: Path
    pages: Path
    until: date

    def link(self, start: Path, part: Summary | None) -> str:
        """Return the address of a session's page as seen from another one; "" without one."""
        path = self.pages / f"{part.session if part else ''}.html"
        return os.path.relpath(path, start.parent) if path.exists() else ""


# The overview ---------------------------------------------------------------------------------


def write_index(path: Path, store: Path, pages: Path, asv: Path, until: date) -> Path:
    """Write the page of all documents of a store, and that of each series. pages: the directory of
    the sessions' pages. asv: that of asv's graphs, which need not exist. until: today. Raises
    UserError if a page cannot be written."""
    names = sorted({each.parent.name for each in documents(store / NIGHTS)})
    results, refused = read_history(store / HISTORY)
    place = Place(path, store, pages, until)
    left_out: list[str] = []
    rows = [row for name in names if (row := write_series(place, name, left_out)) is not None]
    if names:
        results = of_kinds(results, {kind for row in rows for kind in row["machines"]})
    graphs = asv / INDEX
    if not graphs.exists():
        graphs = asv / "horovod" / INDEX
    return _write_page(
        path,
        "index.html.j2",
        rows=sorted(rows, key=_rank),
        releases=[
            (each.heading, list(_of_releases(each)))
            for each in history.series_of(results)
            if each.varying
        ],
        left_out=(*shortened(left_out), *refused),
        asv=os.path.relpath(graphs, path.parent) if graphs.exists() else "",
    )


def _write_page(path: Path, template: str, **words: object) -> Path:
    """Write a page from its template, and return its path. Raises UserError."""
    style, script, policy = light(PAGE / "index.css", PAGE / "index.js")
    page = templates(PAGE).get_template(template)
    text = page.render(words, style=style, script=script, policy=policy)
    with refusing(f"{shown(path)} cannot be written: ", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, text)


def _rank(row: Shown) -> tuple[int, float, str]:
    """Return what rows are sorted by, worst first."""
    size = max((each.size for each in row["open"]), default=0.0)
    return _WORST_FIRST.index(row["kind"]), -size, row["name"]


def _of_releases(series: history.Series) -> Iterator[Shown]:
    """Yield the lines of two releases or more, a launch a point."""
    for line in series.varying:
        versions = [series.version(line, place) for place in range(len(line.at))]
        begins = [0, *(i + 1 for i, (old, new) in enumerate(pairwise(versions)) if old != new)]
        own = [each for each in series.changes if each.line is line]
        of_releases = [each for each in own if each.before != each.since]
        command = history.bisect_command(series, of_releases[-1]) if of_releases else ""
        yield {
            "name": f"{line.name}, {line.replica}",
            "plot": plot_of(
                line,
                range(len(versions)),
                len(versions),
                [(each.step.at, percent(each.step.change)) for each in own],
                {at: versions[at] for at in begins},
            ),
            "figure": f"{line.figures[-1]:.0f} samples/s",
            "lower_is_better": False,
            "verdict": None,
            "fell": False,
            "changed": f"{own[-1].size} since {own[-1].since}" if own else "",
            "standing": "",
            "date": versions[-1],
            "command": command,
        }


# A series ---------------------------------------------------------------------------------------


def write_series(place: Place, name: str, left_out: list[str]) -> Shown | None:
    """Write the page of a series, and return its row in the overview; None if none of its nights
    can be read. left_out: takes a line for each document that is left out. Raises UserError if the
    page cannot be written.

    A row has: name. kind: its word, as a class of the style sheet. night: the date of its last
    night. told: what matters, in a sentence. page, session: addresses from the overview; session is
    "" if the last night has no page. strip: the last dates. open: the events that make it FAIL, the
    largest first. machines: in words, those of the last night in which something was measured."""
    directory = place.store / NIGHTS / name
    read, refused = read_all(sorted(directory.glob("*.json")), read_night)
    left_out += refused
    if not read:
        return None
    series = Series(name, joined(read), read_accepted(directory))
    happened = events(series)
    doing = sorted((each for each in happened if each.is_open), key=lambda each: -each.size)
    path = directory / INDEX
    newest = series.nights[-1].night
    is_late = place.until - newest > timedelta(days=_LATE_DAYS)
    is_missing = is_late and series.verdict is not Verdict.FAIL
    hrefs = [place.link(path, each.part()) for each in series.nights]
    days = list(_days(series, max(place.until, newest), hrefs))
    # Without the dates that are not late, a page stays as it is from one day to the next.
    whole = days if is_late else [day for day in days if day["day"] <= newest]
    words = Counter(day["kind"] for day in whole)
    last = series.last or series.nights[-1]
    measured = next((night for night in reversed(series.nights) if night.parts), last)
    row = {
        "name": name,
        "kind": MISSING.lower() if is_missing else _kind(series.verdict),
        "night": last.night,
        "told": _told(series, doing, is_late),
        "page": os.path.relpath(path, place.index.parent),
        "session": place.link(place.index, last.part()),
        "strip": [{**day, "href": ""} for day in days][-STRIP:],
        "open": doing,
        "machines": [machine_words(part.fingerprint) for part in measured.parts],
    }
    _write_page(
        path,
        "series.html.j2",
        row=row,
        series=series,
        last=last,
        last_links=[(part.kind, link) for part in last.parts if (link := place.link(path, part))],
        machine=_machine(series.nights),
        weeks=_weeks(series.nights[0].night, whole),
        counts={kind: count for kind in _WORST_FIRST if (count := words[kind])},
        events=happened,
        lines=_lines(series, happened),
        without_figure=[row for _, row in last.cases if row.figure is None],
        data=json_text(
            [
                (f"{night.night}", series.verdict_of(index).value, hrefs[index])
                for index, night in enumerate(series.nights)
            ]
        ),
        home=os.path.relpath(place.index, path.parent),
    )
    return row


def _told(series: Series, doing: Sequence[Event], is_late: bool) -> str:
    """Return what matters of a series, in a sentence. doing: the events that make it FAIL, the
    largest first. is_late: whether the next night is."""
    last = series.last or series.nights[-1]
    alarms = [each.row for each in series.gated if each.is_alarm]
    failed = [
        row.name for _, row in last.cases if row.verdict is Verdict.FAIL and row not in alarms
    ]
    told = []
    if is_late:
        told.append(f"no night since {last.night}")
    if doing:
        told.append(f"since {doing[0].since}: {doing[0].told}")
        more = len(doing) - 1
        told += [f"and {more} more event{'s' * (more > 1)}"] * bool(more)
    elif series.fall is not None:
        told.append(f"{series.fall.told}, but {series.fall.excuse}")
    if failed:
        told.append(f"FAIL of {named(failed)}")
    elif not doing:
        told.append(last.told)
    told += shortened([each.told for each in series.suspects], "suspects of the gate")
    if series.speeds.waits:
        told.append(series.speeds.waits)
    return "; ".join(told)


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


# The calendar ----------------------------------------------------------------------------------


def _days(series: Series, until: date, hrefs: Sequence[str]) -> Iterator[Shown]:
    """Yield every date from the first night on, with its verdict as a class of the style sheet.
    hrefs: of the sessions of the nights."""
    known = {night.night: index for index, night in enumerate(series.nights)}
    first = series.nights[0].night
    for number in range((until - first).days + 1):
        day = first + timedelta(days=number)
        index = known.get(day)
        if index is None:
            yield {"day": day, "kind": "missing", "href": "", "says": f"{day}: {MISSING}"}
            continue
        night, fall = series.nights[index], series.falls.get(index)
        verdict = series.verdict_of(index)
        told = f"{night.told}{f'; {fall.told}' if fall else ''}"
        says = f"{day}: {verdict.value} ({told})"
        yield {"day": day, "kind": _kind(verdict), "href": hrefs[index], "says": says}


def _weeks(first: date, days: Sequence[Shown]) -> list[tuple[str, list[Shown | None]]]:
    """Return the dates by week, from Monday on, each week with the month that begins in it."""
    padded = [None] * first.weekday() + list(days)
    found = []
    for at in range(0, len(padded), 7):
        week = padded[at : at + 7]
        begins = [each["day"] for each in week if each and each["day"].day == 1]
        found.append((f"{begins[0]:%b}" if begins else "", week))
    return found


def _kind(verdict: Verdict) -> str:
    return verdict.name.lower()


# Lines -----------------------------------------------------------------------------------------


def _lines(series: Series, happened: Sequence[Event]) -> list[Shown]:
    """Return the lines as they are drawn: first those that make the series FAIL, then those of
    which the last night FAILs."""
    nights = series.nights
    doing = [each for each in happened if each.is_open]
    slow = {change.line.name for each in doing for change in each.changes}
    dates = [night.night for night in nights]
    accepted = [
        (bisect_right(dates, each.night) - 1, f"accepted up to {each.night}: {each.why}")
        for each in series.accepted
        if each.night >= dates[0]
    ]
    ticks = {at: f"{dates[at]}: {'; '.join(texts)}" for at, texts in series.found.marks.items()}
    found = []
    costs = [changes.lines_of(nights, each) for each in Measure if each is not Measure.SPEED]
    for line in chain(series.found.lines, changes.lines(nights, gates=True), *costs):
        own = [
            change
            for change in series.changes
            if change.line.name == line.name and not line.is_gate
        ]
        fell = [at for at, fall in series.falls.items() if _fell(line, fall)]
        newest = nights[line.at[-1]]
        unit = changes.OF_LAUNCHES[line.measure][1] if line.measure else ""
        verdict = line.verdicts[-1] if line.verdicts else None
        is_last = newest is nights[-1]
        is_bad = is_last and (verdict is Verdict.FAIL or len(nights) - 1 in fell)
        drawn: Shown = {
            "order": (line.name not in slow or line.is_gate, not is_bad),
            "name": f"{line.name} against the reference stack" if line.is_gate else line.name,
            "plot": plot_of(
                line,
                line.at,
                len(nights),
                [(change.at, percent(change.step.change)) for change in own],
                ticks,
                fell,
                accepted,
            ),
            "figure": f"{line.figures[-1]:.{digits_of(line)}f} {unit}".rstrip(),
            "lower_is_better": line.lower_is_better,
            "verdict": verdict,
            "fell": is_last and len(nights) - 1 in fell,
            "changed": f"{own[-1].size} since {own[-1].since}" if own else "",
            "standing": own[-1].standing.value if own else "",
            "date": "" if is_last else f"{newest.night}",
            "command": changes.repeat(newest, line),
        }
        found.append(drawn)
    return sorted(found, key=lambda each: each["order"])


def _fell(line: Line, fall: Fall) -> bool:
    """Return whether a line of what launches did by themselves is part of a fall."""
    measure = line.measure
    if measure is None:
        return False
    key = Key(Scope.THROUGHPUT, line.model, line.world_size)
    stands_for = {(measure, each) for each in (ALL, Key(Scope.NETWORK, line.model), key)}
    changed = fall.changes.get(measure, {}).get(key)
    is_worse = changed is not None and changed.change < 1 - LEAST_CHANGE
    return is_worse and not stands_for.isdisjoint(fall.what)


# A line as it is drawn ---------------------------------------------------------------------------


def plot_of(
    line: Line,
    places: Sequence[int],
    count: int,
    changes: Iterable[tuple[int, str]] = (),
    ticks: Mapping[int, str] | None = None,
    failed: Iterable[int] = (),
    accepted: Iterable[tuple[int, str]] = (),
) -> Shown:
    """Return a line as it is drawn. places: of its figures, among `count` from left to right.
    changes, accepted: place and text. ticks: text by place. failed: places that FAIL, besides those
    where the line has this verdict.

    What is returned: width: number of places. low, high: the ends of the axis, in words. path,
    dots: in SVG. bands: x, y, width and height. rules: x, in percent of the width, too, and size of
    each change, "" where there is no room for it. ticks: x and what changed there. accepted: x and
    why. figures: in words, by place, "" where there is none. says: the line in words.
    """
    changes = list(changes)
    middle = median(line.figures)
    low = min(*line.figures, middle * (1 - LEAST_SPAN))
    high = max(*line.figures, middle * (1 + LEAST_SPAN))
    room = EDGE * (high - low)
    low, high = max(0.0, low - room), high + room

    def down(figure: float) -> int:
        return round((high - min(high, max(low, figure))) / (high - low) * HEIGHT)

    points = dict(zip(places, map(down, line.figures), strict=True))
    verdicts = zip(places, line.verdicts, strict=False)
    bad = {place for place, verdict in verdicts if verdict is Verdict.FAIL} | set(failed)
    figures = dict(zip(places, line.figures, strict=True))
    digits = digits_of(line)
    told = [f"{figures[place]:.{digits}f}" if place in figures else "" for place in range(count)]
    width = max(1, count - 1)
    usual = _usual(figures, [place for place, _ in changes], width)
    return {
        "width": width,
        "low": f"{low:.{digits}f}",
        "high": f"{high:.{digits}f}",
        "path": "M" + " ".join(f"{x} {y}" for x, y in points.items()),
        "dots": "".join(f"M{x} {points[x]}h0" for x in sorted(bad & points.keys())),
        "bands": [
            (left, down(above), right - left, max(1, down(below) - down(above)))
            for left, right, below, above in usual
        ],
        "rules": _labelled((place, round(100 * place / width, 1), size) for place, size in changes),
        "ticks": sorted((ticks or {}).items()),
        "accepted": list(accepted),
        "figures": " ".join(told),
        "says": f"{len(points)} points, from {min(line.figures):.{digits}f} to "
        f"{max(line.figures):.{digits}f}, last {line.figures[-1]:.{digits}f}",
    }


def digits_of(line: Line) -> int:
    """Return how many digits after the point a figure of a line is written with: four significant
    ones of a throughput, three after the point of the figure of a case."""
    if line.verdicts:
        return 3
    return max(0, 3 - math.floor(math.log10(median(line.figures))))


def _labelled(rules: Iterable[tuple[int, float, str]]) -> list[tuple[int, float, str]]:
    """Return the rules without the sizes that would lie on a newer one's. A size is on the right of
    its rule, or on the left at the right end."""
    found: list[tuple[int, float, str]] = []
    free = math.inf
    for place, right, size in sorted(rules, reverse=True):
        left = right if right + LABEL <= 100 else right - LABEL
        has_room = left + LABEL <= free
        found.append((place, right, size if has_room else ""))
        free = left if has_room else free
    return found[::-1]


def _usual(
    figures: Mapping[int, float], changes: Iterable[int], width: int
) -> list[tuple[int, int, float, float]]:
    """Return where the line changes next, and between which figures 95 % of its nights should be
    until then, if they differ as the middle half of them does: left, right, below and above. That
    is the median and twice the standard deviation on either side."""
    cuts = sorted({0, *changes, width + 1})
    found = []
    for left, right in pairwise(cuts):
        own = [math.log(figure) for place, figure in figures.items() if left <= place < right]
        if len(own) >= _FEWEST:
            middle = median(own)
            apart = _TWO_SD * median(abs(each - middle) for each in own)
            ends = math.exp(middle - apart), math.exp(middle + apart)
            found.append((left, min(right, width), *ends))
    return found
