"""Measures one night: looks at the machine, then runs each session in a process of its own.

The night's document is written after every step. A night that was killed goes on where it was: a
session that had begun is resumed, and steps that are done are not done again.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from hvdperf.errors import UserError, refusing
from hvdperf.json_records import Unreadable
from hvdperf.launch.helpers import guarded
from hvdperf.machine.fitness import complaints
from hvdperf.machine.host import local_machine
from hvdperf.machine.probe import probe, probe_gpus
from hvdperf.paths import cases, shown
from hvdperf.records.archive import Archive, read_document, read_session, summary_of
from hvdperf.records.documents import SESSION_FILE, Kind, SessionDocument, now
from hvdperf.session.control import local_preflight
from hvdperf.timeline.nights import night as documents
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import Night, stem
from hvdperf.timeline.processes import is_without_session, run_to_end
from hvdperf.timeline.store import NIGHTS, alone, named, read_all

# The share of a session's minutes that measuring its suspects again may take, and the least.
SHARE_AGAIN, LEAST_AGAIN = 0.25, 1.0
# Options of pytest and its plugins that name a file to write.
_WRITING = ("--junitxml", "--junit-xml", "--benchmark-json", "--log-file", "--debug")


@dataclass(frozen=True)
class NightPlan:
    """What a night is to measure.

    results: as --results of a session. night: its date, in UTC. against: the reference stack's
    interpreter, or "". launch: words before pytest, such as those of mpirun. arguments: more
    options of pytest. node: this node's name if the night is its own, and other nodes have theirs.
    """

    results: Path
    series: str
    night: date
    profile: str
    against: str = ""
    require_fit: bool = False
    launch: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    node: str = ""

    @property
    def directory(self) -> Path:
        return self.results / NIGHTS

    def session(self, *more: str) -> list[str]:
        """Return the options of the night's own session, with more options."""
        return [*cases(), f"--profile={self.profile}", *self.arguments, *more]

    def later_session(self, *more: str) -> list[str]:
        """Return the options of another session of the night with more options. It leaves alone
        the files that the night's own session wrote."""
        always = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        given = {word.partition("=")[0] for word in (*always, *self.arguments)}
        return self.session(
            *more, *(f"{option}={os.devnull}" for option in _WRITING if option in given)
        )

    @property
    def command(self) -> str:
        """Return a command that repeats the night's own session."""
        return shlex.join([*self.launch, "pytest", *self.session()])


def run(plan: NightPlan, say: Callable[[str], None]) -> Night:
    """Measure the night, or go on with it, and return its document, which has ended unless the
    session was interrupted. say: takes lines of progress.

    Raises UserError if another process runs a night here, or if a document cannot be written.
    """
    with refusing(f"--results {shown(plan.results)}: ", OSError):
        plan.directory.mkdir(parents=True, exist_ok=True)
    lock = plan.directory / (f".lock-{plan.node}" if plan.node else ".lock")
    with alone(lock, "another night is being measured here; wait for its end"):
        _end_earlier(plan)
        night = _begun(plan, say)
        if night.ended_at is not None:
            say(f"the night of {night.night} is over")
            return night
        night = _look(plan, night, say)
        documents.write_night(plan.directory, night)
        for kind in Kind if plan.against else (Kind.OWN, Kind.AGAIN):
            night = _measured(plan, night, kind, say)
            documents.write_night(plan.directory, night)
            if not all(part.has_ended for part in night.parts):
                say("interrupted; the same command on the same date goes on")
                return night
        night = replace(night, ended_at=now())
        documents.write_night(plan.directory, night)
        return night


def _begun(plan: NightPlan, say: Callable[[str], None]) -> Night:
    """Return the document of the night as it was left, or a new one."""
    path = documents.path_of(plan.directory, plan.series, plan.night, plan.node)
    if path.exists():
        with refusing(f"{shown(path)}: ", Unreadable, then="; move it away"):
            night = documents.read_night(path)
        if night.reason:
            # Nothing, or not all, could be measured: perhaps it can now.
            night = replace(night, reason="", ended_at=None)
        if night.ended_at is None:
            say(f"going on with the night of {night.night}")
        return night
    night = Night(
        documents.FORMAT, plan.series, plan.night, now(), plan.command, plan.against, node=plan.node
    )
    documents.write_night(plan.directory, night)
    return night


def _end_earlier(plan: NightPlan) -> None:
    """End the earlier nights of the series that were killed, with what they had decided."""
    files = sorted((plan.directory / plan.series).glob("*.json"))
    nights, _ = read_all(
        (path for path in files if path.stem < f"{plan.night}"), documents.read_night
    )
    for night in nights:
        if night.ended_at is not None or night.node != plan.node:
            continue
        parts = list(night.parts)
        for kind in Kind:
            begun = _session_of(plan, _label(night, kind))
            if begun is not None and night.part(kind) is None:
                parts.append(summary_of(begun, kind, night.node))
        reason = night.reason or ("" if parts else "the night was interrupted before any session")
        documents.write_night(
            plan.directory, replace(night, parts=tuple(parts), reason=reason, ended_at=now())
        )


