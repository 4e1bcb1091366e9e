"""What the gate of a night says over nights: which FAIL against the reference is a suspect, and
which is an alarm.

A gate judges each case by the rounds of one night. With 60 cases it FAILs dozens of times a year on
a busy machine, or where one night is not like the next, although nothing has changed
(docs/error_rates.md). So what FAILs is measured again the same night, and the case has its figure
and its verdict by the rounds of both sessions. The figures are ratios to the reference, and judged
over nights as throughputs are (hvdperf.timeline.nights.speed), with a usual value of 1. One that
falls is an alarm, which counts as FAIL; what FAILs by the rounds of its night alone is a suspect,
which counts as INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from statistics import variance
from typing import NamedTuple

from hvdperf.records.documents import Kind, Row, Summary
from hvdperf.timeline.nights.night import Night
from hvdperf.timeline.nights.speed import ALL, Key, Scope
from hvdperf.verdict import REGRESSION, Verdict, judge

# The upper bound of a night below which it is an alarm before enough nights are known.
LARGE = 0.93
# The level of the bound that may FAIL the rounds of two sessions of a night.
TOGETHER = 0.01
# Verdicts that the rounds of a case decide.
_BY_ROUNDS = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)


class Gated(NamedTuple):
    """A case of a night's gate that is a suspect or an alarm. row: with its verdict over nights."""

    part: Summary
    row: Row

    @property
    def is_alarm(self) -> bool:
        return self.row.verdict is Verdict.FAIL


def key_of(part: Summary, row: Row) -> Key:
    """Return the key of a case of a gate, which each node has of its own."""
    on = f" on {part.node}" if part.node else ""
    return Key(Scope.THROUGHPUT, f"{row.name}{on}")


def measured(night: Night) -> dict[Key, Row]:
    """Return the cases of a night's gate that compare speeds, by the rounds of both sessions if
    there were two. A session that was disturbed says nothing."""
    again = {
        key_of(part, row): row
        for part, row in night.cases
        if part.kind is Kind.GATE_AGAIN and not part.disturbed
        if _is_of_speed(row) and row.observations
    }
    rows = {
        key_of(part, row): row
        for part, row in night.cases
        if part.kind is Kind.GATE and _is_of_speed(row)
    }
    return {key: _pooled(row, again[key]) if key in again else row for key, row in rows.items()}


def disturbed(night: Night) -> str:
    """Return what disturbed the gate of a night, "" if one of several was not."""
    found = [part.disturbed for part in night.parts if part.kind is Kind.GATE]
    return found[0] if found and all(found) else ""


def over_nights(
    night: Night,
    rows: Mapping[Key, Row],
    fell: Collection[Key],
    usual: Callable[[Key], float],
    is_accepted: bool,
) -> tuple[Night, list[Gated]]:
    """Return a night with the verdicts of its gate over nights, and its suspects and alarms. A
    second session has no cases of its own. A FAIL that no figure decides, such as that of a rank
    that died, and any that is not by two stacks' speed stays as it is. rows: as `measured` returns
    them. fell: what fell, by the nights before. usual: returns what was accepted, or 1.
    is_accepted: whether what fell on this night is accepted, and PASSes."""
    parts, found = [], []
    for part in night.parts:
        if part.kind is Kind.GATE:
            judged = []
            for row in part.cases:
                key = key_of(part, row)
                if key in rows:
                    has_fallen = key in fell or ALL in fell
                    row, is_found = _judged(rows[key], has_fallen, usual(key))
                    if is_accepted and row.verdict is Verdict.FAIL:
                        reason = f"accepted; {row.reason}"
                        row, is_found = replace(row, verdict=Verdict.PASS, reason=reason), False
                    found += [Gated(part, row)] * is_found
                judged.append(row)
            part = replace(part, cases=tuple(judged))
        elif part.kind is Kind.GATE_AGAIN:
            part = replace(part, cases=())
        parts.append(part)
    return replace(night, parts=tuple(parts)), found


def _judged(row: Row, has_fallen: bool, usual: float) -> tuple[Row, bool]:
    """Return a case with its verdict over nights, and whether it is a suspect or an alarm. The
    session's own reason, such as the cause, stays behind the other one. usual: the ratio that was
    accepted, or 1."""
    if row.verdict is Verdict.PASS or row.lower is None or row.upper is None:
        return row, False
    told = f"{row.figure:.3f} ({row.lower:.3f} to {row.upper:.3f}) against the reference"
    told += f" by {row.rounds} rounds"
    is_found = has_fallen or fails(row, usual)
    if has_fallen:
        verdict = Verdict.FAIL
    elif is_found:
        verdict, told = Verdict.INCONCLUSIVE, f"suspect: {told}, on this night alone"
    elif row.lower >= REGRESSION.pass_from * usual:
        verdict, told = Verdict.PASS, f"not below {usual:.3f}, which was accepted"
    else:
        return replace(row, verdict=Verdict.INCONCLUSIVE), False
    reason = "; ".join(filter(None, (told, row.reason)))
    return replace(row, verdict=verdict, reason=reason), is_found


def bounds(row: Row) -> tuple[float, float, float]:
    """Return the figure of a case that compares speeds, and its bounds."""
    assert row.figure is not None
    assert row.lower is not None
    assert row.upper is not None
    return row.figure, row.lower, row.upper


def variances(rows: Mapping[Key, Row]) -> dict[Key, float]:
    """Return the variance of each figure that its rounds explain, in ln: a case that PASSes early
    has few."""
    found = {key: row.observations for key, row in rows.items() if len(row.observations) > 1}
    return {key: variance(values) / len(values) for key, values in found.items()}


def fails(row: Row, usual: float) -> bool:
    """Return whether a case FAILs by the rounds of its night. usual: what was accepted, or 1."""
    return row.verdict is Verdict.FAIL and bounds(row)[-1] < REGRESSION.fail_below * usual


def _is_of_speed(row: Row) -> bool:
    """Return whether rounds decided a comparison of the speeds of two stacks."""
    by_rounds = row.verdict in _BY_ROUNDS and row.figure is not None and row.upper is not None
    return by_rounds and row.question.spec.is_speed


def _pooled(row: Row, again: Row) -> Row:
    """Return the case by the rounds of two sessions of a night. With the first it FAILs."""
    values = row.observations + again.observations
    found = judge(values, REGRESSION, TOGETHER)
    assert found.figure is not None
    figure, lower, upper = found.figure.estimate, found.figure.lower, found.figure.upper
    # The reason of the first session is what made it FAIL.
    passed = "by the rounds of a second session, too, it does not FAIL"
    return replace(
        row,
        verdict=found.verdict,
        reason=row.reason if found.verdict is Verdict.FAIL else passed,
        figure=figure,
        lower=lower,
        upper=upper,
        rounds=len(values),
        observations=values,
    )
