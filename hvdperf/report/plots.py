"""Parts of plots, in Vega-Lite's grammar. The page sets colours and widths: a mark names a style.

Styles: "ideal" (a perfect result, a dashed line), "band" (the range in which a figure should lie,
an area), "limit" (the edge of the allowed range, a line), "interval" (the uncertainty of a figure,
a rule), "named" (a mark to point out), "quiet" (shown for comparison).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvdperf.report.content import Column, Plot, Row

Channel = Mapping[str, Any]
Layer = Mapping[str, Any]
# The legend that explains colours, shapes and dashes.
LEGEND: Channel = {"title": None, "orient": "top", "symbolOpacity": 1}


def field(key: str, kind: str, title: str = "", **more: Any) -> dict[str, Any]:
    """Return a channel. kind: quantitative, ordinal or nominal."""
    return {"field": key, "type": kind, **({"title": title} if title else {}), **more}


def axis(columns: Iterable[Column], key: str, **more: Any) -> dict[str, Any]:
    """Return the channel of a column with numbers, with its title and unit."""
    (column,) = (column for column in columns if column.key == key)
    unit = f" in {column.unit}" if column.unit else ""
    return field(key, "quantitative", f"{column.title}{unit}", **more)


def row_names(key: str, limit: int | None = None, **more: Any) -> dict[str, Any]:
    """Return the channel for the names of rows. limit: pixels after which a name is cut; by default
    a share of the plot."""
    cut = {} if limit is None else {"labelLimit": limit}
    return field(key, "nominal", axis={"title": None, **cut}, **more)


def layer(mark: str | Mapping[str, Any], *transform: Mapping[str, Any], **encoding: Any) -> Layer:
    """Return a layer. mark: its kind, or its properties. transform: transforms of its rows.
    encoding: its channels by name; the others are inherited from the plot."""
    steps = {"transform": list(transform)} if transform else {}
    return {**steps, "mark": mark, "encoding": encoding}


def layered(*layers: Layer, height: int = 260, **more: Any) -> Plot:
    """Return a plot with these layers above each other, as wide as the page allows. height: in
    pixels."""
    # With an independent legend, `curve` can remove the legend of dashes and keep the others.
    apart = {"legend": {"strokeDash": "independent"}}
    return {"width": "container", "height": height, "layer": layers, "resolve": apart, **more}


def line(style: str, **at: Any) -> Layer:
    """Return one straight line across the plot. at: its place, such as x={"datum": 1}; None for a
    channel that it must not inherit."""
    once = {"aggregate": [{"op": "count", "as": "rows"}]}
    return layer({"type": "rule", "style": style}, once, **at)


def curve(
    x: Channel,
    y: Channel,
    by: Channel,
    *behind: Layer,
    bounds: Sequence[str] = (),
    size: int = 55,
    shapes: bool = True,
    tip: Sequence[Mapping[str, Any]],
    **more: Any,
) -> Plot:
    """Return a plot of lines with points. by: distinguishes them by colour, dashes and, if there
    are shapes, by shape. behind: layers behind them. bounds: keys of the lower and upper bound.
    size: of a point. tip: the tooltip. more: of the plot."""
    # The marks in the legend are not dashed and already identify the lines.
    dashes = {**by, "legend": None}
    shape = {"shape": by} if shapes else {}
    return layered(
        *behind,
        *([interval(*bounds, color=by)] if bounds else []),
        layer("line", y=y, color=by, strokeDash=dashes),
        layer({"type": "point", "size": size}, y=y, color=by, **shape, tooltip=tip),
        **{"encoding": {"x": x}, **more},
    )


def estimates(
    at: Mapping[str, Any],
    x: Channel,
    bounds: tuple[str, str],
    *behind: Layer,
    rows: int,
    each: int = 22,
    size: int = 60,
    point: Mapping[str, Any],
    **more: Any,
) -> Plot:
    """Return a plot with a row per figure: its interval, and a point at its estimate.

    at: channels for the place of the row. bounds: keys of the lower and upper bound. behind: layers
    behind the intervals. rows: how many there are. each: pixels of a row. size: of a
    point. point: its other channels, such as the tooltip.
    """
    return layered(
        *behind,
        interval(*bounds, "x", **at),
        layer({"type": "point", "size": size}, **at, x=x, **point),
        height=rows_high(rows, each),
        **more,
    )


# The place of a row of `by_network`.
NETWORK: Mapping[str, Channel] = {
    "y": row_names("model"),
    "yOffset": {"field": "world_size", "type": "ordinal"},
}


def by_network(
    x: Channel,
    bounds: tuple[str, str],
    rows: Sequence[Row],
    *behind: Layer,
    tip: Sequence[Mapping[str, Any]],
    **more: Any,
) -> Plot:
    """Return a plot with a row per network, in which each number of replicas has a line.

    bounds: keys of the lower and upper bound. rows: that are drawn, by "model" and "world_size".
    behind: layers behind the intervals. tip: the tooltip. more: of the plot.
    """
    ranks = field("world_size", "ordinal", "ranks")
    sizes = {row["world_size"] for row in rows}
    return estimates(
        NETWORK,
        x,
        bounds,
        *behind,
        rows=len({row["model"] for row in rows}),
        each=max(26, 14 * len(sizes)),
        point={"color": ranks, "shape": ranks, "tooltip": tip},
        **more,
    )


def side_by_side(names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return transforms that make one column of several.

    `value` holds the figure, `called` the name of its column for people, and `value_low` and
    `value_high` its bounds, from KEY_low and KEY_high. names: by key.
    """
    return [
        {"fold": list(names), "as": ["key", "value"]},
        {"calculate": f"{json.dumps(names)}[datum.key]", "as": "called"},
        *(
            {"calculate": f"isValid({bound}) ? {bound} : null", "as": f"value{end}"}
            for end in ("_low", "_high")
            for bound in (f"datum[datum.key + '{end}']",)
        ),
        known("value"),
    ]


