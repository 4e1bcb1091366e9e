"""Noise as simulations draw it: parts that add up, each of which differs over some axes, such as
turns, rounds, nights and nodes, and may resemble its neighbours along them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Generator = np.random.Generator
Values = Callable[[Generator, tuple[int, ...]], Array]

SEED = 20281
# The share of values that are outliers, and the factor on their standard deviation.
OUTLIERS, OUTLIER_FACTOR = 0.05, 5.0


def normal(generator: Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape)


def student(freedom: int) -> Values:
    """Return what draws values of Student's t with variance 1; turns were measured to follow that
    with 5 degrees of freedom."""
    sd = math.sqrt(freedom / (freedom - 2))
    return lambda generator, shape: generator.standard_t(freedom, shape) / sd


def outliers(generator: Generator, shape: tuple[int, ...]) -> Array:
    wild = generator.random(shape) < OUTLIERS
    values: Array = normal(generator, shape) * np.where(wild, OUTLIER_FACTOR, 1.0)
    return values


@dataclass(frozen=True)
class Part:
    """A part of the noise. over: the axes along which it differs; along all others it is the same.
    near: by axis, the correlation between a value and the next one."""

    sd: float
    over: tuple[str, ...]
    values: Values = normal
    near: Mapping[str, float] = field(default_factory=dict)


def drawn(generator: Generator, shape: Mapping[str, int], *parts: Part) -> Array:
    """Return the sum of the parts. shape: the length of each axis; it is 1 in the sum if no part
    differs over it."""
    found = np.zeros([1] * len(shape))
    for part in parts:
        sizes = tuple(size if axis in part.over else 1 for axis, size in shape.items())
        values = part.values(generator, sizes)
        for axis, rho in part.near.items():
            values = _autoregression(values, rho, list(shape).index(axis))
        found = found + part.sd * values
    return found


def _autoregression(shocks: Array, rho: float, axis: int) -> Array:
    """Return the shocks with a correlation of rho between neighbours, of the same variance."""
    if rho == 0:
        return shocks
    values = np.moveaxis(shocks, axis, 0).copy()
    for at in range(1, len(values)):
        values[at] = rho * values[at - 1] + math.sqrt(1 - rho**2) * values[at]
    return np.moveaxis(values, 0, axis)
