"""Makes one row a case for programs: in summary.json, and as properties of JUnit's report."""

from __future__ import annotations

from typing import Any

from hvdperf.judge.outcome import Outcome
from hvdperf.results.archive import Case
from hvdperf.results.documents import Document
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Rule, is_bounded, must_be


def row_of(outcome: Outcome) -> Document:
    """Return the row of an outcome, as in results/schema/summary.schema.json."""
    judgement = outcome.judgement
    return {
        **_asked(outcome.comparison),
        "verdict": judgement.verdict,
        **_figure(judgement.figure),
        "limit": _limit(judgement.rule, judgement.figure),
        "rounds": judgement.rounds,
        "reason": judgement.reason,
    }


def row_of_case(case: Case) -> Document:
    """Return the same row of a case that was read back."""
    return {
        **_asked(case),
        "verdict": case.verdict,
        **_figure(case.figure),
        "limit": _limit(case.rule, case.figure),
        "rounds": case.document["verdict"]["rounds"],
        "reason": case.reason,
    }


def properties(outcome: Outcome) -> list[tuple[str, object]]:
    """Return the known properties by name, with the limit as on the terminal, such as `>= 0.55`."""
    judgement = outcome.judgement
    found = {
        "verdict": judgement.verdict.value,
        **_figure(judgement.figure),
        "limit": must_be(judgement) or None,
    }
    return [(name, value) for name, value in found.items() if value is not None]


def _asked(of: Any) -> Document:
    return {
        "name": of.name,
        "question": of.question,
        "model": of.workload.model,
        "world_size": of.world_size,
    }


def _figure(figure: Interval | None) -> Document:
    """Return the figure and its bounds; bounds are None if there were too few rounds for any."""
    bounded = figure is not None and is_bounded(figure)
    return {
        "figure": figure.estimate if figure is not None else None,
        "lower": figure.lower if figure is not None and bounded else None,
        "upper": figure.upper if figure is not None and bounded else None,
    }


def _limit(rule: Rule | None, figure: Interval | None) -> Document | None:
    """Return the limit of the figure; of a floor with two limits, the one that decides."""
    if rule is None:
        return None
    if isinstance(rule, Band):
        return {"at_least": rule.low, "at_most": rule.high}
    if isinstance(rule, Ceiling):
        return {"at_least": None, "at_most": rule.at_most}
    return {"at_least": rule.limit(figure), "at_most": None}
