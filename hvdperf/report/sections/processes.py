"""What processes cost beside their steps: the phases of a start, and the growth of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from hvdperf.explain.training_runs import STEPS_OF_GROWTH, ended_at, growth, settled_at
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.cases import Started, finite, grouped, launches, number, trusted
from hvdperf.report.content import Column, Figure, Row, Section, Table, Value
from hvdperf.report.words import plural, several, slug, tags_of, workload_labels
from hvdperf.verdict import Ceiling
from hvdperf.work.table import work_of
from hvdperf.work.training import Endurance
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
    timed = (each for each in launches(trusted(cases)) if each.launch.startup_seconds)
    # The learning rate does not affect the start.
    found = grouped(timed, lambda each: replace(each.case.workload, learning_rate="constant"))
    labels = workload_labels(found)
    figures = tuple(
        _of_workload(workload.model, labels[workload], grouped(own, _beside))
        for workload, own in found.items()
    )
    return Section(
        "startup",
        "Start-up",
        "Seconds of the slowest rank in each phase, medians over the launches. Arms that start "
        "at the same time as others share the cores with them, and therefore take longer.",
        figures,
        "No start was measured; to measure: pytest perf/test_startup.py",
    )


def _beside(started: Started) -> str:
    return started.arm + ("" if started.alone else ", beside others")


def _of_workload(model: str, label: str, arms: Mapping[str, Sequence[Started]]) -> Figure:
    rows = [_of_arm(arm, group) for arm, group in arms.items()]
    rows.sort(key=lambda row: (number(row["world_size"]), str(row["arm"])))
    slowest = max(rows, key=lambda row: number(row["all_phases"]))
    phase = max(PHASES, key=lambda phase: number(slowest[PHASES[phase]]))
    others = (row for row in rows if row is not slowest)
    said = several(f"{row['arm']} {number(row['all_phases']):.1f} s" for row in others)
    return Figure(
        slug("startup", label),
        f"{label}: from the order to launch until the first step can be taken",
        f"The slowest start is {slowest['arm']}, {number(slowest['all_phases']):.1f} s, of which "
        f"{phase} {number(slowest[PHASES[phase]]):.1f} s{'; ' if said else ''}{said}.",
        Table(_OF_A_START, tuple(rows)),
        plots.stacked_columns(
            plots.row_names("arm", 260, sort=[str(row["arm"]) for row in rows]),
            {key: phase for phase, key in PHASES.items()},
            "seconds",
            rows=len(rows),
            each=44,
            tip=(_OF_A_START[0], _OF_A_START[-1]),
        ),
        {"model": model},
    )


def _of_arm(arm: str, group: Sequence[Started]) -> Row:
    """Return the row of an arm. A phase's median is over the launches that went through it."""
    starts = [started.launch.startup_seconds for started in group]
    medians: dict[str, Value] = {}
    for phase, key in PHASES.items():
        known = (finite(rank.get(phase) for rank in ranks) for ranks in starts)
        slowest = [max(seconds) for seconds in known if seconds]
        medians[key] = median(slowest) if slowest else None
    return {
        "arm": arm,
        "strategy": group[0].strategy,
        "world_size": group[0].world_size,
        "beside": "nothing" if group[0].alone else "other arms",
        **medians,
        "all_phases": sum(map(number, medians.values())),
        "launches": len(group),
    }


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
    found = [
        case
        for case in trusted(cases)
        if work_of(case.question) is Endurance and case.judged_as is JudgedAs.THRESHOLD
    ]
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
    candidate, n = case.comparison.candidate.arm, case.world_size
    started = [each for each in launches([case]) if each.launch.arm == candidate]
    ranks = _readings(started)
    if not ranks:
        return []
    grown = {rank: _growth(readings) for rank, readings in ranks.items()}
    most = max(ranks, key=grown.__getitem__)
    shown = sorted(sorted(ranks, key=grown.__getitem__, reverse=True)[:SHOWN])
    at_most = case.rule.at_most if isinstance(case.rule, Ceiling) else None
    rows: list[Row] = [
        {
            "rank": rank,
            "steps": steps,
            "resident_mib": size / MIB,
            "allowed_mib": allowed,
            "growth": 100 * math.expm1(grown[rank]) if math.isfinite(grown[rank]) else None,
            "rounds": len(started),
        }
        for rank in shown
        for (steps, size), allowed in zip(ranks[rank], _allowed(ranks[rank], at_most), strict=True)
    ]
    # All kinds of channel share one legend only if their domains are equal.
    by = plots.field("rank", "nominal", "rank", scale={"domain": shown})
    return [
        Figure(
            slug("memory", label, f"np{n}"),
            f"{label} on {plural(n, 'replica')}: resident set of each rank",
            _said(case, [row for row in rows if row["rank"] == most], ranks),
            Table(_OF_A_RANK, tuple(rows)),
            plots.curve(
                plots.field("steps", "quantitative", "steps"),
                plots.axis(_OF_A_RANK, "resident_mib", scale={"zero": False}),
                by,
                plots.layer(
                    {"type": "line", "style": "limit"},
                    plots.known("allowed_mib"),
                    {"filter": f"datum.rank === {most}"},
                    y=plots.field("allowed_mib", "quantitative"),
                ),
                size=25,
                tip=plots.tooltip(_OF_A_RANK),
            ),
            tags_of(case),
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


def _growth(readings: Readings) -> float:
    """Return the growth of medians, computed like the case's figure; -inf for too few readings."""
    try:
        return growth(readings)
    except ValueError:
        return -math.inf


def _allowed(readings: Readings, at_most: float | None) -> list[float | None]:
    """Return the limit in MiB at each reading; None before it begins, and without a limit."""
    settled = settled_at(readings)
    begins, base = next(each for each in readings if each[0] >= settled)
    return [
        None
        if at_most is None or steps < begins
        else base * at_most ** ((steps - begins) / STEPS_OF_GROWTH) / MIB
        for steps, _ in readings
    ]


def _said(case: Case, rows: Sequence[Row], ranks: Mapping[int, Readings]) -> str:
    """Return sentences on the rank that grows most. rows: its rows."""
    first, last = rows[0], rows[-1]
    end = ended_at(ranks[int(number(last["rank"]))])
    since = "once settled" if end is None else f"since its growth ended at step {end}"
    grown = last["growth"]
    often = "" if grown is None else f", by {number(grown):.2f} % in 1,000 steps {since}"
    rule = f"; the line is the limit of the case, a factor {case.rule}" if case.rule else ""
    many = len(ranks)
    some = f" The {SHOWN} of {many} ranks that grow most are shown." if many > SHOWN else ""
    return (
        f"Rank {last['rank']} grows most: from {number(first['resident_mib']):.0f} to "
        f"{number(last['resident_mib']):.0f} MiB in {last['steps']} steps{often}{rule}.{some}"
    )
