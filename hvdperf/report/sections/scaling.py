"""Scaling: throughput, speedup and efficiency by world size, steady-state, of whole trainings and
end-to-end, and the efficiency against one node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from hvdperf.plan.arms import BlockKind, Workload
from hvdperf.plan.comparisons import Question, Scaling
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots, words
from hvdperf.report.cases import (
    asked,
    at_95,
    centre_of,
    held,
    over_sessions,
    speeds_of,
    times,
)
from hvdperf.report.content import Field, Figure, Plot, Section, Table, interval, value
from hvdperf.stats import Interval
from hvdperf.verdict import Verdict, worst
from hvdperf.work.blocks import Blocks
from hvdperf.work.table import work_of

INTRO = (
    "Speedup is S_n / S_1, the throughput of n ranks over that of one rank; efficiency is speedup "
    "/ n. Weak scaling: every rank trains on a whole batch. Strong scaling: one batch, or the "
    "number of steps, is divided among the ranks. Steady-state: samples/s of timed steps. "
    "Training: wall time from graph tracing to the last step. End-to-end: wall time from the "
    "launch to the end. The ideal line is n times the throughput of one rank. Plots leave out "
    "results that are not judged or not valid; tables show them. Efficiency against one node is "
    "the speed of N nodes over N times that of one node with as many ranks, of the same rounds."
)
# Columns of each way to count: by samples per second, by the wall time of the training, and by
# that of the whole job, with the start of its processes.
WEAK = {"steady_state": "steady-state", "training": "training", "end_to_end": "end-to-end"}
# There is no wall time with a divided batch. The other ways are of divided steps, of which each
# takes as long as in weak scaling.
STRONG = {
    "split": "steady-state, batch divided",
    "training": "training, steps divided",
    "end_to_end": "end-to-end, steps divided",
}
# The efficiency of one replica, by definition.
_ALONE = Interval(1.0, 1.0, 1.0, alpha=0.0, observations=0)
MISSING = (
    "Not measured; to measure: pytest perf/test_scaling.py, or by wall time pytest "
    "perf/test_wall_time.py."
)


_Shape = tuple[Workload, tuple[int, ...]]


@dataclass
class _Point:
    """The results of a network at one world size. per_node: replicas on each node. ways:
    efficiencies with their intervals, by way to count. verdict: the worst of its cases; None if
    there are none. sound: whether one of the cases is (Case.is_sound). speed: the throughput.
    against: the efficiency against one full node."""

    network: str
    world_size: int
    per_node: tuple[int, ...]
    verdict: Verdict | None = None
    sound: bool = True
    speed: Interval | None = None
    against: Interval | None = None
    ways: dict[str, Interval] = field(default_factory=dict)


def section(cases: Sequence[Case], sessions: Sequence[Sequence[Case]] = ()) -> Section:
    """Return the section: the throughput, and for weak and for strong scaling a figure per way to
    count, each with all networks. sessions: as in Measured."""
    curves = tuple(figures(Measured(cases, sessions=sessions)))
    return Section("scaling", "Scaling", INTRO, curves, MISSING)


@dataclass(frozen=True)
class Measured:
    """The cases of a session. name_of: makes the name of a network in figures from that of its
    model. sessions: the cases of each session, if several were put together in this one."""

    cases: Sequence[Case]
    name_of: Callable[[str], str] = str
    sessions: Sequence[Sequence[Case]] = ()

    @cached_property
    def speeds(self) -> Mapping[tuple[Workload, int], Interval]:
        return speeds_of(throughputs(self.cases), self.sessions)

    @cached_property
    def asked(self) -> Sequence[Case]:
        """The cases on scaling that have thresholds."""
        return [case for case in held(self.cases) if case.question.spec.scaling]

    @cached_property
    def labels(self) -> words.Labels:
        """The labels of workloads."""
        workloads = [*(workload for workload, _ in self.speeds), *(c.workload for c in self.asked)]
        labels = words.workload_labels(workloads, self.name_of)
        # Without the sweep, which always has a label.
        return {workload: labels[workload] for workload in workloads}

    @cached_property
    def against(self) -> Mapping[_Shape, Interval]:
        return _against_a_node(self.sessions or [self.cases])

    def points(self, weak: bool) -> list[_Point]:
        """Return the points of weak or of strong scaling, by network and world size."""
        every = (self._points_of(workload, weak) for workload in self.labels)
        return [found[n] for found in every for n in sorted(found)]

    def _points_of(self, workload: Workload, weak: bool) -> dict[int, _Point]:
        """Return points by world size, from one replica on. If one case of a size is sound, unsound
        cases add only their verdicts."""
        scaling = Scaling.WEAK if weak else Scaling.STRONG
        label, found = self.labels[workload], dict[int, _Point]()
        own = [case for case in self.asked if case.workload == workload]
        for case in sorted(own, key=lambda case: not case.is_sound):
            figure, n = at_95(case), case.world_size
            if figure is None or case.question.spec.scaling is not scaling:
                continue
            point = found.setdefault(
                n, _Point(label, n, case.replicas_per_node, sound=case.is_sound)
            )
            point.verdict = worst([case.verdict, *([point.verdict] if point.verdict else [])])
            if point.sound and not case.is_sound:
                continue
            if (breakdown := case.outcome.breakdown) is not None:
                for way in WEAK:
                    if way not in point.ways or way != "steady_state":
                        point.ways[way] = times(getattr(breakdown, way), 1, n)
            if work_of(case.question) is Blocks:
                point.ways["steady_state" if weak else "split"] = figure
                point.speed = point.speed if weak else _split_speed(case)
        if found and 1 not in found:
            known = [way for point in found.values() for way in point.ways]
            found[1] = _Point(label, 1, (1,), ways=dict.fromkeys(known, _ALONE))
        for n, point in found.items():
            if weak or n == 1:
                point.speed = self.speeds.get((workload, n), point.speed)
            if weak:
                point.against = self.against.get((workload, point.per_node))
        return found


def _split_speed(case: Case) -> Interval | None:
    """Return the samples per second of blocks with a divided batch: the centre, over launches, of
    each launch's median; None if there are none."""
    launches = [
        [
            block.samples_per_second
            for block in measured.of(case.comparison.candidate.arm).of_kind(BlockKind.SPLIT)
            if block.seconds > 0
        ]
        for measured in case.rounds
    ]
    medians = [median(speeds) for speeds in launches if speeds]
    return centre_of(medians) if medians else None


