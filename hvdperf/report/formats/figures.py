"""Figures for papers, as SVG or PDF of a physical width.

vl-convert draws the same Vega-Lite specifications as the page, without a browser. The colours
differ in lightness too, so that they can be told apart on grey paper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hvdperf.errors import UserError
from hvdperf.inline import PAGE, themes
from hvdperf.report.content import Figure, Plot, Row

FORMATS = ("svg", "pdf")
# The width of a column of many two-column papers.
USUAL_WIDTH = "88mm"
# Points (1/72 in) of a unit of length.
_POINTS = {"mm": 72 / 25.4, "cm": 72 / 2.54, "in": 72.0, "pt": 1.0}
# Between them a plot has room for its labels, and fits a sheet of paper. In points.
_NARROWEST, _WIDEST = 40 * _POINTS["mm"], 1000 * _POINTS["mm"]
# A plot is drawn with the sizes of the page, in pixels, and then scaled: 11 pixels become 7 pt.
LABEL_PIXELS = 11
SCALE = 7 / LABEL_PIXELS
# The release of Vega-Lite, of those that vl-convert brings, that is nearest to page/vendor.toml.
VEGA_LITE = "6.4"
# Neighbours differ by at least 15 in lightness: L* is 18, 66, 42, 74, 26, 58, 34, 50.
CATEGORIES = (
    "#152a55",
    "#ed8620",
    "#147060",
    "#7bbdec",
    "#721c39",
    "#a37bc0",
    "#285a1e",
    "#cc4d34",
)
_INK = {
    "categories": CATEGORIES,
    "sizes": ("#8fc1e3", "#0b2f52"),
    "text": "#000000",
    "muted": "#000000",
    "line": "#dddddd",
    "edge": "#666666",
    "ideal": "#666666",
    "interval": "#333333",
}
_LEGENDS = ("color", "fill", "stroke", "shape", "strokeDash", "size")
# Pixels of a letter, of a legend's symbol with its gaps, and of the margins.
_LETTER, _SYMBOL, _MARGINS = 6.5, 34, 30


def points_of(width: str) -> float:
    """Return a width such as 88mm, 8.8cm, 3.5in or 250pt in points. Raises UserError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(mm|cm|in|pt)", width.strip())
    points = float(found[1]) * _POINTS[found[2]] if found else 0.0
    if not _NARROWEST <= points <= _WIDEST:
        raise UserError(
            f"--width {width}: give a number from 40mm to 1000mm with its unit: mm, cm, in or pt"
        )
    return points


def drawing(figure: Figure, form: str, points: float) -> bytes:
    """Return the plot of a figure, which has one, as SVG or PDF. points: its width. Raises
    UserError if it cannot be drawn."""
    try:
        import vl_convert  # imported here, because it loads 80 MB
    except ImportError as error:
        raise UserError(f"--figures: {error}; install vl-convert-python") from None

    assert figure.plot is not None
    spec = specification(figure.plot, figure.table.rows, points / SCALE)
    try:
        # Nothing is loaded from any address.
        svg = vl_convert.vegalite_to_svg(spec, VEGA_LITE, allowed_base_urls=[])
    except ValueError as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"figure {figure.name} cannot be drawn: {why}") from None
    if form == "pdf":
        # The unit of a page of PDF is the point.
        return vl_convert.svg_to_pdf(_sized(svg, "pt", ""))
    return _sized(svg, "mm", "mm").encode()


def specification(plot: Plot, rows: Sequence[Row], pixels: float) -> dict[str, Any]:
    """Return the plot as a whole Vega-Lite specification: with its data, width and style."""
    # A copy in which no two channels are one object, as those of a plot may be.
    spec: dict[str, Any] = json.loads(json.dumps(plot))
    for channels in _encodings(spec):
        for name, channel in channels.items():
            if not isinstance(channel, dict):
                continue
            if name in _LEGENDS and isinstance(channel.get("legend"), dict):
                fit = _legend_columns(channel, rows, pixels)
                channel["legend"] = {**channel["legend"], "columns": fit}
    return {
        **spec,
        "data": {"values": [dict(row) for row in rows]},
        "width": pixels,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _config(pixels, _anchor(spec, rows, pixels)),
    }


def _anchor(spec: Mapping[str, Any], rows: Iterable[Row], pixels: float) -> dict[str, str]:
    """Return where the title of the x-axis begins: one that is longer than its axis ends with it,
    and so has the room below the names of the rows."""
    every = list(_encodings(spec))
    names = [str(row.get(at["y"]["field"], "")) for at in every if _is_named(at) for row in rows]
    beside = min(_label_limit(pixels), _LETTER * max(map(len, names), default=10))
    titles = [str(at["x"].get("title", "")) for at in every if isinstance(at.get("x"), dict)]
    longest = _LETTER * max(map(len, titles), default=0)
    return {"titleAnchor": "end"} if longest > pixels - beside - _MARGINS else {}


def _is_named(channels: Mapping[str, Any]) -> bool:
    """Return whether the rows of a plot have names along y."""
    return isinstance(channels.get("y"), dict) and channels["y"].get("type") == "nominal"


def _label_limit(pixels: float) -> float:
    return max(150, pixels * 0.45)


def _encodings(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the channels of a plot and of its layers."""
    if isinstance(part, Mapping):
        if isinstance(part.get("encoding"), dict):
            yield part["encoding"]
        for each in part.values():
            yield from _encodings(each)
    elif isinstance(part, list | tuple):
        for each in part:
            yield from _encodings(each)


def _legend_columns(channel: Mapping[str, Any], rows: Iterable[Row], pixels: float) -> int:
    """Return how many of a legend's columns fit beside each other."""
    domain = channel["legend"].get("values") or channel.get("scale", {}).get("domain")
    names = domain or [row.get(str(channel.get("field"))) for row in rows]
    longest = max((len(str(name)) for name in names), default=1)
    fit = int((pixels - _MARGINS) / (_LETTER * longest + _SYMBOL))
    wanted: int = channel["legend"].get("columns", fit)
    return max(1, min(fit, wanted))


def _sized(svg: str, unit: str, written: str) -> str:
    """Return the drawing with its physical size; its content keeps its own pixels. written: the
    unit as it is written."""

    def size(found: re.Match[str]) -> str:
        width, height = (float(each) * SCALE / _POINTS[unit] for each in found.groups())
        return f'width="{width:.2f}{written}" height="{height:.2f}{written}"'

    return re.sub(r'width="([\d.]+)" height="([\d.]+)"', size, svg, count=1)


def _config(pixels: float, of_x: Mapping[str, str]) -> dict[str, Any]:
    """Return the page's style in black on white. of_x: more of the x-axis."""
    colours = {**themes()["light"], **_INK, "first": CATEGORIES[0]}
    chart = (PAGE / "chart.json").read_text(encoding="utf-8")
    text = re.sub(r'"\$(\w+)"', lambda found: json.dumps(colours[found[1]]), chart)
    config: dict[str, Any] = json.loads(text)
    config["axis"] |= {"titleLimit": pixels - _MARGINS, "labelLimit": _label_limit(pixels)}
    config["axisX"] |= {**of_x, "tickCount": max(3, min(10, round(pixels / 70)))}
    return {
        **config,
        "background": "white",
        "font": "Helvetica, Arial, Liberation Sans, sans-serif",
        "padding": {"left": 1, "right": 6, "top": 3, "bottom": 1},
    }
