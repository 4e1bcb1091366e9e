"""The prediction of weak scaling at more nodes, as text: takes a session and returns lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hvdperf.columns import Columns, interval, number, wrapped
from hvdperf.paths import shown
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.report.prediction import NotPredictable, Point, Prediction, predict
from hvdperf.report.words import plural
from hvdperf.stats import Interval

MODEL = "model, not measured"
_TABLE = Columns(("np", 5), ("nodes", 5), ("figure", 6), ("interval", -14))
HEADER = (
    f"{MODEL}: efficiency of weak scaling, S_n / (n S_1)",
    *wrapped(
        "The model continues the last decline, up to 6 to 8 %: a larger decline comes from "
        "crossing a border, such as that between nodes. It rests on 35 curves of one published "
        "study, 1 to 8 nodes of 4 GPUs, where its intervals contained 83 to 89 % of the "
        "measured values. Errors of this session's own figures add to that.",
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
    for case in archive.cases:
        if case.question is Question.WEAK_SCALING and case.judged_as is JudgedAs.THRESHOLD:
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
        if case.figure is None or not case.is_sound:
            unused.append(f"np {case.world_size} was not used: {case.verdict.value}")
        elif len(set(case.replicas_per_node)) > 1:
            placed = ", ".join(map(str, case.replicas_per_node))
            unused.append(f"np {case.world_size} was not used: unevenly on nodes, {placed}")
        else:
            nodes = len(case.replicas_per_node)
            try:
                point = Point(nodes, case.world_size, case.figure.estimate)
            except ValueError as error:
                unused.append(f"np {case.world_size} was not used: {error}")
            else:
                points[point] = case.figure
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
