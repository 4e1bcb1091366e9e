"""From observations to a word: PASS, FAIL, INCONCLUSIVE or INVALID; or NOT RUN, NOT JUDGED.

An observation is ln(speed_candidate / speed_reference / ideal) of one launch, or the logarithm of
another ratio or of a time in seconds. When a verdict may be tried is in hvdperf/interim.py; the
rules and their error rates are those of docs/measurement.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hvdperf.scatter import Noise
from hvdperf.stats import Interval, NotMeasurable, fewest_bounded, hodges_lehmann

# One-sided, to each side: of a threshold's bound, and of a figure that is only shown.
ALPHA = 0.025
# Without a bound nothing is passed or failed.
FEWEST_ROUNDS = fewest_bounded(ALPHA)


class Verdict(Enum):
    """The closed vocabulary of outcomes, in the order in which they decide the exit status."""

    FAIL = "FAIL"
    INVALID = "INVALID"
    NOT_RUN = "NOT RUN"
    INCONCLUSIVE = "INCONCLUSIVE"
    PASS = "PASS"
    NOT_JUDGED = "NOT JUDGED"


@dataclass(frozen=True)
class Floor:
    """The figure must not be below a floor: efficiencies.

    FAIL if the upper bound is below fail_below, PASS if the lower bound reaches pass_from. For a
    plain threshold the two are equal; for a regression against a reference they are 0.98 and 0.95.
    """

    fail_below: float
    pass_from: float
    alpha: float = ALPHA

    @classmethod
    def at(cls, threshold: float) -> Floor:
        return cls(threshold, threshold)

    def passes(self, figure: Interval) -> bool:
        return figure.lower >= self.pass_from

    def fails(self, figure: Interval) -> bool:
        return figure.upper < self.fail_below

    def shown(self, to_pass: Interval, to_fail: Interval) -> Interval:
        """Returns the interval of which each bound is the one that may decide."""
        return replace(to_pass, upper=to_fail.upper)

    def limit(self, figure: Interval | None) -> float:
        """Of the two limits the one that decides: what a figure that FAILs is surely below, or
        what it has to reach."""
        failed = figure is not None and figure.upper < self.fail_below
        return self.fail_below if failed else self.pass_from

    def __str__(self) -> str:
        return f">= {self.pass_from:.3g}"


# Of one stack against another: FAIL if surely 2 % slower, PASS if surely not 5 % slower.
REGRESSION = Floor(fail_below=0.98, pass_from=0.95)


@dataclass(frozen=True)
class Band:
    """The figure must lie in [low, high]: equivalence by two one-sided tests (TOST).

    PASS if the 1 - 2 alpha interval lies inside the band, FAIL if it lies outside of it.
    """

    low: float
    high: float
    alpha: float = 0.05

    def passes(self, figure: Interval) -> bool:
        return self.low <= figure.lower and figure.upper <= self.high

    def fails(self, figure: Interval) -> bool:
        return figure.upper < self.low or figure.lower > self.high

    def shown(self, to_pass: Interval, to_fail: Interval) -> Interval:
        """Returns the interval that decides: either end may pass or fail the figure."""
        return to_pass if self.passes(to_pass) else to_fail

    def __str__(self) -> str:
        return f"in {self.low:.3g}..{self.high:.3g}"


@dataclass(frozen=True)
class Ceiling:
    """The figure, a time in seconds or a factor of growth, must not be above a ceiling.

    FAIL if the lower bound is above it, PASS if the upper bound does not exceed it.
    """

    at_most: float
    unit: str = "s"
    alpha: float = ALPHA

    def passes(self, figure: Interval) -> bool:
        return figure.upper <= self.at_most

    def fails(self, figure: Interval) -> bool:
        return figure.lower > self.at_most

    def shown(self, to_pass: Interval, to_fail: Interval) -> Interval:
        """Returns the interval of which each bound is the one that may decide."""
        return replace(to_pass, lower=to_fail.lower)

    def __str__(self) -> str:
        return f"<= {self.at_most:.3g} {self.unit}".rstrip()


Rule = Floor | Band | Ceiling


@dataclass(frozen=True)
class Judgement:
    """A verdict with the figure it rests on.

    figure is on the scale of ratios or seconds, not of logarithms; None where nothing could be
    measured. Its alpha is that of the bound which may pass it, fail_alpha that of the bound which
    may fail it; None where it could not FAIL. early: of a PASS, or of bounds that are shown, after
    so few rounds that they rest on what is known of the machine's noise. reason says why, for every
    verdict that the figure alone does not explain.
    """

    verdict: Verdict
    figure: Interval | None
    rule: Rule | None
    rounds: int
    reason: str = ""
    fail_alpha: float | None = None
    early: Noise | None = None


def must_be(judgement: Judgement) -> str:
    """What its figure is held to; where a floor has two limits, the one that decided."""
    rule = judgement.rule
    if isinstance(rule, Floor) and rule.limit(judgement.figure) != rule.pass_from:
        return f"not < {rule.fail_below:.3g}"
    return "" if rule is None else str(rule)


def as_ratio(interval: Interval) -> Interval:
    """An interval of logarithms as an interval of ratios. Raises NotMeasurable for a ratio that is
    more than a number can hold."""
    try:
        estimate, lower, upper = map(math.exp, (interval.estimate, interval.lower, interval.upper))
    except OverflowError:
        estimate = math.inf
    if math.isinf(estimate):
        raise NotMeasurable(f"no ratio is the exponential of {interval.estimate:g}")
    return Interval(estimate, lower, upper, interval.alpha, interval.observations)


def confidence(figure: Interval, rule: Rule | None, fail_alpha: float | None) -> float:
    """Returns the probability with which the interval that is shown covers the true value.

    Of a floor or a ceiling one end may pass the figure and the other may fail it, and each end
    has its own error rate. Both ends of any other interval have that of the figure.
    """
    other = fail_alpha if isinstance(rule, Floor | Ceiling) else None
    return 1 - figure.alpha - (figure.alpha if other is None else other)


def is_bounded(figure: Interval) -> bool:
    """Whether there were rounds enough for the bounds of a ratio."""
    return figure.lower > 0 and math.isfinite(figure.upper)


def smallest_visible_change(figure: Interval) -> float:
    """How far from its limit, as a share, the figure has to be for these rounds to tell on which
    side it is: the longer side of its interval. Infinite where they bound nothing."""
    if not is_bounded(figure):
        return math.inf
    return max(figure.estimate / figure.lower, figure.upper / figure.estimate) - 1


def judge(observations: Sequence[float], rule: Rule, fail_alpha: float | None = None) -> Judgement:
    """Compare the observations (one natural logarithm of a ratio per launch) with a rule, by exact
    bounds. fail_alpha: of the bound that may FAIL it, where that is not the rule's own."""
    count = len(observations)
    fail_alpha = rule.alpha if fail_alpha is None else fail_alpha
    try:
        to_pass, to_fail = (
            as_ratio(hodges_lehmann(observations, alpha)) for alpha in (rule.alpha, fail_alpha)
        )
    except NotMeasurable as error:
        return Judgement(Verdict.INVALID, None, rule, count, str(error))
    figure = rule.shown(to_pass, to_fail)
    if math.isinf(to_pass.upper):
        confidence = 100 * (1 - 2 * rule.alpha)
        reason = (
            f"only {count} round{'s' * (count != 1)}: an interval of {confidence:.0f} % needs "
            f"{fewest_bounded(rule.alpha)} at least; raise --budget"
        )
        return Judgement(Verdict.INCONCLUSIVE, figure, rule, count, reason)
    verdict = decide(rule, to_pass, to_fail)
    reason = undecided(figure) if verdict is Verdict.INCONCLUSIVE else ""
    return Judgement(verdict, figure, rule, count, reason, fail_alpha=fail_alpha)


def decide(rule: Rule, to_pass: Interval, to_fail: Interval) -> Verdict:
    """Returns the verdict on a figure with bounds at the level that may PASS it, and at the level
    that may FAIL it."""
    if rule.fails(to_fail):
        return Verdict.FAIL
    return Verdict.PASS if rule.passes(to_pass) else Verdict.INCONCLUSIVE


def undecided(figure: Interval) -> str:
    """Returns why a figure has no verdict, in words."""
    seen = 100 * smallest_visible_change(figure)
    return f"the smallest change that could be seen in these rounds is {seen:.1f} %"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that decides for all of them; NOT_JUDGED if there is none."""
    order = list(Verdict)
    return min(verdicts, key=order.index, default=Verdict.NOT_JUDGED)
