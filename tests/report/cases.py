"""Cases for sections: recorded ones and others, and what holds for every section."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hvdperf.json_records import convert, decode, encode, plain
from hvdperf.records.archive import Store, read_document
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from hvdperf.report.content import Figure, Section
from hvdperf.report.session import named_apart
from hvdperf.verdict import Verdict
from tests.support.reports import session_of
from tests.support.stores import SESSION, case_of

Item = TypeVar("Item")
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


def rounds_of(name: str) -> list[dict[str, Any]]:
    """Return the rounds of a recorded case straight from its file."""
    document = json.loads((RECORDED / f"{name}.json").read_text())
    rounds: list[dict[str, Any]] = document["outcome"]["rounds"]
    return rounds


def launches_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the launches of all rounds in a case's document."""
    rounds = document["outcome"]["rounds"]
    return [launch for measured in rounds for launch in measured["launches"]]


def recorded_session(results: Path, *names: str) -> Path:
    """Write a session of the recorded cases of these names, or of all; return its directory."""
    directory = session_of(results)
    store = Store(directory)
    for case in recorded(*names):
        store.write(replace(case, session=SESSION))
    return directory


def edit(directory: Path, changes: Mapping[str, Any], *keys: str, only: str = "*.json") -> None:
    """Write the session's documents again with other values below these keys."""
    for path in directory.glob(only):
        document = json.loads(path.read_text())
        place = document
        for key in keys:
            place = place[key]
        place.update(changes)
        path.write_text(json.dumps(document))


def case_with(outcome: Outcome) -> Case:
    """Return the case as it is read back from what is written of an outcome."""
    slots = outcome.comparison.world_size
    return decode(encode(case_of(outcome, slots, slots)), Case)


def cases_with(*outcomes: Outcome) -> list[Case]:
    """Return cases that share no launches."""
    return [case_with(each) for each in outcomes]


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


def known(value: Item | None) -> Item:
    """Return a value that there is."""
    assert value is not None
    return value


def luminance(colour: str) -> float:
    """Relative, of WCAG 2.2."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def of_every_name(cases: Sequence[Case]) -> list[Case]:
    """Return all cases, for networks of all the hostile names."""
    return [of_workload(case, model=name) for name in HOSTILE for case in cases]


def assert_sound(section: Section) -> None:
    """Names are legal and unique, rows whole and numbers finite, and plots are of their columns."""
    names = [figure.name for figure in section.figures]
    assert len(names) == len(set(names))
    for figure in section.figures:
        assert re.fullmatch(r"[a-z0-9_-]+", figure.name)
        assert figure.title
        assert not re.search(r"\b(nan|inf|None)\b", figure.says)
        keys = [column.key for column in figure.table.columns]
        assert len(keys) == len(set(keys))
        for row in figure.table.rows:
            assert row.keys() >= set(keys)
            assert all(math.isfinite(v) for v in row.values() if isinstance(v, int | float))
        if figure.plot is not None:
            assert_of_columns(figure, keys)


def assert_of_columns(figure: Figure, keys: list[str]) -> None:
    """The plot names columns, or what its own transforms make; data and colours are the page's."""
    nodes = list(parts(figure.plot))
    made = {name for node in nodes for name in made_by(node)}
    named = {name for node in nodes for name in named_by(node)}
    assert named <= {*keys, *made}
    assert not any("data" in node for node in nodes)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb\(", str(figure.plot))


def parts(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping):
        yield node
        for each in node.values():
            yield from parts(each)
    elif isinstance(node, list | tuple):
        for each in node:
            yield from parts(each)


def made_by(node: Mapping[str, Any]) -> list[str]:
    """Every field that a transform makes."""
    made_as = node.get("as") or []
    return [made_as] if isinstance(made_as, str) else list(made_as)


def named_by(node: Mapping[str, Any]) -> Iterator[str]:
    """Every field that a channel or a transform names; those in expressions, too."""
    for key in ("field", "stack"):
        if isinstance(node.get(key), str):
            yield node[key]
    for key in ("groupby", "fold"):
        yield from node.get(key, [])
    for key in ("filter", "calculate"):
        text = str(node.get(key, ""))
        yield from re.findall(r"datum\.(\w+)", text)
        yield from re.findall(r"datum\['([^']+)'\]", text)


def figures_of(section: Section) -> dict[str, Any]:
    return {figure.name: figure for figure in section.figures}


def assert_told(section: Section) -> None:
    """What is to be expected of a section whose figures are measured: rows, and what is pointed at
    is told; without figures, how to get them."""
    assert_sound(section)
    assert "pytest perf/" in section.missing
    assert section.intro.endswith(".")
    for figure in section.figures:
        assert figure.table.rows
        assert figure.plot is not None
        assert figure.plot["width"] == "container"
        assert any("tooltip" in node.get("encoding", {}) for node in parts(figure.plot))


def told(section: Section) -> dict[str, Figure]:
    """Its figures by the names that they have in a report."""
    (named,) = named_apart([section])
    assert_told(named)
    return figures_of(named)
