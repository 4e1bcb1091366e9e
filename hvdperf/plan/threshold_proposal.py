"""Proposes a rule that unchanged builds PASS, from the observations of a machine.

A floor is the lower of two: the median less 3 points, and the floor that PASSes in 95 % of
sessions. The latter follows from the verdict's own rule (hvdperf.verdict): a session PASSes if its
lower bound reaches the floor. For n rounds of normal noise with the measured spread s around the
median m, on the scale of logarithms, that bound is m + s L, where L is the bound of n standard
normal observations. So the logarithm of the floor is m + s q, where q is the 5 % quantile of L,
taken from 4,000 simulated sessions with a fixed seed. Early looks are not simulated, because they
mostly add PASSes.

A ceiling is the higher of two: the median and 3 %, and exp(m - s q).

A band is symmetric around 1 on the scale of logarithms. Its upper end is the higher of two: 1/0.95,
and exp(|m| + s q), where q is the 95 % quantile of the distance from 0 of the farther bound.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from statistics import fmean, median, pstdev, variance

from hvdperf.interim import FIRST_FAIL
from hvdperf.plan.question import Question
from hvdperf.stats import NotMeasurable, fewest_bounded, hodges_lehmann, spread
from hvdperf.verdict import Band, Ceiling, Floor, Rule

POINTS_BELOW = 0.03
PASS_SHARE = 0.95
NARROWEST_BAND = 0.95
_SESSIONS = 4000
# Rounds 0.8699999999999999, the computed value of 0.87, to 0.87.
_ROUNDING = 1e-9
_SEED = 20181231
_FLOOR_ALPHA = Floor.at(1.0).alpha
_BAND_ALPHA = Band(1.0, 1.0).alpha


def proposed_rule(question: Question, observations: Sequence[float], rounds: int) -> Rule:
    """Return the rule for sessions of this number of rounds.

    observations: ln ratios of unchanged builds. The limits of the rule have three decimals (a
    ceiling has three significant digits), rounded to the side on which more sessions PASS. Raises
    NotMeasurable if an observation is not finite, if there is none, or if the rounds are too few
    for a finite bound (fewest_rounds).
    """
    if rounds < fewest_rounds(question):
        raise NotMeasurable(
            f"{rounds} rounds give no finite interval; at least {fewest_rounds(question)} "
            "are needed"
        )
    if not observations or not all(map(math.isfinite, observations)):
        raise NotMeasurable("no observation, or one that is not finite")
    centre, noise = median(observations), spread(observations)
    rule = question.spec.rule
    if rule is Band:
        reach = abs(centre) + noise * _farther_bound(rounds)
        high = _up(math.exp(max(reach, -math.log(NARROWEST_BAND))))
        return Band(_down(1 / high), high)
    if rule is Ceiling:
        highest = max(
            math.exp(centre) * (1 + POINTS_BELOW), math.exp(centre - noise * _lower_bound(rounds))
        )
        return ceiling(question, _three_digits_up(highest))
    floor = min(math.exp(centre) - POINTS_BELOW, math.exp(centre + noise * _lower_bound(rounds)))
    return Floor.at(min(max(_down(floor), 0.001), 1.0))


def false_fail(rule: Rule, sessions: Sequence[Sequence[float]], rounds: int) -> float:
    """Return the probability that a session of an unchanged build FAILs by the rule at its first
    look.

    sessions: ln ratios of unchanged builds, by session. rounds: of the first look. The bound that
    may FAIL is taken as normal, with mean and standard deviation from the simulated sessions. Its
    variance is that of the rounds, that between sessions beyond their rounds, and that of the
    centre's own estimate (pi/2 s^2 / N for the median of N observations).
    """
    if fewest_bounded(FIRST_FAIL * rule.alpha) > rounds:
        return 0.0
    every = [value for values in sessions for value in values]
    centre, noise = median(every), spread(every)
    mean, sd = _failing_bound(rounds, rule.alpha)
    between = _variance_between(sessions)
    error = math.sqrt((noise * sd) ** 2 + between + math.pi / 2 * noise**2 / len(every))

    def below(distance: float) -> float:
        """Return how often the upper bound is that far below the centre; by symmetry also how often
        the lower one is that far above it."""
        reach = distance + noise * mean
        return 0.5 * math.erfc(reach / error / math.sqrt(2)) if error > 0 else float(reach < 0)

    if isinstance(rule, Band):
        return below(centre - math.log(rule.low)) + below(math.log(rule.high) - centre)
    if isinstance(rule, Ceiling):
        return below(math.log(rule.at_most) - centre)
    return below(centre - math.log(rule.fail_below))


def _variance_between(sessions: Sequence[Sequence[float]]) -> float:
    """Return the variance between sessions beyond that of their rounds; 0 if there is one session,
    or if none can be told."""
    several = [values for values in sessions if len(values) > 1]
    if len(several) < 2:
        return 0.0
    within = fmean(variance(values) for values in several)
    of_means = variance(fmean(values) for values in several)
    return max(of_means - within * fmean(1 / len(values) for values in several), 0.0)


def ceiling(question: Question, at_most: float) -> Ceiling:
    """Return a ceiling in the unit of the question's figure."""
    return Ceiling(at_most, unit=question.spec.unit)


def fewest_rounds(question: Question) -> int:
    """Return the fewest rounds from which a verdict's bounds are finite."""
    alpha = _BAND_ALPHA if question.spec.rule is Band else _FLOOR_ALPHA
    return fewest_bounded(alpha)


@cache
def _lower_bound(rounds: int) -> float:
    """Return the value that the lower bound of standard normal observations reaches in PASS_SHARE
    of sessions."""
    bounds = sorted(hodges_lehmann(session, _FLOOR_ALPHA).lower for session in _sessions(rounds))
    return bounds[math.floor((1 - PASS_SHARE) * _SESSIONS)]


@cache
def _failing_bound(rounds: int, alpha: float) -> tuple[float, float]:
    """Return mean and standard deviation of the upper bound of standard normal observations at the
    level that may FAIL at the first look."""
    level = FIRST_FAIL * alpha
    bounds = [hodges_lehmann(session, level).upper for session in _sessions(rounds)]
    return fmean(bounds), pstdev(bounds)


@cache
def _farther_bound(rounds: int) -> float:
    """Return the distance from 0 within which both bounds lie in PASS_SHARE of sessions."""
    intervals = [hodges_lehmann(session, _BAND_ALPHA) for session in _sessions(rounds)]
    distances = sorted(max(-interval.lower, interval.upper) for interval in intervals)
    return distances[math.ceil(PASS_SHARE * _SESSIONS)]


def _sessions(rounds: int) -> list[list[float]]:
    noise = random.Random(_SEED)
    return [[noise.gauss(0.0, 1.0) for _ in range(rounds)] for _ in range(_SESSIONS)]


def _down(value: float) -> float:
    return math.floor(value * 1000 + _ROUNDING) / 1000


def _three_digits_up(seconds: float) -> float:
    """Round up to three significant digits, because a phase takes microseconds or minutes."""
    digits = 2 - math.floor(math.log10(seconds))
    return math.ceil(seconds * 10.0**digits - _ROUNDING) / 10.0**digits


def _up(value: float) -> float:
    return math.ceil(value * 1000 - _ROUNDING) / 1000
