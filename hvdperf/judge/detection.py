"""Checks whether an injected fault was noticed, reported correctly, and attributed correctly."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hvdperf.judge.attribution import Blame, blamed
from hvdperf.measure.records import Round
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.faults import FaultCase
from hvdperf.verdict import Judgement, Verdict


@dataclass(frozen=True)
class Detection:
    """The reported verdict and the attribution of an injected fault. called: the verdict on the
    faulty arm itself."""

    called: Verdict
    blame: Blame


def noticed(comparison: Comparison, called: Judgement, rounds: tuple[Round, ...]) -> Detection:
    """Return the reported verdict and the attribution; attribute only what takes longer."""
    slower = called.verdict is Verdict.FAIL and called.figure is not None
    return Detection(called.verdict, blamed(comparison, rounds) if slower else Blame())


def on_trial(trial: FaultCase, called: Judgement, found: Detection) -> Judgement:
    """Return PASS if the fault got the verdict and the attribution that it must get, FAIL if it did
    not, INCONCLUSIVE if the rounds leave it open, NOT JUDGED if it cannot be noticed.

    A fault that makes a launch INVALID does so in its first round, or is not noticed.
    """
    open_ = called.verdict is Verdict.INCONCLUSIVE and not (trial.says and called.rounds)
    if open_ or called.verdict is Verdict.NOT_JUDGED:
        return called
    said = f"injected {trial.fault or 'no fault'}: {called.verdict.value}"
    if called.verdict is not trial.verdict:
        why = f" ({called.reason})" if called.reason else ""
        reason = f"{said} instead of {trial.verdict.value}{why}"
        return replace(called, verdict=Verdict.FAIL, reason=reason)
    if called.verdict is Verdict.FAIL:
        right = (found.blame.term, found.blame.rank) == (trial.term, trial.rank)
        said = f"{said}, {found.blame}"
    else:
        right = trial.says in called.reason
        said = f"{said}: {called.reason}" if called.reason else said
    return replace(called, verdict=Verdict.PASS if right else Verdict.FAIL, reason=said)
