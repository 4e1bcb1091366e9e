"""Where the seconds of a training go: by term, by world size, and the factors of the efficiency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hvdperf.explain.long_steps import long_steps
from hvdperf.explain.speedup import divides_steps
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.terms import OF_STEPS, TERMS, Term
from hvdperf.records.documents import Case
from hvdperf.records.outcome import ScalingBreakdown, Spent
from hvdperf.report import plots
from hvdperf.report.cases import cells_of, number, scaled, trusted
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table, Value
from hvdperf.report.words import (
    INTERVALS,
    Labels,
    plural,
    several,
    slug,
    tags_of,
    workload_labels,
)
from hvdperf.verdict import Verdict


def breakdown_of(case: Case) -> ScalingBreakdown:
    """Return the breakdown of a case that has one."""
    assert case.outcome.breakdown is not None
    return case.outcome.breakdown


def way_of(case: Case) -> str:
    return "strong" if divides_steps(case.comparison) else "weak"


def named(case: Case, *parts: str) -> str:
    """Return the name of a training from its parts, with a note if its replicas shared cores."""
    return ", ".join((*parts, *(["not judged"] if case.verdict is Verdict.INFO else [])))


# From the ideal to the wall time ---------------------------------------------------------------

# A term whose excess is below this share of the wall time has no bar of its own.
SMALL = 0.005
OTHER = "other"
UNEXPLAINED = "unexplained"

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


def waterfall(case: Case, label: str) -> Figure:
    """Return a plot with a bar per term: its time minus the ideal time."""
    breakdown = breakdown_of(case)
    ours, n = breakdown.candidate, case.world_size
    rows = _steps_down(case.comparison, breakdown)
    ideal, wall = number(rows[0]["to_s"]), ours.wall_seconds
    way, theirs = way_of(case), breakdown.reference
    how = f"{ours.steps} steps on each" if way == "weak" else f"{theirs.steps} steps divided"
    terms = [row for row in rows if row["kind"] not in ("total", UNEXPLAINED)]
    worst = sorted(terms, key=lambda row: -abs(number(row["excess_s"])))[:3]
    said = ", ".join(f"{row['term']} {number(row['excess_s']):+.2f} s" for row in worst)
    return Figure(
        name=slug("wall_time", "waterfall", way, label, f"np{n}"),
        title=f"{named(case, f'{label} on {n} ranks', how)}: from the ideal to the wall time",
        says=(
            f"The ideal time is {ideal:.2f} s and the wall time {wall:.2f} s. Largest "
            f"differences: {said}; unexplained {number(rows[-2]['excess_s']):+.3f} s."
            f"{_rare(case)}"
        ),
        table=Table(_OF_A_TERM, tuple(rows)),
        plot=_waterfall_plot(rows),
        tags=tags_of(case),
        brief=True,
    )


def _rare(case: Case) -> str:
    """Return sentences on rare long steps of either side; "" if there are none."""
    rare = {arm: long_steps([each.of(arm) for each in case.rounds]) for arm in case.comparison.arms}
    said = {plural(arm.world_size, "rank"): each for arm, each in rare.items() if each}
    return "".join(f" Rare long steps, {name}: {each}." for name, each in said.items())


def _steps_down(comparison: Comparison, breakdown: ScalingBreakdown) -> list[Row]:
    """Return the rows: the ideal, each term's excess, the unexplained rest, and the wall time. The
    bars of small terms come after the others, side by side at one place."""
    ours, theirs = breakdown.candidate, breakdown.reference
    parts = breakdown.world_size if divides_steps(comparison) else 1
    took = _seconds(ours)
    ideal = {term: seconds / parts for term, seconds in _seconds(theirs).items()}
    wall, ideal_wall = ours.wall_seconds, theirs.wall_seconds / parts
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


def _seconds(spent: Spent) -> dict[str, float]:
    """Return a training's seconds by term; terms of steps are the run's, in proportion to the
    training's steps."""
    share = spent.steps / spent.steps_of_run
    return {term: spent.terms[term] * (share if term in OF_STEPS else 1.0) for term in TERMS}


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


