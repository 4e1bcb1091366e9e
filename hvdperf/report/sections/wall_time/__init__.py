"""The wall time of trainings, term by term: from the ideal to the time that n replicas took."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.records.documents import Case
from hvdperf.report.cases import trusted, workload_labels
from hvdperf.report.content import Section
from hvdperf.report.sections.wall_time.by_world_size import by_world_size
from hvdperf.report.sections.wall_time.ratios import factors, speedups
from hvdperf.report.sections.wall_time.waterfall import waterfall


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
        "steps are divided among the replicas, the terms of steps are scaled down from the "
        "whole run.",
        figures,
        "No wall time of a training was measured; to measure: pytest perf/test_wall_time.py",
    )
