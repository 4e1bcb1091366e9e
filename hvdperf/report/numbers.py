"""Numbers as tables hold them: finite values, cells of figures, and quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hvdperf.interim import confidence_of_verdicts
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.report.content import Value
from hvdperf.stats import Interval
from hvdperf.verdict import Rule, confidence, is_bounded


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the values that are finite numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def number(value: Value) -> float:
    """Return the number in a table's cell; return 0 if the cell holds no number."""
    return float(value) if isinstance(value, int | float) else 0.0


def cells_of(figure: Interval | None, estimate: str, lower: str, upper: str) -> dict[str, Value]:
    """Return a figure's cells under these keys. The bounds are None if they are not finite."""
    if figure is None:
        return {estimate: None, lower: None, upper: None}
    bounded = is_bounded(figure)
    return {
        estimate: figure.estimate,
        lower: figure.lower if bounded else None,
        upper: figure.upper if bounded else None,
    }


def confidence_of(case: Case) -> float | None:
    """Return the confidence of the interval of a case's figure, in %; None without an interval."""
    judgement = case.outcome.judgement
    return level(case.figure, judgement.rule, judgement.fail_alpha)


def level(
    figure: Interval | None, rule: Rule | None = None, fail_alpha: float | None = None
) -> float | None:
    """Return the confidence of an interval, in %; None without an interval. rule, fail_alpha: of
    the judgement, if there is one (hvdperf.verdict.confidence)."""
    if figure is None or not is_bounded(figure):
        return None
    return 100 * confidence(figure, rule, fail_alpha)


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return the quantiles of at least one value at these shares (0 to 1), interpolated between
    values (Hyndman and Fan's seventh definition)."""
    import numpy as np  # imported here, because the import is slow

    return [float(cut) for cut in np.quantile(values, shares)]


def with_confidence(session: SessionDocument | None, cases: Iterable[Case]) -> str:
    """Return the confidence of the session's PASSes and FAILs as the end of a clause, such as
    `, each with 95.5 % confidence`; "" if its document does not say after how many rounds cases
    were judged."""
    if session is None or not session.asked.looks:
        return ""
    rounds = max((case.outcome.judgement.rounds for case in cases), default=0)
    held = confidence_of_verdicts(session.asked.looks, rounds, len(session.resumed_at))
    return f", each with {100 * held:.3g} % confidence"