def _waterfall_plot(rows: Sequence[Row]) -> Plot:
    bars = list(dict.fromkeys(str(row["bar"]) for row in rows))
    kinds = {"domain": ["total", "longer", "shorter", UNEXPLAINED]}
    ends = [
        {"op": "sum", "field": "excess_s", "as": "excess_of_bar"},
        {"op": "max", "field": "from_s", "as": "latest_from"},
        {"op": "max", "field": "to_s", "as": "latest_to"},
    ]
    label = {"type": "text", "align": "left", "dx": 4}
    # With room for the text behind the longest bar.
    farthest = max(number(row[end]) for row in rows for end in ("from_s", "to_s"))
    domain = {"domain": [0, 1.2 * farthest]}
    return plots.layered(
        plots.layer(
            "bar",
            x=plots.field("from_s", "quantitative", "seconds", scale=domain),
            x2={"field": "to_s"},
            color=plots.field("kind", "nominal", scale=kinds, legend=plots.LEGEND),
            tooltip=plots.tooltip(_OF_A_TERM[:4]),
        ),
        plots.layer(
            label,
            {"filter": "datum.kind !== 'total'"},
            {"aggregate": ends, "groupby": ["bar"]},
            {"calculate": "max(datum.latest_from, datum.latest_to)", "as": "right"},
            x=plots.field("right", "quantitative"),
            text=plots.field("excess_of_bar", "quantitative", format="+.2f"),
        ),
        plots.layer(
            label,
            {"filter": "datum.kind === 'total'"},
            x=plots.field("to_s", "quantitative"),
            text=plots.field("to_s", "quantitative", format=".2f"),
        ),
        height=plots.rows_high(len(bars)),
        encoding={"y": plots.row_names("bar", sort=bars)},
    )


# By world size ---------------------------------------------------------------------------------

# There are as many groups as the palette has colours. A plot shows the digit beside the colour.
_STARTS = (Term.LAUNCH, Term.IMPORT, Term.INIT, Term.BUILD, Term.INPUT_OPENED)
_GROUPS = {
    "1 processes": (*_STARTS, Term.END),
    "2 trace": (Term.TRACE,),
    "3 first step, broadcast": (Term.FIRST_STEP, Term.BROADCAST, Term.READY),
    "4 input": (Term.BETWEEN, Term.INPUT),
    "5 straggler wait, rare long steps": (Term.STRAGGLER, Term.LONG_STEPS),
    "6 compute": (Term.COMPUTE,),
    "7 apply": (Term.APPLY,),
    "8 exposed communication": (Term.EXCHANGE,),
}
GROUPS = {term: group for group, terms in _GROUPS.items() for term in terms}

_OF_A_SIZE = (
    Column("world_size", "ranks"),
    Column("term", "term"),
    Column("group", "drawn as"),
    Column("seconds", "seconds", "s", 3),
    Column("share", "share of the wall time", "%", 1),
    Column("below", "not told from 0: less than", "% of the steps", 1),
)


