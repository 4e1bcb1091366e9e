"""Writes the cases of a session to disk, and reads sessions back: puts the documents that
documents.py defines together, if they are whole. Those of an earlier format are upgraded in memory.

A file that is broken, half written or of another session is named in one line and left out; the
other files are read."""

from __future__ import annotations

import ast
import re
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hvdperf.errors import UserError
from hvdperf.files import write_record
from hvdperf.json_records import Positive, Unreadable, convert, decode
from hvdperf.paths import shown
from hvdperf.plan.arms import Arm, Workload
from hvdperf.plan.comparisons import RoundGroup
from hvdperf.records.documents import (
    FORMAT,
    ROUNDS,
    SESSION_FILE,
    SUMMARY_FILE,
    Case,
    CaseDocument,
    Head,
    RoundsDocument,
    SessionDocument,
    file_name,
    own_round,
)
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.outcome import Conclusion, Outcome, throughputs
from hvdperf.records.rounds import Launch, Round

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


class Store:
    """The documents of cases and rounds in the directory of a session. Each file is written whole
    or not at all, and the rounds of a case before it: whenever the session ends, every case on disk
    has its rounds there, too."""

    def __init__(
        self, directory: Path, rounds: Mapping[RoundGroup, Mapping[int, Round]] | None = None
    ) -> None:
        """rounds: those that are on disk, by their numbers."""
        self._directory = directory
        self._rounds = {group: dict(known) for group, known in (rounds or {}).items()}
        # Groups with launches that are not on disk.
        self._grown: set[RoundGroup] = set()

    def write(self, case: Case) -> None:
        """Write a case, and its rounds if they are not on disk. Raises OSError."""
        self._add(case)
        if case.round_group in self._grown:
            self._write_rounds(case)
        head = {field.name: getattr(case, field.name) for field in fields(Head)}
        outcome = {field.name: getattr(case.outcome, field.name) for field in fields(Conclusion)}
        numbers = tuple(measured.number for measured in case.rounds)
        document = CaseDocument(**head, outcome=Conclusion(**outcome), rounds=numbers)
        write_record(self._directory / f"{file_name(case.name)}.json", document)

    def _add(self, case: Case) -> None:
        """Add the launches that no case before had."""
        known = self._rounds.setdefault(case.round_group, {})
        for measured in case.rounds:
            stored = known.setdefault(measured.number, Round(measured.number, measured.schedule))
            new = [launch for launch in measured.launches if not stored.has(launch.arm)]
            if new:
                stored.launches += new
                self._grown.add(case.round_group)

    def _write_rounds(self, case: Case) -> None:
        group, known = case.round_group, self._rounds[case.round_group]
        path = self._directory / ROUNDS / f"{group.name}.json"
        path.parent.mkdir(exist_ok=True)
        rounds = tuple(known[number] for number in sorted(known))
        write_record(
            path, RoundsDocument(case.format, case.session, case.written_at, group, rounds)
        )
        self._grown.discard(group)


Document = TypeVar("Document")
Earlier = TypeVar("Earlier")
_LONGEST_REASON = 160


@dataclass(frozen=True)
class Archive:
    """A session: its own document (None if it cannot be read), its cases sorted by name, and one
    line for each file that was left out. rounds: all of each round group, by their numbers; none of
    a session of an earlier format. sessions: that were put together in this one (report/pooled.py);
    () for a session of its own."""

    directory: Path
    session: SessionDocument | None
    cases: tuple[Case, ...]
    left_out: tuple[str, ...]
    rounds: Mapping[RoundGroup, Mapping[int, Round]] = field(default_factory=dict)
    sessions: tuple[Archive, ...] = ()

    @property
    def name(self) -> str:
        return self.directory.resolve().name if self.session is None else self.session.session

    @property
    def fingerprint(self) -> Fingerprint:
        """Return the session's fingerprint. Raises IndexError if no document of it could be
        read."""
        return (self.session or self.cases[0]).fingerprint

    @property
    def why_no_session(self) -> str:
        """Return why the session's own document is missing, in words."""
        start = _line(self.directory / SESSION_FILE, "")
        lines = (line for line in self.left_out if line.startswith(start))
        return next(lines, f"there is no {SESSION_FILE} in it")

    @property
    def unfinished(self) -> str:
        """Return a warning if the session has not ended; "" if it has, or if its own document
        cannot be read."""
        if self.session is None or self.session.exit_status is not None:
            return ""
        return (
            f"{shown(self.directory)}: the session still runs, or was killed; in that case "
            "pytest --resume goes on with it"
        )


