"""Explains why the two speedups of a published scaling table differ, and finds misprints.

A table has, for each number of replicas, the wall time of one amount of work, which the replicas
divide, and the samples per second of an average replica. Printed figures are rounded to the last
digit that their column shows, so results derived from them are known only within that rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec

from hvdperf.columns import Columns, interval, wrapped
from hvdperf.json_records import Unreadable

# The unit of the times by the name of their column, of which a table has one.
TIMES = {"train_seconds": "s", "train_minutes": "min", "train_hours": "h"}
# The figures of a column must lie within a factor FARTHEST of each other, because the arithmetic
# breaks down beyond that.
FARTHEST = 1e6
# From this share of the work of a single replica on, a replica among many divides no work.
EQUAL_WORK = 0.9

Figures = list[Annotated[float, msgspec.Meta(ge=1e-6, le=1e12)]]


@dataclass(frozen=True)
class Published:
    """A published table as JSON: a list for each column. The last two are speedups as printed."""

    gpus: Figures
    examples_per_second_per_gpu: Figures
    train_seconds: Figures = field(default_factory=list)
    train_minutes: Figures = field(default_factory=list)
    train_hours: Figures = field(default_factory=list)
    speedup_time_printed: Figures = field(default_factory=list)
    speedup_speed_printed: Figures = field(default_factory=list)


# What else may cost speed at n replicas, which no such table can tell.
_UNTESTED = (
    "Not tested by such a table: how ranks were launched. On CPUs, waiting by polling, binding and "
    "numbers of threads can cost a third of the speed; pytest perf/test_launch.py measures them."
)
_TABLE = Columns(
    ("n", 4), ("by speed", 9), ("", 6), ("by time", 9), ("", 6), (" by time without a", 0)
)


class Rounded(NamedTuple):
    """A result, and the range of it that the rounding of the printed figures leaves."""

    value: float
    low: float
    high: float


class Row(NamedTuple):
    """The results at n replicas. by_time, by_speed: speedups. without_fixed: the efficiency by time
    after the fixed cost is subtracted. lost: the time that its steps wait for other replicas."""

    n: int
    by_time: Rounded
    by_speed: Rounded
    without_fixed: Rounded
    lost: float

    @property
    def explained(self) -> bool:
        """Return whether the fixed cost explains the gap at this size: without this cost the
        efficiency by time equals that by speed, within what rounding leaves."""
        time, speed = self.without_fixed, self.by_speed
        return time.low <= speed.high / self.n and speed.low / self.n <= time.high


class Explanation(NamedTuple):
    """The explanation of a table. a, b: of t = a + b / n, in `unit`. misprints: a line for each
    printed speedup that does not follow from the table's own figures."""

    a: float
    b: float
    unit: str
    rows: Sequence[Row]
    misprints: Sequence[str]


def explain(table: Published) -> Explanation:
    """Return the explanation of a table. Raises Unreadable for columns of different lengths, world
    sizes that are not three whole numbers or more, ascending from 1, and for a table whose replicas
    do not divide the work."""
    given = {key: column for key, column in vars(table).items() if column}
    units = [key for key in TIMES if key in given]
    if len(units) != 1:
        raise Unreadable(f"it needs one list of times: {' or '.join(TIMES)}")
    sizes, times, speeds = table.gpus, given[units[0]], table.examples_per_second_per_gpu
    for key, column in given.items():
        if len(column) != len(speeds):
            raise Unreadable(f"{key} has {len(column)} figures for {len(speeds)} speeds")
        if max(column) > FARTHEST * min(column):
            raise Unreadable(f"{key} has figures that are {FARTHEST:g} times others")
    if len(sizes) < 3 or sizes[0] != 1 or sizes != sorted({int(size) for size in sizes}):
        raise Unreadable("gpus must be three whole numbers or more, ascending from 1")
    a, b = _fixed_cost(sizes, times)
    # Speed times time is the work of a replica.
    share = speeds[-1] * times[-1] / (speeds[0] * times[0])
    if share >= EQUAL_WORK or b <= 0:
        raise Unreadable(
            f"the replicas do not divide one amount of work: at {sizes[-1]:g}, one does "
            f"{share:.2f} of what it does alone"
        )
    rows = _rows(sizes, times, speeds, a)
    by_time, by_speed = (
        {row.n: getattr(row, key) for row in rows} for key in ("by_time", "by_speed")
    )
    misprints = [
        *_misprints("time", by_time, table.speedup_time_printed),
        *_misprints("speed", by_speed, table.speedup_speed_printed),
    ]
    return Explanation(a, b, TIMES[units[0]], rows, misprints)


