"""Continues an interrupted session: decided cases are taken over, the rest is measured.

This is possible only on the same machine and stack and with the same settings, because the cases of
one session must be comparable. The parts share one directory, which in the end holds the whole
session.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.json_records import convert, plain
from hvdperf.machine.placement import replicas_per_node
from hvdperf.paths import shown
from hvdperf.plan.comparisons import Comparison, RoundGroup
from hvdperf.plan.session_plan import SessionPlan
from hvdperf.records.archive import Archive, has_this_format, read_session
from hvdperf.records.documents import Asked, Case, SessionDocument
from hvdperf.records.fingerprint import Fingerprint, differences
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import Round
from hvdperf.verdict import Verdict

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
    document: SessionDocument | None = None
    cases: Mapping[str, Case] = field(default_factory=dict)
    outcomes: Mapping[Comparison, Outcome] = field(default_factory=dict)
    undecided: Mapping[Comparison, Outcome] = field(default_factory=dict)
    rounds: Mapping[RoundGroup, Mapping[int, Round]] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


def resumable(directory: Path) -> Archive:
    """Return the archive of a session that can be resumed. Raises UserError if it cannot be read,
    or if an earlier version of the suite measured it."""
    archive = read_session(directory)
    if archive.session is None:
        raise UserError(f"--resume {shown(directory)}: {archive.why_no_session}; {_BEGIN_ANEW}")
    if not has_this_format(directory):
        raise UserError(
            f"--resume {shown(directory)}: an earlier version of the suite measured that session: "
            "it can be reported and compared, but only that version can continue it; to measure "
            f"with this one, {_BEGIN_ANEW}"
        )
    return archive


def with_cases(archive: Archive, option: str = "") -> Archive:
    """Return the archive. option: the one that named it. Raises UserError if it has no case."""
    if not archive.cases:
        why = f": {archive.left_out[0]}" if archive.left_out else ""
        raise UserError(f"{option}{shown(archive.directory)}: there is no case in it{why}")
    return archive


def asked(session_plan: SessionPlan, changed: Sequence[str]) -> Asked:
    """Return the settings that must be the same besides the fingerprint.

    The time for rounds and the selected cases are not among them. changed: what differs from the
    stack of --against."""
    profile = dict(_flat(session_plan.profile.settings()))
    thresholds = session_plan.thresholds
    content = json.dumps(plain(thresholds.lines), sort_keys=True)
    found = {
        "looks": profile.pop("sampling.looks"),
        "early": profile.pop("sampling.early"),
        "profile": profile,
        "world_sizes": session_plan.world_sizes,
        "workloads": [f"{each.name} {each.precision}" for each in session_plan.workloads],
        "thresholds": {
            "name": thresholds.path.name,
            "sha256": hashlib.sha256(content.encode()).hexdigest()[:8],
        },
        "replicas_per_node": replicas_per_node(session_plan.slots, len(session_plan.slots)),
        "inject": session_plan.options.inject,
        "against": changed if session_plan.options.against else None,
    }
    return convert(found, Asked)


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
    decided = {c: o for c, o in recalled.items() if not _goes_on(o)}
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


def _goes_on(outcome: Outcome) -> bool:
    """Return whether more rounds may decide the case."""
    return outcome.judgement.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
