"""Scaling: throughput, speedup and efficiency by world size, steady-state, of whole trainings and
end-to-end, and by nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

from hvdperf.plan.arms import BlockKind, Workload
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots
from hvdperf.report.cases import (
    asked,
    at_95,
    cells_of,
    centre_of,
    number,
    over_sessions,
    speeds_of,
)
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.report.words import (
    INTERVALS,
    Labels,
    plural,
    several,
    shown,
    slug,
    workload_labels,
)
from hvdperf.stats import Interval
from hvdperf.verdict import Verdict, worst
from hvdperf.work.blocks import Blocks

INTRO = (
    "Speedup is S_n / S_1, the throughput of n ranks over that of one rank; efficiency is speedup "
    "/ n. Weak scaling: every rank trains on a whole batch. Strong scaling: one batch, or the "
    "number of steps, is divided among the ranks. Steady-state: samples/s of timed steps. "
    "Training: wall time from graph tracing to the last step. End-to-end: wall time from the "
    "launch to the end. The ideal line is n times the throughput of one rank. Plots leave out "
    "results that are not judged or not valid; tables show them."
)
ASKED = (
    Question.WEAK_SCALING,
    Question.STRONG_SCALING,
    Question.WALL_TIME_WEAK,
    Question.WALL_TIME_STRONG,
)
# Columns of each way to count: by samples per second, by the wall time of the training, and by
# that of the whole job, with the start of its processes.
WEAK = {"steady_state": "steady-state", "training": "training", "end_to_end": "end-to-end"}
# There is no wall time with a divided batch. The other ways are of divided steps, in which every
# replica has a whole batch.
STRONG = {
    "split": "steady-state, batch divided",
    **WEAK,
    "steady_state": "steady-state, steps divided",
}
# Steady-state weak scaling.
_PLAIN = (True, "steady_state")
# The efficiency of one replica, by definition.
_ALONE = Interval(1.0, 1.0, 1.0, alpha=0.0, observations=0)
MISSING = (
    "Not measured; to measure: pytest perf/test_scaling.py, or by wall time pytest "
    "perf/test_wall_time.py."
)


@dataclass
class _Point:
    """The results at one world size. per_node: replicas on each node. ways: efficiencies with their
    intervals, by way to count. verdict: the worst of its cases; None if there are none. sound:
    whether one of the cases is (Case.is_sound)."""

    world_size: int
    per_node: tuple[int, ...]
    verdict: Verdict | None = None
    sound: bool = True
    samples_per_second: float | None = None
    ways: dict[str, Interval] = field(default_factory=dict)


# A label and its point.
_Named = tuple[str, _Point]
# By workload and world size.
_Speeds = Mapping[tuple[Workload, int], Interval]


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
    def speeds(self) -> _Speeds:
        return speeds_of(throughputs(self.cases), self.sessions)

    @cached_property
    def asked(self) -> Sequence[Case]:
        """The cases of the section's questions."""
        return asked(self.cases, *ASKED)

    @cached_property
    def labels(self) -> Labels:
        """The labels of workloads."""
        workloads = [*(workload for workload, _ in self.speeds), *(c.workload for c in self.asked)]
        labels = workload_labels(workloads, self.name_of)
        # Without the sweep, which always has a label.
        return {workload: labels[workload] for workload in workloads}


def figures(*sessions: Measured) -> list[Figure]:
    """Return the figures of the section. A network has the same colour in all of them."""
    networks = sorted({label for each in sessions for label in each.labels.values()})
    curves = [throughput(sessions, networks)]
    for weak, ways in ((True, WEAK), (False, STRONG)):
        named = [
            (label, point)
            for session in sessions
            for workload, label in session.labels.items()
            for point in _points(workload, weak, session.asked, session.speeds)
        ]
        named.sort(key=lambda each: networks.index(each[0]))
        measured = {way for _, point in named for way in point.ways}
        for way, name in ways.items():
            if way in measured:
                own = [each for each in named if way in each[1].ways]
                curves.append(_figure(weak, way, name, own, networks))
                curves.append(_of_efficiency(own, networks) if (weak, way) == _PLAIN else None)
    return [figure for figure in curves if figure is not None]


