"""Collective operations: which are measured, at which sizes, and their bandwidths. No I/O.

Bandwidths are defined as in nccl-tests (doc/PERFORMANCE.md there). algbw is the size over the time.
busbw is algbw times a factor that makes it comparable with the bandwidth of the links, whatever the
number of ranks. The size is that of the whole buffer: the one with which every rank ends an
allgather, or begins a reducescatter. The part of one of n ranks is 1/n of this size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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


@dataclass(frozen=True)
class Transfer:
    """Tensors that are exchanged at once. tensor_bytes: the size of each tensor in bytes; empty for
    the gradients of the model."""

    collective: Collective
    tensor_bytes: tuple[int, ...] = ()


def algbw(size_bytes: int, seconds: float) -> float:
    """Return the algorithm bandwidth in GB/s (10^9 bytes per second)."""
    return size_bytes / seconds / 1e9


def busbw(collective: Collective, world_size: int, size_bytes: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s (10^9 bytes per second)."""
    return algbw(size_bytes, seconds) * collective.bus_factor(world_size)
