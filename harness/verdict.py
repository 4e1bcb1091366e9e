"""From observations to a word: PASS, FAIL, INCONCLUSIVE or INVALID; or NOT RUN, NOT JUDGED.

An observation is ln(speed_candidate / speed_reference / ideal) of one launch, or the logarithm of
another ratio or of a time in seconds. The rules and their error rates are those of
docs/measurement.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from harness.stats import Interval, NotMeasurable, fewest_bounded, hodges_lehmann

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

    def decide(self, lower: float, upper: float) -> Verdict:
        if upper < self.fail_below:
            return Verdict.FAIL
        return Verdict.PASS if lower >= self.pass_from else Verdict.INCONCLUSIVE

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

    def decide(self, lower: float, upper: float) -> Verdict:
        if upper < self.low or lower > self.high:
            return Verdict.FAIL
        inside = self.low <= lower and upper <= self.high
        return Verdict.PASS if inside else Verdict.INCONCLUSIVE

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

    def decide(self, lower: float, upper: float) -> Verdict:
        if lower > self.at_most:
            return Verdict.FAIL
        return Verdict.PASS if upper <= self.at_most else Verdict.INCONCLUSIVE

    def __str__(self) -> str:
        return f"<= {self.at_most:.3g} {self.unit}".rstrip()


Rule = Floor | Band | Ceiling


@dataclass(frozen=True)
class Judgement:
    """A verdict with the figure it rests on.

    figure is on the scale of ratios or seconds, not of logarithms; None where nothing could be
    measured. reason says why, for every verdict that the figure alone does not explain.
    """

    verdict: Verdict
    figure: Interval | None
    rule: Rule | None
    rounds: int
    reason: str = ""


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


def is_bounded(figure: Interval) -> bool:
    """Whether there were rounds enough for the bounds of a ratio."""
    return figure.lower > 0 and math.isfinite(figure.upper)


def smallest_visible_change(figure: Interval) -> float:
    """How far from its limit, as a share, the figure has to be for these rounds to tell on which
    side it is: the longer side of its interval. Infinite where they bound nothing."""
    if not is_bounded(figure):
        return math.inf
    return max(figure.estimate / figure.lower, figure.upper / figure.estimate) - 1


def judge(observations: Sequence[float], rule: Rule) -> Judgement:
    """Hold the observations (one natural logarithm of a ratio per launch) against a rule."""
    try:
        figure = as_ratio(hodges_lehmann(observations, rule.alpha))
    except NotMeasurable as error:
        return Judgement(Verdict.INVALID, None, rule, len(observations), str(error))
    verdict = rule.decide(figure.lower, figure.upper)
    reason = ""
    if math.isinf(figure.upper):
        reason = (
            f"{len(observations)} rounds bound nothing at a one-sided {rule.alpha}, "
            f"{fewest_bounded(rule.alpha)} would: give it more time (--budget)"
        )
    elif verdict is Verdict.INCONCLUSIVE:
        seen = 100 * smallest_visible_change(figure)
        reason = f"the smallest change that could be seen in these rounds is {seen:.1f} %"
    return Judgement(verdict, figure, rule, len(observations), reason)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that decides for all of them; NOT_JUDGED if there is none."""
    order = list(Verdict)
    return min(verdicts, key=order.index, default=Verdict.NOT_JUDGED)
