"""Writes results/schema/*.schema.json, the JSON schemas of all documents, from their records.

Run by `make schemas`, or `python -m hvdperf.timeline.schemas`. It is in this package because it is
the last one, which knows all records.
"""

from __future__ import annotations

import json
from pathlib import Path

from hvdperf.files import write_whole
from hvdperf.json_records import schema
from hvdperf.paths import ROOT
from hvdperf.records.documents import CaseDocument, RoundsDocument, SessionDocument, Summary
from hvdperf.timeline.nights.night import Night

DIRECTORY = ROOT / "results" / "schema"
DOCUMENTS = {
    "case": CaseDocument,
    "rounds": RoundsDocument,
    "session": SessionDocument,
    "summary": Summary,
    "night": Night,
}


def texts() -> dict[str, str]:
    """Return the schema of each kind of document, as JSON, by the name of its file."""
    return {
        f"{name}.schema.json": json.dumps(schema(kind), indent=1) + "\n"
        for name, kind in DOCUMENTS.items()
    }


def write(directory: Path) -> None:
    for name, text in texts().items():
        write_whole(directory / name, text)


if __name__ == "__main__":
    write(DIRECTORY)
