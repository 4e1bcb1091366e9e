"""Writes the cases of a session to disk, and reads sessions back: puts the documents that
documents.py defines together, if they are whole.

A file that is broken, half written or of another session is named in one line and left out; the
other files are read."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from hvdperf.errors import UserError
from hvdperf.files import write_record
from hvdperf.json_records import Positive, Unreadable, convert, decode
from hvdperf.machine.disturbance import together
from hvdperf.paths import shown
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import RoundGroup
from hvdperf.records import documents, outcome
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.outcome import Conclusion, Measure, Outcome, fields_of, figures_of_launches
from hvdperf.records.rounds import Round


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

    def write(self, case: documents.Case) -> None:
        """Write a case, and its rounds if they are not on disk. Raises OSError."""
        self._add(case)
        if case.round_group in self._grown:
            self._write_rounds(case)
        document = documents.CaseDocument(
            **fields_of(case, documents.Head),
            outcome=Conclusion(**fields_of(case.outcome, Conclusion)),
            rounds=tuple(measured.number for measured in case.rounds),
        )
        write_record(self._directory / f"{documents.file_name(case.name)}.json", document)

    def _add(self, case: documents.Case) -> None:
        """Add the launches that no case before had."""
        known = self._rounds.setdefault(case.round_group, {})
        for measured in case.rounds:
            stored = known.setdefault(measured.number, Round(measured.number, measured.schedule))
            new = [launch for launch in measured.launches if not stored.has(launch.arm)]
            if new:
                stored.launches += new
                self._grown.add(case.round_group)

    def _write_rounds(self, case: documents.Case) -> None:
        group, known = case.round_group, self._rounds[case.round_group]
        path = self._directory / documents.ROUNDS / f"{group.name}.json"
        path.parent.mkdir(exist_ok=True)
        rounds = tuple(known[number] for number in sorted(known))
        write_record(
            path,
            documents.RoundsDocument(case.format, case.session, case.written_at, group, rounds),
        )
        self._grown.discard(group)


Document = TypeVar("Document")
_LONGEST_REASON = 160
_GIVE = "give the directory of a session, such as results/runs/20260131T235959Z-4711"


@dataclass(frozen=True)
class Archive:
    """A session: its own document, its cases sorted by name, and one line for each file that was
    left out. rounds: all of each round group on disk, by their numbers.
    sessions: those that were put together in this one (report/session.py); () for one alone."""

    directory: Path
    session: documents.SessionDocument
    cases: tuple[documents.Case, ...]
    left_out: tuple[str, ...]
    rounds: Mapping[RoundGroup, Mapping[int, Round]] = field(default_factory=dict)
    sessions: tuple[Archive, ...] = ()

    @property
    def name(self) -> str:
        return self.session.session

    @property
    def fingerprint(self) -> Fingerprint:
        return self.session.fingerprint

    @property
    def unfinished(self) -> str:
        """Return a warning if the session has not ended; "" if it has."""
        if self.session.exit_status is not None:
            return ""
        return (
            f"{shown(self.directory)}: the session still runs, or was killed; in that case "
            "pytest --resume goes on with it"
        )


class OfEarlierFormat(Unreadable):
    """A document of an earlier format, which this version does not read."""


def read_session(directory: Path) -> Archive:
    """Read every document of a session. directory: results/runs/<session>.

    Raises UserError if the directory cannot be listed, if the session's own document cannot be
    read, or if the session has an earlier format.
    """
    of_session, of_rounds = directory / documents.SESSION_FILE, directory / documents.ROUNDS
    try:
        # The summary repeats what the other documents say.
        files = sorted(path for path in directory.iterdir() if path.name != documents.SUMMARY_FILE)
        files_of_rounds = sorted(of_rounds.iterdir()) if of_rounds.is_dir() else []
    except OSError as error:
        raise UserError(f"{shown(directory)}: {error.strerror}; {_GIVE}") from None
    if of_session not in files:
        raise UserError(f"{shown(directory)}: there is no {documents.SESSION_FILE} in it; {_GIVE}")
    left_out: dict[Path, str] = {}

    @contextmanager
    def noted(path: Path) -> Iterator[None]:
        """Note why a document is left out, if it is."""
        try:
            yield
        except OfEarlierFormat as error:
            raise UserError(
                f"{shown(directory)}: {error}: measure again, or use that version"
            ) from None
        except Unreadable as error:
            left_out[path] = str(error)

    with noted(of_session):
        session = read_document(of_session, documents.SessionDocument)
    if of_session in left_out:
        raise UserError(_line(of_session, left_out[of_session], ""))
    rounds: dict[RoundGroup, dict[int, Round]] = {}
    for path in files_of_rounds:
        with noted(path):
            found = read_document(path, documents.RoundsDocument)
            _check_place(path, found.group.name, found.session, session.session)
            rounds[found.group] = {each.number: each for each in found.rounds}
    cases: list[documents.Case] = []
    for path in files:
        if path != of_session and not (path == of_rounds and path.is_dir()):
            with noted(path):
                case = read_document(path, documents.CaseDocument)
                name = documents.file_name(case.name)
                _check_place(path, name, case.session, session.session)
                cases.append(_put_together(case, rounds))
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
    reads: int = documents.FORMAT,
    upgrades: Mapping[int, Callable[[Any], object]] = MappingProxyType({}),
) -> Document:
    """Read one document. reads: its format, the only one that this version reads, besides those of
    upgrades: each makes the content of a document of its format that of this one. Raises
    Unreadable, OfEarlierFormat for a document of another earlier format."""
    text = _text(path)
    made = decode(text, _Header).format
    if made in upgrades:
        try:
            return convert(upgrades[made](decode(text, dict)), kind)
        except (AttributeError, LookupError, TypeError) as error:
            raise Unreadable(f"not of format {made}: {error!r}") from None
    if made != reads:
        who, refused = ("an earlier", OfEarlierFormat) if made < reads else ("a later", Unreadable)
        raise refused(
            f"of format {made}, which {who} version of the suite wrote; this version reads "
            f"format {reads}"
        )
    return decode(text, kind)


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


def _check_place(path: Path, name: str, session: str, wanted: str) -> None:
    """Raise Unreadable if a document is of another session than is wanted, or a copy of the file of
    that name."""
    if session != wanted:
        raise Unreadable(f"of another session, {session}")
    if path.stem != name:
        raise Unreadable(f"a copy of {name}.json")


def _put_together(
    document: documents.CaseDocument, rounds: Mapping[RoundGroup, Mapping[int, Round]]
) -> documents.Case:
    """Return a case with its rounds. Raises Unreadable if one is missing, or lacks a launch."""
    comparison = document.outcome.comparison
    group, own = comparison.round_group, []
    for number in document.rounds:
        try:
            own.append(documents.own_round(comparison, rounds[group][number]))
        except KeyError:
            where = f"{documents.ROUNDS}/{group.name}.json"
            raise Unreadable(f"round {number} is not in {where}, or lacks a side") from None
    fields = {**vars(document), "outcome": Outcome(**vars(document.outcome), rounds=tuple(own))}
    del fields["rounds"]
    return documents.Case(**fields)


def _line(path: Path, why: str, says: str = "left out: ") -> str:
    """Return one line, even if the file's name or the reason contains line breaks. The reason is
    cut to _LONGEST_REASON characters."""
    reason = " ".join(why.split())
    if len(reason) > _LONGEST_REASON:
        reason = reason[: _LONGEST_REASON - 3] + "..."
    return f"{' '.join(shown(path).split())}: {says}{reason}"


def summary_of(
    archive: Archive, kind: documents.Kind = documents.Kind.OWN, node: str = ""
) -> documents.Summary:
    """Return a session in one small document. Of a session against the reference only the cases
    count, and of one that measures others again only the results: a case has its verdict by its own
    rule."""
    session = archive.session
    others = together(session.disturbances)
    return documents.Summary(
        documents.SUMMARY_FORMAT,
        session.session,
        session.written_at,
        kind,
        session.exit_status,
        session.elapsed_seconds / 60,
        session.hosts,
        session.fingerprint,
        session.asked.texts,
        ()
        if kind is documents.Kind.AGAIN
        else tuple(documents.row_of(case.outcome) for case in archive.cases),
        () if kind.is_gate else tuple(chain(*(results_of(archive, each) for each in Measure))),
        others.reason() if others is not None and others.is_disturbed else "",
        node,
    )


def results_of(
    archive: Archive, measure: Measure, replica: Callable[[Workload], str] = lambda _: ""
) -> Iterator[documents.Result]:
    """Yield what launches of a session did by themselves. replica: names what each replica of a
    workload trains on."""
    for (workload, size), figures in figures_of_launches(archive.cases, measure).items():
        yield documents.Result(measure, workload.model, size, figures, replica(workload))


def throughputs_by_nodes(
    archive: Archive,
) -> dict[tuple[Workload, int, int], tuple[float, ...]]:
    """Return the samples per second of all replicas together, one figure a launch, by workload,
    world size and number of nodes."""
    nodes = {case.world_size: len(case.replicas_per_node) for case in archive.cases}
    found = outcome.throughputs(archive.cases)
    return {(what, size, nodes.get(size, 1)): each for (what, size), each in found.items()}
