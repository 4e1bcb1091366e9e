"""nccl-tests: NCCL without a framework, from the memory of GPUs.

Their size is that of the whole buffer, as is hvdperf.plan.collectives', and busbw is defined alike.
"""

from __future__ import annotations

import math
import re

from hvdperf.plan.collectives import SWEEP_BYTES, Collective
from hvdperf.transport_tools.figures import (
    Figure,
    NotUnderstood,
    figure,
    not_understood,
    number,
    numbered,
    size,
)

# The build for MPI has a name of its own in some packages, beside one that is without.
PROGRAMS = {
    Collective.ALLREDUCE: ("all_reduce_perf_mpi", "all_reduce_perf"),
    Collective.ALLGATHER: ("all_gather_perf_mpi", "all_gather_perf"),
    Collective.BROADCAST: ("broadcast_perf_mpi", "broadcast_perf"),
    Collective.REDUCESCATTER: ("reduce_scatter_perf_mpi", "reduce_scatter_perf"),
}
WARM_UP, REPEATS = 5, 20

_STARTING = re.compile(r"# Collective test starting: (\S+)")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*")
# Below the table; after it may stand what NCCL last had to say.
_SUMS = re.compile(r"# Out of bounds values\s*:\s*\d+ (\w+)")
# Printed with two digits after the point, or three in all.
_ROUNDING = {"rel_tol": 0.01, "abs_tol": 0.0051}


def arguments() -> list[str]:
    """The sweep's sizes and all powers of two between them, in float32; a GPU a rank."""
    sizes = ["-b", str(SWEEP_BYTES[0]), "-e", str(SWEEP_BYTES[-1]), "-f", "2"]
    return [*sizes, "-g", "1", "-d", "float", "-w", str(WARM_UP), "-n", str(REPEATS)]


def parse(text: str, collective: Collective, world_size: int) -> list[Figure]:
    """What rank 0 has printed, size by size, out of place, as Horovod exchanges. Raises
    NotUnderstood, also where other ranks took part than world_size, where sums were wrong, and
    where the bandwidths printed are not those of the size, the time and the world size."""
    columns: list[str] = []
    ranks: set[int] = set()
    found = []
    for row, line in numbered(text):
        if names := _names(line):
            columns = names
            if ranks != set(range(world_size)):
                raise NotUnderstood(
                    f"{len(ranks)} of {world_size} ranks took part: every rank is alone if it was "
                    "built without MPI (make MPI=1) or for another one"
                )
        elif line.startswith("#"):
            if rank := _RANK.fullmatch(line):
                ranks.add(int(rank[1]))
            started = _STARTING.fullmatch(line)
            if started and started[1] not in PROGRAMS[collective]:
                raise not_understood(row, line, f"not the test of {collective.value}")
            if sums := _SUMS.fullmatch(line):
                if sums[1] == "FAILED":
                    raise not_understood(row, line, "the numbers that came out are wrong")
                break
        elif columns:
            found.append(_figure(row, line, columns, collective, world_size))
    if not columns:
        raise NotUnderstood("no table of nccl-tests in its output")
    if not found:
        raise NotUnderstood("a table without rows")
    return found


def _names(line: str) -> list[str]:
    """Of the columns, if these are told here."""
    names = line.removeprefix("#").split()
    return names if names[:2] == ["size", "count"] else []


def _figure(
    row: int, line: str, columns: list[str], collective: Collective, world_size: int
) -> Figure:
    values = line.split()
    if len(values) != len(columns):
        raise not_understood(row, line, f"not the {len(columns)} columns of the table")
    # Of two of a name the first is out of place.
    cells = dict(zip(reversed(columns), reversed(values), strict=True))
    try:
        size_bytes, microseconds = size(cells["size"]), number(cells["time"])
        printed = [number(cells[name]) for name in ("algbw", "busbw")]
        wrong = cells.get("#wrong", "N/A")
        wrong_numbers = 0.0 if wrong == "N/A" else number(wrong)
    except (KeyError, ValueError):
        raise not_understood(row, line, "not a size with its time and bandwidths") from None
    if microseconds == 0:
        raise not_understood(row, line, "a time that is none")
    if wrong_numbers:
        raise not_understood(row, line, "the numbers that came out are wrong")
    result = figure(collective, world_size, size_bytes, microseconds * 1e-6)
    computed = (result.algbw, result.busbw)
    if not all(map(_alike, printed, computed)):
        raise not_understood(
            row, line, f"{world_size} ranks would have {computed[0]:.2f} and {computed[1]:.2f} GB/s"
        )
    return result


def _alike(printed: float, computed: float) -> bool:
    return math.isclose(printed, computed, **_ROUNDING)
