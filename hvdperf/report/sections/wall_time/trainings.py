"""Names and kinds of the trainings that have a breakdown."""

from __future__ import annotations

from collections.abc import Mapping

from hvdperf.judge.scaling_breakdown import ScalingBreakdown
from hvdperf.plan.arms import Workload
from hvdperf.results.documents import Case
from hvdperf.verdict import Verdict

Labels = Mapping[Workload, str]


def breakdown_of(case: Case) -> ScalingBreakdown:
    """Return the breakdown of a case that has one."""
    assert case.outcome.breakdown is not None
    return case.outcome.breakdown


def is_weak(case: Case) -> bool:
    return not case.question.spec.divides_steps


def not_judged(case: Case) -> tuple[str, ...]:
    """Return the remark behind the name of a training whose replicas shared cores; else ()."""
    return ("not judged",) if case.verdict is Verdict.NOT_JUDGED else ()


def divided(breakdown: ScalingBreakdown) -> str:
    return f"{breakdown.reference.steps} steps divided"
