"""A second version of the rule of hvdperf.interim, to be compared with the one in use. It was
written from the description in docs/figures.md, with numpy and scipy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.stats

from hvdperf.verdict import Band, Ceiling, Floor, Rule, Verdict

Values = npt.NDArray[np.float64]
Rows = Sequence[Sequence[float]]


def verdict_again(
    rows: Rows, rule: Rule, looks: Sequence[int], tau0: float, rho: float, forced: bool
) -> Verdict:
    """Return the verdict of the rule after these rounds."""
    figures = np.array([np.median(row) for row in rows])
    rounds, level = len(figures), 0.05 if isinstance(rule, Band) else 0.025
    if rounds in looks or (forced and rounds > looks[0]):
        full = level if rounds in looks[1:] else level * 0.0118 / 0.025
        if fails(figures, rule, full):
            return Verdict.FAIL
        return Verdict.PASS if exactly_passes(figures, rule, level) else Verdict.INCONCLUSIVE
    if rounds > looks[0] or not (forced or rounds in (3, 4, 5, 6)):
        return Verdict.INCONCLUSIVE
    early = early_bounds(rows, 0.01 if isinstance(rule, Band) else 0.005, tau0, rho)
    passed = early is not None and inside(rule, *early)
    if forced and rounds in range(6, looks[0]):
        surely = exactly_passes(figures, rule, level) and not fails(figures, rule, level)
        passed = passed or surely
    return Verdict.PASS if passed else Verdict.INCONCLUSIVE


def early_bounds(rows: Rows, level: float, tau0: float, rho: float) -> tuple[float, float] | None:
    """Return the bounds of the logarithm from few rounds; return None if there are too few rounds
    or turns."""
    if len(rows) < 3 or sum(len(row) - 1 for row in rows) < 6:
        return None
    rounds = len(rows)
    deviations = np.concatenate([np.asarray(row) - np.mean(row) for row in rows])
    within = np.sum(deviations**2) / (deviations.size - rounds)
    inflation = max(2.0, 1.25 * (1 + rho) / (1 - rho))
    floor = tau0**2 + inflation * within * np.mean([1 / len(row) for row in rows])
    figures = np.array([np.median(row) for row in rows])
    pooled = (4 * floor + (rounds - 1) * np.var(figures, ddof=1)) / (rounds + 3)
    error = math.sqrt(max(floor, pooled) / rounds)
    low, high = scipy.stats.t.interval(1 - 2 * level, rounds + 3, np.mean(figures), error)
    return float(low), float(high)


def inside(rule: Rule, lower: float, upper: float) -> bool:
    """Return whether all of the interval is where the rule wants the logarithm."""
    if isinstance(rule, Floor):
        return math.exp(lower) >= rule.pass_from
    if isinstance(rule, Ceiling):
        return math.exp(upper) <= rule.at_most
    return rule.low <= math.exp(lower) and math.exp(upper) <= rule.high


def exactly_passes(figures: Values, rule: Rule, level: float) -> bool:
    """Return whether Wilcoxon's test rejects that the figure is on the wrong side of a limit."""
    if isinstance(rule, Floor):
        return surely_above(figures, rule.pass_from, level)
    if isinstance(rule, Ceiling):
        return surely_below(figures, rule.at_most, level)
    return surely_above(figures, rule.low, level) and surely_below(figures, rule.high, level)


def fails(figures: Values, rule: Rule, level: float) -> bool:
    """Return whether Wilcoxon's test rejects that the figure is on the right side of a limit."""
    if isinstance(rule, Floor):
        return surely_below(figures, rule.fail_below, level)
    if isinstance(rule, Ceiling):
        return surely_above(figures, rule.at_most, level)
    return surely_below(figures, rule.low, level) or surely_above(figures, rule.high, level)


def surely_above(figures: Values, limit: float, level: float) -> bool:
    return _p(figures - math.log(limit), "greater") <= level


def surely_below(figures: Values, limit: float, level: float) -> bool:
    return _p(figures - math.log(limit), "less") <= level


def _p(values: Values, alternative: str) -> float:
    return float(scipy.stats.wilcoxon(values, alternative=alternative, method="exact").pvalue)


def exact_bounds(figures: Values, level: float) -> tuple[float, float]:
    """Return the bounds of the logarithm, by counting all patterns of signs."""
    n = len(figures)
    ranks = np.arange(1, n + 1)
    sums = np.array(list(itertools.product((0, 1), repeat=n))) @ ranks
    left_out = max(k for k in range(len(ranks) * n) if np.mean(sums < k) <= level)
    pairs = itertools.combinations_with_replacement(figures, 2)
    averages = np.sort([(one + other) / 2 for one, other in pairs])
    if left_out == 0:
        return -math.inf, math.inf
    return float(averages[left_out - 1]), float(averages[-left_out])


def correlation_again(comparisons: Sequence[Rows]) -> float:
    """Return the lag-1 correlation of turns, pooled and corrected for the bias that deviations from
    a mean cause."""
    rows = [np.asarray(row) - np.mean(row) for rows in comparisons for row in rows if len(row) > 1]
    products = sum(float(row[:-1] @ row[1:]) for row in rows)
    squares = sum(float(row @ row) for row in rows)
    return float(np.clip(products / squares + 1 / np.mean([len(row) for row in rows]), 0, 0.6))
