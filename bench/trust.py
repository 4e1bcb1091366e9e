"""`python -m bench trust`: how often an injected fault is detected, and how often a false alarm is
raised.

It repeats whole sessions of perf/test_trust.py, as a user starts them. It counts their results, and
those of all earlier sessions of this machine, stack, suite and profile, in
docs/reference/trust.md. It can be stopped and restarted at any time, because sessions add up: each
is a line of results/trust/sessions.jsonl, which is small enough to be kept for ever.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from docs.markdown import heading, put_into, row
from hvdperf.errors import UserError, refusing
from hvdperf.json_records import Unreadable, decode, plain
from hvdperf.paths import ROOT, shown
from hvdperf.plan.arms import AA
from hvdperf.plan.questions import FAULT_CASES, FaultCase
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Case
from hvdperf.records.fingerprint import Fingerprint, differences
from hvdperf.report.words import plural
from hvdperf.stats import hodges_lehmann
from hvdperf.timeline.processes import run_session
from hvdperf.verdict import Verdict, as_ratio

LOG = ROOT / "results" / "trust" / "sessions.jsonl"
PAGE = ROOT / "docs" / "reference" / "trust.md"
# Prefixes of the settings that decide how fault cases are measured, but not which.
_HOW = ("dataset", "batch", "schedule", "replicas_per_node", "sampling.", "runs.endurance_steps")


def add_sessions(sessions: int = 20, minutes: float = math.inf, only: str = "test_faults") -> int:
    """Inject faults in whole sessions of perf/test_trust.py, and count which are detected, together
    with earlier sessions, in docs/reference/trust.md. It may be stopped and restarted at any time.

    --sessions N: Add N sessions.
    --minutes N: Start no session after N minutes. Default: no limit.
    --only WORDS: Inject only these cases, selected as by pytest's -k.
    """
    began = time.monotonic()
    # Write the files before measuring, too, so that those which cannot be written fail first.
    append(LOG)
    write_page()
    for number in range(sessions):
        if time.monotonic() - began >= 60 * minutes:
            break
        print(f"session {number + 1} of {sessions}", flush=True)
        add_session(only)
        write_page()
    print(PAGE.read_text())
    return 0


def add_session(only: str) -> None:
    """Run a session as a user starts it, and note its results. Raises UserError if the session did
    not end properly, or injected no fault."""
    arguments = ["perf/test_trust.py", "--profile=trust", "-q", "-k", only]
    archive = read_session(run_session(arguments, LOG.parent, "this session is not counted"))
    if archive.unfinished:
        raise UserError(f"{archive.unfinished}; it is not counted")
    entry = entry_of(archive)
    if entry is None:
        raise UserError(f"--only {only}: no fault was injected, so there is nothing to count")
    append(LOG, entry)


# The log ----------------------------------------------------------------------------------------


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
    figure: Annotated[float, Meta(gt=0)] | None

    @property
    def is_decided(self) -> bool:
        return self.verdict not in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)

    @property
    def is_reported(self) -> bool:
        """Return whether the arm itself had the expected verdict."""
        return self.is_decided and self.reported is FAULT_CASES[self.trial].verdict


@dataclass(frozen=True)
class Entry:
    """One session. fingerprint: of the machine and the stack (records/fingerprint.py). settings:
    those of the profile that decide how fault cases are measured, by name, as text. tried: its
    fault cases."""

    session: str
    fingerprint: Fingerprint
    settings: Mapping[str, str]
    tried: tuple[Tried, ...]

    @property
    def circumstances(self) -> Mapping[str, object]:
        """Return the fingerprint and the settings, without the digest of all packages. Figures of
        sessions may be pooled if these are the same."""
        fields = {**self.fingerprint, **self.settings}
        return {name: value for name, value in fields.items() if name != "packages_sha256"}


def entry_of(archive: Archive) -> Entry | None:
    """Return a session's entry; None if it has no fault case."""
    tried = [case for case in archive.cases if case.comparison.is_fault_case]
    if not tried:
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


def append(log: Path, *entries: Entry) -> None:
    """Append entries to the log. Raises UserError if it cannot be written."""
    names = ", ".join(entry.session for entry in entries)
    lost = f": session {names} is not counted" if entries else ""
    with refusing(f"{shown(log)} cannot be written: ", OSError, lost):
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "a") as stream:
            stream.writelines(json.dumps(plain(entry)) + "\n" for entry in entries)