def distinguished(names: Iterable[str]) -> dict[str, Any]:
    """Return the channel that distinguishes columns side by side. All kinds of channel share one
    legend."""
    return field("called", "nominal", scale={"domain": list(names)}, legend=LEGEND)


def folded(
    names: Mapping[str, str],
    y: Channel,
    title: str,
    *behind: Layer,
    rows: int,
    tip: Sequence[Mapping[str, Any]],
    **more: Any,
) -> Plot:
    """Return a plot with a row for each row of the table, and in it an interval for each of these
    columns. names: theirs, by key. y: the place of a row. title: of x. behind: layers behind the
    intervals. rows: how many there are. tip: the tooltip. more: of x."""
    by = distinguished(names.values())
    return estimates(
        {"y": y, "yOffset": field("called", "nominal", sort=list(names.values()))},
        field("value", "quantitative", title, **more),
        ("value_low", "value_high"),
        *behind,
        rows=rows,
        each=18 * len(names),
        point={"color": by, "shape": by, "tooltip": tip},
        transform=side_by_side(names),
    )


# The columns of tooltips for columns side by side.
BOUNDED = (
    Column("called", "which"),
    Column("value", "figure", digits=3),
    Column("value_low", "from", digits=3),
    Column("value_high", "to", digits=3),
)


def tooltip(columns: Iterable[Column], *keys: str) -> list[dict[str, Any]]:
    """Return the tooltip of a mark: these columns of its row that people see, or those with these
    keys."""
    named = {column.key: column for column in columns}
    seen = keys or [key for key, column in named.items() if not column.hidden]
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
        for column in (named[key] for key in seen)
    ]


def known(*keys: str) -> dict[str, str]:
    """Return the transform that keeps the rows with a number in each of these columns."""
    return {"filter": " && ".join(f"isValid(datum['{key}'])" for key in keys)}


