"""Explains why the two speedups of a published scaling table differ, and finds misprints.

A table has, for each number of replicas, the wall time of one amount of work, which the replicas
divide, and the samples per second of an average replica. Printed figures are rounded to the last
digit that their column shows, so results derived from them are known only within that rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hvdperf.columns import Columns, interval, wrapped
from hvdperf.errors import UserError
from hvdperf.explain.speedup import fit_fixed_cost
from hvdperf.records.outcome import FixedCost

SPEEDS = "examples_per_second_per_gpu"
# By the name of the times' column, of which a table has one: their unit, in words and in seconds.
TIMES = {"train_seconds": ("s", 1.0), "train_minutes": ("min", 60.0), "train_hours": ("h", 3600.0)}
# The figures of a table must lie between SMALLEST and LARGEST, and within a factor FARTHEST of each
# other, because the arithmetic breaks down beyond that.
SMALLEST, LARGEST, FARTHEST = 1e-6, 1e12, 1e6
PRINTED = ("speedup_time_printed", "speedup_speed_printed")
# From this share of the work of a single replica on, a replica among many divides no work.
EQUAL_WORK = 0.9

# What else may cost speed at n replicas, which no such table can tell.
_UNTESTED = (
    "Not tested by such a table: how ranks were launched. On CPUs, waiting by polling, binding and "
    "numbers of threads can cost a third of the speed; pytest perf/test_launch.py measures them."
)

_TABLE = Columns(
    ("n", 4),
    ("by speed", 9),
    ("", 6),
    ("by time", 9),
    ("", 6),
    (" by time without a", 0),
)


@dataclass(frozen=True)
class Table:
    """A published table.

    world_sizes: ascending from 1. times, samples_per_second: time of the training, in the unit that
    the table prints, and speed of an average replica, at each world size. printed_by_time,
    printed_by_speed: speedups as printed; empty if none are. unit: a key of TIMES.
    """

    world_sizes: Sequence[int]
    times: Sequence[float]
    samples_per_second: Sequence[float]
    printed_by_time: Sequence[float] = ()
    printed_by_speed: Sequence[float] = ()
    unit: str = "train_seconds"

    @property
    def seconds(self) -> list[float]:
        """Return the times in seconds."""
        return [time * TIMES[self.unit][1] for time in self.times]

    @property
    def half_second(self) -> float:
        """Return half a unit of the last digit of the times, in seconds."""
        return half_unit(self.times) * TIMES[self.unit][1]


@dataclass(frozen=True)
class Row:
    """The results at one world size. by_time, by_speed: speedups. synchronous_seconds: time that
    its steps wait for other replicas. without_fixed: efficiency by time after the fixed cost is
    subtracted. Its range, and that of the efficiency by speed, is what rounding leaves."""

    world_size: int
    by_time: float
    by_speed: float
    synchronous_seconds: float
    without_fixed: float
    without_fixed_range: tuple[float, float]
    of_speed_range: tuple[float, float]

    @property
    def explained(self) -> bool:
        """Return whether the fixed cost explains the gap at this size: without this cost the
        efficiency by time equals that by speed, within what rounding leaves."""
        (low, high), (lowest, highest) = self.without_fixed_range, self.of_speed_range
        return low <= highest and lowest <= high


@dataclass(frozen=True)
class Explanation:
    """The explanation of a table. fixed: t = a + b / n. misprints: printed speedups that do not
    follow from the table's own figures. unit: as in Table."""

    fixed: FixedCost
    rows: Sequence[Row]
    misprints: Sequence[str]
    unit: str = "train_seconds"

    @property
    def explained(self) -> bool:
        """Return whether the fixed cost explains the gap at every size."""
        return all(row.explained for row in self.rows)


def read_table(document: Mapping[str, Any], name: str) -> Table:
    """Return the table in a JSON object with the keys `gpus`, SPEEDS and one of TIMES, and PRINTED
    if there are printed speedups. name: of the file, for messages.

    Raises UserError, which names the key, if a key is missing or does not hold numbers above zero,
    one for each world size; also for world sizes that are not three whole numbers or more,
    ascending from 1, and for a table whose replicas do not divide the work.
    """
    units = [key for key in TIMES if key in document]
    if len(units) != 1:
        raise UserError(f"{name}: give one list of times: {' or '.join(TIMES)}")
    required = ("gpus", units[0], SPEEDS)
    columns: dict[str, list[float]] = {}
    for key in (*required, *PRINTED):
        column = document.get(key, [] if key in PRINTED else None)
        if not isinstance(column, list) or not all(_is_positive(value) for value in column):
            raise UserError(
                f"{name}: {key} must be a list of numbers above zero, {SMALLEST:g} to {LARGEST:g}"
            )
        if column and max(column) > FARTHEST * min(column):
            raise UserError(f"{name}: {key} has figures that are {FARTHEST:g} times others")
        if column or key in required:
            columns[key] = column
    sizes = columns["gpus"]
    for key, column in columns.items():
        if len(column) != len(sizes):
            raise UserError(f"{name}: {key} has {len(column)} figures for {len(sizes)} sizes")
    if len(sizes) < 3 or sizes[0] != 1 or sizes != sorted({int(size) for size in sizes}):
        raise UserError(f"{name}: gpus must be three whole numbers or more, ascending from 1")
    table = Table(
        [int(size) for size in sizes],
        columns[units[0]],
        columns[SPEEDS],
        columns.get("speedup_time_printed", ()),
        columns.get("speedup_speed_printed", ()),
        units[0],
    )
    _refuse_equal_work(table, name)
    return table


