"""What a sweep found, size by size, below the verdicts: a table of 80 columns a world size.

Where other tools were installed, below each size a row of each of them; and a line for those that
came to nothing.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from hvdperf.cli import WIDTH
from hvdperf.judge.outcome import Outcome
from hvdperf.plan.arms import SWEEP
from hvdperf.plan.collectives import KIB, MIB, Collective, Series, Transfer, busbw, paired
from hvdperf.transport_tools.figures import Figure, ToolRun

# Of each collective operation: busbw through Horovod, through the bare transport, time ratio.
_GROUP = 18
# A size that a tool has rounded to whole parts of the ranks is still that of the row.
_SAME_SIZE = 0.01
Pair = tuple[Series, Series]


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """The sweeps among them; no line if there is none."""
    sweeps = [o for o in outcomes if o.comparison.workload == SWEEP and _measured(o)]
    sizes = dict.fromkeys(outcome.comparison.world_size for outcome in sweeps)
    lines = [text for size in sizes for text in _of_world_size(sweeps, size)]
    return lines + _problems([run for outcome in outcomes for run in outcome.tools])


def _of_world_size(sweeps: Sequence[Outcome], world_size: int) -> list[str]:
    columns: dict[Collective, dict[int, dict[str, str]]] = {}
    for outcome in sweeps:
        comparison = outcome.comparison
        if comparison.world_size == world_size and comparison.collective is not None:
            columns[comparison.collective] = {
                sum(transfer.tensor_bytes): {
                    "": _cells(world_size, transfer.collective, pairs),
                    **_of_tools(outcome.tools, sum(transfer.tensor_bytes), pairs),
                }
                for transfer, pairs in _measured(outcome).items()
            }
    shown = [collective for collective in Collective if collective in columns]
    sizes = sorted({size for column in columns.values() for size in column})
    rows = {size: [columns[collective].get(size, {}) for collective in shown] for size in sizes}
    tools = dict.fromkeys(name for cells in rows.values() for cell in cells for name in cell)
    lines = [f"np {world_size}: busbw in GB/s through Horovod and bare, and time of Horovod / bare"]
    if any(tools):
        lines.append("osu, nccl: busbw of that tool, and time of Horovod / its; not judged")
    lines.append(f"{'size':>7}" + "".join(f"{collective.value:>{_GROUP}}" for collective in shown))
    for size, cells in rows.items():
        for name in tools:
            if any(name in cell for cell in cells):
                row = "".join(cell.get(name, " " * _GROUP) for cell in cells)
                lines.append(f"{name or _size(size):>7}{row}".rstrip())
    return lines


def _of_tools(runs: Sequence[ToolRun], size: int, pairs: Sequence[Pair]) -> dict[str, str]:
    """By tool, what it found at that size, below what the bare transport has."""
    seconds = median(horovod.seconds for horovod, _ in pairs)
    found: dict[str, Figure] = {}
    for run in runs:
        for figure in run.figures:
            if math.isclose(figure.size_bytes, size, rel_tol=_SAME_SIZE):
                found[run.tool] = figure
    return {
        tool: f"{'':6} {_five(figure.busbw):>5} {_five(seconds / figure.seconds):>5}"
        for tool, figure in found.items()
    }


def _problems(runs: Sequence[ToolRun]) -> list[str]:
    """A line for each reason that a tool has no figures."""
    programs: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.problem:
            name = f"{Path(run.program).name} on np {run.world_size}"
            programs.setdefault(run.problem, {})[name] = None
    return [
        text
        for problem, names in programs.items()
        for text in textwrap.wrap(
            f"not shown: {', '.join(names)}: {problem}", WIDTH, subsequent_indent="    "
        )
    ]


def _measured(outcome: Outcome) -> dict[Transfer, list[Pair]]:
    """Of each size, what was taken in the same turns, of all rounds."""
    found: dict[Transfer, list[Pair]] = {}
    for measured in outcome.rounds:
        horovod, bare = (measured.launches[arm].series for arm in outcome.comparison.arms)
        for transfer, pairs in paired(horovod, bare, outcome.comparison.collective).items():
            found.setdefault(transfer, []).extend(pairs)
    return found


def _cells(world_size: int, collective: Collective, pairs: Sequence[Pair]) -> str:
    """Of one size, medians over all turns."""
    widths = [
        [busbw(collective, world_size, each.size_bytes, each.seconds) for each in side]
        for side in zip(*pairs, strict=True)
    ]
    ratios = [horovod.seconds / bare.seconds for horovod, bare in pairs]
    return "".join(f" {_five(median(values)):>5}" for values in (*widths, ratios))


def _five(value: float) -> str:
    """Two digits after the point, or as many as five columns leave."""
    formats = {99.995: ".2f", 999.95: ".1f", 99999.5: ".0f"}
    fitting = next((format_ for limit, format_ in formats.items() if value < limit), ".0e")
    return f"{value:{fitting}}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes // MIB} MB" if size_bytes >= MIB else f"{size_bytes // KIB} KB"
