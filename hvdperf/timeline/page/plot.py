"""A line as it is drawn: on an axis that shows noise as noise, with what is usual, what changed and
what failed. It is one small SVG, in which a place is one unit wide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from hvdperf.timeline.lines import Line
from hvdperf.verdict import Verdict

# An axis shows at least this much above and below the median of its line, as a share of it, so that
# noise of 1 % fills a tenth of the height.
LEAST_SPAN = 0.1
# The height, in units of the drawing, and the part of it above and below the outermost figure.
HEIGHT, EDGE = 120, 0.05
# Two standard deviations, of figures that are as the middle half of them.
_TWO_SD = 2 * 1.4826
# The width of the size of a change on a phone, in percent of that of the drawing.
LABEL = 20
# The fewest figures of which it is said what is usual.
_FEWEST = 7


@dataclass(frozen=True)
class Plot:
    """What is drawn of a line.

    width: number of places. low, high: the ends of the axis, in words. path, dots: in SVG. bands:
    x, y, width and height. rules: x, in percent of the width, too, and size of each change, ""
    where there is no room for it. ticks: x and what changed there. accepted: x and why. figures: in
    words, by place, "" where there is none. says: the line in words.
    """

    width: int
    low: str
    high: str
    path: str
    dots: str
    bands: Sequence[tuple[float, float, float, float]]
    rules: Sequence[tuple[int, float, str]]
    ticks: Sequence[tuple[int, str]]
    accepted: Sequence[tuple[int, str]]
    figures: str
    says: str


def plot_of(
    line: Line,
    places: Sequence[int],
    count: int,
    changes: Iterable[tuple[int, str]] = (),
    ticks: Mapping[int, str] | None = None,
    failed: Iterable[int] = (),
    accepted: Iterable[tuple[int, str]] = (),
) -> Plot:
    """Return a line as it is drawn. places: of its figures, among `count` from left to right.
    changes, accepted: place and text. ticks: text by place. failed: places that FAIL, besides those
    where the line has this verdict."""
    changes = list(changes)
    middle = median(line.figures)
    low = min(*line.figures, middle * (1 - LEAST_SPAN))
    high = max(*line.figures, middle * (1 + LEAST_SPAN))
    room = EDGE * (high - low)
    low, high = max(0.0, low - room), high + room

    def down(figure: float) -> int:
        return round((high - min(high, max(low, figure))) / (high - low) * HEIGHT)

    points = dict(zip(places, map(down, line.figures), strict=True))
    verdicts = zip(places, line.verdicts, strict=False)
    bad = {place for place, verdict in verdicts if verdict is Verdict.FAIL} | set(failed)
    figures = dict(zip(places, line.figures, strict=True))
    digits = digits_of(line)
    told = [f"{figures[place]:.{digits}f}" if place in figures else "" for place in range(count)]
    width = max(1, count - 1)
    return Plot(
        width,
        f"{low:.{digits}f}",
        f"{high:.{digits}f}",
        "M" + " ".join(f"{x} {y}" for x, y in points.items()),
        "".join(f"M{x} {points[x]}h0" for x in sorted(bad & points.keys())),
        [
            (left, down(above), right - left, max(1, down(below) - down(above)))
            for left, right, below, above in _usual(figures, [place for place, _ in changes], width)
        ],
        _labelled([(place, round(100 * place / width, 1), size) for place, size in changes]),
        sorted((ticks or {}).items()),
        list(accepted),
        " ".join(told),
        f"{len(points)} points, from {min(line.figures):.{digits}f} to "
        f"{max(line.figures):.{digits}f}, last {line.figures[-1]:.{digits}f}",
    )


def digits_of(line: Line) -> int:
    """Return how many digits after the point a figure of a line is written with: four significant
    ones of a throughput, three after the point of the figure of a case."""
    if line.verdicts:
        return 3
    return max(0, 3 - math.floor(math.log10(median(line.figures))))


def _labelled(rules: Iterable[tuple[int, float, str]]) -> list[tuple[int, float, str]]:
    """Return the rules without the sizes that would lie on a newer one's. A size is on the right of
    its rule, or on the left at the right end."""
    found: list[tuple[int, float, str]] = []
    free = math.inf
    for place, percent, size in sorted(rules, reverse=True):
        left = percent if percent + LABEL <= 100 else percent - LABEL
        has_room = left + LABEL <= free
        found.append((place, percent, size if has_room else ""))
        free = left if has_room else free
    return found[::-1]


def _usual(
    figures: Mapping[int, float], changes: Iterable[int], width: int
) -> list[tuple[int, int, float, float]]:
    """Return where the line changes next, and between which figures 95 % of its nights should be
    until then, if they differ as the middle half of them does: left, right, below and above. That
    is the median and twice the standard deviation on either side."""
    cuts = sorted({0, *changes, width + 1})
    found = []
    for left, right in pairwise(cuts):
        own = [math.log(figure) for place, figure in figures.items() if left <= place < right]
        if len(own) >= _FEWEST:
            middle = median(own)
            apart = _TWO_SD * median(abs(each - middle) for each in own)
            ends = math.exp(middle - apart), math.exp(middle + apart)
            found.append((left, min(right, width), *ends))
    return found