def figures(measured: Measured) -> list[Figure]:
    """Return the figures of the section. A network has the same colour in all of them."""
    networks = sorted(set(measured.labels.values()))
    curves = [throughput(measured, networks)]
    for kind, ways in (("weak", WEAK), ("strong", STRONG)):
        points = measured.points(kind == "weak")
        points.sort(key=lambda point: networks.index(point.network))
        for way, name in ways.items():
            if own := [point for point in points if way in point.ways]:
                curves.append(_speedup(kind, way, name, own, networks))
    return [figure for figure in curves if figure is not None]


# Throughput ------------------------------------------------------------------------------------


SPEED: Field[_Point] = interval(
    "samples_per_second", "throughput", lambda point: point.speed, "samples/s", 1
)


_AGAINST: Field[_Point] = interval(
    "against", "efficiency against one node", lambda point: point.against
)


def _observed(figure: Interval | None) -> int | None:
    return None if figure is None else figure.observations


def throughput(measured: Measured, networks: Sequence[str]) -> Figure | None:
    """Return the figure of the samples per second of all replicas together, each with a whole
    batch, by their number; None if there is only one replica. networks: of all figures."""
    per_node = {case.world_size: case.replicas_per_node for case in measured.cases} | {1: (1,)}
    points = [
        _Point(measured.labels[workload], n, per_node.get(n, (n,)), speed=speed)
        for (workload, n), speed in measured.speeds.items()
    ]
    if all(point.world_size == 1 for point in points):
        return None
    points.sort(key=lambda point: (networks.index(point.network), point.world_size))
    alone = {point.network: point.speed for point in points if point.world_size == 1}

    def ideal(point: _Point) -> float | None:
        of_one = alone.get(point.network)
        return None if of_one is None else point.world_size * of_one.estimate

    observed = "sessions" if measured.sessions else "launches"
    rows = Table.of(
        points,
        *_group(points),
        SPEED,
        value("ideal", "ideal throughput", ideal, "samples/s", 1),
        value("launches", observed, lambda point: _observed(point.speed)),
    )
    return Figure(
        "scaling-throughput",
        "Throughput of all ranks, each with a whole batch",
        words.INTERVALS,
        rows,
        _by_ranks(rows, "samples_per_second", networks, "ideal"),
    )


def _group(points: Sequence[_Point]) -> tuple[Field[_Point], ...]:
    """Return the fields that name a point. Points of one size are drawn slightly apart, so that the
    intervals of networks do not overlap."""
    networks = list(dict.fromkeys(point.network for point in points))
    largest = max((point.world_size for point in points), default=0)

    def place(point: _Point) -> float:
        n = point.world_size
        step = 0.0 if n == 1 else min(0.014 * largest, 0.04 * largest / len(networks), 0.04 * n)
        return n + step * (networks.index(point.network) - (len(networks) - 1) / 2)

    return (
        value("model", "network", lambda point: point.network),
        value("world_size", "ranks", lambda point: point.world_size),
        value("at", "drawn at", place, hidden=True),
        value("layout", "nodes x ranks", lambda point: layout(point.per_node)),
    )


