"""Parts of plots, in Vega-Lite's grammar. Colours and widths are the page's: marks name a style.

Styles: "ideal" (what would be perfect, a dashed line), "band" (where a figure is to be, an area),
"limit" (the edge of what is allowed, a line), "interval" (how far a figure is known, a rule),
"named" (what is pointed out), "quiet" (what is there for comparison).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvdperf.report.content import Column, Plot

Layer = dict[str, Any]


def field(key: str, kind: str, title: str = "", **more: Any) -> dict[str, Any]:
    """A channel. kind: quantitative, ordinal or nominal."""
    return {"field": key, "type": kind, **({"title": title} if title else {}), **more}


def percent(key: str, title: str, **more: Any) -> dict[str, Any]:
    """A channel of a share of 1, shown in %."""
    return field(key, "quantitative", title, axis={"format": ".0%"}, **more)


def layered(*layers: Mapping[str, Any], height: int | None = 260, **more: Any) -> Plot:
    """Layers above each other, as wide as the page gives."""
    size = {} if height is None else {"height": height}
    # So that legends can be without `dashes`.
    apart = {"legend": {"strokeDash": "independent"}}
    return {"width": "container", **size, "layer": list(layers), "resolve": apart, **more}


# Of a legend with which colours, shapes and dashes are told.
LEGEND: Mapping[str, Any] = {"title": None, "orient": "top", "symbolOpacity": 1}


def side_by_side(names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Transforms that make one column of several: `called` is what people call the one that `value`
    is from, and `value_low` and `value_high` are its bounds, from KEY_low and KEY_high. names: by
    key."""
    called = ", ".join(f"'{key}': '{name}'" for key, name in names.items())
    bounds = [
        {"calculate": f"isValid({bound}) ? {bound} : null", "as": f"value_{end}"}
        for end in ("low", "high")
        for bound in (f"datum[datum.key + '_{end}']",)
    ]
    return [
        {"fold": list(names), "as": ["key", "value"]},
        {"calculate": f"{{{called}}}[datum.key]", "as": "called"},
        *bounds,
        known("value"),
    ]


def told_apart(names: Iterable[str]) -> dict[str, Any]:
    """The channel of columns side by side, whatever it is: all of them have one legend."""
    return field("called", "nominal", scale={"domain": list(names)}, legend=LEGEND)


def dashes(channel: Mapping[str, Any]) -> dict[str, Any]:
    """The same, told by the dashes of a line; the legend's marks, which are not dashed, tell it."""
    return {**channel, "legend": None}


# What is told of columns side by side.
BOUNDED = (
    Column("called", "which"),
    Column("value", "figure", digits=3),
    Column("value_low", "from", digits=3),
    Column("value_high", "to", digits=3),
)


def tooltip(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """What is told of whatever is pointed at: these columns of its row."""
    return [
        {
            "field": column.key,
            "title": f"{column.title} [{column.unit}]" if column.unit else column.title,
            **(
                {"type": "nominal"}
                if column.digits is None
                else {"type": "quantitative", "format": f",.{column.digits}f"}
            ),
        }
        for column in columns
    ]


def known(*keys: str) -> dict[str, str]:
    """The transform that leaves the rows which have a number in each of these columns."""
    return {"filter": " && ".join(f"isValid(datum['{key}'])" for key in keys)}


def interval(low: str, high: str, along: str = "y") -> Layer:
    """The rule from one bound to the other, along x or y, where there are both; the other channel
    is inherited."""
    kind = {"type": "quantitative"}
    return {
        "transform": [known(low, high)],
        "mark": {"type": "rule", "style": "interval"},
        "encoding": {along: {"field": low, **kind}, f"{along}2": {"field": high}},
    }


def rows_high(rows: int, each: int = 22, least: int = 60) -> int:
    """Height in pixels of a plot with a row a figure."""
    return max(least, each * rows)


def by_verdict(key: str = "verdict") -> dict[str, Any]:
    """Channels that tell verdicts apart, by colour and by shape: which ones, the page knows."""
    words = field(key, "nominal", "verdict")
    return {"color": words, "shape": words}
