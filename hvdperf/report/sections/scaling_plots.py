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
    y = {"axis": {"values": list(sizes)}, "scale": {"type": "log", "base": 2}}
    each = plots.field("world_size", "quantitative", "speedup", **y)
    ideal = plots.layer({"type": "line", "style": "ideal"}, y=each)
    return _by_way("speedup", ways, sizes, ideal, **y)


def efficiency(ways: Ways, sizes: Sequence[int]) -> Plot:
    ideal = plots.line("ideal", x=None, y={"datum": 1})
    return _by_way("efficiency", ways, sizes, ideal, axis={"format": ".0%"})


def _by_way(what: str, ways: Ways, sizes: Sequence[int], ideal: plots.Layer, **y: Any) -> Plot:
    """Return a plot with a line per way to count, and the interval of each point."""
    columns = {f"{what}_{way}": name for way, name in ways.items()}
    tip = plots.tooltip((Column("world_size", "replicas"), *plots.BOUNDED))
    x = plots.field(
        "world_size",
        "quantitative",
        "replicas",
        scale={"type": "log", "base": 2},
        axis={"values": list(sizes), "format": "d", "labelFlush": False, "grid": False},
    )
    return plots.layered(
        ideal,
        plots.interval("value_low", "value_high"),
        *plots.curves(
            plots.field("value", "quantitative", what, **y),
            plots.distinguished(ways.values()),
            tooltip=tip,
        ),
        encoding={"x": x},
        transform=[_DRAWN, *plots.side_by_side(columns)],
    )


def bars(count: int) -> Plot:
    """Return a plot of efficiencies by speed: a bar per network and world size. count: of bars."""
    places = {
        "y": plots.row_names("model"),
        "yOffset": {"field": "world_size", "type": "ordinal"},
    }
    tip = (
        Column("model", "network"),
        Column("world_size", "replicas"),
        Column("efficiency_speed", "efficiency", digits=3),
    )
    return plots.layered(
        plots.layer(
            {"type": "bar", "opacity": 0.85},
            **places,
            x=plots.percent("efficiency_speed", "efficiency by speed"),
            color=plots.field("world_size", "ordinal", "replicas"),
            tooltip=plots.tooltip(tip),
        ),
        plots.interval("efficiency_speed_low", "efficiency_speed_high", "x", **places),
        plots.line("ideal", x={"datum": 1}),
        height=plots.rows_high(count),
        transform=[_DRAWN, {"filter": "datum.world_size > 1"}, plots.known("efficiency_speed")],
    )
