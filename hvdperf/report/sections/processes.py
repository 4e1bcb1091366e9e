"""What processes cost beside their steps: the phases of a start, and the growth of memory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from hvdperf.explain.training_runs import STEPS_OF_GROWTH, ended_at, growth, settled_at
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.cases import Started, asked, finite, launches, number, trusted
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table, Value
from hvdperf.report.words import plural, several, slug, tags_of, workload_labels
from hvdperf.verdict import Ceiling
from hvdperf.worker.protocol import STARTUP

# Starts ----------------------------------------------------------------------------------------

# The phases of a start, with the keys of their columns.
PHASES = {phase.value: phase.value.replace(" ", "_") for phase in STARTUP}
_OF_A_START = (
    Column("arm", "started"),
    Column("strategy", "strategy", hidden=True),
    Column("world_size", "ranks", hidden=True),
    Column("beside", "beside it", hidden=True),
    *(Column(key, phase, "s", 3) for phase, key in PHASES.items()),
    Column("all_phases", "all phases", "s", 3),
    Column("launches", "launches"),
)


def startup(cases: Sequence[Case]) -> Section:
    """Return the section on all launches of the session's own stack without an injected fault."""
    found: dict[Workload, dict[str, list[Started]]] = {}
    for started in launches(trusted(cases)):
        if started.launch.startup_seconds:
            beside = "" if started.alone else ", beside others"
            # The learning rate does not affect the start.
            workload = replace(started.case.workload, learning_rate="constant")
            arms = found.setdefault(workload, {})
            arms.setdefault(started.arm + beside, []).append(started)
    labels = workload_labels(found)
    figures = tuple(
        _of_workload(workload.model, labels[workload], arms) for workload, arms in found.items()
    )
    return Section(
        "startup",
        "Start-up",
        "Seconds of the slowest rank in each phase, medians over the launches. Arms that start "
        "at the same time as others share the cores with them, and therefore take longer.",
        figures,
        "No start was measured; to measure: pytest perf/test_startup.py",
    )


def _of_workload(model: str, label: str, arms: Mapping[str, Sequence[Started]]) -> Figure:
    rows = [_of_arm(arm, group) for arm, group in arms.items()]
    rows.sort(key=lambda row: (number(row["world_size"]), str(row["arm"])))
    longest = max(rows, key=lambda row: number(row["all_phases"]))
    phase = max(PHASES, key=lambda phase: number(longest[PHASES[phase]]))
    others = [
        f"{row['arm']} {number(row['all_phases']):.1f} s" for row in rows if row is not longest
    ]
    said = (
        f"The slowest start is {longest['arm']}, {number(longest['all_phases']):.1f} s, of which "
        f"{phase} {number(longest[PHASES[phase]]):.1f} s"
    )
    return Figure(
        name=slug("startup", label),
        title=f"{label}: from the order to launch until the first step can be taken",
        says=f"{said}{'; ' if others else ''}{several(others)}.",
        table=Table(_OF_A_START, tuple(rows)),
        plot=_phases([str(row["arm"]) for row in rows]),
        tags={"model": model},
    )


def _of_arm(arm: str, group: Sequence[Started]) -> Row:
    """Return the row of an arm. A phase's median is over the launches that went through it."""
    medians = {key: _median(phase, group) for phase, key in PHASES.items()}
    return {
        "arm": arm,
        "strategy": group[0].strategy,
        "world_size": group[0].world_size,
        "beside": "nothing" if group[0].alone else "other arms",
        **medians,
        "all_phases": sum(finite(medians.values())),
        "launches": len(group),
    }


def _median(phase: str, group: Sequence[Started]) -> float | None:
    slowest = [
        max(seconds)
        for started in group
        if (seconds := finite(rank.get(phase) for rank in started.launch.startup_seconds))
    ]
    return median(slowest) if slowest else None


def _phases(arms: Sequence[str]) -> Plot:
    """Return a plot of bars of the phases, in their order."""
    parts = {key: f"{i} {phase}" for i, (phase, key) in enumerate(PHASES.items(), 1)}
    tip = (
        _OF_A_START[0],
        Column("part", "phase"),
        Column("seconds", "seconds", digits=3),
        _OF_A_START[-1],
    )
    return plots.stacked(
        plots.row_names("arm", 260, sort=list(arms)),
        "seconds",
        parts.values(),
        {"fold": list(parts), "as": ["phase", "seconds"]},
        plots.known("seconds"),
        {"calculate": f"{json.dumps(parts)}[datum.phase]", "as": "part"},
        rows=len(arms),
        each=44,
        tip=tip,
    )


# Memory ----------------------------------------------------------------------------------------

MIB = 1024 * 1024
# If there are more ranks than this, only those that grow most are shown.
SHOWN = 8
_OF_A_RANK = (
    Column("rank", "rank"),
    Column("steps", "steps"),
    Column("resident_mib", "resident set", "MiB", 1),
    Column("allowed_mib", "allowed", "MiB", 1),
    Column("growth", "growth in 1,000 steps", "%", 3),
    Column("rounds", "rounds"),
)
Readings = Sequence[tuple[int, float]]


