"""Parts of plots, in Vega-Lite's grammar. The page sets colours and widths: a mark names a style.

Styles: "ideal" (a perfect result, a dashed line), "band" (the range in which a figure should lie,
an area), "limit" (the edge of the allowed range, a line), "interval" (the uncertainty of a figure,
a rule), "named" (a mark to point out), "quiet" (shown for comparison).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvdperf.report.content import Column, Plot

Layer = dict[str, Any]


def field(key: str, kind: str, title: str = "", **more: Any) -> dict[str, Any]:
    """Return a channel. kind: quantitative, ordinal or nominal."""
    return {"field": key, "type": kind, **({"title": title} if title else {}), **more}


def percent(key: str, title: str, **more: Any) -> dict[str, Any]:
    """Return a channel for a share of 1, shown in %."""
    return field(key, "quantitative", title, axis={"format": ".0%"}, **more)


def layered(*layers: Mapping[str, Any], height: int | None = 260, **more: Any) -> Plot:
    """Return a plot with these layers above each other, as wide as the page allows."""
    size = {} if height is None else {"height": height}
    # With an independent legend, `dashes` can remove the legend of dashes and keep the others.
    apart = {"legend": {"strokeDash": "independent"}}
    return {"width": "container", **size, "layer": list(layers), "resolve": apart, **more}


# The legend that explains colours, shapes and dashes.
LEGEND: Mapping[str, Any] = {"title": None, "orient": "top", "symbolOpacity": 1}


def side_by_side(names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return transforms that make one column of several.

    `value` holds the figure, `called` the name of its column for people, and `value_low` and
    `value_high` its bounds, from KEY_low and KEY_high. names: by key.
    """
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
    """Return the channel that distinguishes columns side by side. All kinds of channel share one
    legend."""
    return field("called", "nominal", scale={"domain": list(names)}, legend=LEGEND)


def dashes(channel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channel for the dashes of a line. It has no legend: the marks in the legend of
    the others are not dashed and already identify the columns."""
    return {**channel, "legend": None}


# The columns of tooltips for columns side by side.
BOUNDED = (
    Column("called", "which"),
    Column("value", "figure", digits=3),
    Column("value_low", "from", digits=3),
    Column("value_high", "to", digits=3),
)


def tooltip(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the tooltip of a mark: these columns of its row."""
    return [
        {
            "field": column.key,
            "title": column.heading,
            **(
                {"type": "nominal"}
                if column.digits is None
                else {"type": "quantitative", "format": f",.{column.digits}f"}
            ),
        }
        for column in columns
    ]


def known(*keys: str) -> dict[str, str]:
    """Return the transform that keeps the rows with a number in each of these columns."""
    return {"filter": " && ".join(f"isValid(datum['{key}'])" for key in keys)}


def interval(low: str, high: str, along: str = "y") -> Layer:
    """Return the rule from one bound to the other, along x or y, for rows that have both bounds.
    The other channel is inherited."""
    kind = {"type": "quantitative"}
    return {
        "transform": [known(low, high)],
        "mark": {"type": "rule", "style": "interval"},
        "encoding": {along: {"field": low, **kind}, f"{along}2": {"field": high}},
    }


def rows_high(rows: int, each: int = 22, least: int = 60) -> int:
    """Return the height in pixels of a plot with a row per figure."""
    return max(least, each * rows)


def by_verdict(key: str = "verdict") -> dict[str, Any]:
    """Return the channels that distinguish verdicts, by colour and by shape. The page chooses the
    colours and shapes."""
    words = field(key, "nominal", "verdict")
    return {"color": words, "shape": words}
