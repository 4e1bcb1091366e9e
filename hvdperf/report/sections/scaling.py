"""Scaling: speedup and efficiency by world size, by speed and by wall time, and by nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from hvdperf.plan.arms import BlockKind, Workload
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots
from hvdperf.report.cases import asked, cells_of, confidence_of, level, number
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.report.words import confidence_words, plural, several, shown, slug, workload_labels
from hvdperf.stats import Interval
from hvdperf.verdict import Verdict, worst

INTRO = (
    "Speedup is the speed of n replicas / that of one; efficiency is speedup / n. Weak "
    "scaling: every replica takes a whole batch. Strong scaling: either one batch or the "
    "number of steps is divided among the replicas; throughput is of a divided batch, wall "
    "times are of divided steps, and speeds are of either. By speed: samples per second of the "
    "steps. By wall time: from the trace to the last step. Of the job: from the launch to the "
    "end. Plots leave out cases that are not judged or not valid; tables show them."
)
ASKED = (
    Question.WEAK_SCALING,
    Question.STRONG_SCALING,
    Question.WALL_TIME_WEAK,
    Question.WALL_TIME_STRONG,
)
# Columns of each way to count: by samples per second, by the wall time of the training, and by
# that of the whole job, with the start of its processes.
WEAK = {"speed": "by speed", "time": "by wall time", "job": "by wall time of the job"}
# There is no wall time with a divided batch. The other ways are of divided steps, in which every
# replica has a whole batch.
STRONG = {"split": "by speed of a divided batch", **WEAK, "speed": "by speed of divided steps"}
# The efficiency of one replica, by definition.
_ALONE = Interval(1.0, 1.0, 1.0, alpha=0.0, observations=0)
MISSING = (
    "Not measured; to measure: pytest perf/test_scaling.py, or by wall time pytest "
    "perf/test_wall_time.py."
)


@dataclass
class _Point:
    """The results at one world size. ways: efficiencies with their intervals, by way to count;
    confidences: of these intervals, in %. verdict: the worst of its cases; None if there are none.
    sound: whether one of the cases is (Case.is_sound)."""

    world_size: int
    nodes: int
    verdict: Verdict | None = None
    sound: bool = True
    samples_per_second: float | None = None
    ways: dict[str, Interval] = field(default_factory=dict)
    confidences: dict[str, float | None] = field(default_factory=dict)


# A label and its point.
_Named = tuple[str, _Point]


def section(cases: Sequence[Case]) -> Section:
    """Return the section: for weak and for strong scaling, a figure per way to count, with all
    networks."""
    figures = []
    speeds = throughputs(cases)
    found = asked(cases, *ASKED)
    labels = workload_labels(case.workload for case in found)
    for weak, ways in ((True, WEAK), (False, STRONG)):
        named = [
            (label, point)
            for workload, label in labels.items()
            for point in _points(workload, weak, found, speeds)
        ]
        measured = {way for _, point in named for way in point.ways}
        figures += [
            _figure(weak, way, name, [each for each in named if way in each[1].ways])
            for way, name in ways.items()
            if way in measured
        ]
    return Section("scaling", "Scaling", INTRO, tuple(figures), MISSING)


def _points(
    workload: Workload,
    weak: bool,
    cases: Sequence[Case],
    speeds: Mapping[tuple[Workload, int], Sequence[float]],
) -> list[_Point]:
    """Return points by world size, from one replica on. If one case of a size is sound, unsound
    cases add only their verdicts."""
    by_speed = Question.WEAK_SCALING if weak else Question.STRONG_SCALING
    by_time = Question.WALL_TIME_WEAK if weak else Question.WALL_TIME_STRONG
    found: dict[int, _Point] = {}
    for case in sorted(cases, key=lambda case: not case.is_sound):
        if case.workload != workload or case.figure is None:
            continue
        if case.question not in (by_speed, by_time):
            continue
        n = case.world_size
        point = found.setdefault(n, _Point(n, len(case.replicas_per_node), sound=case.is_sound))
        point.verdict = worst([case.verdict, *([point.verdict] if point.verdict else [])])
        if point.sound and not case.is_sound:
            continue
        breakdown = case.outcome.breakdown
        if breakdown is not None:
            for way in WEAK:
                if way not in point.ways or way != "speed":
                    speedup = getattr(breakdown, f"by_{way}")
                    point.ways[way] = _efficiency(speedup, n)
                    point.confidences[way] = level(speedup)
        if case.question is by_speed:
            point.ways["speed" if weak else "split"] = case.figure
            point.confidences["speed" if weak else "split"] = confidence_of(case)
            if not weak:
                point.samples_per_second = _split_speed(case)
    if found and 1 not in found:
        known = [way for point in found.values() for way in point.ways]
        found[1] = _Point(1, 1, ways=dict.fromkeys(known, _ALONE))
    for n, point in found.items():
        measured = speeds.get((workload, n))
        if measured and (weak or n == 1):
            point.samples_per_second = median(measured)
    return [found[n] for n in sorted(found)]


def _efficiency(speedup: Interval, n: int) -> Interval:
    ends = (speedup.estimate, speedup.lower, speedup.upper)
    estimate, lower, upper = (end / n for end in ends)
    return replace(speedup, estimate=estimate, lower=lower, upper=upper)


def _split_speed(case: Case) -> float | None:
    """Return the samples per second of blocks with a divided batch: the median over launches of
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
    return median(medians) if medians else None


