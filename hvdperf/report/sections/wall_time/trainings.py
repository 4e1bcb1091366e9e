"""Names and kinds of the trainings that have a breakdown."""

from __future__ import annotations

from hvdperf.explain.speedup import divides_steps
from hvdperf.records.documents import Case
from hvdperf.records.outcome import ScalingBreakdown
from hvdperf.verdict import Verdict


def breakdown_of(case: Case) -> ScalingBreakdown:
    """Return the breakdown of a case that has one."""
    assert case.outcome.breakdown is not None
    return case.outcome.breakdown


def way_of(case: Case) -> str:
    return "strong" if divides_steps(case.comparison) else "weak"


def named(case: Case, *parts: str) -> str:
    """Return the name of a training from its parts, with a note if its replicas shared cores."""
    return ", ".join((*parts, *(["not judged"] if case.verdict is Verdict.NOT_JUDGED else [])))
