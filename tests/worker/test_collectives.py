"""What ranks send, what must come out of an operation, and what is said where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from hvdperf.worker.collectives import PERIOD, difference, expected, pattern

COUNT = 3 * PERIOD + 6


def sent(rank: int, count: int = COUNT) -> np.ndarray:
    result: np.ndarray = pattern(count) + np.float32(rank)
    return result


def test_no_two_neighbours_send_the_same_and_no_two_ranks():
    assert (np.diff(sent(0)) != 0).all()
    assert (sent(0) != sent(1)).all()
    assert sent(0).dtype == np.float32


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_what_is_expected_is_what_the_operations_are_defined_as(world_size):
    count = COUNT // world_size * world_size
    part = count // world_size
    everybody = [sent(rank, count) for rank in range(world_size)]
    total = np.sum(everybody, axis=0)
    for rank in range(world_size):
        for collective, wanted in {
            "allreduce": total,
            "broadcast": everybody[0],
            "allgather": np.concatenate([own[:part] for own in everybody]),
            "reducescatter": total[rank * part : (rank + 1) * part],
        }.items():
            np.testing.assert_array_equal(expected(collective, count, rank, world_size), wanted)


def test_the_first_difference_is_told():
    result = sent(0)
    assert difference(result, sent(0)) == ""
    assert "has 758 numbers instead of 759" in difference(result[1:], sent(0))
    result[[4, 9]] += 1
    assert difference(result, sent(0)) == "number 4 is 5 instead of 4"
    result[4] = np.nan
    assert difference(result, sent(0)) == "number 4 is nan instead of 4"