def _look(plan: NightPlan, night: Night, say: Callable[[str], None]) -> Night:
    """Note what makes the machine unfit. An earlier attempt may have found something else."""
    say("look at this machine")
    found = complaints(local_preflight(plan.results))
    # On another host than this, such as with srun, it would say nothing of the ranks' machine.
    probed = night.probe or ({} if plan.launch else _probed(say))
    for line in found:
        say(f"not ready: {line}")
    refused = f"the machine was not fit to measure: {'; '.join(found)}"
    return replace(
        night,
        probe=probed,
        unfit=tuple(dict.fromkeys((*night.unfit, *found))),
        reason=refused if found and plan.require_fit else "",
    )


def _probed(say: Callable[[str], None]) -> dict[str, float]:
    """Return what this machine does without Horovod, as far as that can be measured."""
    found: dict[str, float] = {}
    for measure in (probe, probe_gpus) if local_machine().gpus else (probe,):
        try:
            found |= measure()
        except (OSError, MemoryError, UserError) as error:
            say(f"this machine cannot be measured without Horovod: {error}")
    return found


def _measured(plan: NightPlan, night: Night, kind: Kind, say: Callable[[str], None]) -> Night:
    """Run one session to its end, or go on with it, and add it to the night. A second session is
    only run if there is something to measure again."""
    done = night.part(kind)
    if night.reason or (done is not None and done.has_ended):
        return night
    others = replace(night, parts=tuple(part for part in night.parts if part is not done))
    options = _options(plan, others, kind, say)
    if options is None:
        return others
    label, name = _label(night, kind), _name(kind)
    begun = _session_of(plan, label)
    if begun is None or not summary_of(begun, kind, night.node).has_ended:
        resume = [f"--resume={begun.directory}"] if begun is not None else []
        say(name)
        asked = (plan.session if kind is Kind.OWN else plan.later_session)(*options)
        status = _pytest(plan.launch, [*asked, f"--results={plan.results}", *resume], label)
        begun = _session_of(plan, label)
        if begun is None or (is_without_session(status) and (kind.is_again or not begun.cases)):
            reason = f"{name} ended with status {status}; see its output"
            if not kind.is_again:
                return replace(night, reason=reason)
            say(reason)  # what was measured first stands alone
            return others
    return replace(others, parts=(*others.parts, summary_of(begun, kind, night.node)))


def _options(
    plan: NightPlan, night: Night, kind: Kind, say: Callable[[str], None]
) -> list[str] | None:
    """Return the options of a session beside those of the plan. A second one measures what is
    slower than on the nights before, or FAILs against the reference stack; None without any."""
    against = [f"--against={plan.against}"] if kind.is_gate else []
    if not kind.is_again:
        return against
    first = night.part(Kind.GATE if kind.is_gate else Kind.OWN)
    if first is None:
        return None
    read = documents.read_nights(plan.directory, [plan.series], plan.node)
    before = [each for each in read.of[plan.series] if each.night < night.night]
    nights, accepted = [*before, night], read.accepted[plan.series]
    found = judge_speeds(nights, accepted)
    if kind.is_gate:
        gated = found.gated.get(len(before), ())
        names = list(dict.fromkeys(each.row.name for each in gated))
        told = f"FAILs against the reference stack: {named(names)}"
        chosen = [f"-k={' or '.join(names)}"]
    else:
        names = sorted({key.name for _, key in found.suspects})
        told = f"is slower: {found.told}"
        # All networks, if all of them are slower.
        chosen = [f"--models={','.join(names)}"] if all(names) else []
    if not names:
        return None
    say(f"measure again what {told}")
    return [*against, *chosen, f"--budget={max(LEAST_AGAIN, SHARE_AGAIN * first.minutes):.1f}"]


def _name(kind: Kind) -> str:
    """Return a session of a night, as progress and the reason of a night name it."""
    return f"the {'second ' * kind.is_again}session{' against the reference stack' * kind.is_gate}"


def _label(night: Night, kind: Kind) -> str:
    """Return the label of a session of the night in its documents."""
    ending = "" if kind is Kind.OWN else f" {kind.value}"
    return f"{night.series} {stem(night.night, night.node)}{ending}"


def _pytest(launch: Sequence[str], arguments: Sequence[str], label: str) -> int:
    """Run pytest to its end, and return its exit status. It ends with this process. launch: words
    before it, such as those of mpirun. label: of the session."""
    # mpirun and srun find the command of that name in the activated environment.
    pytest = ["pytest"] if launch else [sys.executable, "-m", "pytest"]
    os.environ["HVDPERF_LABEL"] = label
    return run_to_end(guarded([*launch, *pytest, *arguments]))


def _session_of(plan: NightPlan, label: str) -> Archive | None:
    """Return the session with this label; None if none has begun."""
    for path in sorted((plan.results / "runs").glob(f"*/{SESSION_FILE}"), reverse=True):
        try:
            document = read_document(path, SessionDocument)
        except Unreadable:
            continue
        if document.label == label:
            return read_session(path.parent)
    return None
