"""How many false FAILs a year thresholds mean: FAILs of nights on which nothing has changed.

A round's ln ratio is c + B + e: c is the case's centre; B is the night's own deviation, with a
standard deviation `between`; e is the round's, with a standard deviation `rounds`. A night FAILs if
one of its full looks does (hvdperf.interim). That is computed for the next night, of which only
some sessions are known, so that few sessions give high numbers.

The chance for known standard deviations is that of a normal bound (_failing_bounds). The variance
of sessions' centres is unknown: for J sessions with the variance s^2, (J - 1) s^2 / variance has a
chi-square distribution with J - 1 degrees of freedom. The share that comes from the rounds is taken
off, and what is left is never below 0 (Searle, Casella and McCulloch, Variance Components, 1992,
chapter 3). Early looks are left out, because they only add PASSes; a wider bound for correlated
rounds is, too.
docs/error_rates.md compares the numbers with simulated nights.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, pstdev, variance

import numpy as np
import numpy.typing as npt

from hvdperf.interim import fail_alpha
from hvdperf.stats import NotMeasurable, fewest_bounded, hodges_lehmann
from hvdperf.verdict import Band, Ceiling, Rule

Array = npt.NDArray[np.float64]

# Sessions of a year, for the number of false FAILs.
NIGHTS = 365
# The confidence of the upper limit of that number, and the sessions' noises that are drawn for it.
CONFIDENCE, _DRAWS = 0.95, 1000
# The number of simulated sessions for the bound that FAILs.
_SIMULATED = 2000
_SEED = 20181231
# The largest distance of a limit from the centre, and the error of one, on the scale of logarithms.
FARTHEST, _NEAR_ENOUGH = 8.0, 1e-4
# Stands for a standard deviation of 0, by which nothing can be divided.
_LEAST_ERROR = 1e-9
# Half the number of steps by which the distribution of a variance is summed up, and their width on
# the scale of the probability's logit. The outermost probability is 1 / (1 + exp(30)) = 1e-13.
_STEPS, _STEP = 120, 0.25


@dataclass(frozen=True)
class Scatter:
    """The noise of a case, of sessions in which nothing has changed.

    sessions: their number J. centre: the mean of the sessions' estimates. of_centres: variance of
    these estimates. of_rounds: variance of rounds within a session, from `freedom` degrees of
    freedom. count: number of a session's rounds, the harmonic mean.
    """

    sessions: int
    centre: float
    of_centres: float
    of_rounds: float
    freedom: int
    count: float

    @property
    def rounds(self) -> float:
        """Return the standard deviation of rounds within a session."""
        return math.sqrt(self.of_rounds)

    @property
    def between(self) -> float:
        """Return the estimated standard deviation between sessions beyond that of their rounds."""
        return math.sqrt(max(self.of_centres - self.of_rounds / self.count, 0.0))


def scatter(sessions: Sequence[Sequence[float]]) -> Scatter:
    """Return the noise of a case. sessions: its ln ratios, by session.

    Raises NotMeasurable for fewer than two sessions, which do not show how much sessions differ,
    and if no session has two rounds, or if an observation is not finite.
    """
    if len(sessions) < 2:
        raise NotMeasurable("one session does not show how much sessions differ")
    if not any(len(values) > 1 for values in sessions):
        raise NotMeasurable("no session has two rounds")
    centres = [hodges_lehmann(values, alpha=0.5).estimate for values in sessions]
    freedom = sum(len(values) - 1 for values in sessions)
    squares = sum((len(values) - 1) * variance(values) for values in sessions if len(values) > 1)
    count = 1 / fmean(1 / len(values) for values in sessions)
    return Scatter(
        len(sessions), fmean(centres), variance(centres), squares / freedom, freedom, count
    )


def false_fail(rule: Rule, known: Scatter, looks: Sequence[int]) -> float:
    """Return the probability that the next session of an unchanged build FAILs by the rule.

    looks: the full looks of that session.
    """
    distances = _distances(rule, known.centre)
    return sum(_beyond(distance, rule.alpha, known, looks) for distance in distances)


def distance_for(probability: float, alpha: float, known: Scatter, looks: Sequence[int]) -> float:
    """Return how far a limit has to lie from the centre, on the scale of logarithms, for the next
    session of an unchanged build to FAIL by it with no higher probability; at most FARTHEST.

    alpha: the level of the rule's bounds.
    """
    near, far = 0.0, FARTHEST
    while far - near > _NEAR_ENOUGH:
        middle = (near + far) / 2
        if _beyond(middle, alpha, known, looks) > probability:
            near = middle
        else:
            far = middle
    return far


@dataclass(frozen=True)
class Year:
    """The false FAILs of a year of NIGHTS. expected: their number, the mean over what the sessions
    leave open. at_most: its upper limit of CONFIDENCE, and never less than `expected`."""

    expected: float
    at_most: float

    def __str__(self) -> str:
        return (
            f"{self.expected:.2f} false FAILs expected in a year of {NIGHTS} nights if nothing "
            f"changes, at most {self.at_most:.2f} with {100 * CONFIDENCE:.0f} % confidence"
        )


def year(lines: Sequence[tuple[Rule, Scatter]], looks: Sequence[int]) -> Year:
    """Return the false FAILs of a year of all lines together.

    lines: the rule and the noise of each case. looks: the full looks of a night. For the upper
    limit, the standard deviations and centres that the sessions leave possible are drawn, each line
    by itself, with a fixed seed.
    """
    expected = NIGHTS * sum(false_fail(rule, known, looks) for rule, known in lines)
    generator = np.random.default_rng(_SEED)
    drawn = np.zeros(_DRAWS)
    for rule, known in lines:
        drawn += NIGHTS * _drawn(generator, rule, known, looks)
    return Year(expected, max(expected, float(np.quantile(drawn, CONFIDENCE))))


def _drawn(
    generator: np.random.Generator, rule: Rule, known: Scatter, looks: Sequence[int]
) -> Array:
    """Return the probabilities that a night FAILs, for noises that the sessions leave possible,
    [_DRAWS]."""
    of_rounds = known.of_rounds * known.freedom / generator.chisquare(known.freedom, _DRAWS)
    freedom = known.sessions - 1
    of_centres = known.of_centres * freedom / generator.chisquare(freedom, _DRAWS)
    of_centres = np.maximum(of_centres, of_rounds / known.count)
    between = of_centres - of_rounds / known.count
    moved = np.sqrt(of_centres / known.sessions) * generator.standard_normal(_DRAWS)
    bounds = _failing_bounds(tuple(looks), rule.alpha)
    found = np.zeros(_DRAWS)
    for distance, side in zip(_distances(rule, known.centre), _sides(rule), strict=True):
        found += _fails(distance + side * moved, between, of_rounds, bounds)
    return np.minimum(found, 1.0)


def _distances(rule: Rule, centre: float) -> list[float]:
    """Return how far the limits of a rule are from the centre, on the side of FAIL."""
    if isinstance(rule, Band):
        return [centre - math.log(rule.low), math.log(rule.high) - centre]
    if isinstance(rule, Ceiling):
        return [math.log(rule.at_most) - centre]
    return [centre - math.log(rule.fail_below)]


def _sides(rule: Rule) -> list[int]:
    """Return by how much each distance grows as the centre does: 1 or -1."""
    if isinstance(rule, Band):
        return [1, -1]
    return [-1 if isinstance(rule, Ceiling) else 1]


def _beyond(distance: float, alpha: float, known: Scatter, looks: Sequence[int]) -> float:
    """Return the probability that the next session FAILs by a limit at this distance."""
    freedom = known.sessions - 1
    chi_squares, shares = _chi_squares(freedom)
    of_mean = known.of_rounds / known.count
    of_centres = np.maximum(known.of_centres * freedom / chi_squares, of_mean)
    # The next session's centre deviates from the mean of the known ones.
    deviates = of_centres - of_mean + of_centres / known.sessions
    bounds = _failing_bounds(tuple(looks), alpha)
    return min(float(shares @ _fails(distance, deviates, known.of_rounds, bounds)), 1.0)


def _fails(
    distance: float | Array,
    between: Array,
    of_rounds: float | Array,
    bounds: Sequence[tuple[float, float]],
) -> Array:
    """Return the probabilities that a session FAILs by a limit at this distance. between,
    of_rounds: the variances of sessions and of rounds. bounds: as _failing_bounds returns them."""
    from scipy.special import ndtr  # imported here, because the import takes a while

    found = np.zeros(len(between))
    for mean, deviation in bounds:
        # Without any noise, a figure FAILs if it is beyond its limit at all.
        error = np.maximum(np.sqrt(between + of_rounds * deviation**2), _LEAST_ERROR)
        found += ndtr(-(distance + np.sqrt(of_rounds) * mean) / error)
    return np.minimum(found, 1.0)


@cache
def _failing_bounds(looks: tuple[int, ...], alpha: float) -> tuple[tuple[float, float], ...]:
    """Return mean and standard deviation of bounds that FAIL a session of standard normal rounds,
    if they are below the limit: the lowest bound of all looks, and that of the first look.

    The lowest one is nearly normal, but for the lower tail, which is that of the first look; so
    the sum of both probabilities is at most 1.7 times the true one. Looks with too few rounds for a
    finite bound cannot FAIL.
    """
    draw = random.Random(_SEED)
    levels = [(look, fail_alpha(look, alpha, looks)) for look in looks]
    levels = [(look, level) for look, level in levels if fewest_bounded(level) <= look]
    if not levels:
        return ()
    sessions = [[draw.gauss(0.0, 1.0) for _ in range(looks[-1])] for _ in range(_SIMULATED)]
    of_looks = [
        [hodges_lehmann(values[:look], level).upper for look, level in levels]
        for values in sessions
    ]
    lowest, first = [min(each) for each in of_looks], [each[0] for each in of_looks]
    series = [lowest] if len(levels) == 1 else [lowest, first]
    return tuple((fmean(values), pstdev(values)) for values in series)


@cache
def _chi_squares(freedom: int) -> tuple[Array, Array]:
    """Return values of a chi-square distribution and their shares of it, in steps that are fine in
    its tails."""
    from scipy.special import chdtri, expit  # imported here, because the import takes a while

    steps = _STEP * np.arange(-_STEPS, _STEPS + 1)
    shares = expit(steps + _STEP / 2) - expit(steps - _STEP / 2)
    return chdtri(freedom, expit(steps)), shares
