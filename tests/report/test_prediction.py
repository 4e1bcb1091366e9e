"""The clipped trend is the formula's, and what cannot be predicted is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.report.prediction import PLAUSIBLE, WIDER, NotPredictable, Point, predict, trend


def points_of(*efficiencies: float, per_node: int = 1) -> list[Point]:
    """Of one node, of two, of four and so on."""
    return [Point(2**i, 2**i * per_node, value) for i, value in enumerate(efficiencies)]


# The trend -------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_node", [1, 4])
@pytest.mark.parametrize(
    ("half", "last", "twice", "four_times"),
    [
        # A decline of 4 %, of 7 % and of 50 % in ln E: kept, clipped at one, clipped at both.
        (0.9, 0.9 * math.exp(-0.04), -0.036, -0.06),
        (0.9, 0.9 * math.exp(-0.07), -0.054, -0.105),
        (0.9, 0.9 * math.exp(-0.5), -0.054, -0.12),
        # What gets no worse, or better, stays.
        (0.9, 0.9, 0.0, 0.0),
        (0.8, 0.9, 0.0, 0.0),
    ],
)
def test_the_last_decline_goes_on_and_is_clipped(per_node, half, last, twice, four_times):
    prediction = predict(points_of(1.0, half, last, per_node=per_node))
    assert (prediction.half.nodes, prediction.last.nodes) == (2, 4)
    sizes = [(each.nodes, each.replicas) for each in prediction.estimates]
    assert sizes == [(8, 8 * per_node), (16, 16 * per_node)]
    lost = [math.log(each.efficiency / last) for each in prediction.estimates]
    assert lost == pytest.approx([twice, four_times])


def test_the_intervals_are_wider_than_the_residuals_of_the_fitted_curves():
    twice, four_times = predict(points_of(1.0, 0.95)).estimates
    assert math.log(twice.low / twice.efficiency) == pytest.approx(WIDER * -0.09)
    assert math.log(twice.high / twice.efficiency) == pytest.approx(WIDER * 0.08)
    assert math.log(four_times.low / four_times.efficiency) == pytest.approx(WIDER * -0.23)
    assert math.log(four_times.high / four_times.efficiency) == pytest.approx(WIDER * 0.03)


def test_one_multi_node_point_is_enough():
    prediction = predict(points_of(0.95, 0.9, per_node=4))
    assert [each.replicas for each in prediction.estimates] == [16, 32]


@given(st.lists(st.floats(*PLAUSIBLE), min_size=2, max_size=6), st.sampled_from([1, 2, 8]))
def test_whatever_is_measured_a_prediction_is_not_above_the_last_one(efficiencies, per_node):
    prediction = predict(points_of(*efficiencies, per_node=per_node))
    for each in prediction.estimates:
        assert 0 < each.low < each.efficiency < each.high
        assert 0.88 * efficiencies[-1] < each.efficiency <= efficiencies[-1]


# What it rests on ------------------------------------------------------------------------------


def test_of_differently_full_nodes_the_fullest_with_a_trend_are_taken():
    single = points_of(1.0, 0.99, 0.98)
    full = points_of(0.95, 0.9, per_node=4)
    assert trend([*single, *full, Point(1, 2, 0.99)]) == tuple(full)
    assert trend([*single, full[0]]) == tuple(single[1:])


def test_all_slots_beyond_a_power_of_two_do_not_hide_the_trend():
    """Six nodes: 1, 2, 4 and 6 are measured, and 8 and 16 are still to come."""
    points = points_of(1.0, 0.95, 0.9)
    prediction = predict([*points, Point(6, 6, 0.88)])
    assert (prediction.half, prediction.last) == (points[1], points[2])
    assert [each.nodes for each in prediction.estimates] == [8, 16]


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "points", [[], [Point(1, 1, 1.0)], [Point(1, n, 0.9) for n in (1, 2, 4, 8)]]
)
def test_replicas_of_one_node_do_not_stand_for_nodes(points):
    with pytest.raises(NotPredictable, match="replicas on one node do not predict nodes") as raised:
        predict(points)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, UserError)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([Point(2, 8, 0.9)], "np 8 on 2"),
        ([Point(1, 1, 1.0), Point(4, 4, 0.9)], "np 1 on 1, np 4 on 4"),
        # Half of the nodes, but differently full.
        ([Point(1, 1, 1.0), Point(1, 2, 1.0), Point(2, 8, 0.9)], "np 1 on 1, np 2 on 1, np 8 on 2"),
        # Twice of two is measured already.
        ([Point(1, 1, 1.0), Point(2, 2, 0.9), Point(8, 8, 0.8)], "np 8 on 8"),
    ],
)
def test_sizes_without_a_trend_are_refused(points, told):
    with pytest.raises(
        NotPredictable, match="needs equally full groups of N and N / 2 nodes"
    ) as raised:
        predict(points)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("nodes", "replicas", "efficiency"),
    [
        (0, 1, 0.9),
        (1, 0, 0.9),
        (2, 5, 0.9),
        (2, 4, 0.0),
        (2, 4, -0.5),
        (2, 4, math.nan),
        (2, 4, math.inf),
        (2, 4, 1e-4),
    ],
)
def test_what_is_no_efficiency_is_no_point(nodes, replicas, efficiency):
    with pytest.raises(ValueError, match=r"not spread evenly|not an efficiency"):
        Point(nodes, replicas, efficiency)


def test_two_points_of_one_size_are_not_told_apart():
    with pytest.raises(ValueError, match="two points have the same size"):
        predict([*points_of(1.0, 0.9), Point(2, 2, 0.5)])
