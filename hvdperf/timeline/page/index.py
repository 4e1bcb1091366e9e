"""The page of both axes: an overview of all series by date, and throughputs by release. Each series
has a page of its own beside its nights. All are HTML documents that need no other file."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import date
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

from hvdperf.errors import refusing
from hvdperf.files import write_whole
from hvdperf.inline import light, templates
from hvdperf.paths import shown
from hvdperf.timeline.nights.changes import percent
from hvdperf.timeline.page.one_series import PAGE, Place, Row, Shown, write_series
from hvdperf.timeline.page.plot import plot_of
from hvdperf.timeline.releases import by_release
from hvdperf.timeline.releases.raw import of_kinds, read_history
from hvdperf.timeline.store import HISTORY, INDEX, NIGHTS, documents, shortened

# From so many series on, other processes help: each takes a second to start.
_FEW = 3


def write_index(path: Path, store: Path, pages: Path, asv: Path, until: date | None = None) -> Path:
    """Write the page of all documents of a store, and that of each series. pages: the directory of
    the sessions' pages. asv: that of asv's graphs, which need not exist. until: the last date of
    the calendars, if that is later than the last night of all. Raises UserError if a page cannot be
    written."""
    nights = documents(store / NIGHTS)
    results, refused = read_history(store / HISTORY)
    # A series that nobody measures any more shows what is missing.
    dates = [day for each in nights if (day := _date(each.stem)) is not None]
    place = Place(path, store, pages, max([*dates, *filter(None, [until])], default=date.min))
    written = _written(place, sorted({each.parent.name for each in nights}))
    rows = sorted((row for row, _ in written if row is not None), key=lambda row: row.rank)
    if nights:
        results = of_kinds(results, {kind for row in rows for kind in row.machines})
    left_out = [line for _, lines in written for line in lines]
    graphs = asv / INDEX
    if not graphs.exists():
        graphs = asv / "horovod" / INDEX
    style, script, policy = light(PAGE / "index.css", PAGE / "index.js")
    text = (
        templates(PAGE)
        .get_template("index.html.j2")
        .render(
            rows=rows,
            releases=[
                (each.heading, list(_of_releases(each)))
                for each in by_release.series_of(results)
                if any(map(each.can_change, each.lines))
            ],
            left_out=(*shortened(left_out), *refused),
            style=style,
            script=script,
            policy=policy,
            asv=os.path.relpath(graphs, path.parent) if graphs.exists() else "",
        )
    )
    with refusing(f"{shown(path)} cannot be written: ", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, text)


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _written(place: Place, names: Sequence[str]) -> list[tuple[Row | None, list[str]]]:
    """Write the pages of these series, on all cores of this process, and return what write_series
    returns."""
    write, cores = partial(write_series, place), len(os.sched_getaffinity(0))
    if len(names) >= _FEW and cores > 1:
        try:
            count, spawn = min(cores, len(names)), get_context("spawn")
            # What a series needs has no cycles, and looking for them takes a tenth of the time.
            with ProcessPoolExecutor(count, spawn, initializer=gc.disable) as pool:
                return list(pool.map(write, names))
        except (OSError, BrokenProcessPool):
            # Such as without room for processes: alone, it only takes longer.
            pass
    return [write(name) for name in names]


def _of_releases(series: by_release.Series) -> Iterator[Shown]:
    """Yield the lines of two releases or more, a launch a point."""
    for line in filter(series.can_change, series.lines):
        versions = [series.version(line, place) for place in range(len(line.at))]
        begins = [0, *(i + 1 for i, (old, new) in enumerate(pairwise(versions)) if old != new)]
        own = [each for each in series.changes if each.line is line]
        of_releases = [each for each in own if each.before != each.since]
        command = by_release.bisect_command(series, of_releases[-1]) if of_releases else ""
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
