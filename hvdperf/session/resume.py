"""Continues an interrupted session: decided cases are taken over, the rest is measured.

This is possible only on the same machine and stack and with the same settings, because the cases of
one session must be comparable. The directory is continued, too, so that in the end it holds one
whole session.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.json_records import plain
from hvdperf.judge.outcome import Outcome
from hvdperf.machine.disturbance import Disturbance
from hvdperf.machine.placement import replicas_per_node
from hvdperf.paths import shown
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.session_plan import SessionPlan
from hvdperf.results.archive import Archive, read_session
from hvdperf.results.documents import Row, now
from hvdperf.results.fingerprint import Fingerprint, differences
from hvdperf.results.summary_rows import row_of
from hvdperf.verdict import Verdict

# The most differences that an error message names.
_TOLD = 3
_BEGIN_ANEW = "leave out --resume to begin a new session"


@dataclass(frozen=True)
class Earlier:
    """The state that the earlier parts of a session have left; of a new session, only a seed.

    Times are in seconds, as in session.json. directory: of the documents. session: the session's
    name. resumed_at: when each later part began. verdicts: of every case with a document, by name
    of the case. rows: the rows of these cases in summary.json, by name. outcomes: of selected cases
    that are decided. undecided: of selected cases that go on from the rounds that they have.
    disturbances: one a round so far. told: lines for people.
    """

    seed: int
    directory: Path | None = None
    session: str = ""
    elapsed_seconds: float = 0.0
    timed_seconds: float = 0.0
    budget_spent_seconds: float = 0.0
    resumed_at: tuple[datetime, ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    rows: Mapping[str, Row] = field(default_factory=dict)
    outcomes: Mapping[Comparison, Outcome] = field(default_factory=dict)
    undecided: Mapping[Comparison, Outcome] = field(default_factory=dict)
    disturbances: tuple[Disturbance, ...] = ()
    told: tuple[str, ...] = ()


def resumable(directory: Path) -> Archive:
    """Return the archive of a session that can be resumed. Raises UserError if it cannot be
    read."""
    archive = read_session(directory)
    if archive.session is None:
        why = next((line for line in archive.left_out if "session.json" in line), "")
        raise UserError(
            f"--resume {shown(directory)}: {why or 'there is no session.json in it'}; {_BEGIN_ANEW}"
        )
    return archive


def asked(session_plan: SessionPlan, changed: Sequence[str]) -> dict[str, str]:
    """Return the settings that must be the same besides the fingerprint, by name, as text.

    The budget and the selected cases are not among them. changed: what differs from the stack of
    --against."""
    profile = plain(session_plan.profile)
    del profile["budget_s"]
    thresholds = session_plan.thresholds
    digest = hashlib.sha256(repr(thresholds.lines).encode()).hexdigest()[:8]
    return {
        **{name: str(value) for name, value in _flat(profile)},
        "world_sizes": str(list(session_plan.world_sizes)),
        "workloads": ", ".join(f"{w.name} {w.precision}" for w in session_plan.workloads),
        "thresholds": f"{thresholds.path.name} {digest}",
        "replicas_per_node": str(
            list(replicas_per_node(session_plan.slots, len(session_plan.slots)))
        ),
        "plant": session_plan.options.plant,
        "against": "; ".join(changed or ["itself"]) if session_plan.options.against else "",
    }


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
    if archive is None or archive.session is None:
        return Earlier(seed=int(time.time()))
    document = archive.session
    other = differences(document.fingerprint, fingerprint)
    other += differences(document.asked, asked(session_plan, changed))
    cases = {case.name: case for case in archive.cases}
    again = [comparison for comparison in selected if comparison.name in cases]
    other += [f"the plan of {c.name}" for c in again if cases[c.name].comparison != c]
    if other:
        more = f"; and {len(other) - _TOLD} more" if other[_TOLD:] else ""
        raise UserError(
            f"--resume {shown(archive.directory)}: cannot continue that session, because this "
            f"differs: {'; '.join(other[:_TOLD])}{more}. Give the same options on the same "
            f"stack, or {_BEGIN_ANEW}"
        )
    recalled = {c: replace(cases[c.name].outcome, taken_over=True) for c in again}
    decided = {c: o for c, o in recalled.items() if not _goes_on(o)}
    return Earlier(
        seed=document.seed,
        directory=archive.directory,
        session=document.session,
        elapsed_seconds=document.elapsed_seconds,
        timed_seconds=document.timed_seconds,
        budget_spent_seconds=document.budget_spent_seconds,
        resumed_at=(*document.resumed_at, now()),
        verdicts={name: case.verdict for name, case in cases.items()},
        rows={name: row_of(case.outcome) for name, case in cases.items()},
        outcomes=decided,
        undecided={c: o for c, o in recalled.items() if c not in decided},
        disturbances=document.disturbances,
        told=(*archive.left_out, f"{len(decided)} of {len(selected)} cases are already decided"),
    )


def _goes_on(outcome: Outcome) -> bool:
    """Return whether more rounds may decide the case."""
    return outcome.judgement.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