def layout(per_node: Sequence[int]) -> str:
    """Return nodes and the replicas on each, such as `2 x 4`, or `4 + 2` if they differ."""
    if len(set(per_node)) == 1:
        return f"{len(per_node)} x {per_node[0]}"
    return " + ".join(map(str, per_node))


# Speedup and efficiency ------------------------------------------------------------------------


def _speedup(
    kind: str, way: str, name: str, points: Sequence[_Point], networks: Sequence[str]
) -> Figure:
    """Return the figure of one way to count. points: all that have the way. networks: of all
    figures."""
    judged = (kind, way) in (("weak", "steady_state"), ("strong", "split"))
    rows = Table.of(
        points,
        *_group(points),
        value("verdict", "verdict", lambda point: point.verdict.value if point.verdict else None),
        value("drawn", "drawn", lambda point: "yes" if point.sound else "no"),
        SPEED,
        interval("speedup", "speedup", lambda p: times(p.ways[way], p.world_size), digits=2),
        interval("efficiency", "efficiency", lambda point: point.ways[way]),
        *([_AGAINST] if judged and any(point.against for point in points) else []),
    )
    return Figure(
        words.slug("scaling", kind, way),
        f"{kind.capitalize()} scaling, {name}: speedup",
        words.INTERVALS,
        rows,
        _by_ranks(rows, "speedup", networks, "world_size"),
    )


# Plots -----------------------------------------------------------------------------------------

# With more networks, their lines cannot be told apart: there are as many colours in the palette.
MOST_LINES = 8


def _by_ranks(rows: Table, key: str, networks: Sequence[str], ideal: str) -> Plot | None:
    """Return a plot over the number of replicas, both axes from 0: a line per network, or a row per
    network if there are too many of them. None for a single number of replicas, which gives no
    curve.

    key: of the figure. networks: of all figures. ideal: key of the ideal value; "world_size" is
    that of all networks.
    """
    sizes, y = _sizes(rows), plots.axis(rows, key)
    if len(sizes) < 2:
        return None
    if len(networks) > MOST_LINES:
        return plots.interval(rows, "model", y, "world_size", plots.ticks("ideal", ideal))
    scale = {"domain": [0, 1.04 * sizes[-1]], "nice": False}
    # Of several networks each has its own, thinner and in its colour.
    of_each = ideal != "world_size"
    colours = plots.field("model", "nominal", scale={"domain": [*networks]}, legend=None)
    perfect = plots.layer(
        {"type": "line", "style": "ideal", **({"strokeWidth": 1} if of_each else {})},
        plots.known(ideal),
        x=plots.field("world_size"),
        y=plots.field(ideal),
        **({"stroke": colours} if of_each else {}),
    )
    # The world sizes are marked.
    axis = {"values": sizes, "format": "d", "labelFlush": False, "grid": False}
    x = plots.field("at", "quantitative", "number of ranks", scale=scale, axis=axis)
    return plots.curve(rows, x, y, "model", perfect, domain=networks)


def _sizes(rows: Table) -> list[int]:
    """Return the world sizes that are drawn."""
    return sorted({int(row["world_size"] or 0) for row in plots.drawn(rows)})


# Nodes -----------------------------------------------------------------------------------------


def _against_a_node(sessions: Sequence[Sequence[Case]]) -> dict[_Shape, Interval]:
    """Return the efficiencies against one full node, without nodes of one replica each, where this
    is the efficiency against one replica."""
    observed: dict[_Shape, list[list[float]]] = {}
    for cases in sessions:
        own = {
            (case.workload, case.replicas_per_node): _by_round(case)
            for case in asked(cases, Question.WEAK_SCALING)
            if case.is_sound and len(set(case.replicas_per_node)) == 1 < case.replicas_per_node[0]
        }
        for (workload, per_node), of_group in own.items():
            of_one = own.get((workload, per_node[:1]), {})
            ratios = [math.exp(of_group[n] - of_one[n]) for n in of_group.keys() & of_one.keys()]
            if len(per_node) > 1 and ratios:
                observed.setdefault((workload, per_node), []).append(ratios)
    return {shape: over_sessions(ratios) for shape, ratios in observed.items()}


def _by_round(case: Case) -> dict[int, float]:
    """Return ln of a case's figure by the number of its round, of rounds that nothing disturbed."""
    rows = {each.number: Blocks.observe(case.comparison, each) for each in case.rounds}
    return {number: median(row) for number, row in rows.items() if row}
