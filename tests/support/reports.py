"""Sessions written to disk and read back, for reports to be made of."""

from __future__ import annotations

from pathlib import Path

from hvdperf.judge.outcome import Outcome
from hvdperf.results.archive import Case, read_session
from hvdperf.results.documents import Document
from hvdperf.verdict import Verdict
from tests.support.stores import SESSION, make_store, session_document


def session_of(
    results: Path, *outcomes: Outcome, slots: int = 2, per_node: int = 2, name: str = SESSION
) -> Path:
    """Write an ended session with these cases below results/runs, and return its directory."""
    store = make_store(results / "runs", slots, per_node, name)
    for each in outcomes:
        store.write_case(each)
    store.write_session(told_of(*outcomes))
    return store.directory


def told_of(*outcomes: Outcome) -> Document:
    """Return what session.json says of these cases, without the fields of every document."""
    document = session_document("", Verdict.PASS)
    document["verdicts"] = {each.comparison.name: each.judgement.verdict.value for each in outcomes}
    return document


def cases_of(results: Path, *outcomes: Outcome, slots: int = 2, per_node: int = 2) -> list[Case]:
    """Return the cases as they are read back, in the given order."""
    archive = read_session(session_of(results, *outcomes, slots=slots, per_node=per_node))
    assert archive.left_out == ()
    order = [each.comparison.name for each in outcomes]
    return sorted(archive.cases, key=lambda case: order.index(case.name))
