"""Throughput over releases of Horovod, as far as this machine's history goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from harness.stats import spread
from history.label import machine_label
from history.lines import Line, lines
from history.raw import RawResult
from history.releases import Axis
from report.content import Column, Figure, Plot, Row, Section, Table
from report.plots import dashes, field, layered
from report.words import plural, slug

COLUMNS = (
    Column("horovod", "Horovod"),
    Column("tensorflow", "TensorFlow"),
    Column("replica", "each replica"),
    Column("launches", "launches"),
    Column("samples_per_second", "throughput", "samples/s", digits=1),
    Column("spread", "standard deviation, robust", "samples/s", digits=1),
)


def section(fingerprint: Mapping[str, Any], history: Sequence[RawResult]) -> Section:
    """fingerprint: of the session, whose machine's history is shown."""
    machine = machine_label(fingerprint)
    found = [line for line in lines(history, Axis.HOROVOD) if line.machine == machine]
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in found:
        groups.setdefault((line.model, line.world_size), []).append(line)
    return Section(
        "releases",
        "Releases",
        f"Median throughput of all replicas by release, from the raw results of {machine}; asv's "
        "pages (make history) go on from here.",
        tuple(_figure(model, n, alike) for (model, n), alike in groups.items()),
        ""
        if found
        else f"The history holds nothing of this machine, {machine}; make backfill measures "
        "releases, make history imports sessions.",
    )


def _figure(model: str, world_size: int, alike: Sequence[Line]) -> Figure:
    rows = tuple(_row(line, version) for line in alike for version in line.versions)
    newest = rows[-1]
    return Figure(
        slug("releases", model, f"np{world_size}"),
        f"{model} on {plural(world_size, 'replica')}",
        f"{model} on {plural(world_size, 'replica')}, over {len({row['horovod'] for row in rows})} "
        f"releases of Horovod under {plural(len(alike), 'TensorFlow')}; with Horovod "
        f"{newest['horovod']} and TensorFlow {newest['tensorflow']} "
        f"{newest['samples_per_second']:.1f} samples/s.",
        Table(COLUMNS, rows),
        _plot(),
        {"model": model, "world_size": str(world_size)},
    )


def _row(line: Line, version: str) -> Row:
    speeds = line.samples_per_second(version)
    return {
        "horovod": version,
        "tensorflow": line.at,
        "replica": line.replica,
        "launches": len(speeds),
        "samples_per_second": median(speeds),
        "spread": spread(speeds),
    }


def _plot() -> Plot:
    x = field("horovod", "ordinal", "Horovod", sort=None, axis={"labelAngle": 0})
    stack = field("tensorflow", "nominal", "TensorFlow")
    y = {"type": "quantitative", "title": "samples/s", "scale": {"zero": False}}
    return layered(
        {
            "mark": "line",
            "encoding": {
                "x": x,
                "y": {"field": "samples_per_second", **y},
                "color": stack,
                "strokeDash": dashes(stack),
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": {
                "x": x,
                "y": {"field": "samples_per_second", **y},
                "color": stack,
                "shape": stack,
                "tooltip": [
                    field("horovod", "nominal", "Horovod"),
                    field("tensorflow", "nominal", "TensorFlow"),
                    field("samples_per_second", "quantitative", "samples/s", format=".1f"),
                    field("launches", "quantitative"),
                ],
            },
        },
    )
