"""The results of a sweep by size, below the verdicts: one table of 80 columns per world size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hvdperf.columns import Columns, number
from hvdperf.explain.collectives import paired
from hvdperf.plan.arms import SWEEP, Collective, Transfer
from hvdperf.plan.collectives import KIB, MIB, busbw
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import Series

# Columns of each collective operation: busbw through Horovod, busbw through bare MPI, and
# the ratio of times.
_GROUP = 17
_CELLS = Columns(("", 5), ("", 5), ("", 5))
Pair = tuple[Series, Series]


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the tables of the sweeps among the outcomes; [] if there is none."""
    sweeps = [o for o in outcomes if o.comparison.workload == SWEEP and _measured(o)]
    sizes = dict.fromkeys(outcome.comparison.world_size for outcome in sweeps)
    return [text for size in sizes for text in _of_world_size(sweeps, size)]


def _of_world_size(sweeps: Sequence[Outcome], world_size: int) -> list[str]:
    cells: dict[Collective, dict[int, str]] = {}
    for outcome in sweeps:
        comparison = outcome.comparison
        if comparison.world_size == world_size and comparison.collective is not None:
            cells[comparison.collective] = {
                sum(transfer.tensor_bytes): _cells(world_size, transfer.collective, pairs)
                for transfer, pairs in _measured(outcome).items()
            }
    shown = [collective for collective in Collective if collective in cells]
    sizes = sorted({size for column in cells.values() for size in column})
    columns = Columns(("size", 7), *((collective.value, _GROUP) for collective in shown))
    lines = [
        f"np {world_size}: busbw in GB/s through Horovod and bare, and time of Horovod / bare",
        columns.header,
    ]
    for size in sizes:
        lines.append(columns.row(_size(size), *(cells[each].get(size, "") for each in shown)))
    return lines


def _measured(outcome: Outcome) -> dict[Transfer, list[Pair]]:
    """Return the pairs of series of the same turns, over all rounds, by size."""
    found: dict[Transfer, list[Pair]] = {}
    for measured in outcome.rounds:
        horovod, bare = (measured.of(arm).series for arm in outcome.comparison.arms)
        for transfer, pairs in paired(horovod, bare, outcome.comparison.collective).items():
            found.setdefault(transfer, []).extend(pairs)
    return found


def _cells(world_size: int, collective: Collective, pairs: Sequence[Pair]) -> str:
    """Return the cells of one size: medians over all turns."""
    widths = [
        [busbw(collective, world_size, each.size_bytes, each.seconds) for each in side]
        for side in zip(*pairs, strict=True)
    ]
    ratios = [horovod.seconds / bare.seconds for horovod, bare in pairs]
    return _CELLS.row(*(number(median(values), 5, 2) for values in (*widths, ratios)))


def _size(size_bytes: int) -> str:
    return f"{size_bytes // MIB} MB" if size_bytes >= MIB else f"{size_bytes // KIB} KB"
