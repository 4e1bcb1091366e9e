"""Cases for a report: recorded ones, and whatever outcomes would be written as."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvdperf.judge.outcome import Outcome
from hvdperf.results.archive import Case, case_of
from hvdperf.results.documents import FORMAT, case_document, now, plain
from tests.support.stores import SESSION

RECORDED = Path(__file__).with_name("recorded")
# What a network might be called by whoever registers one.
HOSTILE = (
    "<script>alert(1)</script>",
    "../../etc/passwd",
    'a "quoted" name',
    "VGG 16",
    "vgg 16",
    "réseau",
    "",
    "x" * 300,
    "con.json",
)


def recorded(*names: str) -> list[Case]:
    """In their order; all of them for none."""
    paths = [RECORDED / f"{name}.json" for name in names] or sorted(RECORDED.glob("*.json"))
    return [case_of(json.loads(path.read_text())) for path in paths]


def case_with(outcome: Outcome) -> Case:
    """The case as it is read of what is written of an outcome."""
    document = plain(
        {
            "format": FORMAT,
            "session": SESSION,
            "written_at": now(),
            "fingerprint": {},
            "replicas_per_node": [outcome.comparison.world_size],
            **case_document(outcome),
        }
    )
    # As JSON has it, where tuples are lists.
    return case_of(json.loads(json.dumps(document, allow_nan=False)))


def changed(case: Case, change: Callable[[dict[str, Any]], object]) -> Case:
    """A copy with a change to its document."""
    document = copy.deepcopy(case.document)
    change(document)
    return replace(case, document=document)


def called(case: Case, model: str) -> Case:
    """The same of a network of another name."""
    return replace(case, workload=replace(case.workload, model=model))


def of_every_name(cases: Sequence[Case]) -> list[Case]:
    """All cases, of networks of all the hostile names."""
    return [called(case, name) for name in HOSTILE for case in cases]
