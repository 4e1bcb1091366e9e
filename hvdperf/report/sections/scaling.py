"""Speedup and efficiency by world size: by speed, by wall time, and the ideal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from hvdperf.plan.arms import BlockKind, Workload
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.plan.question import Question
from hvdperf.report.content import Column, Figure, Row, Section, Table, Value
from hvdperf.report.numbers import cells_of, number
from hvdperf.report.sections import scaling_plots
from hvdperf.report.sections.scaling_plots import STRONG, WEAK, Ways
from hvdperf.report.words import plural, slug, workload_labels
from hvdperf.results.documents import Case
from hvdperf.results.throughput import throughputs
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
# The efficiency of one replica, by definition.
_ALONE = Interval(1.0, 1.0, 1.0, alpha=0.0, observations=0)
MISSING = (
    "Not measured; to measure: pytest perf/test_scaling.py, or by wall time pytest "
    "perf/test_wall_time.py."
)


@dataclass
class _Point:
    """The results at one world size. ways: efficiencies with their intervals, by way to count.
    verdict: the worst of its cases; None if there are none. sound: whether one of the cases is
    (Case.is_sound)."""

    world_size: int
    nodes: int
    verdict: Verdict | None = None
    sound: bool = True
    samples_per_second: float | None = None
    ways: dict[str, Interval] = field(default_factory=dict)


def section(cases: Sequence[Case]) -> Section:
    figures = []
    speeds = throughputs(cases)
    asked = [
        case for case in cases if case.question in ASKED and case.judged_as is JudgedAs.THRESHOLD
    ]
    labels = workload_labels(case.workload for case in asked)
    bars: list[tuple[str, _Point]] = []
    for weak in (True, False):
        for workload, label in labels.items():
            points = _points(workload, weak, asked, speeds)
            if len(points) > 1:
                figures += _figures(workload.model, label, weak, points)
                bars += [(label, point) for point in points] if weak else []
    if bars:
        figures.insert(0, _bars(bars))
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
                    point.ways[way] = _efficiency(getattr(breakdown, f"by_{way}"), n)
        if case.question is by_speed:
            point.ways["speed" if weak else "split"] = case.figure
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


def _efficiency(speedup: Interval, world_size: int) -> Interval:
    return replace(
        speedup,
        estimate=speedup.estimate / world_size,
        lower=speedup.lower / world_size,
        upper=speedup.upper / world_size,
    )


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


def _columns(ways: Ways) -> tuple[Column, ...]:
    found = [
        Column("model", "network"),
        Column("world_size", "replicas"),
        Column("nodes", "nodes"),
        Column("verdict", "verdict"),
        Column("drawn", "drawn"),
        Column("samples_per_second", "throughput", "samples/s", digits=1),
    ]
    for way, name in ways.items():
        found += [
            Column(f"speedup_{way}", f"speedup {name}", digits=2),
            Column(f"speedup_{way}_low", "lower", digits=2),
            Column(f"speedup_{way}_high", "upper", digits=2),
            Column(f"efficiency_{way}", f"efficiency {name}", digits=3),
            Column(f"efficiency_{way}_low", "lower", digits=3),
            Column(f"efficiency_{way}_high", "upper", digits=3),
        ]
    return tuple(found)


def _row(label: str, point: _Point, ways: Ways) -> Row:
    row: dict[str, Value] = {
        "model": label,
        "world_size": point.world_size,
        "nodes": point.nodes,
        "verdict": point.verdict.value if point.verdict else None,
        "drawn": "yes" if point.sound else "no",
        "samples_per_second": point.samples_per_second,
    }
    for way in ways:
        of_way = f"efficiency_{way}"
        cells = cells_of(point.ways.get(way), of_way, f"{of_way}_low", f"{of_way}_high")
        for key, share in cells.items():
            row[key] = share
            speedup = None if share is None else number(share) * point.world_size
            row[key.replace("efficiency", "speedup")] = speedup
    return row


def _measured(ways: Ways, points: Iterable[_Point]) -> Ways:
    """Return the ways that were measured."""
    known = {way for point in points for way in point.ways}
    return {way: name for way, name in ways.items() if way in known}


def _figures(model: str, label: str, weak: bool, points: Sequence[_Point]) -> list[Figure]:
    kind = "weak" if weak else "strong"
    ways = _measured(WEAK if weak else STRONG, points)
    table = Table(_columns(ways), tuple(_row(label, point, ways) for point in points))
    sizes = [point.world_size for point in points if point.sound]
    tags = {"model": model}
    # With wall times, the figure is about two questions.
    if list(ways) == ["speed" if weak else "split"]:
        tags["question"] = f"{kind} scaling"
    return [
        Figure(
            slug(what, kind, label),
            f"{label}: {what}, {kind} scaling",
            _says(f"{label}, {kind} scaling", points, ways),
            table,
            # A single replica gives no curve.
            plot(ways, sizes) if len(sizes) > 1 else None,
            tags,
        )
        for what, plot in (
            ("speedup", scaling_plots.speedup),
            ("efficiency", scaling_plots.efficiency),
        )
    ]


def _says(what: str, points: Sequence[_Point], ways: Ways) -> str:
    apart = ", ".join(
        f"{_replicas(point)} {point.verdict.value}"
        for point in points
        if not point.sound and point.verdict
    )
    not_drawn = f" Only in the table: {apart}." if apart else ""
    last = max(points, key=lambda point: (point.sound, point.world_size))
    if last.world_size == 1:
        return f"{what}: no speedup is valid.{not_drawn}"
    shares = {name: last.ways[way].estimate for way, name in ways.items() if way in last.ways}
    speedups = ", ".join(
        f"{share * last.world_size:.2f} {name} ({100 * share:.0f} %)"
        for name, share in shares.items()
    )
    return f"{what}: on {_replicas(last)} the speedup is {speedups}.{not_drawn}"


def _replicas(point: _Point) -> str:
    return plural(point.world_size, "replica")


def _bars(named: Sequence[tuple[str, _Point]]) -> Figure:
    """Return the figure of weak scaling's efficiency by speed, for every network."""
    ways = _measured(WEAK, [point for _, point in named])
    shares = {
        f"{label} on {_replicas(point)}": point.ways["speed"].estimate
        for label, point in named
        if point.world_size > 1 and point.sound and "speed" in point.ways
    }
    says = "No efficiency by speed above one replica is valid."
    if shares:
        lowest = min(shares, key=lambda name: shares[name])
        says = (
            f"The lowest of {plural(len(shares), 'efficiency', 'efficiencies')} by speed is "
            f"{100 * shares[lowest]:.1f} %: {lowest}."
        )
    return Figure(
        "weak-scaling",
        "Weak scaling: efficiency by speed",
        says,
        Table(_columns(ways), tuple(_row(label, point, ways) for label, point in named)),
        scaling_plots.bars(len(shares)) if shares else None,
    )