def _refuse_equal_work(table: Table, name: str) -> None:
    """Raise UserError unless the replicas divide one amount of work: speed times time is the work
    of a replica."""
    work = [speed * time for speed, time in zip(table.samples_per_second, table.times, strict=True)]
    share = work[-1] / work[0]
    falls = fit_fixed_cost(table.world_sizes, table.seconds).b_seconds > 0
    if share >= EQUAL_WORK or not falls:
        raise UserError(
            f"{name}: the replicas do not divide the work: at {table.world_sizes[-1]}, one does "
            f"{share:.2f} of what it does alone; give a table of one amount of work"
        )


def explain(table: Table) -> Explanation:
    """Return the explanation of a table whose replicas divide the work."""
    fixed = fit_fixed_cost(table.world_sizes, table.seconds)
    rows = [_row(table, fixed.a_seconds, index) for index in range(len(table.world_sizes))]
    return Explanation(fixed, rows, _misprints(table), table.unit)


def half_unit(column: Sequence[float]) -> float:
    """Return half a unit of the last digit that a column of printed figures shows."""
    digits = max(_digits(value) for value in column)
    return 0.5 * 10.0**-digits


def _digits(value: float) -> int:
    """Return the number of decimals of a figure; a closing .0 does not count."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return max(-int(exponent), 0)


def lines(explanation: Explanation) -> list[str]:
    """Return lines for people, of at most 80 columns."""
    rows, (unit, seconds) = explanation.rows, TIMES[explanation.unit]
    a, b = explanation.fixed.a_seconds / seconds, explanation.fixed.b_seconds / seconds
    result = [
        f"t = a + b / n: a = {a:.2f} {unit}, whatever n; b = {b:.1f} {unit}",
        _TABLE.header,
    ]
    for row in rows:
        n = row.world_size
        result.append(
            _TABLE.row(
                n,
                f"{row.by_speed:.2f}",
                _percent(row.by_speed / n),
                f"{row.by_time:.2f}",
                _percent(row.by_time / n),
                f" {row.without_fixed:.2f} {interval(*row.without_fixed_range, 6, 2)}",
            )
        )
    last = rows[-1]
    whole = a + b / last.world_size
    said = (
        f"At {last.world_size}, {a:.1f} {unit} of {whole:.1f} {unit} are fixed "
        f"({_percent(a / whole)}), and {last.synchronous_seconds / seconds:.1f} {unit} are lost to "
        f"synchronous steps. {_of_the_gap(rows)}"
    )
    result += wrapped(said, others="")
    result += wrapped(_UNTESTED, others="")
    for misprint in explanation.misprints:
        result += wrapped(f"Not reproducible: {misprint}")
    return result


def _of_the_gap(rows: Sequence[Row]) -> str:
    """Return at which sizes the fixed cost explains the gap, and what it leaves at others."""
    several = rows[1:]
    explained = [str(row.world_size) for row in several if row.explained]
    left = [row for row in several if not row.explained]
    if not left:
        return "The fixed cost explains the gap at every size."
    where = f"{', '.join(explained)} only" if explained else "no size"
    figures = ", ".join(
        f"{row.without_fixed:.2f} at {row.world_size} "
        f"(by speed {row.by_speed / row.world_size:.2f})"
        for row in left
    )
    return (
        f"The fixed cost explains the gap at {where}; without it, the efficiency by time is "
        f"{figures}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _row(table: Table, a: float, index: int) -> Row:
    n, t, alone = table.world_sizes[index], table.seconds[index], table.seconds[0]
    speeds = table.samples_per_second
    by_speed = n * speeds[index] / speeds[0]
    return Row(
        world_size=n,
        by_time=alone / t,
        by_speed=by_speed,
        synchronous_seconds=max(t - a, 0.0) * (1 - min(by_speed / n, 1.0)),
        without_fixed=_over(alone - a, n * (t - a)),
        without_fixed_range=_rounded(alone - a, t - a, index, table.half_second, 1 / n),
        of_speed_range=_rounded(speeds[index], speeds[0], index, half_unit(speeds)),
    )


def _rounded(
    over: float, under: float, index: int, half: float, factor: float = 1.0
) -> tuple[float, float]:
    """Return the range of factor * over / under for rounded `over` and `under`. index: 0 for a
    figure divided by itself. half: half a unit of their last digit."""
    if index == 0:
        return factor, factor
    return factor * _over(over - half, under + half), factor * _over(over + half, under - half)


def _over(over: float, under: float) -> float:
    return over / under if under > 0 else math.inf


def _misprints(table: Table) -> list[str]:
    """Return a line for each printed speedup that no unrounded times or speeds could have given."""
    sizes, times, speeds = table.world_sizes, table.times, table.samples_per_second
    of_times, of_speeds = half_unit(times), half_unit(speeds)
    by_time = [_rounded(times[0], time, i, of_times) for i, time in enumerate(times)]
    by_speed = [
        _rounded(speed, speeds[0], i, of_speeds, sizes[i]) for i, speed in enumerate(speeds)
    ]
    found = []
    for what, ranges, printed in (
        ("time", by_time, table.printed_by_time),
        ("speed", by_speed, table.printed_by_speed),
    ):
        half = half_unit(printed) if printed else 0.0
        for n, (low, high), figure in zip(sizes, ranges, printed, strict=False):
            if not low - half <= figure <= high + half:
                found.append(
                    f"a speedup by {what} of {figure:g} at {n}; the {what}s give "
                    f"{max(low, 0.0):.3f} to {high:.3f}"
                )
    return found


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and SMALLEST <= value <= LARGEST  # type: ignore[operator]
