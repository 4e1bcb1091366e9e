"""What the FAILs of a session say together: which of them rest on the same launches, and how far
their figures can be trusted as sizes."""

from __future__ import annotations

from collections.abc import Iterable

from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Outcome
from hvdperf.verdict import Verdict

# In simulated sessions at a noise of 9 to 18 % between turns, cases with a true change of
# -5 % that FAILed showed -8.7 % (docs/error_rates.md).
EXAGGERATED = (
    "A FAIL overstates a change that is small relative to its interval, because such a case FAILs "
    "only if noise adds to the change"
)


def notes_on_fails(outcomes: Iterable[Outcome]) -> list[str]:
    """Return sentences on the FAILs, without full stops; [] if there are none. Fault cases are left
    out."""
    failed = [
        outcome
        for outcome in outcomes
        if outcome.judgement.verdict is Verdict.FAIL and not outcome.comparison.is_fault_case
    ]
    notes = []
    for group in sharing_launches(outcome.comparison for outcome in failed):
        names = ", ".join(comparison.name for comparison in group)
        notes.append(
            f"These {len(group)} FAILs share launches, so they are one piece of evidence: {names}"
        )
    if any(outcome.judgement.figure is not None for outcome in failed):
        notes.append(EXAGGERATED)
    return notes


def sharing_launches(comparisons: Iterable[Comparison]) -> list[list[Comparison]]:
    """Return groups of two or more comparisons, each of which shares an arm of the same rounds with
    another one of its group."""
    groups: list[list[Comparison]] = []
    for comparison in comparisons:
        joined = [
            group
            for group in groups
            if group[0].round_group == comparison.round_group
            and any(not set(comparison.arms).isdisjoint(each.arms) for each in group)
        ]
        groups = [group for group in groups if group not in joined]
        groups.append([*(each for group in joined for each in group), comparison])
    return [group for group in groups if len(group) > 1]
