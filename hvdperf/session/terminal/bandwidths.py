"""The results of a sweep, size by size, below the verdicts: a table of 80 columns a world size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hvdperf.judge.collectives import paired
from hvdperf.judge.outcome import Outcome
from hvdperf.measure.records import Series
from hvdperf.plan.arms import SWEEP
from hvdperf.plan.collectives import KIB, MIB, Collective, Transfer, busbw

# Columns of each collective operation: busbw through Horovod, busbw through the bare transport, and
# the ratio of times.
_GROUP = 18
Pair = tuple[Series, Series]


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the tables of the sweeps among the outcomes; [] if there is none."""
    sweeps = [o for o in outcomes if o.comparison.workload == SWEEP and _measured(o)]
    sizes = dict.fromkeys(outcome.comparison.world_size for outcome in sweeps)
    return [text for size in sizes for text in _of_world_size(sweeps, size)]


def _of_world_size(sweeps: Sequence[Outcome], world_size: int) -> list[str]:
    columns: dict[Collective, dict[int, str]] = {}
    for outcome in sweeps:
        comparison = outcome.comparison
        if comparison.world_size == world_size and comparison.collective is not None:
            columns[comparison.collective] = {
                sum(transfer.tensor_bytes): _cells(world_size, transfer.collective, pairs)
                for transfer, pairs in _measured(outcome).items()
            }
    shown = [collective for collective in Collective if collective in columns]
    sizes = sorted({size for column in columns.values() for size in column})
    lines = [
        f"np {world_size}: busbw in GB/s through Horovod and bare, and time of Horovod / bare",
        f"{'size':>7}" + "".join(f"{collective.value:>{_GROUP}}" for collective in shown),
    ]
    for size in sizes:
        cells = "".join(columns[collective].get(size, " " * _GROUP) for collective in shown)
        lines.append(f"{_size(size):>7}{cells}".rstrip())
    return lines


def _measured(outcome: Outcome) -> dict[Transfer, list[Pair]]:
    """Return by size the pairs of series that were taken in the same turns, of all rounds."""
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
    return "".join(f" {_five(median(values)):>5}" for values in (*widths, ratios))


def _five(value: float) -> str:
    """Return the value with two digits after the point, or with as many as fit in five columns."""
    formats = {99.995: ".2f", 999.95: ".1f", 99999.5: ".0f"}
    fitting = next((format_ for limit, format_ in formats.items() if value < limit), ".0e")
    return f"{value:{fitting}}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes // MIB} MB" if size_bytes >= MIB else f"{size_bytes // KIB} KB"
