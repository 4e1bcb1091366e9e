"""Predicts efficiencies of weak scaling at twice and four times the nodes, by a model.

The model is a clipped trend: the last decline continues. A loss of more than 6 to 8 % at the last
doubling of the nodes is clipped, because it comes from crossing a border, such as that between
nodes.

    E(2N) = E(N) exp(-0.9 d),  d = min(max(ln E(N / 2) - ln E(N), 0), 0.06)
    E(4N) = E(N) exp(-1.5 d),  the same d, but no more than 0.08

Shares and clips come from 35 curves of one published study, 1 to 8 nodes of 4 GPUs. The intervals
are the 5 to 95 % residuals of ln E there, WIDER times, because curves that were not fitted lie
outside of them more often. docs/comparing.md has the errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hvdperf.columns import Columns, interval, number, wrapped
from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Question
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.report.cases import asked
from hvdperf.report.words import plural
from hvdperf.stats import Interval

# An efficiency of weak scaling outside of this range is not to be believed.
PLAUSIBLE = (1e-3, 10.0)


class NotPredictable(UserError):
    """The points allow no prediction. The message, one line, says why and what to do."""


@dataclass(frozen=True)
class Point:
    """A measured efficiency of weak scaling.

    nodes: as measured, not inferred from replicas. replicas: on all nodes together, the same number
    on each. efficiency: S_n / (n S_1). Raises ValueError if the replicas are not spread evenly, or
    if the efficiency is not plausible.
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
            raise ValueError(f"{self.efficiency:g} is not an efficiency of weak scaling")

    @property
    def replicas_per_node(self) -> int:
        return self.replicas // self.nodes


@dataclass(frozen=True)
class Reach:
    """The continuation of the trend to `times` the nodes. share: the share of the last decline of
    ln E that is lost again. most: the limit of that decline. below, above: how far the measured
    ln E lay below and above the prediction."""

    times: int
    share: float
    most: float
    below: float
    above: float


# Of 11 curves that were not fitted, 67 % lay inside the residuals' own range, and of those of other
# sources 72 %. If errors are normal, 1.645 / 1.04 times that range holds 90 % of them.
WIDER = 1.6
REACHES = (
    Reach(times=2, share=0.9, most=0.06, below=0.09 * WIDER, above=0.08 * WIDER),
    Reach(times=4, share=1.5, most=0.08, below=0.23 * WIDER, above=0.03 * WIDER),
)


@dataclass(frozen=True)
class Estimate:
    """A predicted efficiency with its interval."""

    nodes: int
    replicas: int
    efficiency: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """Predicted efficiencies. half, last: the points at N / 2 and N nodes on which they rest."""

    half: Point
    last: Point
    estimates: tuple[Estimate, ...]


def predict(points: Sequence[Point]) -> Prediction:
    """Return the efficiencies predicted at twice and four times the nodes. Raises NotPredictable if
    no two points show a trend, ValueError if two points have the same size."""
    half, last = trend(points)
    decline = max(math.log(half.efficiency / last.efficiency), 0.0)
    estimates = []
    for reach in REACHES:
        efficiency = last.efficiency * math.exp(-reach.share * min(decline, reach.most))
        bounds = efficiency * math.exp(-reach.below), efficiency * math.exp(reach.above)
        size = last.nodes * reach.times, last.replicas * reach.times
        estimates.append(Estimate(*size, efficiency, *bounds))
    return Prediction(half, last, tuple(estimates))


