"""A known model is recovered, and what cannot be predicted is refused."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import scipy.integrate
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UserError
from harness.prediction import (
    ENVELOPE,
    FURTHEST,
    PLAUSIBLE,
    NotPredictable,
    Point,
    comparable,
    expected_maximum,
    fit,
    levelling,
    predict,
    ring,
    tree,
)

NODES = (1, 2, 4, 8)


def points_of(terms, parameters, nodes=NODES, per_node=1):
    """What would be measured, exactly, if the model were true."""
    return [
        Point(n, n * per_node, 1 / true_step_time(terms, parameters, n, per_node)) for n in nodes
    ]


def true_step_time(terms, parameters, nodes, per_node=1):
    """By hand from the formulas in the module's text."""
    base, *factors = parameters
    stragglers = expected_maximum(nodes * per_node) - expected_maximum(per_node)
    volume = 2 * (nodes - 1) / nodes
    grows = {
        tree: (math.ceil(math.log2(nodes)), volume, stragglers),
        levelling: (1 - 1 / nodes,),
        ring: (nodes - 1, volume),
    }[terms]
    return base + sum(a * b for a, b in zip(factors, grows, strict=True))


# Recovery --------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_node", [1, 4])
@pytest.mark.parametrize(
    ("terms", "parameters"),
    [
        (tree, (1.1, 0.03, 0.0, 0.0)),
        (tree, (1.0, 0.0, 0.05, 0.0)),
        (tree, (1.0, 0.02, 0.04, 0.03)),
        (levelling, (1.05, 0.2)),
        (ring, (1.0, 0.01, 0.03)),
    ],
)
def test_a_known_model_is_recovered(terms, parameters, per_node):
    nodes = (1, 2, 3, 4, 6, 8)
    found = fit(terms, points_of(terms, parameters, nodes, per_node))
    assert found.parameters == pytest.approx(parameters, abs=1e-6)
    expected = 1 / true_step_time(terms, parameters, 32, per_node)
    assert found.efficiency(32, 32 * per_node) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("per_node", [1, 4, 8])
def test_a_tree_is_predicted_four_times_further(per_node):
    parameters = (1.02, 0.02, 0.03, 0.04)
    prediction = predict(points_of(tree, parameters, per_node=per_node))
    assert [(each.nodes, each.replicas) for each in prediction.estimates] == [
        (16, 16 * per_node),
        (32, 32 * per_node),
    ]
    for each in prediction.estimates:
        expected = 1 / true_step_time(tree, parameters, each.nodes, per_node)
        assert each.central == pytest.approx(expected, rel=1e-5)
        assert each.low < each.central < min(each.high, each.keep_last)


def test_the_envelope_is_the_lowest_and_the_highest_of_the_models():
    points = points_of(ring, (1.0, 0.02, 0.03))
    (estimate,) = predict(points, [32]).estimates
    models = [fit(terms, points).efficiency(32, 32) for terms in ENVELOPE]
    assert len(set(models)) == 3
    assert (estimate.low, estimate.high) == (min(models), max(models))
    assert estimate.low == pytest.approx(1 / true_step_time(ring, (1.0, 0.02, 0.03), 32), rel=1e-6)


def test_residuals_are_relative_to_the_step_time():
    """Of a constant c the relative residuals (c - t) / t of t = 1 and t = 2 are least at 1.2, and
    absolute ones would be at 1.5. Terms of no effect leave the constant alone."""
    points = [Point(1, 1, 1.0), Point(2, 2, 0.5)]
    assert fit(lambda nodes, replicas: (0.0,), points).parameters[0] == pytest.approx(1.2)


def test_no_parameter_is_below_zero_where_efficiency_rises():
    points = [Point(n, n, 0.8 + 0.02 * n) for n in NODES]
    for terms in ENVELOPE:
        assert min(fit(terms, points).parameters) >= 0


def test_two_points_do_not_leave_the_fit_open():
    """Three terms through one multi-node point: every term takes its part, the same each time."""
    points = points_of(tree, (1.0, 0.06, 0.0, 0.0), nodes=(1, 2))
    found = fit(tree, points)
    assert min(found.parameters) > 0.01
    assert found.efficiency(2, 2) == pytest.approx(1 / 1.06, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 64, 1024])
def test_the_expected_maximum_of_normal_values(n):
    """Against its integral, n x phi(x) Phi(x)^(n - 1)."""
    normal = NormalDist()
    exact, _ = scipy.integrate.quad(
        lambda x: n * x * normal.pdf(x) * normal.cdf(x) ** (n - 1), -9, 9, limit=200
    )
    assert expected_maximum(n) == pytest.approx(exact, abs=0.03)


