"""Cases for a report: recorded ones, and whatever outcomes would be written as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvdperf.json_records import convert, decode, encode, plain
from hvdperf.records.archive import read_document
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from hvdperf.verdict import Verdict
from tests.support.stores import case_of

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
    """Return the recorded cases of these names, in their order; all of them for none."""
    paths = [RECORDED / f"{name}.json" for name in names] or sorted(RECORDED.glob("*.json"))
    return [read_document(path, Case) for path in paths]


def case_with(outcome: Outcome) -> Case:
    """Return the case as it is read back from what is written of an outcome."""
    slots = outcome.comparison.world_size
    return decode(encode(case_of(outcome, slots, slots)), Case)


def changed(case: Case, change: Callable[[dict[str, Any]], object]) -> Case:
    """Return the case after a change of its document."""
    document = plain(case)
    change(document)
    return convert(document, Case)


def of_workload(case: Case, **settings: object) -> Case:
    """Return the same case for a workload with other settings, such as model=."""

    def change(value: Any) -> None:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "workload":
                item.update(settings)
            elif isinstance(item, dict | list):
                change(item)

    def rename(document: dict[str, Any]) -> None:
        change(document)
        name = convert(document, Case).comparison.name
        document["name"] = name

    return changed(case, rename)


def called(case: Case, verdict: Verdict) -> Case:
    """Return the same case with another verdict."""
    judgement = replace(case.outcome.judgement, verdict=verdict)
    return replace(case, outcome=replace(case.outcome, judgement=judgement))


def of_every_name(cases: Sequence[Case]) -> list[Case]:
    """Return all cases, for networks of all the hostile names."""
    return [of_workload(case, model=name) for name in HOSTILE for case in cases]
