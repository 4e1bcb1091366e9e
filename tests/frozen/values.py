"""What the suite says about recorded sessions, simulated years and recorded scripts, as values:
numbers, verdicts, terms, ranks and dates, but no sentences.

`python -m tests.frozen.values` writes frozen.json.xz. That is for values of new recordings; one
that changes is listed in tests/frozen/test_frozen.py with its reason.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import lzma
import math
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from hvdperf.__main__ import parser
from hvdperf.cli import run
from hvdperf.paths import ROOT
from hvdperf.records.archive import read_session
from hvdperf.records.outcome import Attribution
from hvdperf.script.recorded import last_job, read_launch, read_ranks
from hvdperf.script.training import Training, training_of
from hvdperf.session.ending import exit_status
from hvdperf.stats import Interval
from tests.frozen import years
from tests.support import recorded

HERE = Path(__file__).parent
FROZEN = HERE / "frozen.json.xz"
SCRIPTS = HERE / "scripts.tar.xz"
_OPTION = re.compile(r"^\| `(--[a-z][\w-]*)", re.MULTILINE)
GATE = "speed against the reference stack"


def sessions() -> dict[str, Any]:
    """Return the tables of each session's report, and its cases as judged from their rounds."""
    found = {}
    with TemporaryDirectory() as scratch, tarfile.open(recorded.FILE) as packed:
        packed.extractall(scratch, filter="data")
        for path in sorted(Path(scratch).iterdir()):
            out = path / "tables"
            _hvdperf("report", str(path), "--format", "csv", "--out", str(out))
            session = read_session(path)
            cases = {case.name: _judged(session, case) for case in session.cases}
            found[path.name] = {
                "tables": {each.stem: _table(each) for each in sorted(out.glob("*.csv"))},
                "cases": cases,
                "exit status": exit_status([case.verdict for case in session.cases]),
            }
    return found


def _judged(session: Any, case: Any) -> dict[str, Any]:
    again = recorded.judge_of(session, case)
    outcome = again.outcome(case.comparison, case.rounds, final=True)
    judgement, detection = outcome.judgement, outcome.detection
    return {
        "verdict": judgement.verdict.value,
        "figure": _interval(judgement.figure),
        "rounds": judgement.rounds,
        "observations": [*outcome.observations],
        "causes": _causes(outcome.cause),
        "reported": detection.reported.value if detection else "",
        "attributed": _causes(detection.attribution if detection else None),
    }


def _interval(interval: Interval | None) -> list[float]:
    return [interval.estimate, interval.lower, interval.upper] if interval else []


def _causes(cause: Attribution | None) -> list[Any]:
    return [[each.term, [*each.at_fault], each.share] for each in (cause.causes if cause else ())]


def _table(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a table, without units and without sentences."""
    rows = list(csv.DictReader(path.open()))
    return {
        name.partition(" [")[0]: [_cell(row[name]) for row in rows]
        for name in (rows[0] if rows else ())
    }


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return "" if " " in text else text


def simulated_years() -> dict[str, Any]:
    with TemporaryDirectory() as scratch:
        years.write(Path(scratch))
        out = Path(scratch) / "watch.json"
        _hvdperf("nightly", "watch", f"--results={scratch}", "--overdue=1e6", f"--json={out}")
        watched = json.loads(out.read_text())
    for series in watched:
        del series["lines"]
        findings = series.pop("findings")
        amounts = [(each["kind"], amount) for each in findings for amount in each["amounts"]]
        series["fell"] = [
            amount for kind, amount in amounts if kind == "fall" and amount["unit"] != GATE
        ]
        series["change points"] = [*_largest(a for kind, a in amounts if kind == "change point")]
        series["gate"] = [
            {"name": each["name"], "figure": each["change"], "is_alarm": kind != "suspect"}
            for kind, each in amounts
            if each["unit"] == GATE
        ]
    return {series["series"]: series for series in watched}


def _largest(changes: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield those of throughputs among the five largest."""
    by_size = sorted(changes, key=lambda change: -abs(math.log(change["change"])))
    for each in by_size[:5]:
        what, _, line = each["name"].partition("[")
        if what == "throughput":
            yield [line.removesuffix("]"), f"{100 * (each['change'] - 1):+.1f}", each["since"]]


def scripts() -> dict[str, Any]:
    found = {}
    with TemporaryDirectory() as scratch, tarfile.open(SCRIPTS) as packed:
        packed.extractall(scratch, filter="data")
        for path in sorted(Path(scratch).iterdir()):
            ranks, _ = read_ranks(path)
            found[path.name] = dict(_training(training_of(*last_job(ranks), read_launch(path))))
    return found


def _training(training: Training) -> Iterator[tuple[str, Any]]:
    parts = training.parts
    yield "samples a second", training.samples_per_second
    yield "faster", list(training.limit.faster or ())
    yield "failed checks", len(training.wrong)
    yield "slowest to start", training.start.rank if training.start else None
    if parts is None:
        return
    yield "period", parts.period
    yield "terms", [_terms(each.terms) for each in parts.by_rank]
    yield "residual", training.residual
    yield "other functions", [*parts.others.values()]
    yield "starved", parts.is_starved
    if parts.slower is not None:
        yield "slower", [parts.slower.rank, parts.slower.term.value, parts.slower.times]
    if parts.tail is not None:
        tail = parts.tail
        yield "tail", [tail.count, tail.of, tail.share, tail.retraced, tail.rank, tail.term.value]


def _terms(terms: Mapping[Any, float]) -> dict[str, float]:
    return {term.value: seconds for term, seconds in terms.items()}


def commands() -> dict[str, list[str]]:
    """Return the options of each command, and those of a session."""
    text = (ROOT / "docs/reference/commands.md").read_text()
    sections = (part.partition("\n")[::2] for part in text.split("\n## ")[1:])
    found = {heading.strip("`"): body for heading, body in sections}
    found["pytest"] = (ROOT / "docs/reference/options.md").read_text()
    return {name: sorted(set(_OPTION.findall(body))) for name, body in found.items()}


def keys() -> dict[str, list[str]]:
    """Return the keys of each kind of document."""
    schemas = (ROOT / "results" / "schema").glob("*.schema.json")
    return {path.stem: sorted(set(_keys(json.loads(path.read_text())))) for path in schemas}


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
    below = schema.values() if isinstance(schema, dict) else schema
    for each in below:
        if isinstance(each, dict | list):
            yield from _keys(each)


def _hvdperf(*words: str) -> None:
    with (
        mock.patch.object(sys, "argv", ["hvdperf", *words]),
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
    ):
        run(parser())


PARTS = {
    "sessions": sessions,
    "years": simulated_years,
    "scripts": scripts,
    "commands": commands,
    "keys": keys,
}

if __name__ == "__main__":
    values = {name: part() for name, part in PARTS.items()}
    text = json.dumps(values, indent=0, sort_keys=True)
    FROZEN.write_bytes(lzma.compress(text.encode(), preset=9))
