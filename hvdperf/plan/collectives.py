"""Collective operations: at which sizes they are measured, and their bandwidths. No I/O.

Bandwidths are defined as in nccl-tests (doc/PERFORMANCE.md there). algbw is the size over the time.
busbw is algbw times a factor that makes it comparable with the bandwidth of the links, whatever the
number of ranks. The size is that of the whole buffer: the one with which every rank ends an
allgather, or begins a reducescatter. The part of one of n ranks is 1/n of this size.
"""

from __future__ import annotations

from hvdperf.plan.arms import Collective

KIB, MIB = 1024, 1024 * 1024
SWEEP_BYTES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB)


def algbw(size_bytes: int, seconds: float) -> float:
    """Return the algorithm bandwidth in GB/s (10^9 bytes per second)."""
    return size_bytes / seconds / 1e9


def busbw(collective: Collective, world_size: int, size_bytes: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s (10^9 bytes per second)."""
    return algbw(size_bytes, seconds) * collective.bus_factor(world_size)
