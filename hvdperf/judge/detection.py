"""Whether what was planted was noticed, called by the right name, and blamed on whoever did it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hvdperf.judge.attribution import Blame, blamed
from hvdperf.measure.records import Round
from hvdperf.plan.arms import Comparison
from hvdperf.plan.fault_cases import FaultCase
from hvdperf.verdict import Judgement, Verdict


@dataclass(frozen=True)
class Detection:
    """What was said of a planted fault. called: the verdict on the faulty arm itself."""

    called: Verdict
    blame: Blame


def noticed(comparison: Comparison, called: Judgement, rounds: tuple[Round, ...]) -> Detection:
    """Blame is laid only where something takes longer."""
    slower = called.verdict is Verdict.FAIL and called.figure is not None
    return Detection(called.verdict, blamed(comparison, rounds) if slower else Blame())


def on_trial(trial: FaultCase, called: Judgement, found: Detection) -> Judgement:
    """PASS where the fault was called what it must be and blamed on whom it must be, FAIL where it
    was not, INCONCLUSIVE where the rounds leave it open, NOT JUDGED where it cannot be noticed.

    What makes a launch INVALID does so in its first round, or is not noticed.
    """
    open_ = called.verdict is Verdict.INCONCLUSIVE and not (trial.says and called.rounds)
    if open_ or called.verdict is Verdict.NOT_JUDGED:
        return called
    said = f"planted {trial.fault or 'nothing'}: {called.verdict.value}"
    if called.verdict is not trial.verdict:
        why = f" ({called.reason})" if called.reason else ""
        reason = f"{said}, and not {trial.verdict.value}{why}"
        return replace(called, verdict=Verdict.FAIL, reason=reason)
    if called.verdict is Verdict.FAIL:
        right = (found.blame.term, found.blame.rank) == (trial.term, trial.rank)
        said = f"{said}, for {found.blame}"
    else:
        right = trial.says in called.reason
        said = f"{said}: {called.reason}" if called.reason else said
    return replace(called, verdict=Verdict.PASS if right else Verdict.FAIL, reason=said)
