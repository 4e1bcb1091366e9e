"""Plots of speedups and efficiencies by world size, of the columns of sections/scaling.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report import plots
from report.content import Plot

# Columns of each way to count: by samples per second, by the wall time of the training, and by
# that of the whole job with the start of its processes.
WAYS = {"speed": "by speed", "time": "by wall time", "job": "by wall time of the job"}

# Where replicas share cores there is no line to hold an efficiency against.
_JUDGED = {"filter": "datum.judged == 'yes'"}


def _by_size(title: str = "replicas") -> dict[str, Any]:
    return plots.field(
        "world_size", "quantitative", title, scale={"type": "log", "base": 2}, axis={"format": "d"}
    )


def _lines(what: str, ways: Sequence[str]) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = []
    for way in ways:
        key = f"{what}_{way}"
        name = {"datum": WAYS[way], "type": "nominal"}
        layers += [
            {
                "mark": {"type": "rule", "style": "interval"},
                "encoding": {
                    "y": plots.field(f"{key}_lower", "quantitative"),
                    "y2": {"field": f"{key}_upper"},
                },
            },
            {
                "mark": {"type": "line", "point": False},
                "encoding": {
                    "y": plots.field(key, "quantitative"),
                    "color": name,
                    "strokeDash": name,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60},
                "encoding": {
                    "y": plots.field(key, "quantitative"),
                    "color": name,
                    "shape": name,
                    "tooltip": [
                        plots.field("world_size", "quantitative", "replicas"),
                        plots.field(key, "quantitative", f"{what} {WAYS[way]}", format=".3f"),
                        plots.field(f"{key}_lower", "quantitative", "lower", format=".3f"),
                        plots.field(f"{key}_upper", "quantitative", "upper", format=".3f"),
                    ],
                },
            },
        ]
    return layers


def speedup(ways: Sequence[str]) -> Plot:
    ideal = {
        "mark": {"type": "line", "style": "ideal"},
        "encoding": {"y": plots.field("world_size", "quantitative")},
    }
    y = {"type": "quantitative", "title": "speedup", "scale": {"type": "log", "base": 2}}
    return {
        **plots.layered(ideal, *_titled(_lines("speedup", ways), y)),
        "transform": [_JUDGED],
        "encoding": {"x": _by_size()},
    }


def efficiency(ways: Sequence[str]) -> Plot:
    ideal = {"mark": {"type": "rule", "style": "ideal"}, "encoding": {"y": {"datum": 1}}}
    y = {"type": "quantitative", "title": "efficiency", "axis": {"format": ".0%"}}
    return {
        **plots.layered(ideal, *_titled(_lines("efficiency", ways), y)),
        "transform": [_JUDGED],
        "encoding": {"x": _by_size()},
    }


def _titled(layers: list[dict[str, Any]], y: Mapping[str, Any]) -> list[dict[str, Any]]:
    """With one title, scale and axis for all layers."""
    for layer in layers:
        layer["encoding"]["y"] = {**layer["encoding"]["y"], **y}
    return layers


def bars(count: int) -> Plot:
    """Efficiencies by speed of every network, a bar a world size. count: of bars."""
    x: dict[str, Any] = {"type": "quantitative", "title": "efficiency by speed"}
    x["axis"] = {"format": ".0%"}
    places = {
        "y": plots.field("model", "nominal", axis={"title": None}),
        "yOffset": {"field": "world_size", "type": "ordinal"},
    }
    bar = {
        "mark": {"type": "bar", "opacity": 0.85},
        "encoding": {
            **places,
            "x": {"field": "efficiency_speed", **x},
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
            "x": {"field": "efficiency_speed_lower", **x},
            "x2": {"field": "efficiency_speed_upper"},
        },
    }
    ideal = {"mark": {"type": "rule", "style": "ideal"}, "encoding": {"x": {"datum": 1, **x}}}
    above_one = {"filter": "datum.world_size > 1 && isValid(datum.efficiency_speed)"}
    return {
        **plots.layered(bar, known, ideal, height=plots.rows_high(count)),
        "transform": [_JUDGED, above_one],
    }