def interval(low: str, high: str, along: str = "y", **others: Any) -> Layer:
    """Return the rule from one bound to the other, along x or y, for rows that have both bounds.
    others: the other channels that are not inherited."""
    ends = {along: field(low, "quantitative"), f"{along}2": {"field": high}}
    return layer({"type": "rule", "style": "interval"}, known(low, high), **ends, **others)


def rows_high(rows: int, each: int = 22, least: int = 60) -> int:
    """Return the height in pixels of a plot with a row per figure."""
    return max(least, each * rows)


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return the quantiles of at least one value at these shares (0 to 1), interpolated between
    values (Hyndman and Fan's seventh definition)."""
    import numpy as np  # imported here, because the import is slow

    return [float(cut) for cut in np.quantile(values, shares)]


# With more rows than this, a row of boxes is too low for a number beside it.
MANY_ROWS = 32


def boxes(columns: Sequence[Column], rows: int, y: Channel, *medians: Layer) -> Plot:
    """Return a plot of rules and bars from the quantiles of rows, with these layers that show
    medians. columns: of the tooltip. rows: how many there are. y: the place of a row."""
    return layered(
        interval("q01_ms", "q99_ms", "x"),
        layer(
            {"type": "bar", "style": "quiet", "height": {"band": 0.6}},
            x=field("q25_ms", "quantitative"),
            x2={"field": "q75_ms"},
        ),
        *medians,
        height=rows_high(rows, each=22 if rows <= MANY_ROWS else 6),
        encoding={"y": y, "tooltip": tooltip(columns)},
    )


def stacked(
    y: Channel,
    seconds: str,
    parts: Iterable[str],
    *transform: Mapping[str, Any],
    rows: int,
    each: int,
    tip: Iterable[Column],
    unit: str = "seconds",
) -> Plot:
    """Return a plot of bars of time: parts side by side, with the digit of each part below it.

    y: the place of a bar. seconds: key of the length of a part, in `unit`. parts: their names, each
    of which begins with its digit; column `part` has them. transform: makes these columns. rows:
    how many there are. each: pixels of a row. tip: columns of the tooltip.
    """
    legend = {"title": None, "orient": "bottom", "columns": 4}
    return layered(
        layer(
            {"type": "bar", "height": {"band": 0.55}},
            x=field("below", "quantitative", unit),
            x2={"field": "above"},
            color=field("part", "nominal", scale={"domain": list(parts)}, legend=legend),
            tooltip=tooltip(tip),
        ),
        layer(
            {"type": "text", "baseline": "top", "dy": round(0.28 * each)},
            {"joinaggregate": [{"op": "max", "field": "above", "as": "longest"}]},
            {"filter": "datum.above - datum.below > 0.03 * datum.longest"},
            {"calculate": "(datum.below + datum.above) / 2", "as": "middle"},
            {"calculate": "substring(datum.part, 0, 1)", "as": "digit"},
            x=field("middle", "quantitative"),
            text=field("digit", "nominal"),
        ),
        height=rows_high(rows, each, 2 * each),
        encoding={"y": y},
        transform=[
            *transform,
            {
                "stack": seconds,
                "groupby": [y["field"]],
                "sort": [{"field": "part"}],
                "as": ["below", "above"],
            },
        ],
    )


def stacked_columns(
    y: Channel, names: Mapping[str, str], unit: str, *, rows: int, each: int, tip: Sequence[Column]
) -> Plot:
    """Return a plot of bars of time whose parts are columns. names: of the parts, by key. tip:
    columns of the tooltip beside the part and its time."""
    parts = {key: f"{digit} {name}" for digit, (key, name) in enumerate(names.items(), 1)}
    return stacked(
        y,
        "length",
        parts.values(),
        {"fold": list(parts), "as": ["key", "length"]},
        known("length"),
        {"calculate": f"{json.dumps(parts)}[datum.key]", "as": "part"},
        rows=rows,
        each=each,
        tip=(*tip, Column("part", "part"), Column("length", "time", unit, 3)),
        unit=unit,
    )