def by_world_size(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    """Return a figure per workload with a case of weak scaling."""
    return [
        _stacked(workload.model, labels[workload], sizes)
        for workload, sizes in _weak_by_size(cases).items()
    ]


def _weak_by_size(cases: Sequence[Case]) -> dict[Workload, dict[int, Spent]]:
    """Return where the time of weak scaling went, by workload and world size."""
    found: dict[Workload, dict[int, Spent]] = {}
    weak = [case for case in cases if way_of(case) == "weak"]
    for case in sorted(weak, key=lambda case: case.world_size):
        breakdown = breakdown_of(case)
        sizes = found.setdefault(case.workload, {1: breakdown.reference})
        sizes.setdefault(case.world_size, breakdown.candidate)
    return found


def _stacked(model: str, label: str, sizes: Mapping[int, Spent]) -> Figure:
    rows: list[Row] = [
        {
            "world_size": size,
            "term": term.value,
            "group": GROUPS[term],
            "seconds": spent.terms[term],
            "share": 100 * spent.terms[term] / spent.wall_seconds,
            "below": scaled(spent.below.get(term)),
        }
        for size, spent in sizes.items()
        for term in TERMS
    ]
    steps = next(iter(sizes.values())).steps
    said = []
    for size, spent in sizes.items():
        largest = max(TERMS, key=lambda term: spent.terms[term])
        said.append(
            f"on {size} {spent.wall_seconds:.1f} s, most of it {largest} "
            f"({spent.terms[largest]:.1f} s)"
        )
    return Figure(
        name=slug("wall_time", "terms", label),
        title=f"{label}: the seconds of a run of {steps} steps on each replica",
        says=f"By number of ranks: {'; '.join(said)}.",
        table=Table(_OF_A_SIZE, tuple(rows)),
        plot=_bars(len(sizes)),
        tags={"model": model, "question": Question.WALL_TIME_WEAK.label},
    )


def _bars(bars: int) -> Plot:
    """Return horizontal bars, of groups of terms."""
    tip = (
        Column("world_size", "ranks"),
        Column("part", "group"),
        Column("of_group", "seconds", digits=3),
    )
    return plots.stacked(
        plots.field("world_size", "ordinal", "ranks"),
        "of_group",
        _GROUPS,
        {"calculate": "datum.group", "as": "part"},
        {
            "aggregate": [{"op": "sum", "field": "seconds", "as": "of_group"}],
            "groupby": ["world_size", "part"],
        },
        rows=bars,
        each=56,
        tip=tip,
    )


# A plot has room for as many bars.
MOST_BARS = 12
_OF_A_TRAINING = (
    Column("what", "training"),
    Column("part", "part"),
    Column("share", "share of the wall time", "%", 1),
)


def shares(cases: Sequence[Case], labels: Labels) -> Figure:
    """Return the figure of the shares of the wall time, of all networks on one and on more
    replicas; only on the most of them, if there are too many bars. cases: of weak scaling, with
    breakdowns."""
    found = _weak_by_size(cases)
    if sum(map(len, found.values())) > MOST_BARS:
        found = {workload: {max(sizes): sizes[max(sizes)]} for workload, sizes in found.items()}
    rows: list[Row] = [
        {
            "what": f"{labels[workload]}, {plural(size, 'replica')}",
            "part": group,
            "share": sum(100 * spent.terms[term] / spent.wall_seconds for term in terms),
        }
        for workload, sizes in found.items()
        for size, spent in sizes.items()
        for group, terms in _GROUPS.items()
    ]
    names = list(dict.fromkeys(str(row["what"]) for row in rows))
    exposed = next(reversed(_GROUPS))
    said = several(
        f"{row['what']} {number(row['share']):.1f} %" for row in rows if row["part"] == exposed
    )
    return Figure(
        "wall_time-shares",
        "Where the wall time goes",
        f"Exposed communication: {said}.",
        Table(_OF_A_TRAINING, tuple(rows)),
        plots.stacked(
            plots.row_names("what", sort=names),
            "share",
            _GROUPS,
            rows=len(names),
            each=44,
            tip=_OF_A_TRAINING,
            unit="share of the wall time in %",
        ),
    )


# Speedups, and the factors of the efficiency ---------------------------------------------------

_WHOSE = (
    Column("what", "training", brief="training"),
    Column("model", "network", hidden=True),
    Column("world_size", "ranks", hidden=True),
)
# All intervals of a breakdown have the same level at either end (explain/speedup.py).
SPEEDUPS = ("steady_state", "training", "end_to_end")
_IN_BLOCKS = ("computation", "communication", "load_balance")
FACTORS = ("efficiency", *_IN_BLOCKS, "product")
# Ranks count as equally fast if the upper bound of their load balance is above this.
BALANCED = 0.97
# The product is the efficiency again, if the factors explain it.
_BRIEF = dict(zip(FACTORS, ("effic.", "comput.", "commun.", "balance", ""), strict=True))


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
    return {"what": named(case, model, plural(n, "rank"), *more), "model": model, "world_size": n}


def speedups(cases: Sequence[Case], labels: Labels) -> Figure:
    """Return the figure of all speedups of all cases."""
    columns = (
        *_WHOSE,
        *_of_ratios(SPEEDUPS, 2),
        *(
            Column(f"{key}_share", f"efficiency, {key.replace('_', ' ')}", "", 3)
            for key in SPEEDUPS
        ),
    )
    rows: list[Row] = []
    for case in cases:
        ratios = _ratios(breakdown_of(case), SPEEDUPS)
        shares = {f"{key}_share": number(ratios[key]) / case.world_size for key in SPEEDUPS}
        rows.append({**_whose(case, labels, way_of(case)), **ratios, **shares})
    said = several(
        f"{row['what']} {number(row['steady_state']):.2f} steady-state, "
        f"{number(row['training']):.2f} training, {number(row['end_to_end']):.2f} end-to-end"
        for row in rows
    )
    return Figure(
        name="wall_time-speedups",
        title="Steady-state, training and end-to-end speedup",
        says=f"Speedups: {said}.{INTERVALS}",
        table=Table(columns, tuple(rows)),
        plot=_side_by_side(SPEEDUPS, "speedup", rows, ideal=True),
    )


_ALSO = (
    Column("explained", "product explains it"),
    Column("late_rank", "rank that the others wait for", brief="late"),
    Column("lag_ms", "its lag", "ms", 2),
    Column("met_lag_ms", "its lag if ranks synchronise before a step", "ms", 2),
    Column("late_share", "last in", "% of steps", 1),
    Column("slowest_rank", "slowest rank", brief="slow"),
    Column("exposed_share", "exposed communication", "% of the steps", 1, brief="exposed"),
    Column("exposed_below", "exposed, not distinguishable from 0: less than", "% of the steps", 1),
    Column("fixed_s", "startup overhead a", "s", 1, brief="start s"),
    Column("step_ms", "a step, b", "ms", 2),
    Column("residual_share", "unexplained by the time breakdown, at most", "%", 3),
)


def factors(cases: Sequence[Case], labels: Labels) -> Figure:
    """Return the figure of the factors of the steady-state efficiency, with related values. Weak
    and strong scaling use the same launches and have the same factors."""
    first_cases: dict[tuple[Workload, int], Case] = {}
    for case in cases:
        first_cases.setdefault((case.workload, case.world_size), case)
    columns = (*_WHOSE, *_of_ratios(FACTORS, 3), *_ALSO)
    rows: list[Row] = [
        {**_whose(case, labels), **_ratios(breakdown_of(case), FACTORS), **_also(case)}
        for case in first_cases.values()
    ]
    said = several(
        f"{row['what']} {number(row['efficiency']):.3f} in the run; in blocks "
        f"{' x '.join(f'{number(row[name]):.3f}' for name in _IN_BLOCKS)} = "
        f"{math.prod(number(row[name]) for name in _IN_BLOCKS):.3f}"
        + (f", rank {row['late_rank']} is late" if row["late_rank"] is not None else "")
        for row in rows
    )
    return Figure(
        name="wall_time-factors",
        title="Steady-state efficiency: computation scaling x communication x load balance",
        says=f"Without rare long steps: {said}.{INTERVALS}",
        table=Table(columns, tuple(rows)),
        plot=_side_by_side(FACTORS[:4], "ratio", rows),
    )


def _also(case: Case) -> dict[str, Value]:
    breakdown = breakdown_of(case)
    late, met, ours = breakdown.late, breakdown.late_where_met, breakdown.candidate
    same = late is not None and met is not None and met.rank == late.rank
    exposed = ours.terms[Term.EXCHANGE] / sum(ours.terms[term] for term in OF_STEPS)
    below = ours.below.get(Term.EXCHANGE)
    return {
        "explained": "yes" if breakdown.explained else "no",
        "late_rank": None if late is None else late.rank,
        "lag_ms": scaled(late.lag_seconds if late else None, 1000),
        "met_lag_ms": scaled(met.lag_seconds if met and same else None, 1000),
        "late_share": scaled(late.share if late else None),
        "slowest_rank": breakdown.slowest if breakdown.load_balance.upper <= BALANCED else None,
        "exposed_share": 100 * exposed if below is None else None,
        "exposed_below": scaled(below),
        "fixed_s": ours.fixed.a_seconds,
        "step_ms": 1000 * ours.fixed.b_seconds,
        "residual_share": 100 * ours.residual,
    }


def _side_by_side(
    names: Sequence[str], title: str, rows: Sequence[Row], *, ideal: bool = False
) -> Plot:
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


# The section -----------------------------------------------------------------------------------


def section(cases: Sequence[Case]) -> Section:
    """Return the section on the cases that have a breakdown."""
    asked = [case for case in trusted(cases) if case.outcome.breakdown is not None]
    labels = workload_labels(case.workload for case in asked)
    figures = (
        *(waterfall(case, labels[case.workload]) for case in asked),
        *by_world_size(asked, labels),
        *([speedups(asked, labels), factors(asked, labels)] if asked else []),
    )
    return Section(
        "wall_time",
        "Wall time",
        "The time breakdown assigns every second of a training, from the launch of its "
        "processes to their end, to a term. Terms are means over the ranks and rounds. If "
        "steps are divided among the ranks, the terms of steps are scaled down from the "
        "whole run.",
        figures,
        "No wall time of a training was measured; to measure: pytest perf/test_wall_time.py",
    )
