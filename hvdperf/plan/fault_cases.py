"""Fault cases: an injected fault, and how the suite must report it. Pure data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from hvdperf.plan.arms import TWIN
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.faults import Fault
from hvdperf.plan.question import Question
from hvdperf.verdict import Verdict


@dataclass(frozen=True)
class FaultCase:
    """A fault, and how the suite must report it.

    fault: as --plant takes it; "" for none. question: the question that has to notice it. verdict:
    the expected verdict. term: the expected attribution of a step or a start that takes longer, as
    a term of the time breakdown (judge/time_breakdown.py), or "memory"; "" if nothing takes longer.
    rank: the rank at fault; None if it is no single rank. says: the first problem of a launch that
    is expected to be INVALID.
    """

    fault: str
    question: Question = Question.WEAK_SCALING
    verdict: Verdict = Verdict.FAIL
    term: str = ""
    rank: int | None = 1
    says: str = ""

    @property
    def planted(self) -> Fault | None:
        return Fault.parse(self.fault) if self.fault else None


# Fault cases by name. A name never gets another fault, because sessions are counted by name
# (results/detection_log.py).
TRIALS = {
    TWIN: FaultCase("", verdict=Verdict.PASS, rank=None),
    "slow5": FaultCase("slow:rank=1,factor=1.05", term="between steps"),
    "slow10": FaultCase("slow:rank=1,factor=1.10", term="between steps"),
    "slow15": FaultCase("slow:rank=1,factor=1.15", term="between steps"),
    "late15": FaultCase("input:rank=1,factor=1.15", term="input wait"),
    "busy": FaultCase("busy:rank=1", term="compute"),
    "nofuse": FaultCase("nofuse", term="exposed communication", rank=None),
    "cycle": FaultCase("cycle", term="exposed communication", rank=None),
    "skip": FaultCase("skip", verdict=Verdict.INVALID, rank=None, says="+skip: replicas differ"),
    "data": FaultCase(
        "data:rank=1", verdict=Verdict.INVALID, says="+data: rank 1 reads other data"
    ),
    "leak": FaultCase("leak:rank=1", Question.MEMORY, term="memory"),
    "trace": FaultCase(
        "longer:rank=1,phase=trace,factor=1.15", Question.STARTUP_TRACE, term="trace"
    ),
    "long50": FaultCase(
        "longer:rank=1,phase=trace,factor=1.5", Question.STARTUP_TRACE, term="trace"
    ),
    "bcast": FaultCase(
        "longer:rank=1,phase=broadcast,factor=1.5", Question.STARTUP_BROADCAST, term="broadcast"
    ),
}


def trial_of(comparison: Comparison) -> FaultCase | None:
    """Return the fault case of a comparison, or None if it is no fault case."""
    return TRIALS[comparison.candidate.arm.planted] if comparison.is_trial else None