def trend(points: Sequence[Point]) -> tuple[Point, Point]:
    """Return the points at N / 2 and N nodes with the same number of replicas per node.

    N is more than half of the largest number of nodes with that number of replicas per node. Of
    several pairs, the one with the most replicas per node and then the largest N is taken. Raises
    as predict does.
    """
    by_size = {(point.replicas_per_node, point.nodes): point for point in points}
    if len(by_size) < len(points):
        raise ValueError("two points have the same size")
    if all(point.nodes == 1 for point in points):
        raise NotPredictable(
            "all cases ran on one node, and replicas on one node do not predict nodes; "
            "measure on 1 and 2 nodes"
        )
    # The largest number of nodes by replicas per node: dict keeps the last one of ascending sizes.
    furthest = dict(sorted(by_size))
    pairs = [
        (by_size[per_node, nodes // 2], by_size[per_node, nodes])
        for per_node, nodes in sorted(by_size)
        if nodes % 2 == 0 and (per_node, nodes // 2) in by_size and 2 * nodes > furthest[per_node]
    ]
    if not pairs:
        measured = ", ".join(
            f"np {point.replicas} on {point.nodes}"
            for point in sorted(points, key=lambda point: (point.replicas, point.nodes))
        )
        raise NotPredictable(
            "the model needs equally full groups of N and N / 2 nodes, with N above half of the "
            f"largest number of nodes; measured: {measured}; choose sizes with --world-sizes"
        )
    return pairs[-1]


MODEL = "model, not measured"
_TABLE = Columns(("np", 5), ("nodes", 5), ("figure", 6), ("interval", -14))
HEADER = (
    f"{MODEL}: efficiency of weak scaling, S_n / (n S_1)",
    *wrapped(
        "The model continues the last decline, up to 6 to 8 %: a larger decline comes from "
        "crossing a border, such as that between nodes. It rests on 35 curves of one published "
        "study, 1 to 8 nodes of 4 GPUs. Its intervals contained 94 % of the values that it was "
        "fitted to, and 7 of 10 others (39 of 55). Errors of this session's own figures add to "
        "that.",
        others="",
    ),
)


@dataclass(frozen=True)
class Forecast:
    """A prediction as text. lines: for people; empty if nothing can be predicted. refusals: a line
    per network without a prediction, or one line for the session."""

    lines: tuple[str, ...]
    refusals: tuple[str, ...]


def forecast(archive: Archive) -> Forecast:
    """Return the prediction for every network whose weak scaling the session has measured."""
    by_workload: dict[Workload, list[Case]] = {}
    for case in asked(archive.cases, Question.WEAK_SCALING):
        by_workload.setdefault(case.workload, []).append(case)
    lines, refusals = [], []
    for workload, cases in by_workload.items():
        points, unused = _points(cases)
        try:
            prediction = predict(list(points))
        except NotPredictable as error:
            why = "".join(f"; {reason}" for reason in unused)
            refusals.append(f"{workload.name}: no prediction: {error}{why}")
        else:
            lines += ["", *_table(workload, prediction, points, unused)]
    if not by_workload:
        refusals.append(
            f"{shown(archive.directory)}: no prediction: the session has no case of weak scaling"
        )
    return Forecast((*HEADER, *lines) if lines else (), tuple(refusals))


def _points(cases: Sequence[Case]) -> tuple[dict[Point, Interval | None], list[str]]:
    """Return the points that a trend may rest on, each with its measured interval (None for one
    replica), and a note on every case that was not used."""
    points: dict[Point, Interval | None] = {Point(1, 1, 1.0): None}
    unused = []
    for case in sorted(cases, key=lambda case: case.world_size):
        nodes, why = len(case.replicas_per_node), ""
        if case.figure is None or not case.is_sound:
            why = case.verdict.value
        elif len(set(case.replicas_per_node)) > 1:
            why = f"unevenly on nodes, {', '.join(map(str, case.replicas_per_node))}"
        else:
            try:
                points[Point(nodes, case.world_size, case.figure.estimate)] = case.figure
            except ValueError as error:
                why = str(error)
        if why:
            unused.append(f"np {case.world_size} was not used: {why}")
    return points, unused


def _table(
    workload: Workload,
    prediction: Prediction,
    points: dict[Point, Interval | None],
    unused: Sequence[str],
) -> list[str]:
    per_node = prediction.last.replicas_per_node
    heading = f"{workload.name}, {plural(per_node, 'replica')} a node"
    lines = [f"{_TABLE.header} (measured)"]
    for point in (prediction.half, prediction.last):
        figure = points[point]
        bounds = "by definition" if figure is None else interval(figure.lower, figure.upper)
        efficiency = number(point.efficiency, 6, 3)
        lines.append(_TABLE.row(point.replicas, point.nodes, efficiency, bounds))
    lines.append(f"{_TABLE.header} ({MODEL})")
    for each in prediction.estimates:
        cells = number(each.efficiency, 6, 3), interval(each.low, each.high)
        lines.append(_TABLE.row(each.replicas, each.nodes, *cells))
    return [
        *wrapped(heading, others=""),
        *lines,
        *(part for note in unused for part in wrapped(note)),
    ]
