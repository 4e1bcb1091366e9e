"""Plots of tables, in Vega-Lite's grammar: five kinds, and the layers that they are made of.

`interval` has a row for each result, `curve` a line for each subject, `stacked` bars of time,
`boxes` the quantiles of steps, and `strip` cells over time. A kind takes a table and keys of its
columns, and finds titles, units, bounds, names and tooltips there. A column "drawn" says "no" of
rows that are only in the table.

The page and papers set colours and widths: a mark names a style. Styles: "ideal" (a perfect result,
a dashed line), "band" (the range in which a figure should lie, an area), "limit" (the edge of the
allowed range, a line), "interval" (the uncertainty of a figure, a rule), "named" (a mark to point
out), "quiet" (shown for comparison).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvdperf.report.content import Column, Plot, Row, Table, Value

Channel = Mapping[str, Any]
Layer = Mapping[str, Any]
# The legend that explains colours, shapes and dashes.
LEGEND: Channel = {"title": None, "orient": "top", "symbolOpacity": 1}
# With more points than this, lines have no shapes.
MANY_POINTS = 120
# With more rows than this, a row of boxes is too low for a number beside it.
MANY_ROWS = 32
# What columns side by side become, with headings for a tooltip.
SIDE_BY_SIDE = (
    Column("called", "which"),
    Column("value", "figure", digits=3),
    Column("value_low", "from", digits=3),
    Column("value_high", "to", digits=3),
)


# Layers and channels -----------------------------------------------------------------------------


def field(key: str, kind: str = "quantitative", title: str = "", **more: Any) -> dict[str, Any]:
    """Return a channel. kind: quantitative, ordinal or nominal."""
    return {"field": key, "type": kind, **({"title": title} if title else {}), **more}


def axis(table: Table, key: str, title: str = "", **more: Any) -> dict[str, Any]:
    """Return the channel of a column with numbers. title: by default the column's, with its
    unit."""
    column = table.column(key)
    unit = f" in {column.unit}" if column.unit else ""
    return field(key, "quantitative", title or f"{column.title}{unit}", **more)


def layer(mark: str | Mapping[str, Any], *transform: Mapping[str, Any], **encoding: Any) -> Layer:
    """Return a layer. mark: its kind, or its properties. transform: transforms of its rows.
    encoding: its channels by name; the others are inherited from the plot."""
    steps = {"transform": list(transform)} if transform else {}
    return {**steps, "mark": mark, "encoding": encoding}


def layered(*layers: Layer, height: int = 260, **more: Any) -> Plot:
    """Return a plot with these layers above each other, as wide as the page allows. height: in
    pixels."""
    # With independent legends, those of dashes and of ideal lines can go without that of colours.
    apart = {"legend": {"stroke": "independent", "strokeDash": "independent"}}
    return {"width": "container", "height": height, "layer": layers, "resolve": apart, **more}


def line(style: str, **at: Any) -> Layer:
    """Return one straight line across the plot. at: its place, such as x={"datum": 1}."""
    once = {"aggregate": [{"op": "count", "as": "rows"}]}
    nowhere = {"x": None, "y": None, "yOffset": None}
    return layer({"type": "rule", "style": style}, once, **nowhere | at)


def ticks(style: str, key: str) -> Layer:
    """Return a tick in each row of an `interval` that has a number in this column."""
    return layer({"type": "tick", "style": style}, known(key), x=field(key))


def known(*keys: str) -> dict[str, str]:
    """Return the transform that keeps the rows with a number in each of these columns."""
    return {"filter": " && ".join(f"isValid(datum['{key}'])" for key in keys)}


def tooltip(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the tooltip of a mark."""
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


