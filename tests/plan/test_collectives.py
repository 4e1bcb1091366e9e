"""Bandwidths of collective operations, and the sizes that a sweep has."""

from __future__ import annotations

import pytest

from hvdperf.plan.arms import MIB, SWEEP_BYTES, Collective, algbw, busbw


@pytest.mark.parametrize(
    ("collective", "world_size", "factor"),
    [
        # doc/PERFORMANCE.md of nccl-tests.
        (Collective.ALLREDUCE, 2, 1.0),
        (Collective.ALLREDUCE, 4, 1.5),
        (Collective.ALLREDUCE, 8, 1.75),
        (Collective.ALLGATHER, 2, 0.5),
        (Collective.ALLGATHER, 8, 0.875),
        (Collective.REDUCESCATTER, 4, 0.75),
        (Collective.BROADCAST, 2, 1.0),
        (Collective.BROADCAST, 8, 1.0),
    ],
)
def test_bus_bandwidth_has_the_factors_of_nccl_tests(collective, world_size, factor):
    assert collective.bus_factor(world_size) == factor
    assert busbw(collective, world_size, 10**9, 0.5) == pytest.approx(2 * factor)


def test_algorithm_bandwidth_is_size_over_time_in_decimal_gigabytes():
    assert algbw(128 * MIB, 0.1) == pytest.approx(1.34217728)


def test_the_sweep_is_from_64_kb_to_128_mb():
    assert (SWEEP_BYTES[0], SWEEP_BYTES[-1]) == (65_536, 134_217_728)
    assert list(SWEEP_BYTES) == sorted(set(SWEEP_BYTES))
