"""Verdicts from observations: PASS, FAIL, INCONCLUSIVE or INVALID; or NOT RUN, INFO.

An observation is ln(speed_candidate / speed_reference / ideal) of one round, or the logarithm of
another ratio or of a time in seconds. hvdperf/interim.py says when a verdict may be tried;
docs/figures.md describes the rules, docs/error_rates.md their error rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from hvdperf.stats import (
    Interval,
    NotMeasurable,
    fewest_bounded,
    hodges_lehmann,
)

# The one-sided level of each bound, for a threshold and for a figure that is only shown.
ALPHA = 0.025
# Fewer rounds give no finite bound, so nothing can PASS or FAIL.
FEWEST_ROUNDS = fewest_bounded(ALPHA)
# A session finds 88 to 91 % of changes that are this many times the longer side of its interval,
# and 55 to 62 % of those of one side (by simulation; docs/figures.md).
SIDES_TO_DETECT = 1.5


class Verdict(Enum):
    """All verdicts, in the order in which they decide the exit status."""

    FAIL = "FAIL"
    INVALID = "INVALID"
    NOT_RUN = "NOT RUN"
    INCONCLUSIVE = "INCONCLUSIVE"
    PASS = "PASS"
    INFO = "INFO"


# Exit statuses; the worst verdict of a session decides.
EXIT_STATUS = {
    Verdict.FAIL: 1,
    Verdict.INVALID: 7,
    Verdict.NOT_RUN: 10,
    Verdict.INCONCLUSIVE: 6,
    Verdict.PASS: 0,
}


class Floor(msgspec.Struct, frozen=True, tag="floor", tag_field="kind"):
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
        """Return the interval of which each bound is the one that may decide."""
        return replace(to_pass, upper=to_fail.upper)

    def limit(self, figure: Interval | None) -> float:
        """Return the limit that decides: fail_below if the whole interval is below it, else
        pass_from."""
        failed = figure is not None and figure.upper < self.fail_below
        return self.fail_below if failed else self.pass_from

    def __str__(self) -> str:
        return f">= {self.pass_from:.3g}"


class SpeedFloor(Floor, frozen=True, tag="speed floor", tag_field="kind"):
    """The speed, in samples per second, must not be below a floor."""

    def __str__(self) -> str:
        return f">= {self.pass_from:g} samples/s"


# The rule for one stack against another: FAIL if it is more than 2 % slower, PASS if it is at most
# 5 % slower, each with the confidence of hvdperf.interim.confidence_of_verdicts.
REGRESSION = Floor(fail_below=0.98, pass_from=0.95)


class Band(msgspec.Struct, frozen=True, tag="band", tag_field="kind"):
    """The figure must lie in [low, high]: equivalence by two one-sided tests (TOST).

    PASS if the 1 - 2 alpha interval lies inside the band, FAIL if it lies outside the band.
    """

    low: float
    high: float
    alpha: float = 0.05

    def passes(self, figure: Interval) -> bool:
        return self.low <= figure.lower and figure.upper <= self.high

    def fails(self, figure: Interval) -> bool:
        return figure.upper < self.low or figure.lower > self.high

    def shown(self, to_pass: Interval, to_fail: Interval) -> Interval:
        """Return the interval that decides: either end may pass or fail the figure."""
        return to_pass if self.passes(to_pass) else to_fail

    def __str__(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}"


class Ceiling(msgspec.Struct, frozen=True, tag="ceiling", tag_field="kind"):
    """The figure, a time in seconds or a factor of growth, must not be above a ceiling.

    FAIL if the lower bound is above the ceiling, PASS if the upper bound does not exceed it.
    """

    at_most: float
    unit: str = "s"
    alpha: float = ALPHA

    def passes(self, figure: Interval) -> bool:
        return figure.upper <= self.at_most

    def fails(self, figure: Interval) -> bool:
        return figure.lower > self.at_most

    def shown(self, to_pass: Interval, to_fail: Interval) -> Interval:
        """Return the interval of which each bound is the one that may decide."""
        return replace(to_pass, lower=to_fail.lower)

    def __str__(self) -> str:
        return f"<= {self.at_most:.3g} {self.unit}".rstrip()


Rule = Floor | SpeedFloor | Band | Ceiling


# The standard deviation of ln ratio between launches of a machine of which nothing is known.
UNKNOWN_LAUNCH_SD = 0.05


@dataclass(frozen=True)
class Noise:
    """The noise of the machine, which an early look has to know besides its own rounds.

    launch_sd: the standard deviation of ln ratio from launch to launch, beyond that of turns.
    correlation: between a turn and the next one of the same launch. source: the origin of
    launch_sd, in words. of_rounds: correlation of a round and the next one; 0 if none is known.
    """

    launch_sd: float = UNKNOWN_LAUNCH_SD
    correlation: float = 0.0
    source: str = "assumed, because too few earlier sessions of this machine are known"
    of_rounds: float = 0.0

    @property
    def widening(self) -> float:
        """Return by how much intervals are wider than those of independent rounds: the standard
        deviation of the mean of a long AR(1) series over that of independent values."""
        return math.sqrt((1 + self.of_rounds) / (1 - self.of_rounds))


@dataclass(frozen=True)
class Judgement:
    """A verdict with the figure it rests on.

    figure: on the scale of ratios or seconds, not of logarithms; None if nothing could be measured.
    Its alpha is the level of the bound that may PASS it. fail_alpha: the level of the bound that
    may FAIL it; None if it could not FAIL. early: the assumed noise of the machine; None if neither
    the PASS nor the bounds rest on it. reason: an explanation of every verdict that the figure
    alone does not explain. widened: factor of exact bounds, because rounds of this machine are
    correlated. needs_longer_runs: whether only longer runs, and no more rounds, can decide.
    """

    verdict: Verdict
    figure: Interval | None
    rule: Rule | None
    rounds: int
    reason: str = ""
    fail_alpha: float | None = None
    early: Noise | None = None
    widened: float = 1.0
    needs_longer_runs: bool = False

    @property
    def detectable_effect(self) -> float | None:
        """Return the minimum detectable effect, as a share of the figure; None if the rounds give
        no finite interval. It is about a change of the figure, not about its distance from a
        limit."""
        effect = math.inf if self.figure is None else smallest_detectable_effect(self.figure)
        return effect if math.isfinite(effect) else None


def must_be(judgement: Judgement) -> str:
    """Return the rule in words; return "" without a rule. A floor with two limits shows the one
    that decides."""
    rule = judgement.rule
    if isinstance(rule, Floor) and rule.limit(judgement.figure) != rule.pass_from:
        return f"not < {rule.fail_below:.3g}"
    return "" if rule is None else str(rule)


def as_ratio(interval: Interval) -> Interval:
    """Convert an interval of logarithms to an interval of ratios. Raises NotMeasurable for a ratio
    that exceeds the range of a float."""
    try:
        estimate, lower, upper = map(math.exp, (interval.estimate, interval.lower, interval.upper))
    except OverflowError:
        estimate = math.inf
    if math.isinf(estimate):
        raise NotMeasurable(f"the ratio exp({interval.estimate:g}) is out of range")
    return Interval(estimate, lower, upper, interval.alpha, interval.observations)


def confidence(figure: Interval, rule: Rule | None, fail_alpha: float | None) -> float:
    """Return the probability with which the interval that is shown covers the true value.

    Under a floor or a ceiling, one end may pass the figure and the other may fail it, each with its
    own error rate. Both ends of any other interval have the figure's error rate.
    """
    other = fail_alpha if isinstance(rule, Floor | Ceiling) else None
    return 1 - figure.alpha - (figure.alpha if other is None else other)


def is_bounded(figure: Interval) -> bool:
    """Return whether there were enough rounds for finite bounds of a ratio."""
    return figure.lower > 0 and math.isfinite(figure.upper)


def longer_side(figure: Interval) -> float:
    """Return the longer side of the figure's interval, as a share; infinity without finite
    bounds."""
    if not is_bounded(figure):
        return math.inf
    return max(figure.estimate / figure.lower, figure.upper / figure.estimate) - 1


def is_precise(figure: Interval | None, share: float) -> bool:
    """Return whether the interval of a figure reaches at most that far to either side."""
    return figure is not None and longer_side(figure) <= share


def rounds_until_precise(figure: Interval | None, rounds: int, share: float) -> float:
    """Return after how many rounds the interval of a figure is likely to reach at most that far to
    either side, since it becomes shorter with the root of the rounds; infinity without finite
    bounds. rounds: of the figure."""
    return math.inf if figure is None else rounds * (longer_side(figure) / share) ** 2


def smallest_detectable_effect(figure: Interval) -> float:
    """Return the smallest change, as a share of the figure, that a session with such an interval
    finds in 90 % of cases: its interval then does not contain the figure without the change. Return
    infinity without finite bounds."""
    return SIDES_TO_DETECT * longer_side(figure)


def judge(
    observations: Sequence[float],
    rule: Rule,
    fail_alpha: float | None = None,
    widened: float = 1.0,
) -> Judgement:
    """Compare the observations (one natural logarithm a round) with a rule, by exact bounds.
    fail_alpha: the level of the bound that may FAIL, if that is not the rule's own. widened: factor
    of the bounds' distance from the estimate, on the scale of logarithms."""
    count = len(observations)
    fail_alpha = rule.alpha if fail_alpha is None else fail_alpha
    try:
        to_pass, to_fail = (
            as_ratio(hodges_lehmann(observations, alpha).widened(widened))
            for alpha in (rule.alpha, fail_alpha)
        )
    except NotMeasurable as error:
        return Judgement(Verdict.INVALID, None, rule, count, str(error))
    figure = rule.shown(to_pass, to_fail)
    if math.isinf(to_pass.upper):
        confidence = 100 * (1 - 2 * rule.alpha)
        reason = (
            f"only {count} round{'s' * (count != 1)}: a {confidence:.0f} % interval needs at "
            f"least {fewest_bounded(rule.alpha)}"
        )
        return Judgement(Verdict.INCONCLUSIVE, figure, rule, count, reason, widened=widened)
    verdict = decide(rule, to_pass, to_fail)
    reason = undecided(figure) if verdict is Verdict.INCONCLUSIVE else ""
    return Judgement(verdict, figure, rule, count, reason, fail_alpha, widened=widened)


def decide(rule: Rule, to_pass: Interval, to_fail: Interval) -> Verdict:
    """Return the verdict on a figure. to_pass, to_fail: its bounds at the level that may PASS it
    and at the level that may FAIL it."""
    if rule.fails(to_fail):
        return Verdict.FAIL
    return Verdict.PASS if rule.passes(to_pass) else Verdict.INCONCLUSIVE


def undecided(figure: Interval) -> str:
    """Return why a figure has no verdict, in words."""
    side = 100 * longer_side(figure)
    return f"these rounds do not decide it: the interval reaches {side:.1f} % from the figure"


def counted(counts: Mapping[Verdict, int]) -> str:
    """Return the number of cases by verdict, such as `1 FAIL, 3 PASS`; "" if there are none."""
    return ", ".join(f"{counts[each]} {each.value}" for each in Verdict if counts.get(each))


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that decides for all of them; INFO if there is none."""
    order = list(Verdict)
    return min(verdicts, key=order.index, default=Verdict.INFO)