def memory(cases: Sequence[Case]) -> Section:
    """Return the section on endurance runs."""
    found = asked(trusted(cases), Question.MEMORY)
    labels = workload_labels(case.workload for case in found)
    figures = tuple(figure for case in found for figure in _of_case(case, labels[case.workload]))
    return Section(
        "memory",
        "Memory",
        "Resident set of each rank during training, medians over the rounds. The limit grows "
        "by the ceiling's factor in 1,000 steps. It begins after the first third of the run, "
        "in which caches and queues fill up, or where a growth ended after that.",
        figures,
        "Memory was not measured; to measure: pytest perf/test_memory.py",
    )


def _of_case(case: Case, label: str) -> list[Figure]:
    """Return the figure of a case; return [] if no memory was read."""
    candidate = case.comparison.candidate.arm
    started = [each for each in launches([case]) if each.launch.arm == candidate]
    ranks = _readings(started)
    if not ranks:
        return []
    grown = {rank: _growth(readings) for rank, readings in ranks.items()}
    known = {rank: -math.inf if each is None else each for rank, each in grown.items()}
    by_growth = sorted(ranks, key=known.__getitem__, reverse=True)
    shown = sorted(by_growth[:SHOWN])
    at_most = case.rule.at_most if isinstance(case.rule, Ceiling) else None
    rows = [
        row
        for rank in shown
        for row in _rows(rank, ranks[rank], grown[rank], at_most, len(started))
    ]
    n = case.world_size
    return [
        Figure(
            name=slug("memory", label, f"np{n}"),
            title=f"{label} on {plural(n, 'replica')}: resident set of each rank",
            says=_said(case, rows, by_growth[0], ranks),
            table=Table(_OF_A_RANK, tuple(rows)),
            plot=_memory_plot(by_growth[0], shown),
            tags=tags_of(case),
        )
    ]


def _readings(started: Sequence[Started]) -> dict[int, Readings]:
    """Return steps and bytes of each rank: medians over the launches with a reading at that
    step."""
    found: dict[int, dict[int, list[float]]] = {}
    for each in started:
        for rank, run in enumerate(each.launch.run):
            for steps, size in run.memory:
                found.setdefault(rank, {}).setdefault(int(steps), []).append(float(size))
    return {
        rank: [(steps, median(sizes)) for steps, sizes in sorted(read.items())]
        for rank, read in found.items()
    }


def _growth(readings: Readings) -> float | None:
    """Return the growth of medians, computed like the case's figure; None for too few readings."""
    try:
        return growth(readings)
    except ValueError:
        return None


def _rows(
    rank: int, readings: Readings, grown: float | None, at_most: float | None, rounds: int
) -> list[Row]:
    settled = settled_at(readings)
    begins, base = next(each for each in readings if each[0] >= settled)

    def allowed(steps: int) -> Value:
        if at_most is None or steps < begins:
            return None
        return float(base * at_most ** ((steps - begins) / STEPS_OF_GROWTH) / MIB)

    return [
        {
            "rank": rank,
            "steps": steps,
            "resident_mib": size / MIB,
            "allowed_mib": allowed(steps),
            "growth": None if grown is None else 100 * math.expm1(grown),
            "rounds": rounds,
        }
        for steps, size in readings
    ]


def _said(case: Case, rows: Sequence[Row], worst: int, ranks: Mapping[int, Readings]) -> str:
    own = [row for row in rows if row["rank"] == worst]
    first, last = number(own[0]["resident_mib"]), number(own[-1]["resident_mib"])
    grown = own[-1]["growth"]
    end = ended_at(ranks[worst])
    since = "once settled" if end is None else f"since its growth ended at step {end}"
    often = "" if grown is None else f", by {number(grown):.2f} % in 1,000 steps {since}"
    rule = f"; the line is the limit of the case, a factor {case.rule}" if case.rule else ""
    many = len(ranks)
    some = f" The {SHOWN} of {many} ranks that grow most are shown." if many > SHOWN else ""
    return (
        f"Rank {worst} grows most: from {first:.0f} to {last:.0f} MiB in {own[-1]['steps']} "
        f"steps{often}{rule}.{some}"
    )


def _memory_plot(limited: int, ranks: Sequence[int]) -> Plot:
    """Return a plot with a line per rank, and the limit of the rank `limited`."""
    # All kinds of channel share one legend only if their domains are equal.
    domain = {"domain": sorted(ranks)}
    return plots.layered(
        plots.layer(
            {"type": "line", "style": "limit"},
            plots.known("allowed_mib"),
            {"filter": f"datum.rank === {limited}"},
            y=plots.field("allowed_mib", "quantitative"),
        ),
        *plots.curves(
            plots.field(
                "resident_mib", "quantitative", "resident set in MiB", scale={"zero": False}
            ),
            plots.field("rank", "nominal", "rank", scale=domain),
            25,
            tooltip=plots.tooltip(_OF_A_RANK),
        ),
        encoding={"x": plots.field("steps", "quantitative", "steps")},
    )
