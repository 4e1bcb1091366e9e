"""The documents of the timeline, and the sessions that it runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hvdperf.errors import UserError
from hvdperf.json_records import plain
from hvdperf.plan.questions import weak_scaling
from hvdperf.records.archive import Store, summary_of
from hvdperf.records.documents import Case
from hvdperf.timeline import history
from hvdperf.timeline.schemas import DIRECTORY, DOCUMENTS, texts, write
from hvdperf.timeline.stacks import measure
from hvdperf.verdict import Verdict
from tests.support.recorded import recorded_sessions
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome


def tracked(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of document, as it is tracked."""
    loaded: dict[str, Any] = json.loads((DIRECTORY / f"{kind}.schema.json").read_text())
    return loaded


def check(kind: str, document: object) -> None:
    """Raise jsonschema.ValidationError if the document does not conform to its schema."""
    jsonschema.Draft202012Validator(tracked(kind)).validate(document)


def test_the_tracked_schemas_are_made_from_the_records(tmp_path):
    write(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == texts()
    found = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    assert made == found, "run `make schemas`"


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_part_of_a_document_is_described(kind):
    schema = tracked(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert [name for name, part in schema["$defs"].items() if not part.get("description")] == []


def written(directory: Path, case: Case) -> Any:
    """Return the document of a case as it is on disk."""
    directory.mkdir()
    Store(directory).write(case)
    (path,) = directory.glob("*.json")
    return json.loads(path.read_text())


def test_recorded_sessions_conform(tmp_path):
    # One case of each question: jsonschema is slow.
    cases = {case.question: case for session in recorded_sessions() for case in session.cases}
    for question, case in cases.items():
        check("case", written(tmp_path / question.value, case))
        for path in tmp_path.glob(f"{question.value}/rounds/*.json"):
            check("rounds", json.loads(path.read_text()))
    for session in recorded_sessions():
        check("session", plain(session.session))
        check("summary", plain(summary_of(session)))


def test_the_history_that_ships_conforms():
    paths = list(history.RAW.glob("*/*.json"))
    assert paths
    for path in paths:
        check("summary", json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("field", "value"), [("format", "3"), ("outcome", {}), ("written_at", 1), ("name", None)]
)
def test_a_schema_refuses_what_is_no_document(tmp_path, field, value):
    document = written(tmp_path / "session", recorded_sessions()[0].cases[0])
    with pytest.raises(jsonschema.ValidationError):
        check("case", {**document, field: value})


STACK = Path("stack/bin/python")


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """Have the session end with a status, after it has written a case with a verdict."""
    monkeypatch.setattr(history, "MEASURED", tmp_path)

    def ended(status: int, verdict: Verdict) -> None:
        def run(*_: object) -> int:
            made = outcome(weak_scaling(WORKLOAD, 2), [0.9] * 6, verdict=verdict)
            session_of(tmp_path / "stack", made)
            return status

        monkeypatch.setattr("hvdperf.timeline.processes.ended", run)

    return ended


@pytest.mark.parametrize(("status", "verdict"), [(0, Verdict.PASS), (1, Verdict.FAIL)])
def test_a_throughput_does_not_depend_on_the_verdict(ends, status, verdict):
    ends(status, verdict)
    assert {each.world_size for each in measure(STACK, quiet=False).results} == {1, 2}


@pytest.mark.parametrize(
    ("status", "verdict", "said"),
    [
        (5, Verdict.INFO, "no valid case that measured a throughput"),
        *((status, Verdict.PASS, f"ended with status {status}") for status in (2, 3, 4)),
        (-signal.SIGKILL, Verdict.PASS, "ended with status -9"),
    ],
)
def test_what_is_no_session_says_why(ends, status, verdict, said):
    ends(status, verdict)
    with pytest.raises(UserError, match=f"nothing was measured of .*{said}"):
        measure(STACK, quiet=False)
