"""The log of fault cases, and counts of how often its sessions reported the expected verdict.

The log has one line of JSON a session. It is small enough to be kept for ever; the documents of the
cases are not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable, decode, plain
from hvdperf.paths import shown
from hvdperf.plan.questions import FAULT_CASES, FaultCase
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.fingerprint import differences
from hvdperf.verdict import Verdict

# The place of the log below the directory of results.
LOG = "trust/sessions.jsonl"
# Fields of the fingerprint that the report shows.
SHOWN = ("cores", "cpu_model", "tensorflow", "horovod", "mpi_library")
# Prefixes of the settings that decide how fault cases are measured, but not which.
_HOW = ("dataset", "batch", "schedule", "replicas_per_node", "sampling.", "runs.endurance_steps")


@dataclass(frozen=True)
class Tried:
    """One fault case in one session.

    trial: its name in FAULT_CASES. verdict: PASS if the expected verdict was reported for the
    expected reason. reported: the verdict on the faulty arm itself, None if its launch failed.
    threshold: the rule of the figure, as text; "" without one. figure: the case's estimate, a
    ratio.
    """

    trial: str
    model: str
    world_size: int
    verdict: Verdict
    reported: Verdict | None
    threshold: str
    figure: float | None


@dataclass(frozen=True)
class Entry:
    """One session. fingerprint: of the machine and the stack (records/fingerprint.py). settings:
    those of the profile that decide how fault cases are measured, by name, as text. tried: its
    fault cases."""

    session: str
    fingerprint: Mapping[str, Any]
    settings: Mapping[str, str]
    tried: tuple[Tried, ...]


def entry_of(archive: Archive) -> Entry | None:
    """Return a session's entry; None if it has no fault case, or no readable session.json."""
    tried = [case for case in archive.cases if case.comparison.is_fault_case]
    if not tried or archive.session is None:
        return None
    asked = archive.session.asked.texts.items()
    settings = {name: value for name, value in asked if name.startswith(_HOW)}
    return Entry(tried[0].session, tried[0].fingerprint, settings, tuple(map(_tried, tried)))


def _tried(case: Case) -> Tried:
    detection = case.outcome.detection
    return Tried(
        case.comparison.candidate.arm.injected,
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
        if tried.trial not in FAULT_CASES:
            return f"unknown fault case {tried.trial!r}"
        # The figure is a ratio, of which readers take the logarithm.
        if tried.figure is not None and not 0.0 < tried.figure < math.inf:
            return f"no figure: {tried.figure}"
    return ""


# Counts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """The sessions of one fault case on one network and world size, counted by their reports.

    sessions: all but those with INFO. reported: those with the expected verdict on the arm
    itself. attributed: those of `reported` that also gave the expected reason. alarms: those that
    reported an arm without a fault as slower; 0 for a fault. inconclusive: those without a verdict.
    figures: the ratios that were measured, one a session.
    """

    trial: str
    model: str
    world_size: int
    sessions: int
    reported: int
    attributed: int
    alarms: int
    inconclusive: int
    figures: tuple[float, ...]


def of_newest(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return the entries whose figures may be pooled with the last entry's, and the other
    entries."""
    newest = _circumstances(entries[-1]) if entries else {}
    alike = [entry for entry in entries if not differences(newest, _circumstances(entry))]
    return alike, [entry for entry in entries if entry not in alike]


def series(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split all entries into series, newest first. The figures of one series may be pooled."""
    found, left = [], list(entries)
    while left:
        alike, left = of_newest(left)
        found.append(alike)
    return found


def changes(old: Entry, new: Entry) -> list[str]:
    """Return the differences because of which two sessions may not be pooled, one line each."""
    return differences(_circumstances(old), _circumstances(new))


def _circumstances(entry: Entry) -> Mapping[str, object]:
    """Return the fingerprint and the settings, without the digest of all packages."""
    fields = {**entry.fingerprint, **entry.settings}
    return {name: value for name, value in fields.items() if name != "packages_sha256"}


def counts_of(entries: Sequence[Entry]) -> list[Count]:
    """Count the fault cases of sessions by name, in their order, by network and world size.

    Each count holds only cases with the same threshold as the last case."""
    alike: dict[tuple[str, str, int], list[Tried]] = {}
    for each in (tried for entry in entries for tried in entry.tried):
        alike.setdefault((each.trial, each.model, each.world_size), []).append(each)
    order = list(FAULT_CASES)
    keys = sorted(alike, key=lambda key: (order.index(key[0]), *key[1:]))
    return [_count(key, alike[key]) for key in keys]


def _count(of: tuple[str, str, int], every: Sequence[Tried]) -> Count:
    tried = [
        each
        for each in every
        if each.threshold == every[-1].threshold and each.verdict is not Verdict.INFO
    ]
    open_ = (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
    decided = [each for each in tried if each.verdict not in open_]
    must_be = FAULT_CASES[of[0]].verdict
    reported = [each for each in decided if each.reported is must_be]
    slower = [each for each in decided if each.reported is Verdict.FAIL]
    return Count(
        *of,
        sessions=len(tried),
        reported=len(reported),
        attributed=sum(each.verdict is Verdict.PASS for each in reported),
        alarms=len(slower) if must_be is Verdict.PASS else 0,
        inconclusive=len(tried) - len(decided),
        figures=tuple(each.figure for each in tried if each.figure is not None),
    )


def share_interval(times: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of the share times / of by Clopper and Pearson (1934). of: at least
    one."""
    from scipy.stats import binomtest  # imported here, because the import takes seconds

    interval = binomtest(times, of).proportion_ci(0.95)
    return float(interval.low), float(interval.high)


def expected_report(case: FaultCase) -> str:
    """Return the expected verdict on a fault case, and the attribution of a FAIL, in words."""
    if case.verdict is not Verdict.FAIL:
        return str(case.verdict.value)
    who = "all ranks" if case.rank is None else f"rank {case.rank}"
    return f"FAIL, for {case.term} of {who}"
