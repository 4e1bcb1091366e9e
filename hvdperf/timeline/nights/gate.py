"""What the gates of a series say over nights: which FAIL against the reference is a suspect, and
which is an alarm.

A gate judges each case by the rounds of one night. With 60 cases it FAILs dozens of times a year on
a busy machine, or where one night is not like the next, although nothing has changed
(docs/error_rates.md). So what FAILs is measured again the same night, and the case has its figure
and its verdict by the rounds of both sessions. If it still FAILs it is a suspect, which counts as
INCONCLUSIVE. It is an alarm, which counts as FAIL, if

- it is large: the upper bound of the night is below LARGE; or
- the case did not PASS on two of its last NIGHTS nights, this one among them, and by the rounds of
  these nights together the estimate is below LEAST and the exact bound at ALPHA below BELOW.

The second rule finds a loss that is too small for any of the nights to FAIL, too. Where nights
differ by more than 1 %, both limits are further away. `python -m bench rates gate` counts what both
find.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import fmean, variance
from typing import NamedTuple

from hvdperf.interim import EARLY_LOOKS
from hvdperf.records.documents import Kind, Row, Summary
from hvdperf.stats import Interval, bound_depth, hodges_lehmann
from hvdperf.timeline.nights.night import Accepted, Night, machine_of
from hvdperf.verdict import REGRESSION, Verdict, judge

# The bound of a night below which one night is enough.
LARGE = 0.93
# The number of nights that are judged together, and how many of them may not have PASSed.
NIGHTS, AGREE = 3, 2
# What their rounds have to show. LEAST lies where the mean of three nights hardly comes if nights
# differ by 1 %: of that the bound, which knows rounds only, knows nothing.
LEAST, BELOW, ALPHA = 0.97, 0.99, 5e-5
# How far the estimates have to lie where nights differ more: a night's, and the mean of NIGHTS, in
# their standard deviations.
FAR, FAR_TOGETHER = 5.0, 4.5
# The number of rounds of a night that may FAIL.
ROUNDS = 8
# The numbers of nights by which it is known how much they differ, and the share of these that is
# left out, because something may have changed.
FEWEST, KNOWN, LEFT_OUT = 7, 28, 0.1
# The level of the bound that may FAIL the rounds of two sessions of a night.
TOGETHER = 0.01
# Verdicts that the rounds of a case decide.
_BY_ROUNDS = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)


class Limits(NamedTuple):
    """large: what the upper bound of one night has to be below. least: what the estimate of NIGHTS
    nights has to be below."""

    large: float = LARGE
    least: float = LEAST


USUAL = Limits()


@dataclass(frozen=True)
class Found:
    """A case of a night's gate that is a suspect or an alarm. row: with the verdict over nights,
    and the reason for it. first: index of the night on which it became an alarm; last: of this
    night. is_over: whether it has PASSed since."""

    part: Summary
    row: Row
    first: int
    last: int
    is_over: bool = False

    @property
    def is_alarm(self) -> bool:
        return self.row.verdict is Verdict.FAIL

    @property
    def told(self) -> str:
        """Return what was found, in words."""
        on = f" on {self.part.node}" if self.part.node else ""
        return f"{self.row.name}{on}: {self.row.reason}"


@dataclass(frozen=True)
class JudgedGates:
    """The gates of a series, judged over nights. nights: all of them, with these verdicts; a second
    session has no cases of its own. found: suspects and alarms by index of the night. alarms: each
    on its last night, by the first one. limits: the furthest of the last night."""

    nights: Sequence[Night]
    found: Mapping[int, Sequence[Found]]
    alarms: Sequence[Found]
    limits: Limits

    def lines(self) -> Iterator[str]:
        """Yield the limits of an alarm, if nights differ so much that they are not USUAL."""
        if self.limits != USUAL:
            yield (
                "the gate's figures differ from night to night, so an alarm needs an upper bound "
                f"below {self.limits.large:.3f}, or an estimate of {NIGHTS} nights below "
                f"{self.limits.least:.3f}"
            )


class NightNoise:
    """How much the cases of a gate would differ from night to night if all had ROUNDS rounds."""

    def __init__(self) -> None:
        # By case: the last night's mean of rounds, in ln, and the variance beyond that of ROUNDS.
        self._last: dict[str, tuple[float, float]] = {}
        self._variances = deque[float](maxlen=KNOWN)

    def add(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Take up a night. rows: the ln ratios of rounds by case."""
        found = []
        for name, rounds in rows.items():
            mean, beyond = fmean(rounds), variance(rounds) * (1 / len(rounds) - 1 / ROUNDS)
            if name in self._last:
                before, beyond_before = self._last[name]
                found.append(((mean - before) ** 2 - beyond - beyond_before) / 2)
            self._last[name] = mean, beyond
        if found:
            self._variances.append(fmean(found))

    @property
    def limits(self) -> Limits:
        """Return the limits for the next night."""
        if len(self._variances) < FEWEST:
            return USUAL
        usual = sorted(self._variances)[: math.ceil(len(self._variances) * (1 - LEFT_OUT))]
        sd = math.sqrt(max(0.0, fmean(usual)))
        large, least = math.exp(-FAR * sd), math.exp(-FAR_TOGETHER * sd / math.sqrt(NIGHTS))
        return Limits(min(LARGE, large), min(LEAST, least))