def _points(workload: Workload, weak: bool, cases: Sequence[Case], speeds: _Speeds) -> list[_Point]:
    """Return points by world size, from one replica on. If one case of a size is sound, unsound
    cases add only their verdicts."""
    of_blocks = Question.WEAK_SCALING if weak else Question.STRONG_SCALING
    of_runs = Question.WALL_TIME_WEAK if weak else Question.WALL_TIME_STRONG
    found: dict[int, _Point] = {}
    for case in sorted(cases, key=lambda case: not case.is_sound):
        figure = at_95(case)
        if case.workload != workload or figure is None:
            continue
        if case.question not in (of_blocks, of_runs):
            continue
        n = case.world_size
        point = found.setdefault(n, _Point(n, case.replicas_per_node, sound=case.is_sound))
        point.verdict = worst([case.verdict, *([point.verdict] if point.verdict else [])])
        if point.sound and not case.is_sound:
            continue
        breakdown = case.outcome.breakdown
        if breakdown is not None:
            for way in WEAK:
                if way not in point.ways or way != "steady_state":
                    speedup = getattr(breakdown, way)
                    point.ways[way] = _efficiency(speedup, n)
        if case.question is of_blocks:
            point.ways["steady_state" if weak else "split"] = figure
            if not weak:
                point.samples_per_second = _split_speed(case)
    if found and 1 not in found:
        known = [way for point in found.values() for way in point.ways]
        found[1] = _Point(1, (1,), ways=dict.fromkeys(known, _ALONE))
    for n, point in found.items():
        measured = speeds.get((workload, n))
        if measured and (weak or n == 1):
            point.samples_per_second = measured.estimate
    return [found[n] for n in sorted(found)]


def _efficiency(speedup: Interval, n: int) -> Interval:
    ends = (speedup.estimate, speedup.lower, speedup.upper)
    estimate, lower, upper = (end / n for end in ends)
    return replace(speedup, estimate=estimate, lower=lower, upper=upper)


def _split_speed(case: Case) -> float | None:
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
    return centre_of(medians).estimate if medians else None


# Throughput ------------------------------------------------------------------------------------

SPEED = (
    Column("samples_per_second", "throughput", "samples/s", digits=1),
    Column("samples_per_second_low", "lower", "samples/s", digits=1),
    Column("samples_per_second_high", "upper", "samples/s", digits=1),
)
_OF_A_GROUP = (
    Column("model", "network"),
    Column("world_size", "ranks"),
    # Beside each other, so that the intervals of networks can be told apart.
    Column("at", "drawn at", hidden=True),
    Column("layout", "nodes x ranks"),
)
_OF_A_SPEED = (
    *_OF_A_GROUP,
    *SPEED,
    Column("ideal", "ideal throughput", "samples/s", digits=1),
    Column("launches", "launches"),
)


def throughput(sessions: Sequence[Measured], networks: Sequence[str]) -> Figure | None:
    """Return the figure of the samples per second of all replicas together, each with a whole
    batch, by their number; None if there is only one replica. networks: of all figures."""
    rows = sorted(
        (row for session in sessions for row in _speeds_of(session)),
        key=lambda row: networks.index(str(row["model"])),
    )
    if all(row["world_size"] == 1 for row in rows):
        return None
    last = {str(row["model"]): row for row in rows}
    said = several(
        f"{label} {number(row['samples_per_second']):,.0f} samples/s on "
        f"{plural(int(number(row['world_size'])), 'rank')}"
        + ("" if row["ideal"] is None else f", ideal {number(row['ideal']):,.0f}")
        for label, row in last.items()
    )
    together = any(session.sessions for session in sessions)
    observed = Column("launches", "sessions" if together else "launches")
    columns = tuple(observed if each.key == observed.key else each for each in _OF_A_SPEED)
    return Figure(
        "scaling-throughput",
        "Throughput of all ranks, each with a whole batch",
        f"On the most ranks: {said}.{INTERVALS}",
        Table(columns, _beside_each_other(rows)),
        _by_ranks(
            plots.field("samples_per_second", "quantitative", "throughput in samples/s"),
            ("samples_per_second_low", "samples_per_second_high"),
            rows,
            networks,
            "ideal",
            plots.tooltip(columns),
        ),
    )


