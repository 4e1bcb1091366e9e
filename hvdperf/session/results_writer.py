"""Writes a session to disk while it runs, so that it can be read and resumed whenever it ends.

After each round of a case its rounds are written, then the case, session.json and summary.json. A
failed write is reported, and repeated at the end. The terminal shows the figures in any case.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError, refusing
from hvdperf.files import write_record
from hvdperf.json_records import convert, encode
from hvdperf.machine.placement import replicas_per_node
from hvdperf.paths import shown
from hvdperf.plan.comparisons import Comparison, JudgedAs, RoundGroup
from hvdperf.plan.session_plan import SessionPlan
from hvdperf.records import documents
from hvdperf.records.archive import Archive, Store, summary_of
from hvdperf.records.fingerprint import Fingerprint, differences
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import Round
from hvdperf.session.ending import NOT_WRITTEN
from hvdperf.session.scheduler import Scheduler
from hvdperf.verdict import Verdict
from hvdperf.version import version

# The most differences that an error message names.
_MOST_SHOWN = 3
_BEGIN_ANEW = "leave out --resume to begin a new session"


@dataclass(frozen=True)
class Earlier:
    """The state of a session after its earlier parts; empty for a new session.

    directory: of the documents. document: the session's own. cases: those with a document, by name.
    outcomes: of selected cases that are decided. undecided: outcomes of selected cases to which
    rounds are added. rounds: of all cases, by their numbers. messages: lines of progress.
    """

    directory: Path | None = None
    document: documents.SessionDocument | None = None
    cases: Mapping[str, documents.Case] = field(default_factory=dict)
    outcomes: Mapping[Comparison, Outcome] = field(default_factory=dict)
    undecided: Mapping[Comparison, Outcome] = field(default_factory=dict)
    rounds: Mapping[RoundGroup, Mapping[int, Round]] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


def asked(session_plan: SessionPlan, changed: Sequence[str]) -> documents.Asked:
    """Return the settings that must be the same besides the fingerprint.

    The time for rounds and the selected cases are not among them. changed: what differs from the
    stack of --against."""
    profile = dict(_flat(session_plan.profile.settings()))
    thresholds = session_plan.thresholds
    found = {
        "looks": profile.pop("sampling.looks"),
        "early": profile.pop("sampling.early"),
        "profile": profile,
        "world_sizes": session_plan.world_sizes,
        "workloads": [f"{each.name} {each.precision}" for each in session_plan.workloads],
        "thresholds": {
            "name": thresholds.path.name,
            "sha256": hashlib.sha256(encode(thresholds.lines)).hexdigest()[:8],
            "label": thresholds.label,
        },
        "replicas_per_node": replicas_per_node(session_plan.slots, len(session_plan.slots)),
        "inject": session_plan.options.fault,
        "against": changed if session_plan.options.against else None,
    }
    return convert(found, documents.Asked)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield each setting with its name; a setting within a table is named `table.name`."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def earlier_parts(
    archive: Archive | None,
    fingerprint: Fingerprint,
    session_plan: SessionPlan,
    changed: Sequence[str],
    selected: Sequence[Comparison],
) -> Earlier:
    """Return what is taken over from the earlier parts of a session.

    archive: None for a new session. fingerprint, changed: this part's. Raises UserError (one line)
    if the machine, the stack, a setting or the plan of a case differs."""
    if archive is None:
        return Earlier()
    document = archive.session
    other = differences(document.fingerprint, fingerprint)
    other += document.asked.differences(asked(session_plan, changed))
    cases = {case.name: case for case in archive.cases}
    again = [comparison for comparison in selected if comparison.name in cases]
    other += [f"the plan of {c.name}" for c in again if cases[c.name].comparison != c]
    if other:
        more = f"; and {len(other) - _MOST_SHOWN} more" if other[_MOST_SHOWN:] else ""
        raise UserError(
            f"--resume {shown(archive.directory)}: cannot continue that session, because this "
            f"differs: {'; '.join(other[:_MOST_SHOWN])}{more}. Give the same options on the same "
            f"stack, or {_BEGIN_ANEW}"
        )
    recalled = {c: replace(cases[c.name].outcome, taken_over=True) for c in again}
    decided = _decided(recalled, selected, session_plan.profile.sampling.precision)
    return Earlier(
        directory=archive.directory,
        document=document,
        cases=cases,
        outcomes=decided,
        undecided={c: o for c, o in recalled.items() if c not in decided},
        rounds=archive.rounds,
        messages=(
            *archive.left_out,
            f"{len(decided)} of {len(selected)} cases are already decided",
        ),
    )


def _decided(
    recalled: Mapping[Comparison, Outcome], selected: Sequence[Comparison], precision: float
) -> dict[Comparison, Outcome]:
    """Return the outcomes of an earlier part that need no more rounds. A valid A/A pair does as
    long as a comparison with the same rounds does. precision: of this part."""
    decided = {
        comparison: outcome
        for comparison, outcome in recalled.items()
        if not outcome.needs_rounds(precision)
    }
    going_on = {c.round_group for c in selected if c not in decided}
    return {
        comparison: outcome
        for comparison, outcome in decided.items()
        if comparison.judged_as is not JudgedAs.AA_PAIR
        or outcome.judgement.verdict is not Verdict.INFO
        or comparison.round_group not in going_on
    }


def open_directory(session_plan: SessionPlan, session: str, earlier: Earlier) -> Path:
    """Return the directory of the session that is resumed, or of a new session below --results.
    session: its name. Raises UserError if it cannot be made."""
    runs = Path(session_plan.options.results) / "runs"
    directory = earlier.directory or runs / session
    with _refusing(runs):
        directory.mkdir(parents=True, exist_ok=earlier.directory is not None)
    return directory


def session_document(
    session_plan: SessionPlan,
    fingerprint: Fingerprint,
    changed: Sequence[str],
    earlier: Earlier,
    unfit: Sequence[str],
    command: str = "",
    launched: str = "",
) -> documents.SessionDocument:
    """Return the session's document at the beginning of this part. unfit: why this host is not fit
    to measure, in this part. command: that started this part; a resumed session keeps that of its
    first part. launched: how ranks are started, in words."""
    document = earlier.document
    if document is not None:
        return replace(
            document,
            against=session_plan.options.against or None,
            exit_status=None,
            resumed_at=(*document.resumed_at, documents.now()),
            taken_over=tuple(earlier.cases),
            unfit=tuple(dict.fromkeys((*document.unfit, *unfit))),
            precision=session_plan.profile.sampling.precision,
        )
    return documents.SessionDocument(
        format=documents.FORMAT,
        session=documents.session_name(),
        began_at=documents.now(),
        written_at=documents.now(),
        fingerprint=fingerprint,
        profile=session_plan.profile.name,
        seed=int(time.time()),
        world_sizes=tuple(session_plan.world_sizes),
        oversubscribed_sizes=tuple(session_plan.oversubscribed_sizes()),
        launcher=session_plan.options.launcher,
        schedule=session_plan.profile.schedule,
        against=session_plan.options.against or None,
        changed=tuple(changed),
        asked=asked(session_plan, changed),
        suite=version(),
        command=command,
        label=os.environ.get("HVDPERF_LABEL", ""),
        launched=launched,
        hosts=tuple(dict.fromkeys(slot.host for slot in session_plan.slots)),
        unfit=tuple(unfit),
        made_up_data=tuple(name for name, data in session_plan.data.items() if data.is_made_up),
        precision=session_plan.profile.sampling.precision,
    )


def _refusing(directory: Path) -> AbstractContextManager[None]:
    failed = f"no results can be written to {shown(directory)}: "
    return refusing(failed, OSError, "; make room there, or give another directory by --results")


class ResultsWriter:
    """Keeps the results of one session, and locks its directory.

    problems: why a document is not on disk as it is, by the name of its case or file. scheduler: of
    the session, whose arm launcher is disposed of by whoever closes the writer.
    """

    def __init__(
        self,
        directory: Path,
        document: documents.SessionDocument,
        scheduler: Scheduler,
        earlier: Earlier,
        began: float,
    ) -> None:
        """document: the session's, at the beginning. earlier: the earlier parts of the session.
        began: beginning of this part of the session (monotonic clock, seconds).
        Raises UserError if nothing can be written, or if the session still runs."""
        self.directory = directory
        self.problems: dict[str, str] = {}
        self._document, self.scheduler = document, scheduler
        self._began = began
        self._measuring_since = time.monotonic()
        self._budget_spent = document.budget_spent_seconds
        self._cases = dict(earlier.cases)
        self._store = Store(directory, earlier.rounds)
        with _refusing(directory):
            try:
                self._descriptor = os.open(directory, os.O_RDONLY)
                self._lock()
                self._write_session(None)
            except OSError:
                with suppress(OSError):
                    directory.rmdir()  # if it is new
                raise

    def _lock(self) -> None:
        """Lock the directory until this process ends, in whatever way. Raises UserError if another
        process has locked it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{shown(self.directory)}: the session is still running; wait for its end"
            ) from None
        except OSError:
            return  # a file system without locks

    @property
    def elapsed_seconds(self) -> float:
        """Return the seconds that all parts of the session took."""
        return self._document.elapsed_seconds + time.monotonic() - self._began

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdicts on all cases so far, by name of the case."""
        return {name: case.verdict for name, case in self._cases.items()}

    def keep(self, outcome: Outcome) -> str:
        """Write the document of an outcome. Return a line if that failed, else ""."""
        name = outcome.comparison.name
        spent = time.monotonic() - self._measuring_since
        self._budget_spent = self._document.budget_spent_seconds + spent
        self._cases[name] = self._case(outcome)
        self._write_case(name)
        self._attempt(documents.SESSION_FILE, lambda: self._write_session(None))
        self._attempt(documents.SUMMARY_FILE, lambda: self._write_summary(None))
        problem = self.problems.get(name, "")
        return f"NOT WRITTEN {name}: {problem}; the session continues" if problem else ""

    def end(
        self, exit_status: int, next_steps: Sequence[str] = (), unfit: Sequence[str] = ()
    ) -> int:
        """Write all that is left, with the exit status. Return the session's exit status, which is
        NOT_WRITTEN instead of 0 if something could not be written. next_steps: what to type next,
        in lines. unfit: why the host is not fit to measure any more, one line each."""
        unfit = tuple(dict.fromkeys((*self._document.unfit, *unfit)))
        self._document = replace(self._document, next_steps=tuple(next_steps), unfit=unfit)
        for name in self.problems.keys() & self._cases.keys():
            self._write_case(name)
        if self.problems.keys() - {documents.SESSION_FILE, documents.SUMMARY_FILE}:
            exit_status = exit_status or NOT_WRITTEN
        if not self._attempt(documents.SUMMARY_FILE, lambda: self._write_summary(exit_status)):
            exit_status = exit_status or NOT_WRITTEN
        self._attempt(documents.SESSION_FILE, lambda: self._write_session(exit_status))
        return exit_status or (NOT_WRITTEN if self.problems else 0)

    def archive(self, outcomes: Iterable[Outcome], exit_status: int) -> Archive:
        """Return the session with these cases as it is read back once all of it is written."""
        return self._archive(map(self._case, map(_own, outcomes)), exit_status)

    def _archive(self, cases: Iterable[documents.Case], exit_status: int | None) -> Archive:
        ordered = sorted(cases, key=lambda case: case.name)
        return Archive(self.directory, self._as_it_is(exit_status), tuple(ordered), ())

    def lines(self, left: int) -> list[str]:
        """Return lines on the documents that are not on disk, and on how to continue. left: the
        number of cases without an outcome."""
        found = [f"NOT WRITTEN {name}: {why}" for name, why in self.problems.items()]
        if left:
            cases = "1 case is left" if left == 1 else f"{left} cases are left"
            found.append(f"{cases}; to continue: --resume {shown(self.directory)}")
        return found

    def close(self) -> None:
        """Release the directory."""
        os.close(self._descriptor)

    def _write_case(self, name: str) -> None:
        self._attempt(name, lambda: self._store.write(self._cases[name]))

    def _attempt(self, name: str, write: Callable[[], Any]) -> bool:
        self.problems[name] = f"{shown(self.directory)}: interrupted"  # by Ctrl-C; else see below
        try:
            write()
        except OSError as error:
            self.problems[name] = f"{shown(self.directory)}: {error.strerror}"
            return False
        del self.problems[name]
        return True

    def _case(self, outcome: Outcome) -> documents.Case:
        comparison, slots = outcome.comparison, self.scheduler.arm_launcher.slots
        return documents.Case(
            format=documents.FORMAT,
            session=self._document.session,
            written_at=documents.now(),
            fingerprint=self._document.fingerprint,
            replicas_per_node=tuple(replicas_per_node(slots, comparison.world_size)),
            name=comparison.name,
            outcome=outcome,
        )

    def _as_it_is(self, exit_status: int | None) -> documents.SessionDocument:
        return replace(
            self._document,
            written_at=documents.now(),
            exit_status=exit_status,
            elapsed_seconds=self.elapsed_seconds,
            timed_seconds=self.scheduler.timed_seconds,
            budget_spent_seconds=self._budget_spent,
            verdicts=self.verdicts,
            disturbances=documents.with_culprits_kept(self.scheduler.disturbances),
        )

    def _write_session(self, exit_status: int | None) -> None:
        write_record(self.directory / documents.SESSION_FILE, self._as_it_is(exit_status))

    def _write_summary(self, exit_status: int | None) -> None:
        summary = summary_of(self._archive(self._cases.values(), exit_status))
        write_record(self.directory / documents.SUMMARY_FILE, summary)


def _own(outcome: Outcome) -> Outcome:
    """Return the outcome with only its own part of the rounds, as it is read back."""
    rounds = tuple(documents.own_round(outcome.comparison, measured) for measured in outcome.rounds)
    return replace(outcome, rounds=rounds)
