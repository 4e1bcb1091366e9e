"""Upgrade steps of the documents of sessions: what an earlier format says, in the next one's terms.

A step works on plain dictionaries and lists, as they are decoded from JSON, before they become
records; no file is rewritten. It gets the document of a case (which has `outcome`), of a session
(which has `asked`) or a summary (which has `cases`). Only a renamed field or a changed meaning
needs a line in a step. A field that was added does not, because its default in the record is what
earlier documents mean.

Nights (timeline/nights/night.py) and raw results (timeline/releases/raw.py) have formats of their
own and no steps, but hold a Fingerprint, and nights hold Rows: these may only get optional fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Plain = dict[str, Any]
# Takes a document of format k, which it may change, and returns it in format k + 1. A document that
# is damaged may make it raise LookupError, TypeError, ValueError or AttributeError.
Step = Callable[[Plain], Plain]


def from_4(document: Plain) -> Plain:
    """Return a document of format 4 in format 5, which only has more fields."""
    return document


def from_5(document: Plain) -> Plain:
    """Return a document of format 5 in format 6: what a launch has reported is `work`."""
    for measured in document.get("outcome", {}).get("rounds", ()):
        measured["launches"] = [_launch(launch) for launch in measured["launches"]]
    return document


def _launch(launch: Plain) -> Plain:
    """Return a launch of format 5 in format 6."""
    parts = ("warm_up", "blocks", "series", "run", "timestamps", "met_run", "timeline")
    given = {name: value for name in parts if (value := launch.pop(name, None))}
    if "run" in given:
        stamped = given.keys() & {"timestamps", "met_run", "timeline", "blocks"}
        launch["work"] = {"of": "stamped run" if stamped else "run", **given}
    elif given:
        launch["work"] = {"of": "turns", **given}
    return launch


# In the order of formats. The last step leads to the format that documents.py writes.
STEPS: tuple[Step, ...] = (from_4, from_5)


def upgraded(document: Plain, made: int, reads: int, steps: Sequence[Step] = STEPS) -> Plain:
    """Return a document in the format that is read. made: the format that it has, at most
    len(steps) before `reads`."""
    for step in steps[len(steps) - (reads - made) :]:
        document = step(document)
    return {**document, "format": reads}
