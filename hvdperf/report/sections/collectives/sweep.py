"""A sweep: bus bandwidth by size, through Horovod and bare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hvdperf.plan.arms import KIB, MIB
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Table, Value
from hvdperf.report.numbers import number
from hvdperf.report.sections.collectives.pairs import (
    OVERHEAD,
    SIDES,
    WIDTHS,
    Pair,
    collective_of,
    overheads,
    widths,
)
from hvdperf.report.words import slug

_SIZE = (Column("bytes", "size", "B", hidden=True), Column("size", "size"))
_BRIEF = {"size": "size", "horovod": "Horovod", "bare": "bare", "overhead": "ratio"}
_COLUMNS = tuple(
    replace(column, brief=_BRIEF.get(column.key, "")) for column in (*_SIZE, *WIDTHS, *OVERHEAD)
)


def swept(case: Case, pairs: Sequence[Pair]) -> Figure:
    collective, n = collective_of(case).value, case.world_size
    by_size: dict[int, list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair.size_bytes):
        by_size.setdefault(pair.size_bytes, []).append(pair)
    rows: dict[int, dict[str, Value]] = {
        size: {"bytes": size, "size": _short(size), **widths(case, group), **overheads(group)}
        for size, group in by_size.items()
    }
    table = Table(_COLUMNS, tuple(rows.values()))
    best = max(table.rows, key=lambda row: number(row["horovod"]))
    worst = max(table.rows, key=lambda row: number(row["overhead"]))
    return Figure(
        name=slug("bandwidth", collective, f"np{n}"),
        title=f"{collective} on {n} ranks: bus bandwidth in GB/s by size",
        says=(
            f"Through Horovod {number(best['horovod']):.2f} GB/s at most, at {best['size']}, where "
            f"bare MPI reaches {number(best['bare']):.2f}. Horovod takes longest in "
            f"proportion at {worst['size']}: {number(worst['overhead']):.2f} times the bare "
            "transport's time."
        ),
        table=table,
        plot=_plot(list(rows)),
        tags={"world_size": str(n), "question": case.question.label},
    )


def _short(size: int) -> str:
    for unit, name in ((MIB, "MB"), (KIB, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"


# The same units as in _short.
_BINARY = {
    "labelExpr": f"datum.value >= {MIB} ? datum.value / {MIB} + ' MB' : "
    f"datum.value >= {KIB} ? datum.value / {KIB} + ' KB' : datum.value + ' B'"
}


def _plot(sizes: Sequence[int]) -> Plot:
    """Return a plot with a line per side."""
    lines = plots.curves(
        plots.field("value", "quantitative", "bus bandwidth in GB/s", scale={"type": "log"}),
        plots.distinguished(SIDES.values()),
        50,
        tooltip=plots.tooltip((_SIZE[1], *plots.BOUNDED, *OVERHEAD[:1])),
    )
    axis = {"values": list(sizes), **_BINARY}
    x = plots.field("bytes", "quantitative", "size", scale={"type": "log", "base": 2}, axis=axis)
    return plots.layered(
        plots.interval("value_low", "value_high"),
        *lines,
        encoding={"x": x},
        transform=plots.side_by_side(SIDES),
    )