def read_log(log: Path) -> list[Entry]:
    """Return the entries in the order in which they were written; [] if there is no log. Raises
    UserError if the log cannot be read, or if a line is not an entry, whose number it names."""
    with refusing(f"{shown(log)}: cannot be read: ", OSError):
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{shown(log)}:{number}: not a line of a session ("
        with refusing(place, Unreadable, "); remove it"):
            entries.append(decode(line.encode(), Entry))
    return entries


# Counts --------------------------------------------------------------------------------------


def series(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split all entries into series whose figures may be pooled, that of the newest first."""
    found: list[list[Entry]] = []
    for entry in reversed(entries):
        alike = [of for of in found if of[0].circumstances == entry.circumstances]
        if alike:
            alike[0].insert(0, entry)
        else:
            found.append([entry])
    return found


def by_case(entries: Sequence[Entry]) -> list[list[Tried]]:
    """Return the fault cases of sessions, grouped by name, in their order, by network and world
    size: without those with INFO, of a fault that is no longer planted, and with another threshold
    than the last one of their group."""
    order = list(FAULT_CASES)

    def place(each: Tried) -> tuple[int, str, int]:
        return order.index(each.trial), each.model, each.world_size

    every = (each for entry in entries for each in entry.tried if each.trial in FAULT_CASES)
    judged = sorted((each for each in every if each.verdict is not Verdict.INFO), key=place)
    groups = [list(group) for _, group in groupby(judged, key=place)]
    return [[each for each in group if each.threshold == group[-1].threshold] for group in groups]


# The page ---------------------------------------------------------------------------------------


def write_page() -> None:
    """Write the counts into the page. Raises UserError if the log or the page is unusable."""
    put_into(PAGE, "make trust", page(read_log(LOG)))


def page(entries: Sequence[Entry]) -> list[str]:
    """Return the lines of the page on the newest series, and on older ones, which are not counted
    with it."""
    newest, *before = series(entries) or [[]]
    if not newest:
        return ["No session has been measured yet."]
    lines = [*_where(newest), "", *_table(newest)]
    for older in before:
        lines += ["", "## Sessions under other conditions, not counted above", "", *_where(older)]
        lines += ["Changes from these sessions to the newest ones:", ""]
        changes = differences(older[-1].circumstances, newest[-1].circumstances)
        lines += [*(f"- {change}" for change in changes), "", *_table(older)]
    return lines


def _where(entries: Sequence[Entry]) -> list[str]:
    """Return lines on the machine and the stack of the sessions, and the FAILs without a fault."""
    facts, groups = entries[-1].fingerprint, by_case(entries)
    stack = f"TensorFlow {facts['tensorflow']}, Horovod {facts['horovod']}, {facts['mpi_library']}"
    pairs = [each for group in groups for each in group if each.trial == AA]
    alarms = sum(each.is_decided and each.reported is Verdict.FAIL for each in pairs)
    every = all(len(group) == len(entries) for group in groups)
    return [
        f"{plural(len(entries), 'session')} on {facts['cores']} cores of {facts['cpu_model']}; "
        f"{stack}.",
        *([] if every else ["Not all of them injected every fault."]),
        *([f"False alarms (FAIL without a fault): {share(alarms, len(pairs))}."] if pairs else []),
    ]


def _table(entries: Sequence[Entry]) -> list[str]:
    counted = ("reported", "right attribution", "undecided", "figure", "range")
    lines = heading("case: fault", "network, np", "expected", *counted)
    for group in by_case(entries):
        case = FAULT_CASES[group[0].trial]
        reported = [each for each in group if each.is_reported]
        figures = [each.figure for each in group if each.figure is not None]
        lines.append(
            row(
                f"{group[0].trial}: `{case.fault or 'nothing'}`",
                f"{group[0].model}, {group[0].world_size}",
                expected_report(case),
                share(len(reported), len(group)),
                share(sum(each.verdict is Verdict.PASS for each in reported), len(reported)),
                f"{sum(not each.is_decided for each in group)}",
                _estimate(figures),
                f"{min(figures):.3f} .. {max(figures):.3f}" if figures else "-",
            )
        )
    return lines


def share(times: int, of: int) -> str:
    """Return a share with its 95 % interval by Clopper and Pearson (1934), as text."""
    if not of:
        return "-"
    from scipy.stats import binomtest  # imported here, because the import takes seconds

    interval = binomtest(times, of).proportion_ci(0.95)
    return f"{times} of {of} ({100 * interval.low:.0f}-{100 * interval.high:.0f} %)"


def expected_report(case: FaultCase) -> str:
    """Return the expected verdict on a fault case, and the attribution of a FAIL, in words."""
    if case.verdict is not Verdict.FAIL:
        return str(case.verdict.value)
    who = "all ranks" if case.rank is None else f"rank {case.rank}"
    return f"FAIL, for {case.term} of {who}"


def _estimate(figures: Sequence[float]) -> str:
    """Return the estimate over sessions, without an interval if they are too few for one."""
    if not figures:
        return "-"
    whole = as_ratio(hodges_lehmann([math.log(figure) for figure in figures], 0.025))
    bounds = "" if math.isinf(whole.upper) else f" [{whole.lower:.3f}, {whole.upper:.3f}]"
    return f"{whole.estimate:.3f}{bounds}"
