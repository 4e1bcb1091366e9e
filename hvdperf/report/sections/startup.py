"""The time of a start, phase by phase, and the arm with the longest start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from hvdperf.plan.arms import Workload
from hvdperf.report.content import Column, Figure, Row, Section, Table
from hvdperf.report.launches import Started, launches, trusted
from hvdperf.report.numbers import finite, number
from hvdperf.report.plots import field, layered, rows_high
from hvdperf.report.words import several, slug, workload_labels
from hvdperf.results.documents import Case
from hvdperf.worker.protocol import STARTUP

PHASES = tuple(phase.value for phase in STARTUP)
_COLUMNS = (
    Column("arm", "started"),
    Column("strategy", "strategy", hidden=True),
    Column("world_size", "replicas", hidden=True),
    Column("beside", "beside it", hidden=True),
    *(Column(_key, _phase, "s", 3) for _phase in PHASES for _key in (_phase.replace(" ", "_"),)),
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
        "" if figures else "No start was measured; to measure: pytest perf/test_startup.py",
    )


def _of_workload(model: str, label: str, arms: Mapping[str, Sequence[Started]]) -> Figure:
    rows = [_of_arm(arm, group) for arm, group in arms.items()]
    rows.sort(key=lambda row: (number(row["world_size"]), str(row["arm"])))
    longest = max(rows, key=lambda row: number(row["all_phases"]))
    phase = max(PHASES, key=lambda phase: number(longest[_key_of(phase)]))
    others = [
        f"{row['arm']} {number(row['all_phases']):.1f} s" for row in rows if row is not longest
    ]
    said = (
        f"The slowest start is {longest['arm']}, {number(longest['all_phases']):.1f} s, of which "
        f"{phase} {number(longest[_key_of(phase)]):.1f} s"
    )
    return Figure(
        name=slug("startup", label),
        title=f"{label}: from the order to launch until the first step can be taken",
        says=f"{said}{'; ' if others else ''}{several(others)}.",
        table=Table(_COLUMNS, tuple(rows)),
        plot=_plot([str(row["arm"]) for row in rows]),
        tags={"model": model},
    )


def _key_of(phase: str) -> str:
    return phase.replace(" ", "_")


def _of_arm(arm: str, group: Sequence[Started]) -> Row:
    """Return the row of an arm. A phase's median is over the launches that went through it."""
    medians = {phase: _median(phase, group) for phase in PHASES}
    return {
        "arm": arm,
        "strategy": group[0].strategy,
        "world_size": group[0].world_size,
        "beside": "nothing" if group[0].alone else "other arms",
        **{_key_of(phase): seconds for phase, seconds in medians.items()},
        "all_phases": sum(seconds for seconds in medians.values() if seconds is not None),
        "launches": len(group),
    }


def _median(phase: str, group: Sequence[Started]) -> float | None:
    slowest = [
        max(seconds)
        for started in group
        if (seconds := finite(rank.get(phase) for rank in started.launch.startup_seconds))
    ]
    return median(slowest) if slowest else None


def _plot(arms: Sequence[str]) -> Mapping[str, Any]:
    """Return a plot of bars stacked from left to right in the order of the phases, with the number
    of each phase below it."""
    keys = [_key_of(phase) for phase in PHASES]
    places = "{" + ", ".join(f"'{key}': {i + 1}" for i, key in enumerate(keys)) + "}"
    names = "{" + ", ".join(f"'{_key_of(p)}': '{i + 1} {p}'" for i, p in enumerate(PHASES)) + "}"
    y = field("arm", "nominal", sort=list(arms), axis={"title": None, "labelLimit": 260})
    return layered(
        {
            "mark": {"type": "bar", "height": {"band": 0.55}},
            "encoding": {
                "y": y,
                "x": field("below", "quantitative", "seconds"),
                "x2": {"field": "above"},
                "color": field(
                    "named",
                    "nominal",
                    scale={"domain": [f"{i + 1} {phase}" for i, phase in enumerate(PHASES)]},
                    legend={"title": None, "orient": "bottom", "columns": 4},
                ),
                "tooltip": [
                    field("arm", "nominal", "started"),
                    field("named", "nominal", "phase"),
                    field("seconds", "quantitative", "seconds", format=".3f"),
                    field("launches", "quantitative", "launches"),
                ],
            },
        },
        {
            "transform": [
                {"joinaggregate": [{"op": "max", "field": "above", "as": "longest"}]},
                {"filter": "datum.seconds > 0.02 * datum.longest"},
                {"calculate": "(datum.below + datum.above) / 2", "as": "middle"},
            ],
            "mark": {"type": "text", "baseline": "top", "dy": 12},
            "encoding": {
                "y": y,
                "x": field("middle", "quantitative"),
                "text": field("place", "quantitative"),
            },
        },
        height=rows_high(len(arms), each=44, least=88),
        transform=[
            {"fold": keys, "as": ["phase", "seconds"]},
            {"filter": "isValid(datum.seconds)"},
            {"calculate": f"{places}[datum.phase]", "as": "place"},
            {"calculate": f"{names}[datum.phase]", "as": "named"},
            {
                "stack": "seconds",
                "groupby": ["arm"],
                "sort": [{"field": "place"}],
                "as": ["below", "above"],
            },
        ],
    )
