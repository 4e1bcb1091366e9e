"""Sessions written to disk and read back, for reports to be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hvdperf.records.archive import read_session
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from tests.support.stores import SESSION, case_of, write_session


def session_of(
    results: Path,
    *outcomes: Outcome,
    slots: int = 2,
    per_node: int = 2,
    name: str = SESSION,
    **other: Any,
) -> Path:
    """Write an ended session with these cases below results/runs, and return its directory. other:
    fields of its document that differ."""
    cases = [case_of(each, slots, per_node, name) for each in outcomes]
    return write_session(results / "runs", *cases, session=name, **other)


def cases_of(results: Path, *outcomes: Outcome, slots: int = 2, per_node: int = 2) -> list[Case]:
    """Return the cases as they are read back, in the given order."""
    archive = read_session(session_of(results, *outcomes, slots=slots, per_node=per_node))
    assert archive.left_out == ()
    order = [each.comparison.name for each in outcomes]
    return sorted(archive.cases, key=lambda case: order.index(case.name))