def _speeds_of(session: Measured) -> list[Row]:
    """Return a row per network and world size, ordered by world size."""
    speeds, labels = session.speeds, session.labels
    per_node = {case.world_size: case.replicas_per_node for case in session.cases} | {1: (1,)}
    rows: list[Row] = []
    for workload, n in sorted(speeds, key=lambda key: key[1]):
        speed, alone = speeds[workload, n], speeds.get((workload, 1))
        rows.append(
            {
                "model": labels[workload],
                "world_size": n,
                "layout": layout(per_node.get(n, (n,))),
                **cells_of(speed, *(column.key for column in SPEED)),
                "ideal": None if alone is None else n * alone.estimate,
                "launches": speed.observations,
            }
        )
    return rows


def layout(per_node: Sequence[int]) -> str:
    """Return nodes and the replicas on each, such as `2 x 4`, or `4 + 2` if they differ."""
    if len(set(per_node)) == 1:
        return f"{len(per_node)} x {per_node[0]}"
    return " + ".join(map(str, per_node))


def _beside_each_other(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with the place along x: the number of replicas, above one of them a little
    to the left or right of it, for each network another."""
    networks = list(dict.fromkeys(row["model"] for row in rows))
    largest = max((number(row["world_size"]) for row in rows), default=0.0)

    def place(row: Row) -> float:
        n = number(row["world_size"])
        step = 0.0 if n == 1 else min(0.014 * largest, 0.04 * largest / len(networks), 0.04 * n)
        return n + step * (networks.index(row["model"]) - (len(networks) - 1) / 2)

    return tuple({**row, "at": place(row)} for row in rows)


# Speedup and efficiency ------------------------------------------------------------------------

_COLUMNS = (
    *_OF_A_GROUP,
    Column("verdict", "verdict"),
    Column("drawn", "drawn"),
    SPEED[0],
    Column("speedup", "speedup", digits=2),
    Column("speedup_low", "lower", digits=2),
    Column("speedup_high", "upper", digits=2),
    Column("efficiency", "efficiency", digits=3),
    Column("efficiency_low", "lower", digits=3),
    Column("efficiency_high", "upper", digits=3),
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
        "layout": layout(point.per_node),
        "verdict": point.verdict.value if point.verdict else None,
        "drawn": "yes" if point.sound else "no",
        "samples_per_second": point.samples_per_second,
        **speedup,
        **share,
    }


def _table(way: str, named: Sequence[_Named]) -> Table:
    return Table(_COLUMNS, _beside_each_other([_row(*each, way) for each in named]))


def _figure(
    weak: bool, way: str, name: str, named: Sequence[_Named], networks: Sequence[str]
) -> Figure:
    """Return the figure of one way to count. named: all points that have the way. networks: of all
    figures."""
    kind = "weak" if weak else "strong"
    tags = {}
    if way in ("steady_state", "split") and (weak or way == "split"):
        tags["question"] = f"{kind} scaling"
    table = _table(way, named)
    drawn = [row for row in table.rows if row["drawn"] == "yes"]
    plot = _by_ranks(
        plots.field("speedup", "quantitative", "speedup"),
        ("speedup_low", "speedup_high"),
        drawn,
        networks,
        "world_size",
        plots.tooltip(_COLUMNS, *_TIP),
        transform=[_DRAWN],
    )
    return Figure(
        slug("scaling", kind, way),
        f"{kind.capitalize()} scaling, {name}: speedup",
        _says(way, named),
        table,
        plot,
        tags,
    )


def _of_efficiency(named: Sequence[_Named], networks: Sequence[str]) -> Figure | None:
    """Return the figure of steady-state efficiencies, in which small groups can be read as well as
    large ones; None if there are fewer than three sizes, or too many networks for lines. named: all
    points. networks: of all figures."""
    drawn = [each for each in named if each[1].sound]
    sizes = sorted({point.world_size for _, point in drawn})
    if len(sizes) < 3 or len(networks) > MOST_LINES:
        return None
    apart = _apart(networks, {label for label, _ in drawn})
    axis = {"format": ".0%", "grid": True}
    y = plots.field("efficiency", "quantitative", "efficiency", axis=axis)
    plot = plots.layered(
        plots.line("ideal", x=None, y={"datum": 1}),
        plots.interval("efficiency_low", "efficiency_high", color=apart),
        *plots.curves(y, apart, tooltip=plots.tooltip(_COLUMNS, *_TIP)),
        encoding={"x": _axis_of_ranks("world_size", sizes, {"type": "log", "base": 2})},
        transform=[_DRAWN],
    )
    return Figure(
        "scaling-weak-efficiency",
        f"Weak scaling, {WEAK['steady_state']}: efficiency",
        _says("steady_state", named),
        _table("steady_state", named),
        plot,
        {"question": "weak scaling"},
    )


def _says(way: str, named: Sequence[_Named]) -> str:
    """Return each network's efficiency at its largest sound world size, the lowest first."""
    apart = ", ".join(
        f"{label} on {_ranks(point)} {point.verdict.value}"
        for label, point in named
        if not point.sound and point.verdict
    )
    not_drawn = f" Only in the table: {apart}." if apart else ""
    last = {label: point for label, point in named if point.sound and point.world_size > 1}
    if not last:
        return f"On more than one rank, no efficiency is valid.{not_drawn}"
    lowest_first = sorted(last.items(), key=lambda each: each[1].ways[way].estimate)
    said = several(
        f"{label} {shown(point.ways[way])} on {_ranks(point)}, a speedup of "
        f"{point.ways[way].estimate * point.world_size:.2f}"
        for label, point in lowest_first
    )
    return f"Efficiency, the lowest first: {said}.{INTERVALS}{not_drawn}"


def _ranks(point: _Point) -> str:
    return plural(point.world_size, "rank")


# Plots -----------------------------------------------------------------------------------------

# With more networks, their lines cannot be told apart: there are as many colours in the palette.
MOST_LINES = 8
# If replicas share cores, there is no ideal to compare a speedup with. A line does not go
# through points whose evidence is unsound.
_DRAWN = {"filter": "datum.drawn == 'yes'"}
_TIP = (
    "model",
    "world_size",
    "layout",
    "speedup",
    "speedup_low",
    "speedup_high",
    "efficiency",
)


def _by_ranks(
    y: plots.Channel,
    bounds: tuple[str, str],
    rows: Sequence[Row],
    networks: Sequence[str],
    ideal: str,
    tip: Sequence[Mapping[str, Any]],
    **more: Any,
) -> Plot | None:
    """Return a plot over the number of replicas, both axes from 0: a line per network, or a row per
    network if there are too many of them. None for a single number of replicas, which gives no
    curve.

    rows: those that are drawn. networks: of all figures. ideal: key of the ideal value;
    "world_size" is that of all networks. tip: the tooltip. more: of the plot, such as its
    transform.
    """
    sizes = sorted({int(number(row["world_size"])) for row in rows})
    if len(sizes) < 2:
        return None
    if len(networks) > MOST_LINES:
        of_row = plots.field(ideal, "quantitative")
        perfect = plots.layer(
            {"type": "tick", "style": "ideal"}, plots.known(ideal), **plots.NETWORK, x=of_row
        )
        return plots.by_network(y, bounds, rows, perfect, tip=tip, **more)
    apart = _apart(networks, {str(row["model"]) for row in rows})
    scale = {"domain": [0, 1.04 * sizes[-1]], "nice": False}
    of_all = ideal == "world_size"
    # Of several networks each has its own, thinner and in its colour.
    mark = {"type": "rule", "style": "ideal", **({} if of_all else {"strokeWidth": 1})}
    ends = [{"op": "max", "field": key, "as": f"{key}_end"} for key in ("world_size", ideal)]
    perfect = plots.layer(
        mark,
        plots.known(ideal),
        {"aggregate": ends, "groupby": [] if of_all else ["model"]},
        x=_axis_of_ranks("world_size_end", sizes, scale),
        x2={"datum": 0},
        y={**y, "field": f"{ideal}_end"},
        y2={"datum": 0},
        **({} if of_all else {"stroke": {**apart, "legend": None}}),
    )
    return plots.layered(
        perfect,
        plots.interval(*bounds, color=apart),
        *plots.curves(y, apart, tooltip=tip),
        encoding={"x": _axis_of_ranks("at", sizes, scale)},
        # The ideal lines have no legend of their own, which would also remove that of colours.
        resolve={"legend": dict.fromkeys(("stroke", "strokeDash"), "independent")},
        **more,
    )


def _apart(networks: Sequence[str], drawn: Collection[str]) -> dict[str, Any]:
    """Return the channel that distinguishes networks. drawn: those of the plot."""
    legend = {**plots.LEGEND, "values": [each for each in networks if each in drawn]}
    return plots.field("model", "nominal", scale={"domain": list(networks)}, legend=legend)


def _axis_of_ranks(key: str, sizes: Sequence[int], scale: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channel of x. key: of its column. sizes: the world sizes, which are marked."""
    axis = {"values": list(sizes), "format": "d", "labelFlush": False, "grid": False}
    return plots.field(key, "quantitative", "number of ranks", scale=scale, axis=axis)


# Nodes -----------------------------------------------------------------------------------------


def by_nodes(cases: Sequence[Case], sessions: Sequence[Sequence[Case]] = ()) -> Section | None:
    """Return the section; return None if all replicas were on one node. sessions: as in
    Measured."""
    scaled = [case for case in asked(cases, Question.WEAK_SCALING) if case.is_sound]
    if not any(len(case.replicas_per_node) > 1 for case in scaled):
        return None
    labels = workload_labels(case.workload for case in scaled)
    speeds = speeds_of(throughputs(cases), sessions)
    figures: list[Figure] = []
    for workload in dict.fromkeys(case.workload for case in scaled):
        # Of several groups of one shape keep the last: the even one, or else the largest.
        own = sorted(
            (case for case in scaled if case.workload == workload),
            key=lambda case: (_is_even(case), case.world_size),
        )
        even = {_shape(case) for case in own if _is_even(case)}
        shares = {_shape(case): case.figure.estimate for case in own if case.figure is not None}
        speed = {
            _shape(case): found.estimate
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
    against = _against_a_node(labels, sessions or [cases])
    return Section(
        "nodes",
        "Nodes and devices",
        "Rows are nodes and columns are ranks per node; efficiencies are those of steady-state "
        "weak scaling. An unevenly spread group is shown in the column of its fullest node, unless "
        "an evenly spread group is there.",
        (*figures, *([] if against is None else [against])),
    )


_OF_A_NODE = (
    Column("model", "network"),
    Column("layout", "nodes x ranks"),
    Column("efficiency", "efficiency against one node", digits=3),
    Column("lower", "lower", digits=3),
    Column("upper", "upper", digits=3),
    Column("observations", "observations"),
)


def _against_a_node(labels: Labels, sessions: Sequence[Sequence[Case]]) -> Figure | None:
    """Return the table of efficiencies against one full node: the speed of N nodes / N times the
    speed of one, both measured in the same rounds; None if nodes had one replica each, where this
    is the efficiency against one replica, or if no single node was measured."""
    observed: dict[tuple[Workload, tuple[int, ...]], list[list[float]]] = {}
    for cases in sessions:
        own = {
            (case.workload, case.replicas_per_node): _by_round(case)
            for case in asked(cases, Question.WEAK_SCALING)
            if case.is_sound and _is_even(case) and case.replicas_per_node[0] > 1
        }
        for (workload, per_node), of_group in own.items():
            of_one = own.get((workload, per_node[:1]), {})
            ratios = [math.exp(of_group[n] - of_one[n]) for n in of_group.keys() & of_one.keys()]
            if len(per_node) > 1 and ratios:
                observed.setdefault((workload, per_node), []).append(ratios)
    rows: list[Row] = []
    for (workload, per_node), of_sessions in sorted(
        observed.items(), key=lambda each: (labels[each[0][0]], each[0][1])
    ):
        share = over_sessions(of_sessions)
        rows.append(
            {
                "model": labels[workload],
                "layout": layout(per_node),
                **cells_of(share, "efficiency", "lower", "upper"),
                "observations": share.observations,
            }
        )
    if not rows:
        return None
    said = several(
        f"{row['model']} on {row['layout']} {number(row['efficiency']):.3f}" for row in rows
    )
    return Figure(
        "nodes-against-one",
        "Efficiency against one node",
        f"The speed of N nodes over N times that of one node with as many ranks: {said}."
        f"{INTERVALS}",
        Table(_OF_A_NODE, tuple(rows)),
    )


def _by_round(case: Case) -> dict[int, float]:
    """Return ln of a case's figure by the number of its round, of rounds that nothing disturbed."""
    rows = {each.number: Blocks.observe(case.comparison, each) for each in case.rounds}
    return {number: median(row) for number, row in rows.items() if row}


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
