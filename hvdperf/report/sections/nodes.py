"""Tables of nodes x GPUs, as in publications: the result of each shape of a group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report.content import Column, Figure, Row, Section, Table, Value
from hvdperf.report.words import plural, slug, workload_labels


def section(cases: Sequence[Case]) -> Section | None:
    """Return the section; return None if all replicas were on one node."""
    scaled = [
        case
        for case in cases
        if case.question is Question.WEAK_SCALING
        and case.is_sound
        and case.judged_as is JudgedAs.THRESHOLD
    ]
    if not any(len(case.replicas_per_node) > 1 for case in scaled):
        return None
    labels = workload_labels(case.workload for case in scaled)
    speeds = throughputs(cases)
    figures = []
    for workload in dict.fromkeys(case.workload for case in scaled):
        # Of several groups of one shape keep the last: the even one, or else the largest.
        own = sorted(
            (case for case in scaled if case.workload == workload),
            key=lambda case: (_is_even(case), case.world_size),
        )
        even = {_shape(case) for case in own if _is_even(case)}
        efficiency = {_shape(case): case.figure.estimate for case in own if case.figure is not None}
        speed = {
            _shape(case): median(found)
            for case in own
            if (found := speeds.get((workload, case.world_size)))
        }
        for what, unit, digits, found_ in (
            ("throughput", "samples/s", 1, speed),
            ("efficiency", "", 3, efficiency),
        ):
            if found_:
                figures.append(
                    _figure(workload.model, labels[workload], what, unit, digits, found_, even)
                )
    return Section(
        "nodes",
        "Nodes and devices",
        "Rows are nodes and columns are replicas per node; efficiencies are of weak scaling by "
        "speed. An unevenly spread group is shown in the column of its fullest node, unless an "
        "evenly spread group is there.",
        tuple(figures),
    )


def _shape(case: Case) -> tuple[int, int]:
    """Return the number of nodes, and of replicas on the fullest of them."""
    return len(case.replicas_per_node), max(case.replicas_per_node)


def _is_even(case: Case) -> bool:
    return len(set(case.replicas_per_node)) == 1


def _figure(
    model: str,
    label: str,
    what: str,
    unit: str,
    digits: int,
    found: dict[tuple[int, int], float],
    even: Collection[tuple[int, int]],
) -> Figure:
    """Return a table. even: the shapes with the same number of replicas on each node."""
    widths = sorted({width for _, width in found})
    columns = [Column("nodes", "nodes")]
    columns += [
        Column(f"width_{w}", f"{plural(w, 'replica')} a node", unit, digits) for w in widths
    ]
    rows: list[Row] = []
    for nodes in sorted({nodes for nodes, _ in found}):
        row: dict[str, Value] = {"nodes": nodes}
        row.update({f"width_{width}": found.get((nodes, width)) for width in widths})
        rows.append(row)
    most = max(found)
    with_ = f"{plural(most[1], 'replica')} each"
    if most not in even:
        with_ = f"at most {with_}"
    return Figure(
        slug("nodes", what, label),
        f"{label}: {what}",
        f"{label}: on {plural(most[0], 'node')} with {with_} the {what} is "
        f"{found[most]:.{digits}f}{f' {unit}' if unit else ''}.",
        Table(tuple(columns), tuple(rows)),
        tags={"model": model},
    )
