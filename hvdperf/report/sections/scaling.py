"""Speedup and efficiency by world size: by speed, by wall time, and the ideal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from hvdperf.plan.arms import BlockKind, Workload
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report.content import Column, Figure, Row, Section, Table
from hvdperf.report.numbers import cells_of, confidence_of, level, number
from hvdperf.report.sections import scaling_plots
from hvdperf.report.sections.scaling_plots import STRONG, WEAK
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
    asked = [
        case for case in cases if case.question in ASKED and case.judged_as is JudgedAs.THRESHOLD
    ]
    labels = workload_labels(case.workload for case in asked)
    for weak, ways in ((True, WEAK), (False, STRONG)):
        named = [
            (label, point)
            for workload, label in labels.items()
            for point in _points(workload, weak, asked, speeds)
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
        scaling_plots.efficiency(networks, sizes) if len(sizes) > 1 else None,
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
        [
            f"{label} {shown(point.ways[way])} on {_replicas(point)}, a speedup of "
            f"{point.ways[way].estimate * point.world_size:.2f}"
            for label, point in lowest_first
        ]
    )
    levels = confidence_words(point.confidences.get(way) for point in last.values())
    return f"Efficiency, the lowest first: {said}.{levels}{not_drawn}"


def _replicas(point: _Point) -> str:
    return plural(point.world_size, "replica")
