"""Efficiencies at more nodes than were measured. A model, not a measurement.

The step time of a replica is fitted over the number of nodes N, all equally full, and not over the
number of replicas: what is within a node stays as it is, and what is between nodes grows. The
central model is Hockney's (1994) alpha-beta for a tree, with stragglers:

    t(N) = t1 + alpha ceil(log2 N) + beta 2 (N - 1) / N + sigma (M(n) - M(n / N))

t1 is the step time on one full node, alpha the latency of a level of the tree, beta the time in
which the gradients cross a node's link once; an allreduce moves 2 (N - 1) / N times that (Thakur,
Rabenseifner and Gropp, 2005). M(n) is the expected maximum of n standard normal values: n replicas
whose step times vary by sigma wait for the slowest one. Two simpler models stand around it: one
that levels off, t1 + b (1 - 1 / N), and a ring, t1 + alpha (N - 1) + beta 2 (N - 1) / N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.optimize import nnls

from harness.errors import UserError

# The furthest that is predicted, in times of the nodes measured, and what it has to rest on.
FURTHEST = 4
FEWEST_MULTI_NODE = 2
# Below and above no efficiency of weak scaling is to be believed.
PLAUSIBLE = (1e-3, 10.0)
# Where there are fewer points than terms, many fits are as good. This makes the shortest the best,
# which takes from every term; it is too little to be seen where the points decide.
_SHORTEST = 1e-6

Terms = Callable[[int, int], tuple[float, ...]]


class NotPredictable(UserError):
    """Nothing is predicted from these points: one line says why, and what to do."""


@dataclass(frozen=True)
class Point:
    """A measured efficiency of weak scaling.

    replicas: of all nodes, as many on each. efficiency: S_n / (n S_1), which is the step time of
    one replica alone over that of n. Raises ValueError for what cannot be one.
    """

    nodes: int
    replicas: int
    efficiency: float

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.replicas < 1 or self.replicas % self.nodes:
            raise ValueError(
                f"{self.replicas} replicas are not spread evenly on {self.nodes} nodes"
            )
        low, high = PLAUSIBLE
        if not low <= self.efficiency <= high:
            raise ValueError(f"{self.efficiency:g} is no efficiency of weak scaling")

    @property
    def step_time(self) -> float:
        """In units of that of one replica alone."""
        return 1 / self.efficiency

    @property
    def replicas_per_node(self) -> int:
        return self.replicas // self.nodes


@dataclass(frozen=True)
class Estimate:
    """Predicted efficiencies: the central model's, the lowest and the highest of all models, and
    that of the largest measured size, which is what to expect if nothing changes any more."""

    nodes: int
    replicas: int
    low: float
    central: float
    high: float
    keep_last: float


@dataclass(frozen=True)
class Prediction:
    """points: what it rests on, ascending. model_error, keep_last_error: by what part of it the
    efficiency of the largest point is missed when it is left out, above zero if too high."""

    points: tuple[Point, ...]
    estimates: tuple[Estimate, ...]
    model_error: float
    keep_last_error: float


@dataclass(frozen=True)
class Fit:
    """A model with its parameters: t1, then a factor a term, in step times of one replica."""

    terms: Terms
    parameters: tuple[float, ...]

    def efficiency(self, nodes: int, replicas: int) -> float:
        factors = (1.0, *self.terms(nodes, replicas))
        return 1 / sum(a * b for a, b in zip(self.parameters, factors, strict=True))


def tree(nodes: int, replicas: int) -> tuple[float, ...]:
    """The terms of the central model; (nodes - 1).bit_length() is ceil(log2(nodes))."""
    stragglers = expected_maximum(replicas) - expected_maximum(replicas // nodes)
    return (nodes - 1).bit_length(), 2 * (nodes - 1) / nodes, stragglers


def levelling(nodes: int, replicas: int) -> tuple[float, ...]:
    return (1 - 1 / nodes,)


def ring(nodes: int, replicas: int) -> tuple[float, ...]:
    return nodes - 1, 2 * (nodes - 1) / nodes


CENTRAL = tree
ENVELOPE = (tree, levelling, ring)


def expected_maximum(n: int) -> float:
    """Of n independent standard normal values, by Blom (1958); within 0.03 of the exact value.

    sqrt(2 ln n) bounds it, but is twice as large at n = 2 and so grows too slowly.
    """
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25))


def fit(terms: Terms, points: Sequence[Point]) -> Fit:
    """Least squares of the relative residuals of the step times, no parameter below zero."""
    rows = [
        [factor / point.step_time for factor in (1.0, *terms(point.nodes, point.replicas))]
        for point in points
    ]
    shortest = _SHORTEST * np.eye(len(rows[0]))[1:]
    wanted = [1.0] * len(rows) + [0.0] * len(shortest)
    parameters, _ = nnls(np.vstack([rows, shortest]), np.array(wanted))
    return Fit(terms, tuple(float(value) for value in parameters))


def predict(points: Sequence[Point], sizes: Sequence[int] = ()) -> Prediction:
    """Efficiencies at larger world sizes; sizes: empty for two and four times the nodes measured.

    Of points whose nodes are differently full, those with the fullest nodes are taken that are
    enough. Where it is not stated what a node is, replicas can be taken for nodes: give as many of
    both. Raises NotPredictable if there are too few points, a size is too large, or the model does
    not beat "keep the last efficiency" at the largest point, left out of the fit.
    """
    chosen = comparable(points)
    *smaller, last = chosen
    per_node = last.replicas_per_node
    wanted = tuple(sizes) or tuple(last.replicas * factor for factor in (2, FURTHEST))
    _refuse_sizes(wanted, last)
    guess = fit(CENTRAL, smaller).efficiency(last.nodes, last.replicas)
    model_error = guess / last.efficiency - 1
    keep_last_error = smaller[-1].efficiency / last.efficiency - 1
    if abs(model_error) >= abs(keep_last_error):
        raise NotPredictable(
            f"left out of the fit, np {last.replicas} is missed by {model_error:+.1%}, and by "
            f"{keep_last_error:+.1%} if the last efficiency is kept: the model is no better, so "
            f"keep {last.efficiency:.3f}"
        )
    fits = [fit(terms, chosen) for terms in ENVELOPE]
    estimates = tuple(_estimate(fits, size // per_node, size, last) for size in wanted)
    return Prediction(chosen, estimates, model_error, keep_last_error)


def _estimate(fits: Sequence[Fit], nodes: int, replicas: int, last: Point) -> Estimate:
    by_model = {each.terms: each.efficiency(nodes, replicas) for each in fits}
    low, high = min(by_model.values()), max(by_model.values())
    return Estimate(nodes, replicas, low, by_model[CENTRAL], high, last.efficiency)


def comparable(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points to fit: of the fullest nodes that were measured on one and on two more numbers of
    nodes, ascending. Raises NotPredictable if there are none, ValueError if two are of one size."""
    if len({(point.nodes, point.replicas) for point in points}) < len(points):
        raise ValueError("two points of one size")
    by_fullness: dict[int, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.nodes):
        by_fullness.setdefault(point.replicas_per_node, []).append(point)
    for _, alike in sorted(by_fullness.items(), reverse=True):
        multi_node = sum(point.nodes > 1 for point in alike)
        if multi_node >= FEWEST_MULTI_NODE and alike[0].nodes == 1:
            return tuple(alike)
    measured = ", ".join(
        f"np {point.replicas} on {point.nodes}"
        for point in sorted(points, key=lambda point: (point.replicas, point.nodes))
    )
    raise NotPredictable(
        f"needs {FEWEST_MULTI_NODE} multi-node points at least, and one node, all nodes equally "
        f"full; there are: {measured or 'none'}; measure on 1, 2 and 4 nodes"
    )


def _refuse_sizes(sizes: Sequence[int], last: Point) -> None:
    per_node = last.replicas_per_node
    for size in sizes:
        if size % per_node:
            raise NotPredictable(
                f"np {size} is no whole number of nodes: {per_node} replicas are on each"
            )
        if size <= last.replicas:
            raise NotPredictable(f"np {size} is not above np {last.replicas}, which was measured")
        if size > FURTHEST * last.replicas:
            raise NotPredictable(
                f"np {size} is {size / last.replicas:.3g} times the {last.nodes} nodes measured, "
                f"and {FURTHEST} times is the most; ask for np {FURTHEST * last.replicas} or less"
            )
