"""Speedups counted in three ways, and the factors of the efficiency."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.explain.scaling_breakdown import hidden_seconds
from hvdperf.plan.arms import Workload
from hvdperf.plan.terms import OF_STEPS, Term
from hvdperf.records.documents import Case
from hvdperf.records.outcome import ScalingBreakdown
from hvdperf.report import plots
from hvdperf.report.cases import Labels, cells_of, confidence_words, number, several
from hvdperf.report.content import Column, Figure, Plot, Row, Table, Value
from hvdperf.report.sections.wall_time.trainings import breakdown_of, named, way_of
from hvdperf.verdict import ALPHA

_WHOSE = (
    Column("what", "training", brief="training"),
    Column("model", "network", hidden=True),
    Column("world_size", "replicas", hidden=True),
)
# All intervals of a breakdown have the same level at either end (explain/scaling_breakdown.py).
_CONFIDENCE = confidence_words([100 * (1 - 2 * ALPHA)])
SPEEDUPS = ("by_speed", "by_time", "by_job")
FACTORS = ("efficiency", "contention", "communication", "balance", "product")
# Ranks count as equally fast if the upper bound of their balance is above this.
BALANCED = 0.97
# The product is the efficiency again, if the factors explain it.
_BRIEF = {"efficiency": "effic.", "communication": "commun.", "product": ""}


def _of_ratios(names: Sequence[str], digits: int) -> tuple[Column, ...]:
    told = {name: name.replace("_", " ") for name in names}
    return tuple(
        column
        for name, title in told.items()
        for column in (
            Column(name, title, "", digits, brief=_BRIEF.get(name, title)),
            Column(f"{name}_low", f"{title}, from", "", digits),
            Column(f"{name}_high", f"{title}, to", "", digits),
        )
    )


def _ratios(breakdown: ScalingBreakdown, names: Sequence[str]) -> dict[str, Value]:
    """Return estimates and bounds; bounds that are not finite are None."""
    values: dict[str, Value] = {}
    for name in names:
        values |= cells_of(getattr(breakdown, name), name, f"{name}_low", f"{name}_high")
    return values


def _whose(case: Case, labels: Labels, *more: str) -> dict[str, Value]:
    model, n = labels[case.workload], case.world_size
    return {"what": named(case, model, f"np {n}", *more), "model": model, "world_size": n}


def speedups(cases: Sequence[Case], labels: Labels) -> Figure:
    """Return the figure of speedups by speed, by time and by job, of all cases."""
    columns = (
        *_WHOSE,
        *_of_ratios(SPEEDUPS, 2),
        Column("by_speed_share", "efficiency by speed", "", 3),
        Column("by_time_share", "efficiency by time", "", 3),
        Column("by_job_share", "efficiency by job", "", 3),
    )
    rows: list[Row] = []
    for case in cases:
        ratios = _ratios(breakdown_of(case), SPEEDUPS)
        shares = {f"{key}_share": number(ratios[key]) / case.world_size for key in SPEEDUPS}
        rows.append({**_whose(case, labels, way_of(case)), **ratios, **shares})
    said = several(
        [
            f"{row['what']} {number(row['by_speed']):.2f} by speed, {number(row['by_time']):.2f} "
            f"by time, {number(row['by_job']):.2f} by job"
            for row in rows
        ]
    )
    return Figure(
        name="wall_time-speedups",
        title="Speedup by speed, by wall time and by the whole job",
        says=f"Speedups: {said}.{_CONFIDENCE}",
        table=Table(columns, tuple(rows)),
        plot=_plot(SPEEDUPS, "speedup", rows, ideal=True),
    )


_ALSO = (
    Column("explained", "product explains it"),
    Column("late_rank", "rank that kept the others waiting", brief="late"),
    Column("lag_ms", "its lag", "ms", 2),
    Column("late_share", "last in", "% of steps", 1),
    Column("slowest_rank", "slowest rank", brief="slow"),
    Column("wire_ms", "data moves, a step", "ms", 2),
    Column("hidden_ms", "of it hidden, at least", "ms", 2),
    Column("exposed_share", "exposed communication", "% of the steps", 1, brief="exposed"),
    Column("fixed_s", "fixed cost a", "s", 1, brief="fixed s"),
    Column("step_ms", "a step, b", "ms", 2),
    Column("residual_share", "unexplained by the time breakdown, at most", "%", 3),
)


def factors(cases: Sequence[Case], labels: Labels) -> Figure:
    """Return the figure of the factors of the efficiency by speed, with related values. Weak and
    strong scaling use the same launches and have the same factors."""
    first_cases: dict[tuple[Workload, int], Case] = {}
    for case in cases:
        first_cases.setdefault((case.workload, case.world_size), case)
    columns = (*_WHOSE, *_of_ratios(FACTORS, 3), *_ALSO)
    rows: list[Row] = [
        {**_whose(case, labels), **_ratios(breakdown_of(case), FACTORS), **_also(case)}
        for case in first_cases.values()
    ]
    said = several(
        [
            f"{row['what']} {number(row['efficiency']):.3f} = {number(row['contention']):.3f} x "
            f"{number(row['communication']):.3f} x {number(row['balance']):.3f}"
            + (f", rank {row['late_rank']} is late" if row["late_rank"] is not None else "")
            for row in rows
        ]
    )
    return Figure(
        name="wall_time-factors",
        title="Efficiency by speed = contention x communication x balance",
        says=f"Factors: {said}.{_CONFIDENCE}",
        table=Table(columns, tuple(rows)),
        plot=_plot(FACTORS[:4], "ratio", rows),
    )


def _also(case: Case) -> dict[str, Value]:
    breakdown = breakdown_of(case)
    late, ours = breakdown.late, breakdown.candidate
    of_steps = {term: ours.terms[term] for term in OF_STEPS}
    return {
        "explained": "yes" if breakdown.explained else "no",
        "late_rank": None if late is None else late.rank,
        "lag_ms": None if late is None else 1000 * late.lag_seconds,
        "late_share": None if late is None else 100 * late.share,
        "slowest_rank": breakdown.slowest if breakdown.balance.upper <= BALANCED else None,
        "wire_ms": _milliseconds(breakdown.wire_seconds),
        "hidden_ms": _milliseconds(hidden_seconds(breakdown)),
        "exposed_share": 100 * of_steps[Term.EXCHANGE] / sum(of_steps.values()),
        "fixed_s": ours.fixed.a_seconds,
        "step_ms": 1000 * ours.fixed.b_seconds,
        "residual_share": 100 * ours.residual,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _plot(names: Sequence[str], title: str, rows: Sequence[Row], *, ideal: bool = False) -> Plot:
    """Return a plot with a row per training and, in it, a line for each of these columns, which
    differ in shape and colour. ideal: whether to mark the number of replicas."""
    called = {name: name.replace("_", " ") for name in names}
    apart = plots.distinguished(called.values())
    at = {
        "y": plots.row_names("what", 260, sort=[str(row["what"]) for row in rows]),
        "yOffset": plots.field("called", "nominal", sort=list(called.values())),
    }
    replicas = plots.field("world_size", "quantitative")
    behind = [plots.layer({"type": "tick", "style": "ideal"}, **at, x=replicas)] if ideal else []
    return plots.estimates(
        at,
        plots.field("value", "quantitative", title, scale={"zero": False}),
        ("value_low", "value_high"),
        *behind,
        rows=len(rows),
        each=18 * len(names),
        point={
            "color": apart,
            "shape": apart,
            "tooltip": plots.tooltip((_WHOSE[0], *plots.BOUNDED)),
        },
        transform=plots.side_by_side(called),
    )
