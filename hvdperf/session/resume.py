"""An interrupted session, continued: what it had decided is taken over, the rest is measured.

Only on the same machine and stack, and where the same is asked: cases of one session are to be
comparable. The directory is continued, too, so that in the end it is one whole session.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.judge.outcome import Outcome
from hvdperf.machine.disturbance import Disturbance
from hvdperf.machine.placement import replicas_per_node
from hvdperf.plan.arms import Comparison
from hvdperf.plan.session_plan import SessionPlan
from hvdperf.results.archive import Archive, Case, read_session
from hvdperf.results.documents import Document, now, plain
from hvdperf.results.fingerprint import differences
from hvdperf.results.restore import disturbances, recall
from hvdperf.results.summary_rows import row_of_case
from hvdperf.toml_file import shown
from hvdperf.verdict import Verdict

# As many as are told of what is otherwise.
_TOLD = 3
_BEGIN_ANEW = "leave out --resume to begin a new session"


@dataclass(frozen=True)
class Earlier:
    """What the parts of a session so far have left; of one that begins, nothing but a seed.

    Times are in seconds, as in session.json. verdicts: of every case with a document, by its name;
    rows: what summary.json says of it. outcomes: of those of them that are decided and asked again;
    undecided: of those that are asked again and go on from the rounds that they have.
    disturbances: of the rounds so far. directory,
    session: where the documents are, and the session's name. told: lines for people.
    """

    seed: int
    directory: Path | None = None
    session: str = ""
    elapsed_seconds: float = 0.0
    timed_seconds: float = 0.0
    budget_spent_seconds: float = 0.0
    resumed_at: tuple[str, ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    rows: Mapping[str, Document] = field(default_factory=dict)
    outcomes: Mapping[Comparison, Outcome] = field(default_factory=dict)
    undecided: Mapping[Comparison, Outcome] = field(default_factory=dict)
    disturbances: tuple[Disturbance, ...] = ()
    told: tuple[str, ...] = ()


def resumable(directory: Path) -> Archive:
    """A session that can be told to go on. Raises UserError if it cannot be read."""
    archive = read_session(directory)
    if archive.session is None:
        why = next((line for line in archive.left_out if "session.json" in line), "")
        raise UserError(
            f"--resume {shown(directory)}: {why or 'there is no session.json in it'}; {_BEGIN_ANEW}"
        )
    return archive


def asked(session_plan: SessionPlan, changed: Sequence[str]) -> dict[str, str]:
    """By name and as text, what has to be the same besides the fingerprint. Not how much time there
    is, and not which cases are selected. changed: what differs from the stack of --against."""
    profile = asdict(session_plan.profile)
    del profile["budget_s"]
    thresholds = session_plan.thresholds
    digest = hashlib.sha256(repr(thresholds.lines).encode()).hexdigest()[:8]
    return {
        **{name: str(value) for name, value in _flat(plain(profile))},
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
    """What is in a table becomes `table.name`."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _recalled(comparison: Comparison, cases: Mapping[str, Case], archive: Archive) -> Outcome:
    """Raises UserError for a document whose parts do not fit each other."""
    try:
        return recall(comparison, cases[comparison.name])
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"--resume {shown(archive.directory)}: {comparison.name} cannot be taken over "
            f"({error}); delete its file to have it measured again, or {_BEGIN_ANEW}"
        ) from None


def earlier_parts(
    archive: Archive | None,
    fingerprint: Mapping[str, Any],
    session_plan: SessionPlan,
    changed: Sequence[str],
    selected: Sequence[Comparison],
) -> Earlier:
    """What there is to take over. archive: None for a session that begins. fingerprint, changed: of
    now. Raises UserError, one line, where something is otherwise."""
    if archive is None or archive.session is None:
        return Earlier(seed=int(time.time()))
    document = archive.session
    other = differences(document["fingerprint"], plain(fingerprint))
    other += differences(document["asked"], asked(session_plan, changed))
    cases = {case.name: case for case in archive.cases}
    again = [comparison for comparison in selected if comparison.name in cases]
    other += [f"{c.name} asks something else" for c in again if not cases[c.name].asks(c)]
    if other:
        more = f"; and {len(other) - _TOLD} more" if other[_TOLD:] else ""
        raise UserError(
            f"--resume {shown(archive.directory)}: this would be another session: "
            f"{'; '.join(other[:_TOLD])}{more}. Ask for the same on the same stack, or "
            f"{_BEGIN_ANEW}"
        )
    recalled = {comparison: _recalled(comparison, cases, archive) for comparison in again}
    decided = {c: o for c, o in recalled.items() if not _goes_on(o)}
    return Earlier(
        seed=document["seed"],
        directory=archive.directory,
        session=document["session"],
        elapsed_seconds=document["elapsed_seconds"],
        timed_seconds=document["timed_seconds"],
        budget_spent_seconds=document["budget_spent_seconds"],
        resumed_at=(*document["resumed_at"], now()),
        verdicts={name: case.verdict for name, case in cases.items()},
        rows={name: row_of_case(case) for name, case in cases.items()},
        outcomes=decided,
        undecided={c: o for c, o in recalled.items() if c not in decided},
        disturbances=tuple(disturbances(document)),
        told=(*archive.left_out, f"{len(decided)} of {len(selected)} cases had been decided"),
    )


def _goes_on(outcome: Outcome) -> bool:
    """Whether more rounds may decide it."""
    return outcome.judgement.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
