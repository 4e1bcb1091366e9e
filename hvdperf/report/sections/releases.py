"""Throughput over releases of Horovod, from this machine's history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.report.words import plural, slug
from hvdperf.stats import spread
from hvdperf.timeline.lines import Line
from hvdperf.timeline.releases.by_release import Series, series_of
from hvdperf.timeline.releases.raw import Axis, RawResult, machine_label, order

COLUMNS = (
    Column("horovod", "Horovod"),
    Column("tensorflow", "TensorFlow"),
    Column("replica", "each replica"),
    Column("launches", "launches"),
    Column("samples_per_second", "throughput", "samples/s", digits=1),
    Column("spread", "standard deviation, robust", "samples/s", digits=1),
)


def section(fingerprint: Mapping[str, Any], history: Sequence[RawResult]) -> Section:
    """Return the section. fingerprint: of the session, whose machine's history is shown."""
    machine = machine_label(fingerprint)
    own = [result for result in history if result.machine == machine]
    groups: dict[tuple[str, str, int], list[tuple[Series, Line]]] = {}
    replicas: dict[str, set[str]] = {}
    for series in series_of(own):
        for line in series.lines if series.axis is Axis.HOROVOD else ():
            key = (line.model, line.replica, line.world_size)
            groups.setdefault(key, []).append((series, line))
            replicas.setdefault(line.model, set()).add(line.replica)
    return Section(
        "releases",
        "Releases",
        f"Median throughput of all replicas by release, from the raw results of {machine}; "
        "asv's pages (make history) show more.",
        tuple(
            _figure(alike, several_replicas=len(replicas[model]) > 1)
            for (model, _, _), alike in sorted(groups.items())
        ),
        f"The history has no results of this machine, {machine}; make backfill measures "
        "releases, make history imports sessions.",
    )


def _figure(alike: Sequence[tuple[Series, Line]], several_replicas: bool) -> Figure:
    """Return the figure of one network, replica and world size. several_replicas: whether the
    network was also measured with other replicas, which names must distinguish."""
    line = alike[0][1]
    model, world_size = line.model, line.world_size
    apart = (line.replica,) if several_replicas else ()
    named = ", each: ".join((f"{model} on {plural(world_size, 'replica')}", *apart))
    rows = tuple(row for series, line in alike for row in _rows(series, line))
    newest = rows[-1]
    releases = {str(row["horovod"]) for row in rows}
    stacks = list(dict.fromkeys(str(row["tensorflow"]) for row in rows))
    return Figure(
        slug("releases", model, *apart, f"np{world_size}"),
        named,
        f"{named}, over {plural(len(releases), 'release')} of Horovod under "
        f"{plural(len(stacks), 'TensorFlow')}; with Horovod {newest['horovod']} and TensorFlow "
        f"{newest['tensorflow']} {newest['samples_per_second']:.1f} samples/s.",
        Table(COLUMNS, rows),
        _plot(sorted(releases, key=order(Axis.HOROVOD).__getitem__), stacks),
        {"model": model, "world_size": str(world_size)},
    )


def _rows(series: Series, line: Line) -> Iterator[Row]:
    """Yield a row for each release, oldest first."""
    for version, speeds in series.by_version(line).items():
        yield {
            "horovod": version,
            "tensorflow": series.at,
            "replica": line.replica,
            "launches": len(speeds),
            "samples_per_second": median(speeds),
            "spread": spread(speeds),
        }


def _plot(releases: Sequence[str], stacks: Sequence[str]) -> Plot:
    """Return a plot. releases, stacks: oldest first, whatever the order of the table's rows."""
    x = plots.field("horovod", "ordinal", "Horovod", sort=list(releases), axis={"labelAngle": 0})
    lines = plots.curves(
        plots.field("samples_per_second", "quantitative", "samples/s", scale={"zero": False}),
        plots.field("tensorflow", "nominal", "TensorFlow", sort=list(stacks)),
        60,
        tooltip=plots.tooltip((*COLUMNS[:2], COLUMNS[4], COLUMNS[3])),
    )
    return plots.layered(*lines, encoding={"x": x})
