"""Which nodes exchange bytes with each other."""

from __future__ import annotations

from collections import Counter

import pytest

from hvdperf.vet.rounds import schedule


@pytest.mark.parametrize("count", [4, 5, 8, 9, 64])
def test_a_node_meets_every_other_one_once(count: int) -> None:
    nodes = [f"node{number}" for number in range(count)]
    rounds = list(schedule(nodes, count - 1 + count % 2, seed=3))
    for pairs in rounds:
        once = Counter(node for pair in pairs for node in pair)
        assert set(once.values()) == {1}
        assert len(once) == count - count % 2
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert len(met) == count * (count - 1) // 2
    assert set(met.values()) == {1}


def test_few_nodes_have_no_pairs() -> None:
    assert list(schedule(["a", "b", "c"], 2, seed=1)) == [[], []]