class OfEarlierFormat(Unreadable):
    """A document of a format that this version no longer reads."""


def read_session(directory: Path) -> Archive:
    """Read every document of a session. directory: results/runs/<session>.

    Raises UserError if the directory cannot be listed, or if the session has a format that this
    version no longer reads.
    """
    of_session, of_rounds = directory / SESSION_FILE, directory / ROUNDS
    try:
        # The summary repeats what the other documents say.
        files = sorted(path for path in directory.iterdir() if path.name != SUMMARY_FILE)
        files_of_rounds = sorted(of_rounds.iterdir()) if of_rounds.is_dir() else []
    except OSError as error:
        raise UserError(
            f"{shown(directory)}: {error.strerror}; give the directory of a session, such as "
            "results/runs/20260131T235959Z-4711"
        ) from None
    left_out: dict[Path, str] = {}

    def read(
        path: Path, kind: type[Document], earlier: type[Earlier] | None = None
    ) -> Document | Earlier | None:
        """Return the document; None after noting why it is left out."""
        try:
            return read_document(path, kind, earlier=earlier)
        except OfEarlierFormat as error:
            raise UserError(
                f"{shown(directory)}: {error}: measure again, or use that version"
            ) from None
        except Unreadable as error:
            left_out[path] = str(error)
            return None

    session = read(of_session, SessionDocument) if of_session in files else None
    name = session.session if session is not None else directory.resolve().name
    rounds: dict[RoundGroup, dict[int, Round]] = {}
    for path in files_of_rounds:
        document = read(path, RoundsDocument)
        if document is not None and (problem := _contradiction_of_rounds(path, document, name)):
            left_out[path] = problem
        elif document is not None:
            rounds[document.group] = {each.number: each for each in document.rounds}
    cases: list[Case] = []
    known: dict[tuple[RoundGroup, int, Arm], Launch] = {}
    for path in files:
        if path == of_session or (path == of_rounds and path.is_dir()):
            continue
        found = read(path, CaseDocument, earlier=Case)
        try:
            if isinstance(found, CaseDocument):
                _check(path, found, name)
                cases.append(_put_together(found, rounds))
            elif found is not None:
                _check(path, found, name)
                cases.append(_sharing_launches(found, known))
        except Unreadable as error:
            left_out[path] = str(error)
    return Archive(
        directory,
        session,
        tuple(sorted(cases, key=lambda case: case.name)),
        tuple(_line(path, why) for path, why in sorted(left_out.items())),
        rounds,
    )


def read_document(
    path: Path,
    kind: type[Document],
    reads: int = FORMAT,
    steps: Sequence[Step] = STEPS,
    earlier: type[Earlier] | None = None,
) -> Document | Earlier:
    """Read one document. reads: the newest format that this version reads. steps: lead to it from
    the earlier formats that this version reads, too. earlier: the kind to which they lead, if that
    is another one. Raises Unreadable, OfEarlierFormat for a document of a format before these."""
    text = _text(path)
    made = decode(text, _Header).format
    if made == reads:
        return decode(text, kind)
    first = reads - len(steps)
    if not first <= made < reads:
        who, refused = ("an earlier", OfEarlierFormat) if made < reads else ("a later", Unreadable)
        formats = f"formats {first} to {reads}" if steps else f"format {reads}"
        raise refused(
            f"of format {made}, which {who} version of the suite wrote; this version reads "
            f"{formats}"
        )
    try:
        document = upgraded(decode(text, dict), made, reads, steps)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"format {made} is not as it was written: {error!r}") from None
    return convert(document, earlier or kind)


