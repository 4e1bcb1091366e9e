"""Numbers of a sample, as tables have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hvdperf.report.content import Value
from hvdperf.stats import Interval
from hvdperf.verdict import is_bounded


def finite(values: Iterable[float | None]) -> list[float]:
    """Those that are numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def number(value: Value) -> float:
    """Of a table's cell that holds one; 0 of any other."""
    return float(value) if isinstance(value, int | float) else 0.0


def cells_of(figure: Interval | None, estimate: str, lower: str, upper: str) -> dict[str, Value]:
    """A figure's cells, under these keys; bounds that bound nothing are None."""
    if figure is None:
        return {estimate: None, lower: None, upper: None}
    bounded = is_bounded(figure)
    return {
        estimate: figure.estimate,
        lower: figure.lower if bounded else None,
        upper: figure.upper if bounded else None,
    }


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Below which such shares of the values lie, in between by interpolation (Hyndman and Fan's
    seventh, numpy's default). Raises ValueError for no values."""
    if not values:
        raise ValueError("no values have no quantiles")
    ordered = sorted(values)
    found = []
    for share in shares:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        found.append(ordered[below] + (place - below) * (ordered[above] - ordered[below]))
    return found
