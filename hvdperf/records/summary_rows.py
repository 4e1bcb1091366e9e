"""Makes a row per case for programs: in summary.json, and as properties of JUnit's report."""

from __future__ import annotations

import math

from hvdperf.records.documents import Limit, Row
from hvdperf.records.outcome import Outcome
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Rule, is_bounded, must_be


def row_of(outcome: Outcome) -> Row:
    """Return the row of an outcome."""
    comparison, judgement = outcome.comparison, outcome.judgement
    figure, lower, upper = _figure(judgement.figure)
    return Row(
        comparison.name,
        comparison.question,
        comparison.workload.model,
        comparison.world_size,
        judgement.verdict,
        figure,
        lower,
        upper,
        _limit(judgement.rule, judgement.figure),
        judgement.rounds,
        judgement.reason,
        tuple(value for value in outcome.observations if math.isfinite(value)),
    )


def properties(outcome: Outcome) -> list[tuple[str, object]]:
    """Return the known properties by name, with the limit as on the terminal, such as `>= 0.55`."""
    judgement = outcome.judgement
    figure, lower, upper = _figure(judgement.figure)
    found = {
        "verdict": judgement.verdict.value,
        "figure": figure,
        "lower": lower,
        "upper": upper,
        "limit": must_be(judgement) or None,
    }
    return [(name, value) for name, value in found.items() if value is not None]


def _figure(figure: Interval | None) -> tuple[float | None, float | None, float | None]:
    """Return the figure and its bounds; bounds are None if there were too few rounds for any."""
    if figure is None:
        return None, None, None
    bounds = (figure.lower, figure.upper) if is_bounded(figure) else (None, None)
    return figure.estimate, *bounds


def _limit(rule: Rule | None, figure: Interval | None) -> Limit | None:
    """Return the limit of the figure; of a floor with two limits, the one that decides."""
    if rule is None:
        return None
    if isinstance(rule, Band):
        return Limit(rule.low, rule.high)
    if isinstance(rule, Ceiling):
        return Limit(None, rule.at_most)
    return Limit(rule.limit(figure), None)