def has_this_format(session: Path) -> bool:
    """Return whether a session was written in the format that this version writes, and can be
    continued: all rounds of a case must be recorded and judged alike. session: its directory.
    Raises Unreadable without a document of the session."""
    return decode(_text(session / SESSION_FILE), _Header).format == FORMAT


def _text(path: Path) -> bytes:
    """Return the content of a document's file. Raises Unreadable for other files."""
    if path.suffix == ".partial":
        raise Unreadable("half-written: the session ended while it wrote this")
    try:
        # Reading a pipe could wait for ever.
        if path.suffix != ".json" or not stat.S_ISREG(path.stat().st_mode):
            raise Unreadable("no document of a session")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None


class _Header(msgspec.Struct):
    """The beginning that documents of all formats share."""

    format: Positive


def _contradiction_of_rounds(path: Path, document: RoundsDocument, session: str) -> str:
    """Return the first contradiction in the document of a round group, in words, or ""."""
    if document.session != session:
        return f"of another session, {document.session}"
    if path.stem != document.group.name:
        return f"not the file of its rounds, {document.group.name}"
    for measured in document.rounds:
        if len({launch.arm for launch in measured.launches}) < len(measured.launches):
            return f"round {measured.number} has two launches of a side"
    if len({measured.number for measured in document.rounds}) < len(document.rounds):
        return "two rounds have the same number"
    return ""


def _check(path: Path, case: Case | CaseDocument, session: str) -> None:
    """Raise Unreadable if a case's document contradicts itself or its place."""
    comparison = case.outcome.comparison
    if case.session != session:
        raise Unreadable(f"of another session, {case.session}")
    if path.stem != file_name(case.name):
        raise Unreadable(f"not the file of its case, {case.name}")
    if case.name != comparison.name:
        raise Unreadable(f"its comparison is that of {comparison.name}")
    if sum(case.replicas_per_node) != comparison.world_size:
        placed = list(case.replicas_per_node)
        raise Unreadable(f"replicas_per_node {placed} are not {comparison.world_size} replicas")


def _put_together(document: CaseDocument, rounds: Mapping[RoundGroup, Mapping[int, Round]]) -> Case:
    """Return a case with its rounds. Raises Unreadable if one is missing, or lacks a launch."""
    comparison = document.outcome.comparison
    group, own = comparison.round_group, []
    for number in document.rounds:
        try:
            own.append(own_round(comparison, rounds[group][number]))
        except KeyError:
            where = f"{ROUNDS}/{group.name}.json"
            raise Unreadable(f"round {number} is not in {where}, or lacks a side") from None
    fields = {**vars(document), "outcome": Outcome(**vars(document.outcome), rounds=tuple(own))}
    del fields["rounds"]
    return Case(**fields)


def _sharing_launches(case: Case, known: dict[tuple[RoundGroup, int, Arm], Launch]) -> Case:
    """Return a case of an earlier format, in which each case repeats its launches, with the known
    ones in place of their equals. Raises Unreadable if a round lacks a launch."""

    def shared(number: int, launch: Launch) -> Launch:
        first = known.setdefault((case.round_group, number, launch.arm), launch)
        return first if first == launch else launch

    for measured in case.rounds:
        if Counter(launch.arm for launch in measured.launches) != Counter(case.comparison.arms):
            raise Unreadable(f"round {measured.number} has not one launch of each side")
        measured.launches[:] = [shared(measured.number, launch) for launch in measured.launches]
    return case


def _line(path: Path, why: str) -> str:
    """Return one line, even if the file's name or the reason contains line breaks. The reason is
    cut to _LONGEST_REASON characters."""
    reason = " ".join(why.split())
    if len(reason) > _LONGEST_REASON:
        reason = reason[: _LONGEST_REASON - 3] + "..."
    return f"{' '.join(shown(path).split())}: left out: {reason}"


def throughputs_by_nodes(
    archive: Archive,
) -> dict[tuple[Workload, int, int], tuple[float, ...]]:
    """Return the samples per second of all replicas together, one figure a launch, by workload,
    world size and number of nodes."""
    nodes = {case.world_size: len(case.replicas_per_node) for case in archive.cases}
    found = throughputs(archive.cases)
    return {(what, size, nodes.get(size, 1)): each for (what, size), each in found.items()}
