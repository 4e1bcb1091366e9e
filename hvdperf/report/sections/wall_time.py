"""Where the seconds of a training go: by term, by world size, and the factors of the efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hvdperf.explain.speedup import divides_steps
from hvdperf.explain.steps import long_steps
from hvdperf.plan.arms import OF_STEPS, TERMS, Term, Workload
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.documents import Case
from hvdperf.records.outcome import ScalingBreakdown, Spent
from hvdperf.report import plots, words
from hvdperf.report.cases import Size, number, scaled, size_of, trusted
from hvdperf.report.content import Column, Field, Figure, Plot, Row, Section, Table, interval, value
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

# The speedups of a breakdown by name, and what they are called.
SPEEDUPS = {"steady_state": "steady-state", "training": "training", "end_to_end": "end-to-end"}
UNEXPLAINED = "unexplained"
# A term whose excess is below this share of the wall time comes after the others.
SMALL = 0.005


@dataclass(frozen=True)
class _Bar:
    """A term with its bar, from start to end. ideal, took: its seconds."""

    term: str
    kind: str
    start: float
    end: float
    ideal: float | None = None
    took: float | None = None

    @property
    def excess(self) -> float | None:
        return None if self.ideal is None or self.took is None else self.took - self.ideal


_OF_A_BAR: tuple[Field[_Bar], ...] = (
    value("term", "term", lambda bar: bar.term),
    value("reference_s", "ideal", lambda bar: bar.ideal, "s", 3),
    value("candidate_s", "took", lambda bar: bar.took, "s", 3),
    value("excess_s", "more than ideal", lambda bar: bar.excess, "s", 3),
    value("from_s", "bar from", lambda bar: bar.start, "s", 3, hidden=True),
    value("to_s", "bar to", lambda bar: bar.end, "s", 3, hidden=True),
    value("kind", "kind", lambda bar: bar.kind, hidden=True),
)


def waterfall(case: Case, label: str) -> Figure:
    """Return a plot with a bar per term: its time minus the ideal time."""
    breakdown, way, n = breakdown_of(case), way_of(case), case.world_size
    bars = _steps_down(case.comparison, breakdown)
    how = (
        f"{breakdown.candidate.steps} steps on each"
        if way == "weak"
        else f"{breakdown.reference.steps} steps divided"
    )
    _, *terms, unexplained, wall = bars
    worst = sorted(terms, key=lambda bar: -abs(bar.excess or 0))[:3]
    said = ", ".join(f"{bar.term} {bar.excess:+.2f} s" for bar in worst)
    speedups = ", ".join(
        f"{getattr(breakdown, name).estimate:.2f} {called}" for name, called in SPEEDUPS.items()
    )
    rows = Table.of(bars, *_OF_A_BAR)
    return Figure(
        words.slug("wall_time", "waterfall", way, label, f"np{n}"),
        f"{named(case, f'{label} on {n} ranks', how)}: from the ideal to the wall time",
        f"The ideal time is {bars[0].end:.2f} s and the wall time {wall.end:.2f} s. Largest "
        f"differences: {said}; unexplained {unexplained.excess:+.3f} s. Speedup: {speedups}."
        f"{_rare(case)}",
        rows,
        _waterfall_plot(rows),
        brief=True,
    )


def _rare(case: Case) -> str:
    """Return sentences on rare long steps of either side; "" if there are none."""
    rare = {arm: long_steps([each.of(arm) for each in case.rounds]) for arm in case.comparison.arms}
    said = {words.plural(arm.world_size, "rank"): each for arm, each in rare.items() if each}
    return "".join(f" Rare long steps, {name}: {each}." for name, each in said.items())


def _steps_down(comparison: Comparison, breakdown: ScalingBreakdown) -> list[_Bar]:
    """Return the ideal, each term, small ones last, the unexplained rest, and the wall time."""
    ours, theirs = breakdown.candidate, breakdown.reference
    parts = breakdown.world_size if divides_steps(comparison) else 1
    took = _seconds(ours)
    ideal = {term: seconds / parts for term, seconds in _seconds(theirs).items()}
    wall, ideal_wall = ours.wall_seconds, theirs.wall_seconds / parts
    ordered = sorted(TERMS, key=lambda term: abs(took[term] - ideal[term]) < SMALL * wall)
    spent = {str(term): (ideal[term], took[term]) for term in ordered}
    spent[UNEXPLAINED] = ideal_wall - sum(ideal.values()), wall - sum(took.values())
    bars = [_Bar("ideal", "total", 0.0, ideal_wall, ideal=ideal_wall)]
    for term, (usual, own) in spent.items():
        kind = "longer" if own > usual else "shorter"
        kind = UNEXPLAINED if term == UNEXPLAINED else kind
        at = bars[-1].end
        bars.append(_Bar(term, kind, at, at + (own - usual), usual, own))
    return [*bars, _Bar("wall time", "total", 0.0, wall, took=wall)]


def _seconds(spent: Spent) -> dict[str, float]:
    """Return a training's seconds by term; terms of steps are the run's, in proportion to the
    training's steps."""
    share = spent.steps / spent.steps_of_run
    return {term: spent.terms[term] * (share if term in OF_STEPS else 1.0) for term in TERMS}


