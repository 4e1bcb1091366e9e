"""Made-up noise of ln(speed of candidate / speed of reference), one value a round.

Every kind is drawn for many sessions at once, [sessions, rounds], around 0 and at a given spread:
the standard deviation of a round that is by itself and without outliers (what 1.4826 MAD reads).

What slows the *machine* for longer than a block meets both sides of a round, whose order is drawn,
so little of it is left in their ratio. What moves the *ratio* itself from round to round (a
neighbour that hurts one side only) no order of launches can take out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Generator = np.random.Generator

# The 75 % quantiles of a standard normal and of Student's t with 3 degrees of freedom.
_NORMAL_QUARTILE, _T3_QUARTILE = 0.674490, 0.764892
OUTLIERS, OUTLIER_FACTOR = 0.05, 5.0
# What a machine loses from the first round to the last as it drifts, and how far a ratio moves
# meanwhile, in spreads.
MACHINE_LOSS, RATIO_DRIFT = 0.3, 2.0

Draw = Callable[[Generator, int, int, float], Array]


@dataclass(frozen=True)
class Noise:
    """draw(generator, sessions, rounds, spread) -> [sessions, rounds]; within: the same of pairs of
    turns, [launches, pairs]. of_ratio: whether rounds depend on each other, so that no test of
    rounds is exact."""

    name: str
    draw: Draw
    within: Draw
    of_ratio: bool = False


def normal(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
    return spread * generator.standard_normal((sessions, rounds))


def student(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
    """Student's t with 3 degrees of freedom: a standard deviation of 1.53 spreads."""
    scale = spread * _NORMAL_QUARTILE / _T3_QUARTILE
    return scale * generator.standard_t(3, (sessions, rounds))


def outliers(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
    """Normal, one round in twenty with five times the spread."""
    wild = generator.random((sessions, rounds)) < OUTLIERS
    factor: Array = np.where(wild, OUTLIER_FACTOR, 1.0)
    return factor * normal(generator, sessions, rounds, spread)


def correlated_machine(rho: float) -> Draw:
    """The machine's speed is AR(1) from launch to launch; a round is two launches in drawn order,
    the second minus the first, or the other way round."""

    def draw(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
        launches = _autoregression(generator, sessions, 2 * rounds, rho)
        # Var(x' - x) = 2 (1 - rho) for a stationary x of variance 1.
        steps = (launches[:, 1::2] - launches[:, ::2]) / math.sqrt(2 * (1 - rho))
        return spread * steps * _signs(generator, sessions, rounds)

    return draw


def correlated_ratio(rho: float) -> Draw:
    """AR(1) from round to round."""

    def draw(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
        return spread * _autoregression(generator, sessions, rounds, rho)

    return draw


def drifting_machine(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
    """The machine's speed falls evenly; of two launches the later one is the slower."""
    step = math.log(1 - MACHINE_LOSS) / (2 * rounds)
    drift = step * _signs(generator, sessions, rounds)
    return normal(generator, sessions, rounds, spread) + drift


def drifting_ratio(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
    """The ratio rises or falls evenly, from one spread on one side to one on the other."""
    drift = spread * RATIO_DRIFT * np.linspace(-0.5, 0.5, rounds)
    return normal(generator, sessions, rounds, spread) + drift * _signs(generator, sessions, 1)


def _alike(name: str, draw: Draw, of_ratio: bool = False) -> Noise:
    return Noise(name, draw, draw, of_ratio)


# By name. What takes a session to drift does not show within a launch.
NOISES = {
    noise.name: noise
    for noise in (
        _alike("normal", normal),
        _alike("Student t3", student),
        _alike("5 % outliers x5", outliers),
        _alike("machine AR(1) 0.5", correlated_machine(0.5)),
        _alike("machine AR(1) 0.8", correlated_machine(0.8)),
        Noise("machine drifts -30 %", drifting_machine, normal),
        _alike("ratio AR(1) 0.2", correlated_ratio(0.2), of_ratio=True),
        _alike("ratio AR(1) 0.5", correlated_ratio(0.5), of_ratio=True),
        _alike("ratio AR(1) 0.8", correlated_ratio(0.8), of_ratio=True),
        Noise("ratio drifts 2 sd", drifting_ratio, normal, of_ratio=True),
    )
}


def of_launches(kind: Noise, pairs: int, pair_spread: float) -> Noise:
    """The schedule `alternate`: the spread is that between launches, each the median of so many
    pairs of turns. Both are of the same kind; a ratio that depends on its past does so from launch
    to launch, and from pair to pair of one launch."""

    def draw(generator: Generator, sessions: int, rounds: int, spread: float) -> Array:
        between = kind.draw(generator, sessions, rounds, spread)
        within = kind.within(generator, sessions * rounds, pairs, pair_spread)
        observed: Array = between + np.median(within, axis=1).reshape(sessions, rounds)
        return observed

    return Noise(kind.name, draw, kind.within, kind.of_ratio)


def _autoregression(generator: Generator, sessions: int, length: int, rho: float) -> Array:
    """AR(1), stationary, of variance 1: [sessions, length]."""
    shocks = generator.standard_normal((sessions, length))
    values = np.empty_like(shocks)
    values[:, 0] = shocks[:, 0]
    for at in range(1, length):
        values[:, at] = rho * values[:, at - 1] + math.sqrt(1 - rho**2) * shocks[:, at]
    return values


def _signs(generator: Generator, sessions: int, rounds: int) -> Array:
    signs: Array = generator.integers(0, 2, (sessions, rounds)) * 2.0 - 1.0
    return signs
