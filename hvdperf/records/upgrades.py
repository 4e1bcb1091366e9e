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

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

Plain = dict[str, Any]
# Takes a document of format k, which it may change, and returns it in format k + 1. A document that
# is damaged may make it raise LookupError, TypeError, ValueError or AttributeError.
Step = Callable[[Plain], Plain]
# Settings of a profile that are names, whatever they look like.
_NAMES = ("name", "dataset", "schedule")


def from_4(document: Plain) -> Plain:
    """Return a document of format 4 in format 5, which only has more fields."""
    return document


def from_5(document: Plain) -> Plain:
    """Return a document of format 5 in format 6: a session's settings are values and no longer
    texts, and it says when it began. A case keeps its rounds, which are in documents of their own
    since (Archive puts both together)."""
    if "asked" in document:
        document["asked"] = _settings(document["asked"])
        document["began_at"] = _began(document["session"]) or document["written_at"]
    if "outcome" in document:
        judgement = document["outcome"]["judgement"]
        too_short = judgement["reason"].startswith("the run is too short")
        judgement["needs_longer_runs"] = too_short
        breakdown = document["outcome"].get("breakdown") or {}
        for side in ("candidate", "reference"):
            if side in breakdown:
                breakdown[side]["terms"] = _possible(breakdown[side]["terms"])
        for measured in document["outcome"].get("rounds", ()):
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


def _possible(terms: dict[str, float]) -> dict[str, float]:
    """Return the terms of a time breakdown with none below 0. What a part of the steps lacks is
    taken from the other parts that were measured beside it, in proportion: their sum stays."""
    if min(terms.values(), default=0.0) >= 0.0:
        return terms
    parts = ("straggler wait", "compute", "apply", "exposed communication")
    kept = sum(max(0.0, terms.get(part, 0.0)) for part in parts)
    whole = sum(terms.get(part, 0.0) for part in parts)
    scale = max(0.0, whole) / kept if kept else 0.0
    return {name: max(0.0, s) * (scale if name in parts else 1.0) for name, s in terms.items()}


def _began(session: str) -> str:
    """Return when a session began, by its name; "" if that does not say it."""
    found = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-", session)
    return "{}-{}-{}T{}:{}:{}Z".format(*found.groups()) if found else ""


def _settings(texts: dict[str, str]) -> Plain:
    """Return the settings of a session that are texts in format 5."""
    left = dict(texts)
    name, _, digest = left.pop("thresholds", "").rpartition(" ")
    workloads, against = left.pop("workloads", ""), left.pop("against", "")
    different = against if against != "itself" else ""
    return {
        "looks": _value(left.pop("sampling.looks", "[]")),
        "early": left.pop("sampling.early", "") == "True",
        "world_sizes": _value(left.pop("world_sizes", "[]")),
        "workloads": workloads.split(", ") if workloads else [],
        "thresholds": {"name": name, "sha256": digest},
        "replicas_per_node": _value(left.pop("replicas_per_node", "[]")),
        "inject": left.pop("inject", ""),
        "against": (different.split("; ") if different else []) if against else None,
        "profile": {key: text if key in _NAMES else _value(text) for key, text in left.items()},
    }


def _value(text: str) -> Any:
    """Return the value that Python wrote as this text; the text itself if it is a name."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return value if isinstance(value, bool | int | float | list | None) else text


# In the order of formats. The last step leads to the format that documents.py writes.
STEPS: tuple[Step, ...] = (from_4, from_5)


def upgraded(document: Plain, made: int, reads: int, steps: Sequence[Step] = STEPS) -> Plain:
    """Return a document in the format that is read. made: the format that it has, at most
    len(steps) before `reads`."""
    for step in steps[len(steps) - (reads - made) :]:
        document = step(document)
    return {**document, "format": reads}
