"""The seconds of a run, term by term, by world size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Question
from hvdperf.plan.terms import TERMS, Term
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Spent
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Table
from hvdperf.report.sections.wall_time.trainings import breakdown_of, way_of
from hvdperf.report.words import Labels, slug

# There are as many groups as the palette has colours. A plot shows the digit beside the colour.
GROUPS: Mapping[Term, str] = {
    Term.LAUNCH: "1 processes",
    Term.IMPORT: "1 processes",
    Term.INIT: "1 processes",
    Term.BUILD: "1 processes",
    Term.INPUT_OPENED: "1 processes",
    Term.TRACE: "2 trace",
    Term.FIRST_STEP: "3 first step, broadcast",
    Term.BROADCAST: "3 first step, broadcast",
    Term.READY: "3 first step, broadcast",
    Term.BETWEEN: "4 input",
    Term.INPUT: "4 input",
    Term.STRAGGLER: "5 straggler wait",
    Term.COMPUTE: "6 compute",
    Term.APPLY: "7 apply",
    Term.EXCHANGE: "8 exposed communication",
    Term.END: "1 processes",
}

_OF_A_SIZE = (
    Column("world_size", "replicas"),
    Column("term", "term"),
    Column("group", "drawn as"),
    Column("seconds", "seconds", "s", 3),
    Column("share", "share of the wall time", "%", 1),
    Column("below", "not told from 0: less than", "% of the steps", 1),
)


def by_world_size(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    """Return a figure per workload with a case of weak scaling."""
    found: dict[Workload, dict[int, Spent]] = {}
    weak = [case for case in cases if way_of(case) == "weak"]
    for case in sorted(weak, key=lambda case: case.world_size):
        breakdown = breakdown_of(case)
        sizes = found.setdefault(case.workload, {1: breakdown.reference})
        sizes.setdefault(case.world_size, breakdown.candidate)
    return [_stacked(workload.model, labels[workload], sizes) for workload, sizes in found.items()]


def _stacked(model: str, label: str, sizes: Mapping[int, Spent]) -> Figure:
    rows: list[Row] = [
        {
            "world_size": size,
            "term": term.value,
            "group": GROUPS[term],
            "seconds": spent.terms[term],
            "share": 100 * spent.terms[term] / spent.wall_seconds,
            "below": 100 * spent.below[term] if term in spent.below else None,
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
        says=f"By number of replicas: {'; '.join(said)}.",
        table=Table(_OF_A_SIZE, tuple(rows)),
        plot=_plot(len(sizes)),
        tags={"model": model, "question": Question.WALL_TIME_WEAK.label},
    )


def _plot(bars: int) -> Plot:
    """Return horizontal bars, of groups of terms."""
    tip = (
        Column("world_size", "replicas"),
        Column("part", "group"),
        Column("of_group", "seconds", digits=3),
    )
    return plots.stacked(
        plots.field("world_size", "ordinal", "replicas"),
        "of_group",
        sorted(set(GROUPS.values())),
        {"calculate": "datum.group", "as": "part"},
        {
            "aggregate": [{"op": "sum", "field": "seconds", "as": "of_group"}],
            "groupby": ["world_size", "part"],
        },
        rows=bars,
        each=56,
        tip=tip,
    )
