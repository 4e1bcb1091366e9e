"""Where the wall time of trainings went: from the ideal to what n replicas took, term by term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.archive import Case
from harness.ledger import OF_STEPS, TERMS
from harness.plan import Question, Workload
from harness.verdict import Verdict
from report.content import Column, Figure, Row, Section, Table, Value
from report.launches import trusted
from report.numbers import number
from report.plots import (
    BOUNDED,
    LEGEND,
    field,
    interval,
    layered,
    rows_high,
    side_by_side,
    told_apart,
    tooltip,
)
from report.words import QUESTIONS, several, slug, workload_labels

# A term below this share of the wall time has no bar of its own.
SMALL = 0.005
OTHER = "other"
UNEXPLAINED = "not explained"
# As many groups as the palette has colours; the digit stands beside the colour in a plot.
GROUPS: Mapping[str, str] = {
    "launch": "1 processes",
    "import": "1 processes",
    "init": "1 processes",
    "build": "1 processes",
    "input": "1 processes",
    "trace": "2 trace",
    "first step": "3 first step, broadcast",
    "broadcast": "3 first step, broadcast",
    "ready": "3 first step, broadcast",
    "between steps": "4 input",
    "input wait": "4 input",
    "straggler wait": "5 straggler wait",
    "compute": "6 compute",
    "apply": "7 apply",
    "exposed communication": "8 exposed communication",
    "end": "1 processes",
}
Account = Mapping[str, Any]
Labels = Mapping[Workload, str]


def section(cases: Sequence[Case]) -> Section:
    """Of those cases that have an account."""
    asked = [case for case in trusted(cases) if case.document["account"] is not None]
    title, name = "Wall time", "ledger"
    intro = (
        "Every second of a training, from the launch of its processes to their end, has a term; "
        "terms are of an average rank, means over the rounds. Where steps are divided, the terms "
        "of steps are those of the whole run in proportion."
    )
    if not asked:
        missing = "No training's wall time has been accounted for: pytest perf/test_ledger.py"
        return Section(name, title, intro, missing=missing)
    labels = workload_labels(case.workload for case in asked)
    figures = (
        *(waterfall(case, labels[case.workload]) for case in asked),
        *_by_world_size(asked, labels),
        speedups(asked, labels),
        factors(asked, labels),
    )
    return Section(name, title, intro, figures)


# From the ideal to the wall time ---------------------------------------------------------------

_OF_A_TERM = (
    Column("term", "term"),
    Column("reference_s", "ideal", "s", 3),
    Column("candidate_s", "took", "s", 3),
    Column("excess_s", "more than ideal", "s", 3),
    Column("from_s", "bar from", "s", 3, hidden=True),
    Column("to_s", "bar to", "s", 3, hidden=True),
    Column("bar", "drawn as", hidden=True),
    Column("kind", "kind", hidden=True),
)


def waterfall(case: Case, model: str) -> Figure:
    """A bar a term: how much longer than ideal, or shorter."""
    account = case.document["account"]
    ours, n = account["candidate"], case.world_size
    rows = _steps_down(case.question, account)
    ideal, wall = number(rows[0]["to_s"]), float(ours["wall_seconds"])
    how = f"{ours['steps']} steps on each" if _is_weak(case) else _divided(account)
    terms = [row for row in rows if row["kind"] not in ("total", UNEXPLAINED)]
    worst = sorted(terms, key=lambda row: -abs(number(row["excess_s"])))[:3]
    said = ", ".join(f"{row['term']} {number(row['excess_s']):+.2f} s" for row in worst)
    return Figure(
        name=slug("ledger", "waterfall", "weak" if _is_weak(case) else "strong", model, f"np{n}"),
        title=f"{', '.join((f'{model} on {n} replicas', how, *_not_judged(case)))}: "
        "from the ideal to the wall time",
        says=(
            f"Ideal would be {ideal:.2f} s, and it took {wall:.2f} s. Most of that: {said}; not "
            f"explained {number(rows[-2]['excess_s']):+.3f} s."
        ),
        table=Table(_OF_A_TERM, tuple(rows)),
        plot=_waterfall_plot(rows),
        tags={"model": model, "world_size": str(n), "question": QUESTIONS[case.question]},
    )


def _steps_down(question: Question, account: Account) -> list[Row]:
    """The ideal, each term's excess, what is not explained, and the wall time. The bars of small
    terms lie behind the others, side by side at one place."""
    ours, theirs = account["candidate"], account["reference"]
    parts = 1 if question is Question.WALL_WEAK else int(account["world_size"])
    took = _seconds(ours)
    ideal = {term: seconds / parts for term, seconds in _seconds(theirs).items()}
    wall, ideal_wall = float(ours["wall_seconds"]), float(theirs["wall_seconds"]) / parts
    excess = {term: took[term] - ideal[term] for term in TERMS}
    small = [term for term in TERMS if abs(excess[term]) < SMALL * wall]
    rows = [_total("ideal", ideal_wall)]
    at = ideal_wall
    for term in (*(term for term in TERMS if term not in small), *small):
        bar = OTHER if term in small else term
        rows.append(_bar(term, bar, ideal[term], took[term], at))
        at += excess[term]
    left = ideal_wall - sum(ideal.values()), wall - sum(took.values())
    rows.append({**_bar(UNEXPLAINED, UNEXPLAINED, *left, at), "kind": UNEXPLAINED})
    return [*rows, _total("wall time", wall)]


def _seconds(spent: Mapping[str, Any]) -> dict[str, float]:
    """Of a training of its length: what the run spent on steps in proportion."""
    share = float(spent["steps"]) / float(spent["steps_of_run"])
    return {
        term: float(spent["terms"][term]) * (share if term in OF_STEPS else 1.0) for term in TERMS
    }


def _bar(term: str, bar: str, ideal: float, took: float, at: float) -> Row:
    return {
        "term": term,
        "reference_s": ideal,
        "candidate_s": took,
        "excess_s": took - ideal,
        "from_s": at,
        "to_s": at + took - ideal,
        "bar": bar,
        "kind": "longer" if took > ideal else "shorter",
    }


def _total(name: str, seconds: float) -> Row:
    return {
        "term": name,
        "reference_s": seconds if name == "ideal" else None,
        "candidate_s": None if name == "ideal" else seconds,
        "excess_s": None,
        "from_s": 0.0,
        "to_s": seconds,
        "bar": name,
        "kind": "total",
    }


def _waterfall_plot(rows: Sequence[Row]) -> Mapping[str, Any]:
    bars = list(dict.fromkeys(str(row["bar"]) for row in rows))
    y = field("bar", "nominal", sort=bars, axis={"title": None})
    ends = [
        {"op": "sum", "field": "excess_s", "as": "excess_of_bar"},
        {"op": "max", "field": "from_s", "as": "latest_from"},
        {"op": "max", "field": "to_s", "as": "latest_to"},
    ]
    label = {"type": "text", "align": "left", "dx": 4}
    # With room for what stands behind the longest bar.
    farthest = max(number(row[end]) for row in rows for end in ("from_s", "to_s"))
    x = field("from_s", "quantitative", "seconds", scale={"domain": [0, 1.2 * farthest]})
    return layered(
        {
            "mark": {"type": "bar"},
            "encoding": {
                "y": y,
                "x": x,
                "x2": {"field": "to_s"},
                "color": field(
                    "kind",
                    "nominal",
                    scale={"domain": ["total", "longer", "shorter", UNEXPLAINED]},
                    legend=LEGEND,
                ),
                "tooltip": tooltip(_OF_A_TERM[:4]),
            },
        },
        {
            "transform": [
                {"filter": "datum.kind !== 'total'"},
                {"aggregate": ends, "groupby": ["bar"]},
                {"calculate": "max(datum.latest_from, datum.latest_to)", "as": "right"},
            ],
            "mark": label,
            "encoding": {
                "y": y,
                "x": field("right", "quantitative"),
                "text": field("excess_of_bar", "quantitative", format="+.2f"),
            },
        },
        {
            "transform": [{"filter": "datum.kind === 'total'"}],
            "mark": label,
            "encoding": {
                "y": y,
                "x": field("to_s", "quantitative"),
                "text": field("to_s", "quantitative", format=".2f"),
            },
        },
        height=rows_high(len(bars)),
    )


def _is_weak(case: Case) -> bool:
    return case.question is Question.WALL_WEAK


def _not_judged(case: Case) -> tuple[str, ...]:
    """What is said behind its name where replicas shared cores."""
    return ("not judged",) if case.verdict is Verdict.NOT_JUDGED else ()


def _divided(account: Account) -> str:
    return f"{account['reference']['steps']} steps divided"


# Term by term, by world size -------------------------------------------------------------------

_OF_A_SIZE = (
    Column("world_size", "replicas"),
    Column("term", "term"),
    Column("group", "drawn as"),
    Column("seconds", "seconds", "s", 3),
    Column("share", "share of the wall time", "%", 1),
)


def _by_world_size(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    """A figure a workload whose weak scaling was asked."""
    found: dict[Workload, dict[int, Mapping[str, Any]]] = {}
    for case in sorted(filter(_is_weak, cases), key=lambda case: case.world_size):
        account = case.document["account"]
        sizes = found.setdefault(case.workload, {1: account["reference"]})
        sizes.setdefault(case.world_size, account["candidate"])
    return [_stacked(labels[workload], sizes) for workload, sizes in found.items()]


def _stacked(model: str, sizes: Mapping[int, Mapping[str, Any]]) -> Figure:
    rows: list[Row] = [
        {
            "world_size": size,
            "term": term,
            "group": GROUPS[term],
            "seconds": float(spent["terms"][term]),
            "share": 100 * float(spent["terms"][term]) / float(spent["wall_seconds"]),
        }
        for size, spent in sizes.items()
        for term in TERMS
    ]
    steps = next(iter(sizes.values()))["steps"]
    said = []
    for size, spent in sizes.items():
        largest = max(TERMS, key=lambda term: spent["terms"][term])
        said.append(
            f"on {size} {float(spent['wall_seconds']):.1f} s, most of it {largest} "
            f"({float(spent['terms'][largest]):.1f} s)"
        )
    return Figure(
        name=slug("ledger", "terms", model),
        title=f"{model}: the seconds of a run of {steps} steps on each replica",
        says=f"By number of replicas: {'; '.join(said)}.",
        table=Table(_OF_A_SIZE, tuple(rows)),
        plot=_stacked_plot(len(sizes)),
        tags={"model": model, "question": QUESTIONS[Question.WALL_WEAK]},
    )


def _stacked_plot(bars: int) -> Mapping[str, Any]:
    """Horizontal, with the digit of each group below its part of the bar."""
    y = field("world_size", "ordinal", "replicas")
    return layered(
        {
            "mark": {"type": "bar", "height": {"band": 0.6}},
            "encoding": {
                "y": y,
                "x": field("below", "quantitative", "seconds"),
                "x2": {"field": "above"},
                "color": field(
                    "group",
                    "nominal",
                    scale={"domain": sorted(set(GROUPS.values()))},
                    legend={"title": None, "orient": "bottom", "columns": 4},
                ),
                "tooltip": [
                    field("world_size", "ordinal", "replicas"),
                    field("group", "nominal", "group"),
                    field("of_group", "quantitative", "seconds", format=".3f"),
                ],
            },
        },
        {
            "transform": [
                {"joinaggregate": [{"op": "max", "field": "above", "as": "longest"}]},
                {"filter": "datum.above - datum.below > 0.015 * datum.longest"},
                {"calculate": "(datum.below + datum.above) / 2", "as": "middle"},
                {"calculate": "substring(datum.group, 0, 1)", "as": "digit"},
            ],
            "mark": {"type": "text", "baseline": "top", "dy": 16},
            "encoding": {
                "y": y,
                "x": field("middle", "quantitative"),
                "text": field("digit", "nominal"),
            },
        },
        height=rows_high(bars, each=56, least=112),
        transform=[
            {
                "aggregate": [{"op": "sum", "field": "seconds", "as": "of_group"}],
                "groupby": ["world_size", "group"],
            },
            {
                "stack": "of_group",
                "groupby": ["world_size"],
                "sort": [{"field": "group"}],
                "as": ["below", "above"],
            },
        ],
    )


# In ratios -------------------------------------------------------------------------------------

_WHOSE = (
    Column("what", "training"),
    Column("model", "network", hidden=True),
    Column("world_size", "replicas", hidden=True),
)
SPEEDUPS = ("by_speed", "by_time", "by_job")
FACTORS = ("efficiency", "contention", "communication", "balance", "product")


def _of_ratios(names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(
        column
        for name in names
        for column in (
            Column(name, name.replace("_", " "), "", 3),
            Column(f"{name}_low", f"{name.replace('_', ' ')}, from", "", 3),
            Column(f"{name}_high", f"{name.replace('_', ' ')}, to", "", 3),
        )
    )


def _ratios(account: Account, names: Sequence[str]) -> dict[str, Value]:
    """Estimates and bounds; none of those that bound nothing."""
    values: dict[str, Value] = {}
    for name in names:
        found = account[name]
        bounded = found["upper"] is not None
        values[name] = float(found["estimate"])
        values[f"{name}_low"] = float(found["lower"]) if bounded else None
        values[f"{name}_high"] = float(found["upper"]) if bounded else None
    return values


def _whose(case: Case, labels: Labels, *more: str) -> dict[str, Value]:
    model, n = labels[case.workload], case.world_size
    what = ", ".join((model, f"np {n}", *more, *_not_judged(case)))
    return {"what": what, "model": model, "world_size": n}


def speedups(cases: Sequence[Case], labels: Labels) -> Figure:
    """By speed, by time and by job, of all cases."""
    columns = (
        *_WHOSE,
        *_of_ratios(SPEEDUPS),
        Column("by_speed_share", "efficiency by speed", "", 3),
        Column("by_time_share", "efficiency by time", "", 3),
        Column("by_job_share", "efficiency by job", "", 3),
    )
    rows: list[Row] = []
    for case in cases:
        ratios = _ratios(case.document["account"], SPEEDUPS)
        shares = {f"{key}_share": number(ratios[key]) / case.world_size for key in SPEEDUPS}
        way = "weak" if _is_weak(case) else "strong"
        rows.append({**_whose(case, labels, way), **ratios, **shares})
    said = several(
        [
            f"{row['what']} {number(row['by_speed']):.2f} by speed, {number(row['by_time']):.2f} "
            f"by time, {number(row['by_job']):.2f} by job"
            for row in rows
        ]
    )
    ideal = {
        "mark": {"type": "tick", "style": "ideal"},
        "encoding": {"x": field("world_size", "quantitative")},
    }
    return Figure(
        name="ledger-speedups",
        title="Speedup by speed, by wall time and by the whole job",
        says=f"Speedups: {said}.",
        table=Table(columns, tuple(rows)),
        plot=_ratio_plot(SPEEDUPS, "speedup", rows, ideal),
    )


_ALSO = (
    Column("explained", "product explains it"),
    Column("late_rank", "kept the others waiting: rank"),
    Column("lag_ms", "its lag", "ms", 2),
    Column("late_share", "last in", "% of steps", 1),
    Column("slowest_rank", "slowest rank"),
    Column("wire_ms", "data moves, a step", "ms", 2),
    Column("hidden_ms", "of it hidden, at least", "ms", 2),
    Column("fixed_s", "fixed cost a", "s", 2),
    Column("step_ms", "a step, b", "ms", 2),
    Column("residual_share", "left unexplained by a ledger, at most", "%", 3),
)


def factors(cases: Sequence[Case], labels: Labels) -> Figure:
    """What the efficiency by speed is the product of, and what goes with it. Weak and strong
    scaling are of the same launches, and have the same."""
    told: dict[tuple[Workload, int], Case] = {}
    for case in cases:
        told.setdefault((case.workload, case.world_size), case)
    columns = (*_WHOSE, *_of_ratios(FACTORS), *_ALSO)
    rows: list[Row] = [
        {**_whose(case, labels), **_ratios(case.document["account"], FACTORS), **_also(case)}
        for case in told.values()
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
        name="ledger-factors",
        title="Efficiency by speed = contention x communication x balance",
        says=f"Factors: {said}.",
        table=Table(columns, tuple(rows)),
        plot=_ratio_plot(FACTORS[:4], "ratio", rows),
    )


def _also(case: Case) -> dict[str, Value]:
    account = case.document["account"]
    late, ours = account["late"], account["candidate"]
    return {
        "explained": "yes" if account["explained"] else "no",
        "late_rank": None if late is None else int(late["rank"]),
        "lag_ms": None if late is None else 1000 * float(late["lag_seconds"]),
        "late_share": None if late is None else 100 * float(late["share"]),
        "slowest_rank": account["slowest"],
        "wire_ms": _milliseconds(account["wire_seconds"]),
        "hidden_ms": _milliseconds(account["hidden_seconds"]),
        "fixed_s": float(ours["fixed"]["a_seconds"]),
        "step_ms": 1000 * float(ours["fixed"]["b_seconds"]),
        "residual_share": 100 * float(ours["residual"]),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * float(seconds)


def _ratio_plot(
    names: Sequence[str], title: str, rows: Sequence[Row], *behind: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A row a training, in it a line for each of these columns; told apart by shape and colour."""
    called = {name: name.replace("_", " ") for name in names}
    place = {"yOffset": field("called", "nominal", sort=list(called.values()))}
    bounded = any(row[f"{name}_low"] is not None for row in rows for name in names)
    whose = [str(row["what"]) for row in rows]
    apart = told_apart(called.values())
    layers = [
        *(_with(layer, place) for layer in behind),
        *([_with(interval("value_low", "value_high", "x"), place)] if bounded else []),
        {
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": {
                "x": field("value", "quantitative", title, scale={"zero": False}),
                **place,
                "color": apart,
                "shape": apart,
                "tooltip": tooltip((_WHOSE[0], *BOUNDED)),
            },
        },
    ]
    y = field("what", "nominal", sort=whose, axis={"title": None, "labelLimit": 260})
    return layered(
        *layers,
        height=rows_high(len(rows), each=18 * len(names)),
        encoding={"y": y},
        transform=side_by_side(called),
    )


def _with(layer: Mapping[str, Any], channels: Mapping[str, Any]) -> dict[str, Any]:
    return {**layer, "encoding": {**layer["encoding"], **channels}}
