"""A waterfall plot: from the ideal, over the excess of each term, to the wall time."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.explain.speedup import divides_steps
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.terms import OF_STEPS, TERMS
from hvdperf.records.documents import Case
from hvdperf.records.outcome import ScalingBreakdown, Spent
from hvdperf.report import plots
from hvdperf.report.cases import number, slug, tags_of
from hvdperf.report.content import Column, Figure, Plot, Row, Table
from hvdperf.report.sections.wall_time.trainings import breakdown_of, named, way_of

# A term whose excess is below this share of the wall time has no bar of its own.
SMALL = 0.005
OTHER = "other"
UNEXPLAINED = "not explained"

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
        title=f"{named(case, f'{label} on {n} replicas', how)}: from the ideal to the wall time",
        says=(
            f"The ideal time is {ideal:.2f} s and the wall time {wall:.2f} s. Largest "
            f"differences: {said}; not explained {number(rows[-2]['excess_s']):+.3f} s."
        ),
        table=Table(_OF_A_TERM, tuple(rows)),
        plot=_plot(rows),
        tags=tags_of(case),
        brief=True,
    )


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


def _plot(rows: Sequence[Row]) -> Plot:
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
