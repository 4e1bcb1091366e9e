"""Reads sessions back from disk: the documents that documents.py has written, if they are whole.

Every file of a session's directory is checked against results/schema/*.json. A file that is broken,
half written or of another session is named in one line and left out; the other files are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan.arms import Comparison, Question, Workload
from hvdperf.results.documents import (
    FORMAT,
    SESSION_FILE,
    SUMMARY_FILE,
    Document,
    plain,
    plan_document,
)
from hvdperf.stats import Interval
from hvdperf.toml_file import shown
from hvdperf.verdict import Band, Ceiling, Floor, Rule, Verdict

SCHEMAS = ROOT / "results" / "schema"
_LONGEST_REASON = 160
_RULES = {"floor": Floor, "band": Band, "ceiling": Ceiling}


@dataclass(frozen=True)
class Case:
    """A case of a session, as its document records it.

    replicas_per_node: the candidate's, one number a node. figure: None if nothing could be
    measured; its bounds are 0 and infinity if there are too few rounds for finite ones. rule: the
    threshold, None if there is none. failed: whether a launch failed. document: the whole document,
    with blocks and evidence.
    """

    name: str
    session: str
    written_at: datetime
    fingerprint: Mapping[str, Any]
    question: Question
    workload: Workload
    world_size: int
    replicas_per_node: tuple[int, ...]
    verdict: Verdict
    figure: Interval | None
    rule: Rule | None
    reason: str
    failed: bool
    document: Document

    @property
    def round_group(self) -> tuple[str, str]:
        """Return the kind of work, and the topic if it has launches of its own, else "".

        Round numbers are unique within a workload and such a group, as in Comparison.round_group
        (plan/arms.py)."""
        topic = self.name.partition("[")[0]
        apart = self.question in (Question.EXCHANGE, Question.RECIPE) or topic == "trust"
        return self.question.work.value, topic if apart else ""

    def asks(self, comparison: Comparison) -> bool:
        """Return whether the case is about the same question, workload and arms."""
        return bool(plain(plan_document(comparison)) == self.document["plan"])

    @property
    def is_against(self) -> bool:
        """Return whether the figure compares an arm with the same arm under another stack, or
        without its injected fault."""
        ours, theirs = (self.document["plan"][side] for side in ("candidate", "reference"))
        return any(ours[key] != theirs[key] for key in ("stack", "planted"))

    @property
    def is_sound(self) -> bool:
        """Return whether the figure was measured with sound evidence, be it good or bad.

        An INVALID case is sound only if nothing but its threshold was missing. A case is not sound
        if a launch failed, if it is NOT JUDGED or NOT RUN, or if other programs disturbed all of
        its rounds, which leaves no observation."""
        shown_only = self.verdict in (Verdict.NOT_JUDGED, Verdict.NOT_RUN)
        if not self.document["observations"] or self.figure is None or self.failed or shown_only:
            return False
        return self.verdict is not Verdict.INVALID or bool(
            self.document["verdict"]["threshold_line"]
        )


@dataclass(frozen=True)
class Archive:
    """A session: its own document (None if it cannot be read), its cases sorted by name, and one
    line for each file that was left out."""

    directory: Path
    session: Document | None
    cases: tuple[Case, ...]
    left_out: tuple[str, ...]

    @property
    def unfinished(self) -> str:
        """Return a line that says that the session has not ended; "" if it has, or if its own
        document cannot be read."""
        if self.session is None or self.session["exit_status"] is not None:
            return ""
        return (
            f"{shown(self.directory)}: the session still runs, or was killed; in that case "
            "pytest --resume goes on with it"
        )


class Unreadable(ValueError):
    """A file that is not a document of its session; the message says why."""


class OfEarlierFormat(Unreadable):
    """A document that an earlier version of the suite wrote."""


def read_session(directory: Path) -> Archive:
    """Read every document of a session. directory: results/runs/<session>.

    Raises UserError if the directory cannot be listed, or if an earlier version of the suite wrote
    the session.
    """
    try:
        # The summary repeats what the other documents say.
        files = sorted(path for path in directory.iterdir() if path.name != SUMMARY_FILE)
    except OSError as error:
        raise UserError(
            f"{shown(directory)}: {error.strerror}; give the directory of a session, such as "
            "results/runs/20260131T235959Z-4711"
        ) from None
    documents: dict[Path, Document] = {}
    left_out: dict[Path, str] = {}
    for path in files:
        try:
            documents[path] = read_document(path)
        except OfEarlierFormat as error:
            raise UserError(
                f"{shown(directory)}: {error}: measure again, or use that version"
            ) from None
        except Unreadable as error:
            left_out[path] = str(error)
    session = documents.pop(directory / SESSION_FILE, None)
    name = session["session"] if session else directory.resolve().name
    cases = []
    for path, document in documents.items():
        try:
            cases.append(_case_of_session(path, document, name))
        except Unreadable as error:
            left_out[path] = str(error)
    return Archive(
        directory,
        session,
        tuple(sorted(cases, key=lambda case: case.name)),
        tuple(_line(path, why) for path, why in sorted(left_out.items())),
    )


def read_document(path: Path) -> Document:
    """Read one document and check it against its schema. Raises Unreadable."""
    if path.suffix == ".partial":
        raise Unreadable("half-written: the session ended while it wrote this")
    if path.suffix != ".json" or path.is_dir():
        raise Unreadable("no document of a session")
    document = read_json(path)
    check_format(document, FORMAT)
    problem = schema_problem("session" if path.name == SESSION_FILE else "case", document)
    if problem:
        raise Unreadable(problem)
    return document


def check_format(document: object, reads: int) -> None:
    """Raises OfEarlierFormat for a document that an earlier version of the suite wrote. reads: the
    number of the format that this version reads."""
    made = document.get("format") if isinstance(document, dict) else None
    if type(made) is int and made < reads:
        raise OfEarlierFormat(
            f"of format {made}, which an earlier version of the suite wrote; this version reads "
            f"format {reads}"
        )


def read_json(path: Path) -> Document:
    """Read a JSON file. Raises Unreadable, also for values that no document has: NaN, infinities,
    and numbers that no float can hold."""
    try:
        found: Document = json.loads(
            path.read_text(encoding="utf-8"),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
        )
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    except RecursionError:
        raise Unreadable("nested more deeply than any document") from None
    except ValueError as error:
        raise Unreadable(f"not valid JSON: {error}") from None
    return found


def schema_problem(kind: str, document: object) -> str:
    """Return what results/schema/<kind>.schema.json rejects in a document, with the place; "" if
    nothing. Raises Unreadable if the document is nested too deeply."""
    # jsonschema_rs is 100 times as fast as jsonschema, which gives the better reasons.
    try:
        if _fast_validator(kind).is_valid(document):
            return ""
    except ValueError:
        pass  # nested too deeply, or with a number beyond what jsonschema_rs takes
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_validator(kind).iter_errors(document))
    except RecursionError:
        raise Unreadable("nested more deeply than any document") from None
    if error is None:
        return ""
    place = error.json_path.removeprefix("$").removeprefix(".")
    return f"{place}: {error.message}" if place else str(error.message)


def case_of(document: Document) -> Case:
    """Return the case of a document that conforms to its schema. Raises Unreadable if parts of the
    document contradict each other."""
    plan, verdict = document["plan"], document["verdict"]
    placed = tuple(int(count) for count in document["replicas_per_node"])
    if sum(placed) != plan["world_size"]:
        raise Unreadable(f"replicas_per_node {list(placed)} are not {plan['world_size']} replicas")
    try:
        written_at = datetime.fromisoformat(document["written_at"])
    except ValueError as error:
        raise Unreadable(f"written_at: {error}") from None
    return Case(
        name=document["case"],
        session=document["session"],
        written_at=written_at,
        fingerprint=document["fingerprint"],
        question=Question(plan["question"]),
        workload=Workload(**plan["workload"]),
        world_size=int(plan["world_size"]),
        replicas_per_node=placed,
        verdict=Verdict(verdict["word"]),
        figure=None if verdict["figure"] is None else interval_of(verdict["figure"]),
        rule=_rule(verdict["threshold"]),
        reason=verdict["reason"],
        failed=document["failure"] is not None,
        document=document,
    )


def _case_of_session(path: Path, document: Document, session: str) -> Case:
    """Return the case in a session's file. Raises Unreadable for a case of another session, and
    for a copy under another name."""
    if document["session"] != session:
        raise Unreadable(f"of another session, {document['session']}")
    # hvdperf.results.documents.file_name makes the same name.
    if path.stem != document["case"].replace("[", "-", 1).removesuffix("]"):
        raise Unreadable(f"not the file of its case, {document['case']}")
    return case_of(document)


def interval_of(figure: Mapping[str, Any]) -> Interval:
    """Return the interval as it was before it was written: an upper bound of null is infinite."""
    upper = math.inf if figure["upper"] is None else float(figure["upper"])
    return Interval(
        float(figure["estimate"]),
        float(figure["lower"]),
        upper,
        float(figure["alpha"]),
        int(figure["observations"]),
    )


def _rule(threshold: Mapping[str, Any] | None) -> Rule | None:
    if threshold is None:
        return None
    values = {name: value for name, value in threshold.items() if name != "kind"}
    rule: Rule = _RULES[threshold["kind"]](**values)
    return rule


@cache
def _validator(kind: str) -> Any:
    # Imported here, because the import is slow and measuring does not need it.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_schema(kind))


@cache
def _fast_validator(kind: str) -> Any:
    from jsonschema_rs import Draft202012Validator

    return Draft202012Validator(_schema(kind))


def _schema(kind: str) -> Any:
    return json.loads((SCHEMAS / f"{kind}.schema.json").read_text())


def _line(path: Path, why: str) -> str:
    """Return one line, even if the file's name or the values that the reason quotes have several.
    The reason is cut to _LONGEST_REASON characters."""
    reason = " ".join(why.split())
    if len(reason) > _LONGEST_REASON:
        reason = reason[: _LONGEST_REASON - 3] + "..."
    return f"{' '.join(shown(path).split())}: left out: {reason}"


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _whole(text: str) -> int:
    """Return an integer. Raises ValueError if no float can hold it, because readers convert it to
    one."""
    _finite(text)
    return int(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no number of a document")