_COLUMNS = (
    Column("model", "network"),
    Column("world_size", "replicas"),
    Column("nodes", "nodes"),
    Column("verdict", "verdict"),
    Column("drawn", "drawn"),
    Column("samples_per_second", "throughput", "samples/s", digits=1),
    Column("speedup", "speedup", digits=2),
    Column("speedup_low", "lower", digits=2),
    Column("speedup_high", "upper", digits=2),
    Column("efficiency", "efficiency", digits=3),
    Column("efficiency_low", "lower", digits=3),
    Column("efficiency_high", "upper", digits=3),
    Column("confidence", "confidence", "%", digits=1),
)


def _row(label: str, point: _Point, way: str) -> Row:
    share = cells_of(point.ways[way], "efficiency", "efficiency_low", "efficiency_high")
    speedup = {
        key.replace("efficiency", "speedup"): (
            None if value is None else number(value) * point.world_size
        )
        for key, value in share.items()
    }
    return {
        "model": label,
        "world_size": point.world_size,
        "nodes": point.nodes,
        "verdict": point.verdict.value if point.verdict else None,
        "drawn": "yes" if point.sound else "no",
        "samples_per_second": point.samples_per_second,
        **speedup,
        **share,
        "confidence": point.confidences.get(way),
    }


def _figure(weak: bool, way: str, name: str, named: Sequence[_Named]) -> Figure:
    """Return the figure of one way to count. named: all points that have the way."""
    kind = "weak" if weak else "strong"
    drawn = [each for each in named if each[1].sound]
    sizes = sorted({point.world_size for _, point in drawn})
    networks = list(dict.fromkeys(label for label, _ in drawn))
    tags = {}
    if way in ("speed", "split") and (weak or way == "split"):
        tags["question"] = f"{kind} scaling"
    return Figure(
        slug("scaling", kind, way),
        f"{kind.capitalize()} scaling, {name}: efficiency",
        _says(way, named),
        Table(_COLUMNS, tuple(_row(label, point, way) for label, point in named)),
        # A single replica gives no curve.
        efficiency(networks, sizes) if len(sizes) > 1 else None,
        tags,
    )


def _says(way: str, named: Sequence[_Named]) -> str:
    """Return each network's efficiency at its largest sound world size, the lowest first."""
    apart = ", ".join(
        f"{label} on {_replicas(point)} {point.verdict.value}"
        for label, point in named
        if not point.sound and point.verdict
    )
    not_drawn = f" Only in the table: {apart}." if apart else ""
    last = {label: point for label, point in named if point.sound and point.world_size > 1}
    if not last:
        return f"On more than one replica, no efficiency is valid.{not_drawn}"
    lowest_first = sorted(last.items(), key=lambda each: each[1].ways[way].estimate)
    said = several(
        f"{label} {shown(point.ways[way])} on {_replicas(point)}, a speedup of "
        f"{point.ways[way].estimate * point.world_size:.2f}"
        for label, point in lowest_first
    )
    levels = confidence_words(point.confidences.get(way) for point in last.values())
    return f"Efficiency, the lowest first: {said}.{levels}{not_drawn}"


def _replicas(point: _Point) -> str:
    return plural(point.world_size, "replica")


# Plots -----------------------------------------------------------------------------------------

# With more networks, their lines cannot be told apart: there are as many colours in the palette.
MOST_LINES = 8
# If replicas share cores, there is no ideal to compare an efficiency with. A line does not go
# through points whose evidence is unsound.
_DRAWN = {"filter": "datum.drawn == 'yes'"}
_BOUNDS = ("efficiency_low", "efficiency_high")
_TIP = ("model", "world_size", "speedup", "efficiency", *_BOUNDS, "confidence")
_EFFICIENCY = plots.percent("efficiency", "efficiency", scale={"zero": False})


