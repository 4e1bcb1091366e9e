"""The OSU micro-benchmarks: MPI without a framework, from a buffer of the host.

Their size is what a rank hands over: the whole buffer of an allreduce, a broadcast and a
reduce_scatter, but of an allgather the part of one rank, so that the whole is n times it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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

PROGRAMS = {
    Collective.ALLREDUCE: ("osu_allreduce",),
    Collective.ALLGATHER: ("osu_allgather",),
    Collective.BROADCAST: ("osu_bcast",),
    Collective.REDUCESCATTER: ("osu_reduce_scatter",),
}
# What a rank says that has found no other one.
ALONE = "requires at least two processes"
WARM_UP, REPEATS = 2, 10

_TITLES = {
    Collective.ALLREDUCE: "Allreduce",
    Collective.ALLGATHER: "Allgather",
    Collective.BROADCAST: "Broadcast",
    Collective.REDUCESCATTER: "Reduce_scatter",
}
_TITLE = re.compile(r"# OSU MPI\S* (?P<what>.+) Latency Test v(?P<version>\S+)")
# Of a rank's mean over the repeats the largest, where that is printed: everybody waits for it.
_TIMES = ("Max Latency(us)", "Avg Latency(us)")


def arguments(collective: Collective, world_size: int) -> list[str]:
    """The sweep's sizes and all powers of two between them, in float32, as few times as Horovod.

    The option for float32 is known of 7.3 on: without it these add integers."""
    share = world_size if collective is Collective.ALLGATHER else 1
    # Whole numbers of float32.
    smallest, largest = (size // share // 4 * 4 for size in (SWEEP_BYTES[0], SWEEP_BYTES[-1]))
    # A limit that it checks against n buffers of the largest size, whatever it needs.
    memory = 2 * SWEEP_BYTES[-1] * world_size
    sizes = ["-m", f"{smallest}:{largest}", "-M", str(memory)]
    return [*sizes, "-f", "-T", "mpi_float", "-x", str(WARM_UP), "-i", str(REPEATS)]


def parse(text: str, collective: Collective, world_size: int) -> list[Figure]:
    """What rank 0 has printed, size by size. Raises NotUnderstood.

    The time is the slowest rank's, or, where that is not printed, the ranks' mean."""
    lines = iter(_after_preamble(text))
    columns = _columns(lines, collective)
    time = next((columns.index(name) for name in _TIMES if name in columns), None)
    if columns[0] != "Size" or time is None:
        raise NotUnderstood(f"a table of {', '.join(columns)} has no latency by size")
    share = world_size if collective is Collective.ALLGATHER else 1
    found = []
    for row, line in lines:
        values = line.split()
        if len(values) != len(columns):
            raise not_understood(row, line, f"not the {len(columns)} columns of the table")
        try:
            size_bytes, microseconds = size(values[0]), number(values[time])
        except ValueError:
            raise not_understood(row, line, "not a size and its latencies") from None
        if microseconds == 0:
            raise not_understood(row, line, "a time that is none")
        found.append(figure(collective, world_size, size_bytes * share, microseconds * 1e-6))
    if not found:
        raise NotUnderstood("a table without rows")
    return found


def _after_preamble(text: str) -> list[tuple[int, str]]:
    """From the title on. Libraries greet before it."""
    lines = list(numbered(text))
    for place, (_, line) in enumerate(lines):
        if _TITLE.fullmatch(line):
            return lines[place:]
    raise NotUnderstood(f"no title of an OSU benchmark in {len(lines)} lines of output")


def _columns(lines: Iterator[tuple[int, str]], collective: Collective) -> list[str]:
    """Read up to the names of the columns."""
    row, line = next(lines)
    title = _TITLE.fullmatch(line)
    if title is None or title["what"] != _TITLES[collective]:
        raise not_understood(row, line, f"not the benchmark of {collective.value}")
    for row, line in lines:
        if line.startswith("# Size"):
            return re.split(r"\s{2,}", line.removeprefix("#").strip())
        if not line.startswith("#"):
            raise not_understood(row, line, "a row before the names of the columns")
    raise NotUnderstood("a title, and no table")