def rows_high(rows: int, each: int = 22) -> int:
    """Return the height in pixels of a plot with so many rows."""
    return max(60, each * rows)


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return the quantiles of at least one value at these shares (0 to 1), interpolated between
    values (Hyndman and Fan's seventh definition)."""
    import numpy as np  # imported here, because the import is slow

    return [float(cut) for cut in np.quantile(values, shares)]


# Kinds -------------------------------------------------------------------------------------------


def interval(
    table: Table,
    y: str,
    x: Channel,
    by: str = "",
    *behind: Layer,
    sides: Sequence[str] = (),
    bounds: Sequence[str] = (),
) -> Plot | None:
    """Return a plot with a row for each name in column y, in which estimates are points with their
    intervals; None if there are no estimates.

    x: of the estimates. by: the column that colours and shapes show. behind: layers behind the
    intervals. sides: columns that are drawn side by side; x is then of column "value". bounds: keys
    of the bounds, by default those of x.
    """
    rows = [row for row in drawn(table) if sides or row[x["field"]] is not None]
    if not rows:
        return None
    names, by = _values(rows, y), "called" if sides else by
    colour = _distinguished(table, by, sides=sides) if by else {}
    if by == y:
        colour = {**colour, "legend": None}
    lines = len(sides) or (len(_values(rows, by)) if len(names) < len(rows) else 1)
    apart = {"yOffset": field(by, colour["type"], sort=None)} if lines > 1 else {}
    return layered(
        *behind,
        *_ranges("x", bounds or _bounds(table, x, sides)),
        layer(
            "point",
            x=x,
            tooltip=tooltip((table.column(y), *SIDE_BY_SIDE) if sides else table.seen),
            **({"color": colour, "shape": colour} if by else {}),
        ),
        height=rows_high(len(names), max(22, 16 * lines)),
        encoding={"y": _names(table, y, names), **apart},
        transform=[*_transforms(table, sides), known(x["field"])],
    )


def curve(
    table: Table,
    x: Channel,
    y: Channel,
    by: str = "",
    *behind: Layer,
    sides: Sequence[str] = (),
    domain: Sequence[Value] = (),
) -> Plot:
    """Return a plot of lines with points and their intervals. by: the column whose values each have
    a line. behind: layers behind the lines. sides: as in `interval`, in place of `by`. domain: the
    values of `by` in all plots with the same colours."""
    apart = _distinguished(table, by, domain, sides)
    few = len(drawn(table)) <= MANY_POINTS
    return layered(
        *behind,
        *_ranges("y", _bounds(table, y, sides), color=apart),
        # The marks in the legend are not dashed and already identify the lines.
        layer("line", y=y, color=apart, strokeDash={**apart, "legend": None}),
        layer(
            {"type": "point", "size": 40 if few else 4},
            y=y,
            color=apart,
            tooltip=tooltip((table.column(x["field"]), *SIDE_BY_SIDE) if sides else table.seen),
            **({"shape": apart} if few else {}),
        ),
        encoding={"x": x},
        transform=_transforms(table, sides),
    )


def stacked(table: Table, y: str, *lengths: str, unit: str = "seconds") -> Plot:
    """Return a plot of bars of time: parts side by side, each with its digit below it.

    y: the column that names bars, one a row. lengths: columns with the lengths of parts, in this
    unit.
    """
    names = _values(table.rows, y)
    parts = {key: f"{digit} {table.column(key).title}" for digit, key in enumerate(lengths, 1)}
    legend = {"title": None, "orient": "bottom"}
    tip = (table.column(y), Column("part", "part"), Column("length", unit, digits=3))
    return layered(
        layer(
            {"type": "bar", "height": 24},
            x=field("below", title=unit),
            x2={"field": "above"},
            color=field("part", "nominal", scale={"domain": list(parts.values())}, legend=legend),
            tooltip=tooltip(tip),
        ),
        layer(
            {"type": "text", "baseline": "top", "dy": 14},
            {"joinaggregate": [{"op": "max", "field": "above", "as": "longest"}]},
            {"filter": "datum.above - datum.below > 0.03 * datum.longest"},
            {"calculate": "(datum.below + datum.above) / 2", "as": "middle"},
            {"calculate": "substring(datum.part, 0, 1)", "as": "digit"},
            x=field("middle"),
            text=field("digit", "nominal"),
        ),
        height=rows_high(len(names), 48),
        encoding={"y": _names(table, y, names)},
        transform=[
            {"fold": list(parts), "as": ["key", "length"]},
            known("length"),
            {"calculate": f"{json.dumps(parts)}[datum.key]", "as": "part"},
            {
                "stack": "length",
                "groupby": [y],
                "sort": [{"field": "part"}],
                "as": ["below", "above"],
            },
        ],
    )


def boxes(table: Table, y: str, named: str) -> Plot:
    """Return a plot of rules and bars from the quantiles of steps, "q01_ms" to "q99_ms", with ticks
    at the medians. y: the column that names rows. named: the column with "yes" for rows to point
    out."""
    names = _values(table.rows, y)
    middle = field("q50_ms", title="step time in ms", scale={"zero": False})
    diamond = {"type": "point", "size": 70, "style": "named", "shape": "diamond"}
    return layered(
        *_ranges("x", ("q01_ms", "q99_ms")),
        layer(
            {"type": "bar", "style": "quiet", "height": {"band": 0.6}},
            x=field("q25_ms"),
            x2={"field": "q75_ms"},
        ),
        layer("tick", x=middle),
        layer(diamond, {"filter": f"datum.{named} === 'yes'"}, x=middle),
        height=rows_high(len(names), 22 if len(names) <= MANY_ROWS else 6),
        encoding={"y": _names(table, y, names), "tooltip": tooltip(table.seen)},
    )


def strip(table: Table, y: str, begin: str, end: str, colour: Channel, title: str) -> Plot:
    """Return a plot with a row for each name in column y, and in it cells over time. begin, end:
    columns of the ends of a cell. colour: of cells. title: of the time."""
    names = _values(table.rows, y)
    return layered(
        layer(
            {"type": "rect", "strokeWidth": 0, "height": {"band": 0.8}},
            x=field(begin, title=title),
            x2={"field": end},
            color=colour,
            tooltip=tooltip(table.seen),
        ),
        height=rows_high(len(names), 28),
        encoding={"y": _names(table, y, names)},
    )


def drawn(table: Table) -> list[Row]:
    """Return the rows that a plot shows."""
    return [row for row in table.rows if row.get("drawn") != "no"]


def _values(rows: Iterable[Row], key: str) -> list[Value]:
    return list(dict.fromkeys(row[key] for row in rows))


def _bounds(table: Table, x: Channel, sides: Sequence[str]) -> Sequence[str]:
    """Return the keys of the bounds of a figure; () if it has none."""
    if sides:
        return "value_low", "value_high"
    return [column.key for column in table.bounds(x["field"])]


def _ranges(along: str, bounds: Sequence[str], **others: Any) -> list[Layer]:
    """Return the rule from one bound to the other, along x or y, for rows that have both bounds; []
    without bounds. others: the other channels that are not inherited."""
    if not bounds:
        return []
    low, high = bounds
    ends = {along: field(low), f"{along}2": {"field": high}}
    return [layer({"type": "rule", "style": "interval"}, known(low, high), **ends, **others)]


def _names(table: Table, key: str, names: Sequence[Value]) -> dict[str, Any]:
    """Return the channel of rows: their names in the order of the table, or numbers with their
    title."""
    if all(isinstance(name, int) for name in names):
        overlap = {"labelOverlap": "greedy"}
        return field(key, "ordinal", table.column(key).title, axis=overlap)
    return field(key, "nominal", axis={"title": None}, sort=list(names))


def _distinguished(
    table: Table, key: str, domain: Sequence[Value] = (), sides: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the channel of the colours and shapes that distinguish the values of a column, or
    columns that are side by side. domain: as in `curve`."""
    if key == "verdict":
        # Its colours and shapes are the page's.
        return field(key, "nominal", legend=LEGEND)
    titles: list[Value] = [table.column(side).title for side in sides]
    key, present = ("called", titles) if sides else (key, _values(drawn(table), key))
    every = list(domain or present)
    numbers = all(isinstance(value, int) for value in every)
    title = table.column(key).title if numbers else None
    kept = [value for value in every if value in present]
    legend = {**LEGEND, "title": title, **({"values": kept} if kept != every else {})}
    # All kinds of channel share one legend only if their domains are equal.
    kind = "ordinal" if key == "world_size" else "nominal"
    return field(key, kind, scale={"domain": every}, legend=legend)


def _transforms(table: Table, sides: Sequence[str]) -> list[dict[str, Any]]:
    """Return the transforms that leave out rows, and that make one column of sides: `value` holds
    the figure, `called` the title of its column, and `value_low` and `value_high` its bounds, from
    KEY_low and KEY_high."""
    found: list[dict[str, Any]] = []
    if len(drawn(table)) < len(table.rows):
        found.append({"filter": "datum.drawn == 'yes'"})
    if sides:
        titles = {key: table.column(key).title for key in sides}
        found += [
            {"fold": list(sides), "as": ["key", "value"]},
            {"calculate": f"{json.dumps(titles)}[datum.key]", "as": "called"},
            *(
                {"calculate": f"isValid({bound}) ? {bound} : null", "as": f"value{end}"}
                for end in ("_low", "_high")
                for bound in (f"datum[datum.key + '{end}']",)
            ),
            known("value"),
        ]
    return found