def _waterfall_plot(rows: Table) -> Plot:
    names = [row["term"] for row in rows.rows]
    kinds = {"domain": ["total", "longer", "shorter", UNEXPLAINED]}
    excess, total = "format(datum.excess_s, '+.2f')", "format(datum.to_s, '.2f')"
    # With room for the text behind the longest bar.
    farthest = max(number(row[end]) for row in rows.rows for end in ("from_s", "to_s"))
    return plots.layered(
        plots.layer(
            "bar",
            x=plots.field("from_s", title="seconds", scale={"domain": [0, 1.2 * farthest]}),
            x2={"field": "to_s"},
            color=plots.field("kind", "nominal", scale=kinds, legend=plots.LEGEND),
            tooltip=plots.tooltip(rows.seen),
        ),
        plots.layer(
            {"type": "text", "align": "left", "dx": 4},
            {"calculate": "max(datum.from_s, datum.to_s)", "as": "right"},
            {"calculate": f"isValid(datum.excess_s) ? {excess} : {total}", "as": "seconds"},
            x=plots.field("right"),
            text=plots.field("seconds", "nominal"),
        ),
        height=plots.rows_high(len(names)),
        encoding={"y": plots.field("term", "nominal", axis={"title": None}, sort=names)},
    )


# Shares of the wall time ------------------------------------------------------------------------

# There are as many groups as the palette has colours. A plot shows the digit beside the colour.
_STARTS = (Term.LAUNCH, Term.IMPORT, Term.INIT, Term.BUILD, Term.INPUT_OPENED)
GROUPS = {
    "processes": (*_STARTS, Term.END),
    "trace": (Term.TRACE,),
    "first step, broadcast": (Term.FIRST_STEP, Term.BROADCAST, Term.READY),
    "input": (Term.BETWEEN, Term.INPUT),
    "straggler wait, rare long steps": (Term.STRAGGLER, Term.LONG_STEPS),
    "compute": (Term.COMPUTE,),
    "apply": (Term.APPLY,),
    "exposed communication": (Term.EXCHANGE,),
}
# A plot has room for as many bars.
MOST_BARS = 12


def shares(cases: Sequence[Case], labels: words.Labels) -> Figure:
    """Return the figure of the shares of the wall time, of all networks on one and on more
    replicas; only on the most of them, if there are too many bars. cases: of weak scaling, with
    breakdowns."""
    found: dict[Workload, dict[int, Spent]] = {}
    for case in sorted(cases, key=lambda case: case.world_size):
        breakdown = breakdown_of(case)
        sizes = found.setdefault(case.workload, {1: breakdown.reference})
        sizes.setdefault(case.world_size, breakdown.candidate)
    if sum(map(len, found.values())) > MOST_BARS:
        found = {workload: {max(sizes): sizes[max(sizes)]} for workload, sizes in found.items()}
    trainings = [
        (f"{labels[workload]}, {words.plural(size, 'replica')}", spent)
        for workload, sizes in found.items()
        for size, spent in sizes.items()
    ]
    keys = [words.slug(name) for name in GROUPS]
    rows = Table.of(
        trainings,
        value("what", "training", lambda training: training[0]),
        *(
            value(key, name, partial(_share, terms), "%", 1)
            for key, (name, terms) in zip(keys, GROUPS.items(), strict=True)
        ),
    )
    plot = plots.stacked(rows, "what", *keys, unit="share of the wall time in %")
    return Figure("wall_time-shares", "Where the wall time goes", "", rows, plot)