class CaseOverNights:
    """A case of the gate on one kind of machine against one reference, night by night. is_suspect:
    whether it is one on the night that was judged last."""

    def __init__(self) -> None:
        self._before: deque[Row] = deque(maxlen=NIGHTS - 1)
        # In ln: the loss that was accepted, and what an alarm that is on has lost beyond it.
        self._accepted, self._lost = 0.0, 0.0
        self.is_suspect = False

    def judge(self, row: Row, again: Row | None = None, limits: Limits = USUAL) -> Row:
        """Return the case of the next night with its verdict over nights. again: as a second
        session measured it the same night."""
        if again is not None:
            row = _pooled(row, again)
        row = self._since_accepted(row)
        own = _times(row, math.exp(-self._accepted))
        nights = [*self._before, own]
        self._before.append(own)
        self.is_suspect = False
        if own.verdict is Verdict.PASS:
            self._lost = 0.0
            return row
        told = f"{row.figure:.3f} ({row.lower:.3f} to {row.upper:.3f}) against the reference"
        if again is not None:
            told += f" by {row.rounds} rounds of two sessions"
        assert own.figure is not None
        assert own.upper is not None
        if own.verdict is Verdict.FAIL and own.upper < limits.large:
            self._lost = math.log(own.figure)
            return _with(row, Verdict.FAIL, f"{told}, which is enough on one night")
        together = _below(nights, limits)
        if together is not None:
            self._lost = together.estimate
            figure, most = (
                math.exp(each + self._accepted) for each in (together.estimate, together.upper)
            )
            rounds = f"{figure:.3f} (at most {most:.3f}) by {together.observations} rounds"
            return _with(row, Verdict.FAIL, f"{told}, and {rounds} of the last {NIGHTS} nights")
        self.is_suspect = own.verdict is Verdict.FAIL
        if self.is_suspect:
            return _with(row, Verdict.INCONCLUSIVE, f"suspect: {told}, on this night alone")
        return row

    def accept(self) -> None:
        """Take the loss of the alarm that is on as what is usual."""
        if self._lost:
            self._accepted += self._lost
            self._lost = 0.0
            self._before.clear()

    def _since_accepted(self, row: Row) -> Row:
        """Return the case as judged by its distance from what was accepted. What has become better
        than that is compared with the reference again."""
        if not self._accepted or row.lower is None:
            return row
        usual = math.exp(self._accepted)
        if row.lower * REGRESSION.fail_below > usual:
            self._accepted = 0.0
            return row
        if row.upper is not None and row.upper < REGRESSION.fail_below * usual:
            return replace(row, verdict=Verdict.FAIL)
        if row.lower >= REGRESSION.pass_from * usual:
            return _with(row, Verdict.PASS, f"not below {usual:.3f}, which was accepted")
        return replace(row, verdict=Verdict.INCONCLUSIVE)


