"""What all simulations have in common: noise as they draw it, the rule of sessions for many cases
at once, and the tables that they fill.

Noise has parts that add up, each of which differs over some axes, such as turns, rounds, nights and
nodes, and may resemble its neighbours along them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from docs.markdown import heading, row
from hvdperf.interim import EARLY, EARLY_LOOKS, PRIOR_ROUNDS, fail_alpha
from hvdperf.stats import bound_depth
from hvdperf.verdict import REGRESSION, Verdict

Array = npt.NDArray[np.float64]
Generator = np.random.Generator
Values = Callable[[Generator, tuple[int, ...]], Array]
# What a row of a table simulates.
Condition = TypeVar("Condition")

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


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the noise. over: the axes along which it differs; along all others it is the same.
    near: by axis, the correlation between a value and the next one."""

    sd: float
    over: Sequence[str]
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
            if axis in part.over:
                values = _autoregression(values, rho, list(shape).index(axis))
        found = found + part.sd * values
    return found


def _autoregression(shocks: Array, rho: float, axis: int) -> Array:
    """Return the shocks with a correlation of rho between neighbours, of the same variance."""
    values = np.moveaxis(shocks, axis, 0).copy()
    for at in range(1, len(values)):
        values[at] = rho * values[at - 1] + math.sqrt(1 - rho**2) * values[at]
    return np.moveaxis(values, 0, axis)


# Many cases at once ------------------------------------------------------------------------------

Early = Callable[[npt.NDArray[np.int_], int], Array]


def verdicts(
    values: Array, fail_below: float, pass_from: float, looks: Sequence[int], early: Early
) -> tuple[list[Verdict], list[int]]:
    """Judge cases as hvdperf.interim does, in a tenth of the time. Return their verdicts, and the
    rounds that these take. values: ln ratios, [case, round]. fail_below, pass_from: the limits in
    ln. early: returns the lower bounds of these cases at an early look."""
    found, rounds = np.full(len(values), Verdict.INCONCLUSIVE), np.full(len(values), looks[-1])
    left = np.arange(len(values))
    for look in (*EARLY_LOOKS, *looks):
        rows = values[left, :look]
        # At an early look the depth is 0, so nothing FAILs.
        depth = bound_depth(look, fail_alpha(look, REGRESSION.alpha, looks))
        fails = averages_below(fail_below - rows) < depth
        if look in EARLY_LOOKS:
            passes = early(left, look) >= pass_from
        else:
            depth = bound_depth(look, REGRESSION.alpha)
            passes = averages_below(rows - pass_from) < depth
        found[left[passes]] = Verdict.PASS
        found[left[fails]] = Verdict.FAIL
        rounds[left[passes | fails]] = look
        left = left[~(passes | fails)]
    return found.tolist(), rounds.tolist()


def averages_below(values: Array) -> Array:
    """Return how many averages of two of each row are below 0, which is the sum of the ranks of the
    values that are. values: [case, round]."""
    ordered = np.take_along_axis(values, np.abs(values).argsort(axis=1), axis=1)
    found: Array = ((ordered < 0) * np.arange(1.0, values.shape[1] + 1)).sum(axis=1)
    return found


def early_lower(turns: Array, launch_sd: float) -> Array:
    """Return the lower bounds of an early look, in ln, as hvdperf.interim.early_interval does.
    turns: [case, round, turn]."""
    _, look, each = turns.shape
    values, freedom = np.median(turns, axis=2), PRIOR_ROUNDS + look - 1
    floor = launch_sd**2 + 2 * turns.var(axis=2, ddof=1).mean(axis=1) / each
    pooled = (PRIOR_ROUNDS * floor + (look - 1) * values.var(axis=1, ddof=1)) / freedom
    error = np.sqrt(np.maximum(floor, pooled) / look)
    found: Array = values.mean(axis=1) - stdtrit(freedom, 1 - EARLY * REGRESSION.alpha) * error
    return found


# Tables ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table(Generic[Condition]):
    """What is simulated, and what is shown of it.

    columns: the headings; the first is that of the rows' names. rows: conditions by name. cells:
    returns the cells of a row from so many sessions, files or years of its condition.
    """

    columns: Sequence[str]
    rows: Mapping[str, Condition]
    cells: Callable[[Condition, int], Iterable[str]]
    title: str = ""

    def lines(self, count: int) -> Iterator[str]:
        if self.title:
            yield f"\n{self.title}\n"
        yield from heading(*self.columns)
        for name, condition in self.rows.items():
            yield row(name, *self.cells(condition, count))