def _share(terms: Sequence[Term], training: tuple[str, Spent]) -> float:
    """Return the share of the wall time, in %, that these terms of a training take together."""
    _, spent = training
    return sum(100 * spent.terms[term] / spent.wall_seconds for term in terms)


# Factors of the efficiency ---------------------------------------------------------------------

_IN_BLOCKS = ("computation", "communication", "load_balance")
FACTORS = ("efficiency", *_IN_BLOCKS, "product")
# The product stands beside the efficiency, which it equals only where the factors explain it.
_BRIEF = dict(zip(FACTORS, ("effic.", "comput.", "commun.", "balance", "product"), strict=True))


def _ratio(name: str) -> Field[Case]:
    title = name.replace("_", " ")
    return interval(
        name,
        title,
        lambda case: getattr(breakdown_of(case), name),
        ends=(f"{title}, from", f"{title}, to"),
        brief=_BRIEF[name],
    )


_ALSO = (
    Column("explained", "product explains it"),
    Column("late_rank", "rank that the others wait for", brief="late"),
    Column("lag_ms", "its lag", "ms", 2),
    Column("late_share", "last in", "% of steps", 1),
    Column("exposed_share", "exposed communication", "% of the steps", 1, brief="exposed"),
    Column("exposed_below", "exposed, not distinguishable from 0: less than", "% of the steps", 1),
    Column("fixed_s", "startup overhead a", "s", 1, brief="start s"),
    Column("step_ms", "a step, b", "ms", 2),
    Column("residual_share", "unexplained by the time breakdown, at most", "%", 3),
)


def factors(cases: Sequence[Case], labels: words.Labels) -> Figure:
    """Return the figure of the factors of the steady-state efficiency, with related values. Weak
    and strong scaling use the same launches and have the same factors."""
    first_cases: dict[Size, Case] = {}
    for case in cases:
        first_cases.setdefault(size_of(case), case)

    def what(case: Case) -> str:
        return named(case, labels[case.workload], words.plural(case.world_size, "rank"))

    rows = Table.of(
        first_cases.values(),
        value("what", "training", what, brief="training"),
        value("model", "network", lambda case: labels[case.workload], hidden=True),
        value("world_size", "ranks", lambda case: case.world_size, hidden=True),
        *map(_ratio, FACTORS),
        Field(_ALSO, _also),
    )
    x = plots.field("value", title="ratio", scale={"zero": False})
    return Figure(
        "wall_time-factors",
        "Steady-state efficiency without rare long steps, and its factors in blocks",
        words.INTERVALS,
        rows,
        plots.interval(rows, "what", x, sides=FACTORS[:4]),
    )


def _also(case: Case) -> Row:
    breakdown = breakdown_of(case)
    late, ours = breakdown.late, breakdown.candidate
    exposed = ours.terms[Term.EXCHANGE] / sum(ours.terms[term] for term in OF_STEPS)
    below = ours.below.get(Term.EXCHANGE)
    return {
        "explained": "yes" if breakdown.explained else "no",
        "late_rank": None if late is None else late.rank,
        "lag_ms": scaled(late.lag_seconds if late else None, 1000),
        "late_share": scaled(late.share if late else None),
        "exposed_share": 100 * exposed if below is None else None,
        "exposed_below": scaled(below),
        "fixed_s": ours.fixed.a_seconds,
        "step_ms": 1000 * ours.fixed.b_seconds,
        "residual_share": 100 * ours.residual,
    }


# The section -----------------------------------------------------------------------------------


def section(cases: Sequence[Case]) -> Section:
    """Return the section on the cases that have a breakdown."""
    asked = [case for case in trusted(cases) if case.outcome.breakdown is not None]
    labels = words.workload_labels(case.workload for case in asked)
    weak = [case for case in asked if way_of(case) == "weak"]
    figures = (
        *(waterfall(case, labels[case.workload]) for case in asked),
        *([shares(weak, labels)] if weak else []),
        *([factors(asked, labels)] if asked else []),
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