def judge_gates(nights: Sequence[Night], accepted: Sequence[Accepted] = ()) -> JudgedGates:
    """Judge the gates of a series, night by night. nights: in the order of dates. A FAIL that no
    figure decides, such as that of a rank that died, and any that is not by two stacks' speed stays
    as it is. An alarm is compared with what it was when it was accepted, from the next night on."""
    cases: dict[object, CaseOverNights] = defaultdict(CaseOverNights)
    noise: dict[object, NightNoise] = defaultdict(NightNoise)
    before = date.min
    found: dict[int, list[Found]] = {}
    # The alarm that is on of each case, and those that are over.
    on: dict[object, Found] = {}
    over = []
    judged, last = [], USUAL
    for index, night in enumerate(nights):
        if any(before <= each.night < night.night for each in accepted):
            for case in cases.values():
                case.accept()
        before = night.night
        again = _measured_again(night)
        parts, last = [], USUAL
        for part in night.parts:
            rows = []
            of_gate = night.against, machine_of(part), part.node
            limits, measured = noise[of_gate].limits, {}
            for row in part.cases if part.kind is Kind.GATE else ():
                if _is_of_speed(row):
                    key = *of_gate, row.name
                    if len(row.observations) > 1:
                        measured[row.name] = row.observations
                    row = cases[key].judge(row, again.get((part.node, row.name)), limits)
                    if cases[key].is_suspect or row.verdict is Verdict.FAIL:
                        each = Found(part, row, on[key].first if key in on else index, index)
                        found.setdefault(index, []).append(each)
                        if each.is_alarm:
                            on[key] = each
                    elif row.verdict is Verdict.PASS and key in on:
                        over.append(replace(on.pop(key), is_over=True))
                rows.append(row)
            last = min(last, limits)
            noise[of_gate].add(measured)
            parts.append(replace(part, cases=tuple(rows)) if part.kind.is_gate else part)
        judged.append(replace(night, parts=tuple(parts)))
    alarms = sorted([*over, *on.values()], key=lambda alarm: alarm.first)
    return JudgedGates(judged, found, alarms, last)


def failed_alone(nights: Sequence[Night], accepted: Sequence[Accepted]) -> list[str]:
    """Return the names of the cases of the last night's gate that FAIL by the rounds of its
    session, unless what they lost was accepted."""
    gates = judge_gates(nights, accepted)
    found = {each.row.name for each in gates.found.get(len(nights) - 1, ())}
    failed = (
        row for part, row in nights[-1].cases if part.kind.is_gate and row.verdict is Verdict.FAIL
    )
    return [row.name for row in failed if row.name in found]


def without_alarms(night: Night, found: Sequence[Found]) -> Night:
    """Return a night whose alarms were accepted: they PASS. found: of that night."""
    alarms = [each.row for each in found if each.is_alarm]
    parts = []
    for part in night.parts:
        rows = (_with(r, Verdict.PASS, "accepted") if r in alarms else r for r in part.cases)
        parts.append(replace(part, cases=tuple(rows)))
    return replace(night, parts=tuple(parts)) if alarms else night


def _measured_again(night: Night) -> dict[tuple[str, str], Row]:
    """Return what a second session measured against the reference, by node and name of the case. A
    session that was disturbed says nothing."""
    return {
        (part.node, row.name): row
        for part, row in night.cases
        if part.kind is Kind.GATE_AGAIN and not part.disturbed
        if _is_of_speed(row) and row.observations
    }


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


def _below(nights: Sequence[Row], limits: Limits) -> Interval | None:
    """Return the figure by the rounds of the nights together, in ln; None if they do not show that
    it is lower. A night that PASSed after a few rounds is none of them."""
    counted = [row for row in nights if len(row.observations) > EARLY_LOOKS[-1]]
    if sum(row.verdict is not Verdict.PASS for row in counted) < AGREE:
        return None
    values = [value for row in counted for value in row.observations]
    # With k observations that are not below, k (k + 1) / 2 averages of two are not: so most cases
    # need no sorting.
    above = sum(value >= math.log(BELOW) for value in values)
    if above * (above + 1) // 2 >= bound_depth(len(values), ALPHA):
        return None
    found = hodges_lehmann(values, ALPHA)
    # Fewer nights say less.
    least = math.log(limits.least) * math.sqrt(NIGHTS / len(counted))
    is_below = found.upper < math.log(BELOW) and found.estimate < min(math.log(LEAST), least)
    return found if is_below else None


def _times(row: Row, factor: float) -> Row:
    """Return the case with figures that are higher by the factor."""
    if factor == 1:
        return row
    figure, lower, upper = (
        None if each is None else each * factor for each in (row.figure, row.lower, row.upper)
    )
    values = tuple(value + math.log(factor) for value in row.observations)
    return replace(row, figure=figure, lower=lower, upper=upper, observations=values)


def _with(row: Row, verdict: Verdict, reason: str) -> Row:
    """Return the case with another verdict. Its own reason, such as the cause, stays behind the
    other one."""
    return replace(row, verdict=verdict, reason="; ".join(filter(None, (reason, row.reason))))