@settings(deadline=None)
@given(
    st.lists(st.floats(*PLAUSIBLE), min_size=3, max_size=6),
    st.sampled_from([1, 2, 8]),
)
def test_whatever_is_measured_a_prediction_is_one_or_is_refused(efficiencies, per_node):
    points = [Point(2**i, 2**i * per_node, value) for i, value in enumerate(efficiencies)]
    try:
        prediction = predict(points)
    except NotPredictable as error:
        assert "\n" not in str(error)
        return
    assert abs(prediction.model_error) < abs(prediction.keep_last_error)
    for each in prediction.estimates:
        assert 0 < each.low <= each.central <= each.high < math.inf
        assert each.keep_last == efficiencies[-1]


# The better of two ways ------------------------------------------------------------------------


def test_a_model_that_does_not_beat_the_last_efficiency_is_not_shown():
    """From 2 nodes on nothing changes, so the last efficiency is right and growth is not."""
    points = [Point(1, 1, 1.0), *(Point(n, n, 0.8) for n in (2, 4))]
    with pytest.raises(NotPredictable, match=r"np 4 is missed by -.*%, and by \+0.0% if .* 0.800$"):
        predict(points)


def test_perfect_scaling_needs_no_model():
    with pytest.raises(NotPredictable, match=r"the model is no better, so keep 1\.000"):
        predict([Point(n, n, 1.0) for n in NODES])


def test_what_the_largest_point_is_missed_by_is_told():
    points = points_of(tree, (1.0, 0.1, 0.0, 0.0))
    prediction = predict(points)
    guess = fit(tree, points[:-1]).efficiency(8, 8)
    assert prediction.model_error == pytest.approx(guess * 1.3 - 1)
    assert prediction.keep_last_error == pytest.approx(1.3 / 1.2 - 1)


def test_the_largest_point_does_not_help_to_predict_itself():
    points = points_of(tree, (1.0, 0.1, 0.0, 0.0))
    guesses = [
        (1 + predict([*points[:-1], Point(8, 8, last)]).model_error) * last for last in (0.76, 0.7)
    ]
    assert guesses[0] == pytest.approx(guesses[1])


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([], "there are: none"),
        ([Point(1, 1, 1.0), Point(1, 2, 0.9)], "np 1 on 1, np 2 on 1"),
        ([Point(1, 4, 0.9), Point(2, 8, 0.8)], "np 4 on 1, np 8 on 2"),
        ([Point(2, 8, 0.9), Point(4, 16, 0.8)], "np 8 on 2, np 16 on 4"),
        # Two numbers of nodes, but differently full.
        ([Point(1, 1, 1.0), Point(2, 2, 0.9), Point(1, 4, 0.9), Point(4, 16, 0.8)], "np 16 on 4"),
    ],
)
def test_too_few_points_are_refused(points, told):
    with pytest.raises(NotPredictable, match="needs 2 multi-node points at least") as raised:
        predict(points)
    assert told in str(raised.value)
    assert isinstance(raised.value, UserError)


def test_four_times_the_nodes_is_the_most():
    points = points_of(tree, (1.0, 0.03, 0.02, 0.0), per_node=4)
    most = FURTHEST * 8 * 4
    (estimate,) = predict(points, [most]).estimates
    assert estimate.nodes == 32
    with pytest.raises(NotPredictable, match=r"np 132 is 4\.12 times .* np 128 or less"):
        predict(points, [most + 4])


@pytest.mark.parametrize(
    ("size", "told"), [(34, "no whole number of nodes: 4"), (32, "not above np 32"), (4, "above")]
)
def test_sizes_that_are_no_prediction_are_refused(size, told):
    points = points_of(tree, (1.0, 0.03, 0.02, 0.0), per_node=4)
    with pytest.raises(NotPredictable, match=told):
        predict(points, [64, size])


def test_of_differently_full_nodes_the_fullest_that_are_enough_are_taken():
    full = points_of(tree, (1.0, 0.03, 0.02, 0.0), per_node=4)
    single = points_of(tree, (1.0, 0.01, 0.0, 0.0))
    assert comparable([*single, *full, Point(1, 2, 0.99)]) == tuple(full)
    assert comparable([*full[:2], *single]) == tuple(single)


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
    with pytest.raises(ValueError, match=r"not spread evenly|no efficiency"):
        Point(nodes, replicas, efficiency)


def test_two_points_of_one_size_are_not_told_apart():
    points = points_of(tree, (1.0, 0.03, 0.02, 0.0))
    with pytest.raises(ValueError, match="two points of one size"):
        predict([*points, Point(8, 8, 0.5)])
