"""The time of a start, phase by phase, and the arm with the longest start."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from hvdperf.plan.arms import Workload
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.cases import (
    Started,
    finite,
    launches,
    number,
    several,
    slug,
    trusted,
    workload_labels,
)
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.worker.protocol import STARTUP

# The phases of a start, with the keys of their columns.
PHASES = {phase.value: phase.value.replace(" ", "_") for phase in STARTUP}
_COLUMNS = (
    Column("arm", "started"),
    Column("strategy", "strategy", hidden=True),
    Column("world_size", "replicas", hidden=True),
    Column("beside", "beside it", hidden=True),
    *(Column(key, phase, "s", 3) for phase, key in PHASES.items()),
    Column("all_phases", "all phases", "s", 3),
    Column("launches", "launches"),
)


def section(cases: Sequence[Case]) -> Section:
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
        table=Table(_COLUMNS, tuple(rows)),
        plot=_plot([str(row["arm"]) for row in rows]),
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


def _plot(arms: Sequence[str]) -> Plot:
    """Return a plot of bars of the phases, in their order."""
    parts = {key: f"{i} {phase}" for i, (phase, key) in enumerate(PHASES.items(), 1)}
    tip = (
        _COLUMNS[0],
        Column("part", "phase"),
        Column("seconds", "seconds", digits=3),
        _COLUMNS[-1],
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
