"""Reads sessions back from disk: the documents that documents.py defines, if they are whole. Those
of an earlier format are upgraded in memory (upgrades.py).

A file that is broken, half written or of another session is named in one line and left out; the
other files are read.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from hvdperf.errors import UserError
from hvdperf.json_records import Positive, Unreadable, convert, decode
from hvdperf.paths import shown
from hvdperf.records.documents import (
    FORMAT,
    SESSION_FILE,
    SUMMARY_FILE,
    Case,
    SessionDocument,
    file_name,
)
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.upgrades import STEPS, Step, upgraded

Document = TypeVar("Document")
_LONGEST_REASON = 160


@dataclass(frozen=True)
class Archive:
    """A session: its own document (None if it cannot be read), its cases sorted by name, and one
    line for each file that was left out."""

    directory: Path
    session: SessionDocument | None
    cases: tuple[Case, ...]
    left_out: tuple[str, ...]

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
    try:
        # The summary repeats what the other documents say.
        files = sorted(path for path in directory.iterdir() if path.name != SUMMARY_FILE)
    except OSError as error:
        raise UserError(
            f"{shown(directory)}: {error.strerror}; give the directory of a session, such as "
            "results/runs/20260131T235959Z-4711"
        ) from None
    session: SessionDocument | None = None
    cases: dict[Path, Case] = {}
    left_out: dict[Path, str] = {}
    for path in files:
        try:
            if path.name == SESSION_FILE:
                session = read_document(path, SessionDocument)
            else:
                cases[path] = read_document(path, Case)
        except OfEarlierFormat as error:
            raise UserError(
                f"{shown(directory)}: {error}: measure again, or use that version"
            ) from None
        except Unreadable as error:
            left_out[path] = str(error)
    name = session.session if session is not None else directory.resolve().name
    for path, case in cases.items():
        problem = _contradiction(path, case, name)
        if problem:
            left_out[path] = problem
    return Archive(
        directory,
        session,
        tuple(sorted((c for p, c in cases.items() if p not in left_out), key=lambda c: c.name)),
        tuple(_line(path, why) for path, why in sorted(left_out.items())),
    )


def read_document(
    path: Path, kind: type[Document], reads: int = FORMAT, steps: Sequence[Step] = STEPS
) -> Document:
    """Read one document. reads: the newest format that this version reads. steps: lead to it from
    the earlier formats that this version reads, too. Raises Unreadable, OfEarlierFormat for a
    document of a format before these."""
    text = _text(path)
    made = decode(text, _Header).format
    if made == reads:
        return decode(text, kind)
    earliest = reads - len(steps)
    if not earliest <= made < reads:
        who, refused = ("an earlier", OfEarlierFormat) if made < reads else ("a later", Unreadable)
        formats = f"formats {earliest} to {reads}" if steps else f"format {reads}"
        raise refused(
            f"of format {made}, which {who} version of the suite wrote; this version reads "
            f"{formats}"
        )
    try:
        document = upgraded(decode(text, dict), made, reads, steps)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"format {made} is not as it was written: {error!r}") from None
    return convert(document, kind)


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


def _contradiction(path: Path, case: Case, session: str) -> str:
    """Return the first contradiction in a case's document, in words, or ""."""
    if case.session != session:
        return f"of another session, {case.session}"
    if path.stem != file_name(case.name):
        return f"not the file of its case, {case.name}"
    if case.name != case.comparison.name:
        return f"its comparison is that of {case.comparison.name}"
    if sum(case.replicas_per_node) != case.world_size:
        placed = list(case.replicas_per_node)
        return f"replicas_per_node {placed} are not {case.world_size} replicas"
    for measured in case.rounds:
        if Counter(launch.arm for launch in measured.launches) != Counter(case.comparison.arms):
            return f"round {measured.number} has not one launch of each side"
    return ""


def _line(path: Path, why: str) -> str:
    """Return one line, even if the file's name or the reason contains line breaks. The reason is
    cut to _LONGEST_REASON characters."""
    reason = " ".join(why.split())
    if len(reason) > _LONGEST_REASON:
        reason = reason[: _LONGEST_REASON - 3] + "..."
    return f"{' '.join(shown(path).split())}: left out: {reason}"