def _fixed_cost(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """Return a and b of t = a + b / n, by least squares on relative residuals: the sum of
    (a / t + b / (n t) - 1)^2, whose terms are linear in a and b."""
    import numpy as np  # imported here, because the import is slow

    terms = [(1 / t, 1 / (n * t)) for n, t in zip(sizes, times, strict=True)]
    a, b = np.linalg.lstsq(terms, [1.0] * len(terms))[0]
    return float(a), float(b)


def _rows(
    sizes: Sequence[float], times: Sequence[float], speeds: Sequence[float], a: float
) -> list[Row]:
    rows = []
    for size, t, speed in zip(sizes, times, speeds, strict=True):
        n = int(size)
        # What a single replica has is a figure divided by itself.
        of_times, of_speeds = (half_unit(times), half_unit(speeds)) if n > 1 else (0.0, 0.0)
        by_time, by_speed = _ratio(times[0], t, of_times), _ratio(speed, speeds[0], of_speeds, n)
        without_fixed = _ratio(times[0] - a, t - a, of_times, 1 / n)
        lost = max(t - a, 0.0) * (1 - min(by_speed.value / n, 1.0))
        rows.append(Row(n, by_time, by_speed, without_fixed, lost))
    return rows


def _ratio(over: float, under: float, half: float, factor: float = 1.0) -> Rounded:
    """Return factor * over / under. half: half a unit of the last digit of both."""
    pairs = ((over, under), (over - half, under + half), (over + half, under - half))
    return Rounded(*(factor * above / below if below > 0 else math.inf for above, below in pairs))


def half_unit(column: Sequence[float]) -> float:
    """Return half a unit of the last digit that a column of printed figures shows; a closing .0
    does not count."""
    exponents = [Decimal(repr(value)).normalize().as_tuple().exponent for value in column]
    return 0.5 * 10.0 ** min(0, *map(int, exponents))


def _misprints(quantity: str, ranges: Mapping[int, Rounded], printed: Sequence[float]) -> list[str]:
    """Return a line for each printed speedup that no unrounded times or speeds could have given."""
    half = half_unit(printed) if printed else 0.0
    return [
        f"a speedup by {quantity} of {figure:g} at {n}; the {quantity}s give "
        f"{max(low, 0.0):.3f} to {high:.3f}"
        for (n, (_, low, high)), figure in zip(ranges.items(), printed, strict=False)
        if not low - half <= figure <= high + half
    ]


def lines(found: Explanation) -> list[str]:
    """Return lines for people, of at most 80 columns."""
    a, b, unit, rows, misprints = found
    result = [f"t = a + b / n: a = {a:.2f} {unit}, whatever n; b = {b:.1f} {unit}", _TABLE.header]
    for n, by_time, by_speed, (value, low, high), _ in rows:
        speedups = (
            cell
            for speedup in (by_speed.value, by_time.value)
            for cell in (f"{speedup:.2f}", f"{100 * speedup / n:.0f} %")
        )
        result.append(_TABLE.row(n, *speedups, f" {value:.2f} {interval(low, high, 6, 2)}"))
    last = rows[-1]
    whole = a + b / last.n
    said = (
        f"At {last.n}, {a:.1f} {unit} of {whole:.1f} {unit} are fixed ({100 * a / whole:.0f} %), "
        f"and {last.lost:.1f} {unit} are lost to synchronous steps. {_of_the_gap(rows)}"
    )
    result += [*wrapped(said, others=""), *wrapped(_UNTESTED, others="")]
    return result + [
        line for misprint in misprints for line in wrapped(f"Not reproducible: {misprint}")
    ]


def _of_the_gap(rows: Sequence[Row]) -> str:
    """Return at which sizes the fixed cost explains the gap, and what it leaves at others."""
    left = [row for row in rows if not row.explained]
    if not left:
        return "The fixed cost explains the gap at every size."
    explained = ", ".join(str(row.n) for row in rows[1:] if row.explained)
    figures = ", ".join(
        f"{row.without_fixed.value:.2f} at {row.n} (by speed {row.by_speed.value / row.n:.2f})"
        for row in left
    )
    return (
        f"The fixed cost explains the gap at {f'{explained} only' if explained else 'no size'}; "
        f"without it, the efficiency by time is {figures}."
    )
