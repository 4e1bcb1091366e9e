"""The JSON schemas of all documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs import generate
from hvdperf.json_records import plain
from hvdperf.records.archive import Store, summary_of
from hvdperf.records.documents import Case
from hvdperf.timeline import history
from tests.support.recorded import recorded_sessions


def tracked(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of document, as it is tracked."""
    loaded: dict[str, Any] = json.loads((generate.SCHEMAS / f"{kind}.schema.json").read_text())
    return loaded


def check(kind: str, document: object) -> None:
    """Raise jsonschema.ValidationError if the document does not conform to its schema."""
    jsonschema.Draft202012Validator(tracked(kind)).validate(document)


def test_the_tracked_schemas_are_made_from_the_records():
    found = {path: path.read_text() for path in generate.SCHEMAS.iterdir()}
    assert found == generate.schemas(), "run `make schemas`"


@pytest.mark.parametrize("kind", generate.DOCUMENTS)
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
