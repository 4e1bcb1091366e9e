"""Plots of speedups and efficiencies by world size, from the columns of sections/scaling.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hvdperf.report import plots
from hvdperf.report.content import Column, Plot

# Columns of each way to count: by samples per second, by the wall time of the training, and by
# that of the whole job, with the start of its processes.
WEAK = {"speed": "by speed", "time": "by wall time", "job": "by wall time of the job"}
# There is no wall time with a divided batch. The other ways are of divided steps, in which every
# replica has a whole batch.
STRONG = {"split": "by speed of a divided batch", **WEAK, "speed": "by speed of divided steps"}
Ways = Mapping[str, str]

# If replicas share cores, there is no ideal to compare an efficiency with. A line does not go
# through points whose evidence is unsound.
_DRAWN = {"filter": "datum.drawn == 'yes'"}


def speedup(ways: Ways, sizes: Sequence[int]) -> Plot:
    """Return a plot of speedups. ways: of WEAK or STRONG, those that were measured. sizes: the
    world sizes, which are the marks on both axes."""
    y: dict[str, Any] = {
        "title": "speedup",
        "axis": {"values": list(sizes)},
        "scale": {"type": "log", "base": 2},
    }
    ideal = {
        "mark": {"type": "line", "style": "ideal"},
        "encoding": {
            "x": _by_size(sizes),
            "y": plots.field("world_size", "quantitative", **y),
        },
    }
    return _by_way("speedup", ways, sizes, ideal, y)


def efficiency(ways: Ways, sizes: Sequence[int]) -> Plot:
    y: dict[str, Any] = {"title": "efficiency", "axis": {"format": ".0%"}}
    ideal = {"mark": {"type": "rule", "style": "ideal"}, "encoding": {"y": {"datum": 1, **y}}}
    return _by_way("efficiency", ways, sizes, ideal, y)


def _by_way(
    what: str,
    ways: Ways,
    sizes: Sequence[int],
    ideal: plots.Layer,
    y: dict[str, Any],
) -> Plot:
    """Return a plot with a line per way to count, and the interval of each point."""
    x = _by_size(sizes)
    value, way = (
        plots.field("value", "quantitative", **y),
        plots.told_apart(ways.values()),
    )
    known = plots.interval("value_low", "value_high")
    known["encoding"]["x"] = x
    known["encoding"]["y"] |= y
    line = {
        "mark": {"type": "line"},
        "encoding": {"x": x, "y": value, "color": way, "strokeDash": plots.dashes(way)},
    }
    points = {
        "mark": {"type": "point"},
        "encoding": {
            "x": x,
            "y": value,
            "color": way,
            "shape": way,
            "tooltip": plots.tooltip((Column("world_size", "replicas"), *plots.BOUNDED)),
        },
    }
    return plots.layered(
        ideal,
        known,
        line,
        points,
        transform=[
            _DRAWN,
            *plots.side_by_side({f"{what}_{way}": name for way, name in ways.items()}),
        ],
    )


def _by_size(sizes: Sequence[int]) -> dict[str, Any]:
    return plots.field(
        "world_size",
        "quantitative",
        "replicas",
        scale={"type": "log", "base": 2},
        axis={"values": list(sizes), "format": "d", "labelFlush": False, "grid": False},
    )


def bars(count: int) -> Plot:
    """Return a plot of efficiencies by speed: a bar per network and world size. count: of bars."""
    title = "efficiency by speed"
    places: dict[str, Any] = {
        "y": plots.field("model", "nominal", axis={"title": None}),
        "yOffset": {"field": "world_size", "type": "ordinal"},
    }
    bar = {
        "mark": {"type": "bar", "opacity": 0.85},
        "encoding": {
            **places,
            "x": plots.percent("efficiency_speed", title),
            "color": plots.field("world_size", "ordinal", "replicas"),
            "tooltip": [
                plots.field("model", "nominal", "network"),
                plots.field("world_size", "quantitative", "replicas"),
                plots.field("efficiency_speed", "quantitative", "efficiency", format=".3f"),
            ],
        },
    }
    known = {
        "mark": {"type": "rule", "style": "interval"},
        "encoding": {
            **places,
            "x": plots.percent("efficiency_speed_low", title),
            "x2": {"field": "efficiency_speed_high"},
        },
    }
    ideal = {
        "mark": {"type": "rule", "style": "ideal"},
        "encoding": {"x": {"datum": 1, "title": title}},
    }
    above_one = {"filter": "datum.world_size > 1 && isValid(datum.efficiency_speed)"}
    return {
        **plots.layered(bar, known, ideal, height=plots.rows_high(count)),
        "transform": [_DRAWN, above_one],
    }
