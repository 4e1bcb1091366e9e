"""Checks whether an injected fault was detected, reported correctly, and attributed correctly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import FaultCase
from hvdperf.records.outcome import Attribution, Detection
from hvdperf.records.rounds import Launch, Round
from hvdperf.verdict import Judgement, Verdict
from hvdperf.work.evidence import doubts
from hvdperf.work.table import attributed


def detect(
    comparison: Comparison,
    reported: Judgement,
    rounds: tuple[Round, ...],
    hosts: Sequence[str] = (),
) -> Detection:
    """Return the reported verdict, and the attribution if it is a FAIL with a figure. hosts: of the
    ranks, if they are known."""
    slower = reported.verdict is Verdict.FAIL and reported.figure is not None
    found = attributed(comparison, rounds, hosts) if slower else Attribution()
    return Detection(reported.verdict, found)


def is_noticed(case: FaultCase, launches: Sequence[Launch]) -> bool:
    """Return whether a launch is no evidence for the expected reason; True if none is expected."""
    expected = case.doubt, case.rank
    return case.doubt is None or any(expected in doubts(launch) for launch in launches)


def of_fault_case(
    case: FaultCase, reported: Judgement, found: Detection, noticed: bool = True
) -> Judgement:
    """Return the judgement of a fault case: PASS if verdict and attribution are the expected ones,
    FAIL if not, INCONCLUSIVE or INFO if the reported verdict is. noticed: as from `is_noticed`.

    A fault that must make a launch INVALID has to do so in the first round.
    """
    open_ = reported.verdict is Verdict.INCONCLUSIVE and not (case.doubt and reported.rounds)
    if open_ or reported.verdict is Verdict.INFO:
        return reported
    said = f"injected {case.fault or 'no fault'}: {reported.verdict.value}"
    if reported.verdict is not case.verdict:
        why = f" ({reported.reason})" if reported.reason else ""
        reason = f"{said} instead of {case.verdict.value}{why}"
        return replace(reported, verdict=Verdict.FAIL, reason=reason)
    if reported.verdict is Verdict.FAIL:
        blamed = found.attribution
        expected = () if case.rank is None else (case.rank,)
        right = (blamed.term, blamed.at_fault) == (case.term, expected)
        said = f"{said}, {found.attribution}"
    else:
        right = noticed
        said = f"{said}: {reported.reason}" if reported.reason else said
    return replace(reported, verdict=Verdict.PASS if right else Verdict.FAIL, reason=said)
