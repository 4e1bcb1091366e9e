"""Explains why the two speedups of a published scaling table differ, and finds misprints.

A table has, for each number of replicas, the wall time of one amount of work and the samples per
second of an average replica. Printed times are rounded, so results derived from them are known only
within that rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvdperf.columns import Columns, interval, wrapped
from hvdperf.errors import UserError
from hvdperf.judge.speedup import FixedCost, fit_fixed_cost

REQUIRED = ("gpus", "train_seconds", "examples_per_second_per_gpu")
# The figures of a table must lie between SMALLEST and LARGEST, and within a factor FARTHEST of each
# other, because the arithmetic breaks down beyond that.
SMALLEST, LARGEST, FARTHEST = 1e-6, 1e12, 1e6
PRINTED = ("speedup_time_printed", "speedup_speed_printed")
# Half a unit of the last digit of the times and speeds, and of a printed speedup.
_HALF_UNIT, _LAST_DIGIT = 0.5, 0.005

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

    world_sizes: ascending from 1. seconds, samples_per_second: time of the training, and speed of
    an average replica, at each world size. printed_by_time, printed_by_speed: speedups as printed;
    empty if none are.
    """

    world_sizes: Sequence[int]
    seconds: Sequence[float]
    samples_per_second: Sequence[float]
    printed_by_time: Sequence[float] = ()
    printed_by_speed: Sequence[float] = ()


@dataclass(frozen=True)
class Row:
    """The results at one world size. by_time, by_speed: speedups. synchronous_seconds: time that
    its steps wait for other replicas. without_fixed: efficiency by time after the fixed cost is
    subtracted, with the range that rounding leaves."""

    world_size: int
    by_time: float
    by_speed: float
    synchronous_seconds: float
    without_fixed: float
    without_fixed_range: tuple[float, float]


@dataclass(frozen=True)
class Explanation:
    """The explanation of a table. fixed: t = a + b / n. misprints: printed speedups that do not
    follow from the table's own figures."""

    fixed: FixedCost
    rows: Sequence[Row]
    misprints: Sequence[str]

    @property
    def explained(self) -> bool:
        """Return whether the fixed cost explains the gap at the largest size: without this cost the
        efficiency by time equals that by speed, within the range that rounding leaves."""
        last = self.rows[-1]
        low, high = last.without_fixed_range
        return low <= last.by_speed / last.world_size <= high


def read_table(document: Mapping[str, Any], name: str) -> Table:
    """Return the table in a JSON object with the keys REQUIRED, and PRINTED if there are printed
    speedups. name: of the file, for messages.

    Raises UserError, which names the key, if a key is missing or does not hold numbers above zero,
    one for each world size; also for world sizes that are not three whole numbers or more,
    ascending from 1.
    """
    columns: dict[str, list[float]] = {}
    for key in (*REQUIRED, *PRINTED):
        column = document.get(key, [] if key in PRINTED else None)
        if not isinstance(column, list) or not all(_is_positive(value) for value in column):
            raise UserError(
                f"{name}: {key} must be a list of numbers above zero, {SMALLEST:g} to {LARGEST:g}"
            )
        if column and max(column) > FARTHEST * min(column):
            raise UserError(f"{name}: {key} has figures that are {FARTHEST:g} times others")
        if column or key in REQUIRED:
            columns[key] = column
    sizes = columns["gpus"]
    for key, column in columns.items():
        if len(column) != len(sizes):
            raise UserError(f"{name}: {key} has {len(column)} figures for {len(sizes)} sizes")
    if len(sizes) < 3 or sizes[0] != 1 or sizes != sorted({int(size) for size in sizes}):
        raise UserError(f"{name}: gpus must be three whole numbers or more, ascending from 1")
    return Table(
        [int(size) for size in sizes],
        columns["train_seconds"],
        columns["examples_per_second_per_gpu"],
        columns.get("speedup_time_printed", ()),
        columns.get("speedup_speed_printed", ()),
    )


def explain(table: Table) -> Explanation:
    fixed = fit_fixed_cost(table.world_sizes, table.seconds)
    rows = [_row(table, fixed.a_seconds, index) for index in range(len(table.world_sizes))]
    return Explanation(fixed, rows, _misprints(table))


def lines(explanation: Explanation) -> list[str]:
    """Return lines for people, of at most 80 columns."""
    a, rows = explanation.fixed.a_seconds, explanation.rows
    result = [
        f"t = a + b / n: a = {a:.2f} s, whatever n; b = {explanation.fixed.b_seconds:.1f} s",
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
    seconds = a + explanation.fixed.b_seconds / last.world_size
    gap = "explains" if explanation.explained else "does not explain"
    said = (
        f"At {last.world_size}, {a:.1f} s of {seconds:.1f} s are fixed ({_percent(a / seconds)}), "
        f"and {last.synchronous_seconds:.1f} s are lost to synchronous steps. The fixed cost {gap} "
        "the gap."
    )
    result += wrapped(said, others="")
    for misprint in explanation.misprints:
        result += wrapped(f"Not reproducible: {misprint}")
    return result


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _row(table: Table, a: float, index: int) -> Row:
    n, t, alone = table.world_sizes[index], table.seconds[index], table.seconds[0]
    by_speed = n * table.samples_per_second[index] / table.samples_per_second[0]
    return Row(
        world_size=n,
        by_time=alone / t,
        by_speed=by_speed,
        synchronous_seconds=max(t - a, 0.0) * (1 - min(by_speed / n, 1.0)),
        without_fixed=_over(alone - a, n * (t - a)),
        without_fixed_range=_rounded(alone - a, t - a, index, 1 / n),
    )


def _rounded(over: float, under: float, index: int, factor: float = 1.0) -> tuple[float, float]:
    """Return the range of factor * over / under for rounded `over` and `under`. index: 0 for a
    figure divided by itself."""
    if index == 0:
        return factor, factor
    half = _HALF_UNIT
    return factor * _over(over - half, under + half), factor * _over(over + half, under - half)


def _over(over: float, under: float) -> float:
    return over / under if under > 0 else math.inf


def _misprints(table: Table) -> list[str]:
    """Return a line for each printed speedup that no unrounded times or speeds could have given."""
    sizes, times, speeds = table.world_sizes, table.seconds, table.samples_per_second
    by_time = [_rounded(times[0], time, i) for i, time in enumerate(times)]
    by_speed = [_rounded(speed, speeds[0], i, sizes[i]) for i, speed in enumerate(speeds)]
    found = []
    for what, ranges, printed in (
        ("time", by_time, table.printed_by_time),
        ("speed", by_speed, table.printed_by_speed),
    ):
        for n, (low, high), figure in zip(sizes, ranges, printed, strict=False):
            if not low - _LAST_DIGIT <= figure <= high + _LAST_DIGIT:
                found.append(
                    f"a speedup by {what} of {figure:g} at {n}; the {what}s give "
                    f"{max(low, 0.0):.3f} to {high:.3f}"
                )
    return found


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and SMALLEST <= value <= LARGEST  # type: ignore[operator]
