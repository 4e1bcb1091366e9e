"""Made-up noise of arms: how one launch differs from the next, and one block from the next.

Every kind is drawn for many sessions at once, on the scale of ln speed, with variance 1 before
outliers; the machine scales it. A slowdown of all arms alike is not drawn, because it cancels in
their ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Generator = np.random.Generator
Values = Callable[[Generator, tuple[int, ...]], Array]

# The share of values that are outliers, and the factor on their standard deviation.
OUTLIERS, OUTLIER_FACTOR = 0.05, 5.0
# A burst slows an arm: in what share of its launches, by how many standard deviations of a turn,
# and with what probability it goes on in the next turn.
BURSTS, BURST_LOSS, BURST_GOES_ON = 0.25, 3.0, 0.7


def normal(generator: Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape)


def student(generator: Generator, shape: tuple[int, ...]) -> Array:
    """Return values of Student's t with 5 degrees of freedom, which turns were measured to follow,
    with variance 1."""
    values: Array = generator.standard_t(5, shape) * math.sqrt(3 / 5)
    return values


def outliers(generator: Generator, shape: tuple[int, ...]) -> Array:
    wild = generator.random(shape) < OUTLIERS
    values: Array = normal(generator, shape) * np.where(wild, OUTLIER_FACTOR, 1.0)
    return values


@dataclass(frozen=True)
class Noise:
    """A kind of noise. values: draws the values of launches or blocks by themselves. rounds, turns:
    the correlation between a round and the next one, and between a turn and the next one of the
    same launch. bursts: whether bursts slow arms of several ranks. launches: the standard deviation
    between launches, in multiples of the assumed one; None for the machine's own."""

    name: str
    values: Values = normal
    rounds: float = 0.0
    turns: float = 0.0
    bursts: bool = False
    launches: float | None = None

    def of_launches(self, generator: Generator, sessions: int, rounds: int) -> Array:
        """Return the noise of launches, [sessions, rounds]."""
        return _autoregression(self.values(generator, (sessions, rounds)), self.rounds, axis=1)

    def of_blocks(self, generator: Generator, sessions: int, rounds: int, turns: int) -> Array:
        """Return the noise of blocks, [sessions, rounds, turns]."""
        values = self.values(generator, (sessions, rounds, turns))
        values = _autoregression(values, self.turns, axis=2)
        return _autoregression(values, self.rounds, axis=1)

    def of_bursts(self, generator: Generator, sessions: int, rounds: int, turns: int) -> Array:
        """Return the loss of an arm of several ranks to bursts, [sessions, rounds, turns]."""
        losses = np.zeros((sessions, rounds, turns))
        if self.bursts:
            begins = generator.integers(0, turns, (sessions, rounds))
            begins[generator.random((sessions, rounds)) > BURSTS] = turns
            lasts = generator.geometric(1 - BURST_GOES_ON, (sessions, rounds))
            turn = np.arange(turns)
            hit = (turn >= begins[:, :, None]) & (turn < (begins + lasts)[:, :, None])
            losses[hit] = BURST_LOSS
        return losses


NOISES = {
    noise.name: noise
    for noise in (
        Noise("normal"),
        Noise("Student t5", student),
        Noise("5 % outliers x5", outliers),
        Noise("bursts on one side", bursts=True),
        Noise("rounds AR(1) 0.5", rounds=0.5),
        Noise("turns AR(1) 0.5", turns=0.5),
        Noise("both AR(1) 0.5", rounds=0.5, turns=0.5),
        Noise("launches three times tau0", launches=3.0),
    )
}


def _autoregression(shocks: Array, rho: float, axis: int) -> Array:
    """Return the shocks with a correlation of rho between neighbours, of the same variance."""
    if rho == 0:
        return shocks
    values = np.moveaxis(shocks, axis, 0).copy()
    for at in range(1, len(values)):
        values[at] = rho * values[at - 1] + math.sqrt(1 - rho**2) * values[at]
    return np.moveaxis(values, 0, axis)
