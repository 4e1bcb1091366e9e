"""The exchange of all gradients of a step, through Horovod and over bare MPI."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.cases import Labels, number, several
from hvdperf.report.content import Column, Figure, Plot, Table
from hvdperf.report.sections.collectives.pairs import (
    OVERHEAD,
    SIDES,
    WHOSE,
    WIDTHS,
    Pair,
    is_of_gradients,
    overheads,
    pairs_of,
    whose,
    widths,
)

_TIMES = (
    Column("horovod_ms", "through Horovod", "ms", 3),
    Column("bare_ms", "bare", "ms", 3),
)


def gradients(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    """Return one figure for all networks of a session; return [] if no exchange was measured."""
    found: dict[tuple[str, int], tuple[Case, list[Pair]]] = {}
    for case in cases:
        pairs = pairs_of(case) if is_of_gradients(case) else []
        key = case.workload.name, case.world_size
        # The same launches answer both questions, and one of these may have had more rounds.
        if pairs and len(pairs) > len(found.get(key, (case, []))[1]):
            found[key] = case, pairs
    if not found:
        return []
    columns = (*WHOSE, *WIDTHS, *_TIMES, *OVERHEAD)
    rows = [
        {
            **whose(case, labels),
            "bytes": pairs[0].size_bytes,
            "tensors": pairs[0].tensors,
            **widths(case, pairs),
            "horovod_ms": 1000 * median(pair.horovod for pair in pairs),
            "bare_ms": 1000 * median(pair.bare for pair in pairs),
            **overheads(pairs),
        }
        for case, pairs in found.values()
    ]
    said = several(
        [
            f"{row['network']} {number(row['horovod_ms']):.2f} ms, bare "
            f"{number(row['bare_ms']):.2f} ms"
            for row in rows
        ]
    )
    return [
        Figure(
            name="bandwidth-gradients",
            title="All gradients of a step: bus bandwidth of their allreduce",
            says=f"Typical times of one exchange: {said}.",
            table=Table(columns, tuple(rows)),
            plot=_plot(len(rows)),
        )
    ]


def _plot(rows: int) -> Plot:
    apart = plots.distinguished(SIDES.values())
    tip = plots.tooltip((WHOSE[0], *WHOSE[3:], *plots.BOUNDED, *_TIMES, *OVERHEAD[:1]))
    return plots.estimates(
        {"y": plots.row_names("network", 260)},
        plots.field("value", "quantitative", "bus bandwidth in GB/s"),
        ("value_low", "value_high"),
        rows=rows,
        each=30,
        size=70,
        point={"color": apart, "shape": apart, "tooltip": tip},
        transform=plots.side_by_side(SIDES),
    )