def efficiency(networks: Sequence[str], sizes: Sequence[int]) -> Plot:
    """Return a plot of efficiencies: a line per network; a row per network if the lines would have
    only two points, or if there are too many of them. sizes: the world sizes, which are marked."""
    if len(sizes) > 2 and len(networks) <= MOST_LINES:
        return _lines(networks, sizes)
    return _rows(len(networks), len(sizes) - 1)


def _lines(networks: Sequence[str], sizes: Sequence[int]) -> Plot:
    apart = plots.field("model", "nominal", scale={"domain": list(networks)}, legend=plots.LEGEND)
    axis = {"values": list(sizes), "format": "d", "labelFlush": False, "grid": False}
    scale = {"type": "log", "base": 2}
    x = plots.field("world_size", "quantitative", "replicas", scale=scale, axis=axis)
    return plots.layered(
        plots.line("ideal", x=None, y={"datum": 1}),
        plots.interval(*_BOUNDS, color=apart),
        *plots.curves(_EFFICIENCY, apart, tooltip=plots.tooltip(_COLUMNS, *_TIP)),
        encoding={"x": x},
        transform=[_DRAWN],
    )


def _rows(networks: int, sizes: int) -> Plot:
    """Return a plot with a row per network, in which each world size above one has a line."""
    replicas = plots.field("world_size", "ordinal", "replicas")
    tip = plots.tooltip(_COLUMNS, *_TIP)
    return plots.estimates(
        {"y": plots.row_names("model"), "yOffset": {"field": "world_size", "type": "ordinal"}},
        _EFFICIENCY,
        _BOUNDS,
        plots.line("ideal", x={"datum": 1}),
        rows=networks,
        each=max(22, 14 * sizes),
        point={"color": replicas, "shape": replicas, "tooltip": tip},
        transform=[_DRAWN, {"filter": "datum.world_size > 1"}],
    )


# Nodes -----------------------------------------------------------------------------------------


def by_nodes(cases: Sequence[Case]) -> Section | None:
    """Return the section; return None if all replicas were on one node."""
    scaled = [case for case in asked(cases, Question.WEAK_SCALING) if case.is_sound]
    if not any(len(case.replicas_per_node) > 1 for case in scaled):
        return None
    labels = workload_labels(case.workload for case in scaled)
    speeds = throughputs(cases)
    figures = []
    for workload in dict.fromkeys(case.workload for case in scaled):
        # Of several groups of one shape keep the last: the even one, or else the largest.
        own = sorted(
            (case for case in scaled if case.workload == workload),
            key=lambda case: (_is_even(case), case.world_size),
        )
        even = {_shape(case) for case in own if _is_even(case)}
        shares = {_shape(case): case.figure.estimate for case in own if case.figure is not None}
        speed = {
            _shape(case): median(found)
            for case in own
            if (found := speeds.get((workload, case.world_size)))
        }
        label = labels[workload]
        if speed:
            throughput = Column("throughput", "", "samples/s", 1)
            figures.append(_by_shape(workload.model, label, throughput, speed, even))
        if shares:
            figures.append(
                _by_shape(workload.model, label, Column("efficiency", "", "", 3), shares, even)
            )
    return Section(
        "nodes",
        "Nodes and devices",
        "Rows are nodes and columns are replicas per node; efficiencies are of weak scaling by "
        "speed. An unevenly spread group is shown in the column of its fullest node, unless an "
        "evenly spread group is there.",
        tuple(figures),
    )


def _shape(case: Case) -> tuple[int, int]:
    """Return the number of nodes, and of replicas on the fullest of them."""
    return len(case.replicas_per_node), max(case.replicas_per_node)


def _is_even(case: Case) -> bool:
    return len(set(case.replicas_per_node)) == 1


def _by_shape(
    model: str,
    label: str,
    what: Column,
    found: dict[tuple[int, int], float],
    even: Collection[tuple[int, int]],
) -> Figure:
    """Return a table. what: its quantity. even: the shapes with the same number of replicas on
    each node."""
    widths = {f"width_{width}": width for width in sorted({width for _, width in found})}
    columns = [
        replace(what, key=key, title=f"{plural(width, 'replica')} a node")
        for key, width in widths.items()
    ]
    rows = [
        {"nodes": n, **{key: found.get((n, width)) for key, width in widths.items()}}
        for n in sorted({n for n, _ in found})
    ]
    most = max(found)
    each = f"{'' if most in even else 'at most '}{plural(most[1], 'replica')} each"
    return Figure(
        slug("nodes", what.key, label),
        f"{label}: {what.key}",
        f"{label}: on {plural(most[0], 'node')} with {each} the {what.key} is "
        f"{found[most]:.{what.digits}f}{f' {what.unit}' if what.unit else ''}.",
        Table((Column("nodes", "nodes"), *columns), tuple(rows)),
        tags={"model": model},
    )
