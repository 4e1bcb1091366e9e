"""The data of a report: a session, the one before it, the history, and the log of `make trust`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable
from hvdperf.paths import RESULTS, shown
from hvdperf.records.archive import Archive, OfEarlierFormat, read_document, read_session
from hvdperf.records.detections import LOG, Entry, read_log
from hvdperf.records.documents import SESSION_FILE, SessionDocument
from hvdperf.timeline.releases.raw import RawResult, read_history


@dataclass(frozen=True)
class Sources:
    """The data of a report.

    archive: the session. earlier: session.json of the last session before it with the same profile
    and settings; None if there is none. trust: entries of all sessions of `make trust`. history:
    all raw results. left_out: a line for each file, of the session or elsewhere, that could not be
    read.
    """

    archive: Archive
    earlier: SessionDocument | None
    trust: tuple[Entry, ...]
    history: tuple[RawResult, ...]
    left_out: tuple[str, ...]


def results_of(session: Path) -> Path:
    """Return the results that a session belongs to: the directory that holds its runs/, as
    --results named it. Return the project's own results for a session outside of a runs/."""
    runs = Path(os.path.realpath(session)).parent  # unlike Path.resolve, accepts a loop of links
    return runs.parent if runs.name == "runs" else RESULTS


def newest_session(results: Path) -> Path:
    """Return the directory of the session that began last. results: as --results has it. Raises
    UserError if there is no session."""
    sessions = sorted(path for path in (results / "runs").glob("*") if path.is_dir())
    if not sessions:
        raise UserError(
            f"{shown(results / 'runs')}: there is no session yet; measure one: make perf, or "
            "pytest perf/ --profile=smoke"
        )
    return sessions[-1]


def read_sources(directory: Path, results: Path) -> Sources:
    """Read the data of a report. directory: of the session. results: the directory that also holds
    the history and the log of `make trust`. Raises UserError if there is no such session."""
    archive = read_session(directory)
    earlier, unreadable = _earlier(archive)
    history, refused = read_history(results / "history")
    trust: list[Entry] = []
    try:
        trust = read_log(results / LOG)
    except UserError as error:
        refused.append(str(error))
    return Sources(
        archive, earlier, tuple(trust), tuple(history), (*archive.left_out, *unreadable, *refused)
    )


def _earlier(archive: Archive) -> tuple[SessionDocument | None, list[str]]:
    """Return the last session before this one with the same profile and settings and at least one
    verdict, and a line for each later session that could not be read."""
    session = archive.session
    if session is None:
        return None, []
    unreadable = []
    here = archive.directory.resolve()
    for other in sorted(here.parent.glob("*"), reverse=True):
        path = other / SESSION_FILE
        try:
            if other.name >= here.name or not path.is_file():
                continue
            document = read_document(path, SessionDocument)
        except OfEarlierFormat:
            break  # all earlier sessions have such a format, too
        except (Unreadable, OSError) as error:
            unreadable.append(f"{shown(path)}: left out: {' '.join(str(error).split())[:160]}")
            continue
        # Compare the settings, too: with other workloads, world sizes, thresholds, faults or
        # stacks, a case of the same name asks another question.
        asks_the_same = (document.profile, document.asked) == (session.profile, session.asked)
        if asks_the_same and document.verdicts:
            return document, unreadable
    return None, unreadable
