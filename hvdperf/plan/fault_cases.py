"""What is planted to see whether the suite notices, and what it then has to say. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from hvdperf.plan.arms import TWIN, Comparison, Question
from hvdperf.plan.faults import Fault
from hvdperf.verdict import Verdict


@dataclass(frozen=True)
class FaultCase:
    """A fault, and how the suite must call it.

    fault: as --plant takes it; empty for nothing. question: which one has to notice, and verdict:
    by which word. Of a step or a start that takes longer, term: where in the ledger the time is
    (judge/time_breakdown.py); empty where nothing takes longer, and for memory that. rank: the one
    at fault; None where it is not one rank's. says: of a launch that is INVALID, what its first
    problem is.
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


# By name; a name is kept for what it plants, since sessions are counted by it
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
    """None where nothing is planted to see what is said of it."""
    return TRIALS[comparison.candidate.arm.planted] if comparison.is_trial else None
