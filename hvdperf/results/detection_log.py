"""A log of how sessions judged their fault cases, one line of JSON a session.

The log is small enough to be kept for ever; the documents of the cases are not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable, decode, plain
from hvdperf.paths import shown
from hvdperf.plan.faults import TRIALS
from hvdperf.results.archive import Archive
from hvdperf.results.documents import Case
from hvdperf.verdict import Verdict

# Fields of the fingerprint that pages show.
SHOWN = ("cores", "cpu_model", "tensorflow", "horovod", "mpi_library")
# Prefixes of the settings that decide how a session's fault cases are measured. Settings that
# decide which cases are measured are left out.
_HOW = ("dataset", "batch", "schedule", "replicas_per_node", "sampling.", "runs.endurance_steps")


@dataclass(frozen=True)
class Tried:
    """One fault case in one session.

    trial: its name in TRIALS. verdict: PASS if the expected verdict was reported for the expected
    reason. called: the verdict on the faulty arm itself, None if its launch failed. threshold: what
    the figure was compared with, as text; "" if nothing. figure: the case's estimate, a ratio.
    """

    trial: str
    model: str
    world_size: int
    verdict: Verdict
    called: Verdict | None
    threshold: str
    figure: float | None


@dataclass(frozen=True)
class Entry:
    """One session. fingerprint: of the machine and the stack (results/fingerprint.py). settings:
    those of the profile that decide how fault cases are measured, by name, as text. tried: its
    fault cases."""

    session: str
    fingerprint: Mapping[str, Any]
    settings: Mapping[str, str]
    tried: tuple[Tried, ...]


def entry_of(archive: Archive) -> Entry | None:
    """Return a session's entry; None if it has no fault case, or no readable session.json."""
    tried = [case for case in archive.cases if case.comparison.is_trial]
    if not tried or archive.session is None:
        return None
    asked = archive.session.asked.items()
    settings = {name: value for name, value in asked if name.startswith(_HOW)}
    return Entry(tried[0].session, tried[0].fingerprint, settings, tuple(map(_tried, tried)))


def _tried(case: Case) -> Tried:
    detection = case.outcome.detection
    return Tried(
        case.comparison.candidate.arm.planted,
        case.workload.model,
        case.world_size,
        case.verdict,
        None if detection is None else detection.reported,
        str(case.rule or ""),
        None if case.figure is None else case.figure.estimate,
    )


def append(log: Path, entry: Entry) -> None:
    """Append an entry to the log. Raises OSError if it cannot be written."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as stream:
        stream.write(json.dumps(plain(entry)) + "\n")


def read_log(log: Path) -> list[Entry]:
    """Return the entries in the order in which they were written; [] if there is no log.

    Raises UserError if the log cannot be read, or if a line is not an entry; the message then names
    the line.
    """
    entries = []
    try:
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{shown(log)}: cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        try:
            entry = decode(line.encode(), Entry)
            problem = _problem(entry)
        except Unreadable as error:
            problem = str(error)
        if problem:
            raise UserError(
                f"{shown(log)}:{number}: not a line of a session ({problem}); remove it"
            )
        entries.append(entry)
    return entries


def _problem(entry: Entry) -> str:
    """Return what is wrong with an entry, in words, or ""."""
    missing = [name for name in SHOWN if name not in entry.fingerprint]
    if missing:
        return f"its fingerprint lacks {missing[0]}"
    for tried in entry.tried:
        if tried.trial not in TRIALS:
            return f"unknown trial {tried.trial!r}"
        # The figure is a ratio, of which readers take the logarithm.
        if tried.figure is not None and not 0.0 < tried.figure < math.inf:
            return f"no figure: {tried.figure}"
    return ""
