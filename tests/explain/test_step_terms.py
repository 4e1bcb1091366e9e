"""The ranks that lie above the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hvdperf.explain.step_terms import group_apart, highest


@pytest.mark.parametrize(
    ("figures", "hosts", "found"),
    [
        ([1.0, 1.0, 1.0], "", ()),
        ([5.0], "", ()),
        ([1.0, 3.0], "", (1,)),
        ([3.0, 1.0, 3.5, 1.0], "", (0, 2)),
        ([1.0, 3.0, 3.0, 3.0], "", (1, 2, 3)),
        # The host separates them 0.87 and 0.62 times as well as its slowest rank does.
        ([0.0, 0.0, 4.0, 1.6], "", (2,)),
        ([0.0, 0.0, 4.0, 1.6], "aabb", (2, 3)),
        ([0.0, 0.0, 4.0, 1.0], "aabb", (2,)),
        ([4.0, 1.6, 0.0, 0.0], "aabb", (0, 1)),
        ([1.0, 1.0, 1.0, 1.0], "aabb", ()),
        ([0.0, 0.0, 4.0, 1.6], "aaaa", (2,)),
        ([0.0, 0.0, 4.0, 1.6, 0.0, 0.0], "aabbcc", (2, 3)),
    ],
)
def test_the_upper_class_is_the_one_that_separates_best(
    figures: Sequence[float], hosts: str, found: tuple[int, ...]
) -> None:
    assert highest(figures, list(hosts)) == found


def test_a_quarter_of_the_rounds_at_either_end_does_not_matter() -> None:
    rows = [[1.0, 2.0]] * 10
    group = group_apart([*rows, [9.0, 2.0], [1.0, 9.0]])
    assert group is not None
    assert (group.ranks, group.host, group.ahead) == ((1,), "", 1.0)
    # Half of the rounds do.
    assert group_apart([*rows[:4], *[[2.0, 1.0]] * 4]) is None


def test_a_group_is_named_with_its_host_and_how_far_it_is_ahead() -> None:
    rows = [[1.0, 1.5, 3.0, 4.0 + 0.125 * number] for number in range(7)]
    group = group_apart(rows, list("aabb"))
    assert group is not None
    assert (group.ranks, group.host) == ((2, 3), "b")
    assert group.ahead == (3.0 + 4.375) / 2 - 1.25
    assert group_apart(rows[:5], list("aabb")) is None, "five rounds bound nothing"
    late = group_apart([[3.0, 1.0, 1.0]] * 7, list("aab"))
    assert late is not None
    assert (late.ranks, late.host) == ((0,), ""), "not all of its host"
