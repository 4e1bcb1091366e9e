"""How far a session's verdicts can be trusted: whether an injected fault was detected, whether
identical groups differ, and that FAILs overstate small changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.questions import FaultCase
from hvdperf.records.outcome import Attribution, Detection, Outcome
from hvdperf.records.rounds import Launch, Round
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Judgement, Verdict, is_bounded, smallest_detectable_effect
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


def of_fault_case(
    case: FaultCase, reported: Judgement, found: Detection, launches: Sequence[Launch] = ()
) -> Judgement:
    """Return the judgement of a fault case: PASS if verdict and attribution are the expected ones,
    FAIL if not, INCONCLUSIVE or INFO if the reported verdict is. launches: of the candidate.

    A fault that must make a launch INVALID has to do so in the first round, for its own reason.
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
        expected_doubt = case.doubt, case.rank
        right = case.doubt is None or any(expected_doubt in doubts(each) for each in launches)
        said = f"{said}: {reported.reason}" if reported.reason else said
    return replace(reported, verdict=Verdict.PASS if right else Verdict.FAIL, reason=said)


# A/A pairs -------------------------------------------------------------------------------------


def is_outside(pair: Judgement) -> bool:
    """Return whether the estimate of an A/A pair lies outside its band. Unless the whole interval
    does, more rounds have to tell whether the groups differ."""
    rule, figure = pair.rule, pair.figure
    if not isinstance(rule, Band) or figure is None:
        return False
    return not rule.low <= figure.estimate <= rule.high


def doubted(outcomes: Collection[Outcome]) -> list[Outcome]:
    """Return the outcomes whose PASS is now INVALID, because the two identical groups of their
    network differ. Only speeds are concerned. A FAIL stays: it has to be looked into anyway."""
    apart = {
        outcome.comparison.workload.model: figure
        for outcome in outcomes
        if outcome.comparison.judged_as is JudgedAs.AA_PAIR
        if (figure := _differing(outcome.judgement)) is not None
    }
    return [
        replace(
            each,
            judgement=replace(
                each.judgement,
                verdict=Verdict.INVALID,
                reason=f"would PASS, but the A/A test failed: {_difference(figure)}",
            ),
        )
        for each in outcomes
        if each.passed and each.comparison.question.spec.is_speed
        if (figure := apart.get(each.comparison.workload.model)) is not None
    ]


def _differing(pair: Judgement) -> Interval | None:
    """Return the figure of an A/A pair that is INVALID because of it, and not of its evidence, else
    None."""
    rule, figure = pair.rule, pair.figure
    if pair.verdict is not Verdict.INVALID or rule is None or figure is None:
        return None
    return figure if rule.fails(figure) else None


def of_identical_groups(judgement: Judgement, model: str) -> Judgement:
    """Return the judgement of an A/A pair of a network. It is INVALID if its whole interval lies
    outside its band, because no comparison of its network can then be trusted. If not, it is INFO,
    and its reason names the minimum detectable effect."""
    figure = judgement.figure
    if judgement.verdict is Verdict.FAIL and figure is not None:
        reason = (
            f"A/A test failed: {_difference(figure)}, so no comparison of this network can be "
            "trusted; find the cause and measure again"
        )
        return replace(judgement, verdict=Verdict.INVALID, reason=reason)
    if judgement.verdict is Verdict.INVALID:
        return judgement
    return replace(judgement, verdict=Verdict.INFO, reason=_cannot_be_seen(judgement, model))


def _cannot_be_seen(judgement: Judgement, model: str) -> str:
    figure = judgement.figure
    if figure is None or not is_bounded(figure):
        return "A/A test: too few rounds to bound the difference between two identical groups"
    least = 100 * smallest_detectable_effect(figure)
    return (
        f"the smallest slowdown that this session can detect is {least:.0f} % (A/A test of {model})"
    )


def _difference(figure: Interval) -> str:
    by, lower, upper = (100 * (x - 1) for x in (figure.estimate, figure.lower, figure.upper))
    return f"two identical groups differ by {by:+.0f} % [{lower:+.0f}, {upper:+.0f}]"


# FAILs -----------------------------------------------------------------------------------------

# In simulated sessions at a noise of 9 to 18 % between turns, cases with a true change of
# -5 % that FAILed showed -8.7 % (docs/error_rates.md).
EXAGGERATED = (
    "A FAIL overstates a change that is small relative to its interval, because such a case FAILs "
    "only if noise adds to the change"
)


def note_on_fails(outcomes: Iterable[Outcome]) -> str:
    """Return a sentence on the size of FAILs, without a full stop; "" if there are none with a
    figure. Fault cases do not count."""
    has_failed = any(
        outcome.judgement.verdict is Verdict.FAIL
        and outcome.judgement.figure is not None
        and not outcome.comparison.is_fault_case
        for outcome in outcomes
    )
    return EXAGGERATED if has_failed else ""
