"""Collective operations: which are measured, at which sizes, and what their figures mean.

Times and bytes in, bandwidths and ratios out. No I/O.

Bandwidths are defined as in nccl-tests (doc/PERFORMANCE.md there). algbw is the size over the time.
busbw is algbw times a factor that makes it comparable with the bandwidth of the links, whatever the
number of ranks. The size is that of the whole buffer: the one with which every rank ends an
allgather, or begins a reducescatter. The part of one of n ranks is 1/n of this size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any, NamedTuple


class Collective(Enum):
    """The operations by which Horovod exchanges gradients and weights."""

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    BROADCAST = "broadcast"
    REDUCESCATTER = "reducescatter"

    def bus_factor(self, world_size: int) -> float:
        """Return busbw / algbw: 2 (n - 1) / n for allreduce, 1 for broadcast, else (n - 1) / n.

        A rank's link has to carry at least this multiple of the size in one direction.
        """
        others = (world_size - 1) / world_size
        return {Collective.ALLREDUCE: 2 * others, Collective.BROADCAST: 1.0}.get(self, others)


KIB, MIB = 1024, 1024 * 1024
SWEEP_BYTES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB)

# Limits of the repeats of a transfer in one turn: their time together, and their number.
SERIES_SECONDS = 0.05
REPEATS_MAX = 10


@dataclass(frozen=True)
class Transfer:
    """Tensors that are exchanged at once. tensor_bytes: the size of each tensor in bytes; empty for
    the gradients of the model."""

    collective: Collective
    tensor_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Series:
    """Several repeats of a transfer in a row, as timed by every rank's own clock.

    turn: number of the turn, by which a series of Horovod is paired with that of the bare
    transport, since both are taken back to back. ranks: the results of
    hvdperf.worker.collectives.measure, by rank.
    """

    transfer: Transfer
    turn: int
    ranks: Sequence[Mapping[str, Any]]

    @property
    def size_bytes(self) -> int:
        """The size of the whole buffer, all tensors together."""
        return int(self.ranks[0]["bytes"])

    @property
    def repeats(self) -> list[float]:
        """Seconds of each repeat on the slowest rank."""
        # Not strict: invalid_reasons reports ranks with different numbers of repeats.
        repeats = zip(*(rank["seconds"] for rank in self.ranks), strict=False)
        return [max(map(float, repeat)) for repeat in repeats]

    @property
    def seconds(self) -> float:
        """Seconds of the median repeat; not a number if there is none."""
        return median(self.repeats) if self.repeats else math.nan


def algbw(size_bytes: int, seconds: float) -> float:
    """Return the algorithm bandwidth in GB/s (10^9 bytes per second)."""
    return size_bytes / seconds / 1e9


def busbw(collective: Collective, world_size: int, size_bytes: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s (10^9 bytes per second)."""
    return algbw(size_bytes, seconds) * collective.bus_factor(world_size)


def affordable_repeats(series: Series) -> int:
    """Return the number of repeats that a turn can take, judged by a first series; 1 if that series
    has no times."""
    if not series.repeats:
        return 1
    # The last repeat counts, because the first may have allocated memory.
    return min(max(int(SERIES_SECONDS / series.repeats[-1]), 1), REPEATS_MAX)


def paired(
    horovod: Iterable[Series], bare: Iterable[Series], collective: Collective | None
) -> dict[Transfer, list[tuple[Series, Series]]]:
    """Return the pairs of series of the same turn, for each transfer by that operation, smaller
    transfers first."""
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
    """Return the time through Horovod over the time through the bare transport.

    It is the median over the turns of a transfer, and the geometric mean over several transfers.
    Raises ValueError if there is no pair.
    """
    logs = [
        math.log(median(ours.seconds / theirs.seconds for ours, theirs in pairs))
        for pairs in paired(horovod, bare, collective).values()
    ]
    if not logs:
        raise ValueError("no collective operation was measured through both transports")
    return math.exp(sum(logs) / len(logs))


class StepTimes(NamedTuple):
    """The step times of one turn, in seconds a step.

    full: a step with everything. local: a step without exchange. exchange: the time of the bare
    transport for the step's gradients in one buffer. A step can hide all of the shorter part behind
    the longer part, or nothing: `full` lies between max(local, exchange) and local + exchange
    (docs/measurement.md, Bounds).
    """

    full: float
    local: float
    exchange: float

    @property
    def of_nothing_hidden(self) -> float:
        """Step time over that of a step that computes, then exchanges: at most 1 by physics."""
        return self.full / (self.local + self.exchange)

    @property
    def of_all_hidden(self) -> float:
        """Step time over the shortest possible step time: at least 1 by physics."""
        return self.full / max(self.local, self.exchange)


def invalid_reasons(arm: str, processes: int, series: Sequence[Series]) -> list[str]:
    """Return the reasons not to believe the series of a launch, in words: a missing transport, a
    missing rank, wrong sums, times that are not positive and finite."""
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
    """Return a complaint if Horovod and the bare transport ran over different MPI libraries. Return
    "" if not, or if one library is unknown."""
    ours, theirs = (
        {rank["library"] for each in series for rank in each.ranks} for series in (horovod, bare)
    )
    if ours == theirs or not ours or not theirs:
        return ""
    names = [" and ".join(sorted(map(str, libraries))) for libraries in (ours, theirs)]
    return f"Horovod runs over {names[0]}, mpi4py over {names[1]}: install one for the other's MPI"
