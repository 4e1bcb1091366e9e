"""Collective operations: which are measured, at which sizes, and what their figures mean.

Times and bytes in, bandwidths and ratios out. No I/O.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there): algbw is the size over the time,
busbw is algbw times a factor that makes it comparable with what the links can do, whatever the
number of ranks. Size is the whole buffer: of allgather what every rank ends with, of reducescatter
what every rank begins with; the part of a rank is 1/n of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any, NamedTuple


class Collective(Enum):
    """The operations that Horovod exchanges gradients and weights by."""

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    BROADCAST = "broadcast"
    REDUCESCATTER = "reducescatter"

    def bus_factor(self, world_size: int) -> float:
        """busbw over algbw: how much of the size a rank's link has to carry at least, there or
        back: 2 (n - 1) / n, (n - 1) / n or 1."""
        others = (world_size - 1) / world_size
        return {Collective.ALLREDUCE: 2 * others, Collective.BROADCAST: 1.0}.get(self, others)


KIB, MIB = 1024, 1024 * 1024
SWEEP_BYTES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB)

# How long the repeats of a transfer may take in a turn, and how many there are at most.
SERIES_SECONDS = 0.05
REPEATS_MAX = 10


@dataclass(frozen=True)
class Transfer:
    """What is exchanged at once: tensors of so many bytes; empty for the gradients of the model."""

    collective: Collective
    tensor_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Series:
    """A transfer, several times in a row, as every rank's own clock saw it.

    turn numbers the sets of a launch, so that those of Horovod and of the bare transport, taken
    back to back, can be paired. ranks holds hvdperf.worker.collectives.measure's result, by rank.
    """

    transfer: Transfer
    turn: int
    ranks: Sequence[Mapping[str, Any]]

    @property
    def size_bytes(self) -> int:
        """Of the whole buffer, all tensors together."""
        return int(self.ranks[0]["bytes"])

    @property
    def repeats(self) -> list[float]:
        """Seconds of each: the slowest rank's."""
        # Ranks that report other numbers of them are a problem of the launch's evidence.
        repeats = zip(*(rank["seconds"] for rank in self.ranks), strict=False)
        return [max(map(float, repeat)) for repeat in repeats]

    @property
    def seconds(self) -> float:
        """Of a typical repeat; not a number if there is none."""
        return median(self.repeats) if self.repeats else math.nan


def algbw(size_bytes: int, seconds: float) -> float:
    """Algorithm bandwidth in GB/s, of 10^9 bytes."""
    return size_bytes / seconds / 1e9


def busbw(collective: Collective, world_size: int, size_bytes: int, seconds: float) -> float:
    """Bus bandwidth in GB/s, of 10^9 bytes."""
    return algbw(size_bytes, seconds) * collective.bus_factor(world_size)


def affordable_repeats(series: Series) -> int:
    """How many of the transfer a turn takes, from a first series; 1 if that has no times."""
    if not series.repeats:
        return 1
    # The last one: the first may have had memory to get.
    return min(max(int(SERIES_SECONDS / series.repeats[-1]), 1), REPEATS_MAX)


def paired(
    horovod: Iterable[Series], bare: Iterable[Series], collective: Collective | None
) -> dict[Transfer, list[tuple[Series, Series]]]:
    """Of each transfer by that operation, smaller ones first, what was taken in the same turn."""
    other = {(series.transfer, series.turn): series for series in bare}
    found: dict[Transfer, list[tuple[Series, Series]]] = {}
    for series in sorted(horovod, key=lambda series: sum(series.transfer.tensor_bytes)):
        partner = other.get((series.transfer, series.turn))
        if series.transfer.collective is collective and partner and partner.repeats:
            found.setdefault(series.transfer, []).append((series, partner))
    return found


def framework_tax(
    horovod: Iterable[Series], bare: Iterable[Series], collective: Collective | None
) -> float:
    """Time through Horovod over time through the bare transport: of each transfer the median over
    its turns, of several transfers the geometric mean. Raises ValueError if there is no pair."""
    logs = [
        math.log(median(ours.seconds / theirs.seconds for ours, theirs in pairs))
        for pairs in paired(horovod, bare, collective).values()
    ]
    if not logs:
        raise ValueError("no collective operation was measured through both transports")
    return math.exp(sum(logs) / len(logs))


class StepTimes(NamedTuple):
    """Of one turn, in seconds a step: with everything, without exchange, and what the bare
    transport takes for the step's gradients in one buffer.

    A step can hide all of the shorter part behind the longer one, or nothing of it: it lies between
    max(local, exchange) and local + exchange (docs/measurement.md, Bounds).
    """

    full: float
    local: float
    exchange: float

    @property
    def of_nothing_hidden(self) -> float:
        """Step time over that of a step which computes, and then exchanges. Up to 1 by physics."""
        return self.full / (self.local + self.exchange)

    @property
    def of_all_hidden(self) -> float:
        """Step time over the least that is possible. No less than 1 by physics."""
        return self.full / max(self.local, self.exchange)


def invalid_reasons(arm: str, processes: int, series: Sequence[Series]) -> list[str]:
    """Reasons not to believe the series of a launch, in words: a transport that is not there, a
    rank that is missing, wrong sums, times that are none."""
    found = []
    for each in series:
        where = f"{arm}, {each.transfer.collective.value} of {each.size_bytes} bytes"
        if len(each.ranks) != processes:
            found.append(f"{where}: {len(each.ranks)} of {processes} ranks reported")
        for number, rank in enumerate(each.ranks):
            if rank["problem"]:
                found.append(f"{where}: rank {number}: {rank['problem']}")
            elif not rank["seconds"] or not all(map(_is_time, rank["seconds"])):
                found.append(f"{where}: rank {number} reported a time that is none")
        if len({len(rank["seconds"]) for rank in each.ranks}) > 1:
            found.append(f"{where}: ranks repeated it differently often")
    return found


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0


def other_library(horovod: Iterable[Series], bare: Iterable[Series]) -> str:
    """In words, that the two did not run over the same MPI; else empty."""
    ours, theirs = (
        {rank["library"] for each in series for rank in each.ranks} for series in (horovod, bare)
    )
    if ours == theirs or not ours or not theirs:
        return ""
    names = [" and ".join(sorted(map(str, libraries))) for libraries in (ours, theirs)]
    return f"Horovod runs over {names[0]}, mpi4py over {names[1]}: install one for the other's MPI"
