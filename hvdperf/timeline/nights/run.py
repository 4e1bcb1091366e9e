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

from hvdperf.errors import refusing
from hvdperf.json_records import Unreadable
from hvdperf.launch.guard import guarded
from hvdperf.machine.fitness import complaints
from hvdperf.paths import cases, shown
from hvdperf.records.archive import Archive, has_this_format, read_document, read_session
from hvdperf.records.documents import SESSION_FILE, SessionDocument, now
from hvdperf.session.commands import pair_check
from hvdperf.session.control import local_preflight
from hvdperf.timeline.nights.night import FORMAT, Night, part_of, path_of, read_night, write_night
from hvdperf.timeline.processes import ended, is_without_session
from hvdperf.timeline.store import NIGHTS, alone, read_all


@dataclass(frozen=True)
class NightPlan:
    """What a night is to measure.

    results: as --results of a session. night: its date, in UTC. against: the reference stack's
    interpreter, or "". pair: whether an A/A pair comes first. launch: words before pytest, such as
    those of mpirun. arguments: more options of pytest.
    """

    results: Path
    series: str
    night: date
    profile: str
    against: str = ""
    require_fit: bool = False
    pair: bool = True
    launch: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        return self.results / NIGHTS

    def session(self, gate: bool) -> list[str]:
        """Return the options of one of the night's sessions."""
        against = [f"--against={self.against}"] if gate else []
        return [*cases(), f"--profile={self.profile}", *self.arguments, *against]

    @property
    def command(self) -> str:
        """Return a command that repeats the night's own session."""
        return shlex.join([*self.launch, "pytest", *self.session(gate=False)])


def run(plan: NightPlan, say: Callable[[str], None]) -> Night:
    """Measure the night, or go on with it, and return its document, which has ended unless the
    session was interrupted. say: takes lines of progress.

    Raises UserError if another process runs a night here, or if a document cannot be written.
    """
    with refusing(f"--results {shown(plan.results)}: ", OSError):
        plan.directory.mkdir(parents=True, exist_ok=True)
    with alone(plan.directory / ".lock", "another night is being measured here; wait for its end"):
        _end_earlier(plan)
        night = _begun(plan, say)
        if night.ended_at is not None:
            say(f"the night of {night.night} is over: {night.verdict.value}, {night.told}")
            return night
        for step in (_look, _pair):
            night = step(plan, night, say)
            write_night(plan.directory, night)
        for gate in (False, True) if plan.against else (False,):
            night = _measured(plan, night, gate, say)
            write_night(plan.directory, night)
            part = night.part(gate)
            if part is not None and not part.has_ended:
                say("interrupted; the same command on the same date goes on")
                return night
        night = replace(night, ended_at=now())
        write_night(plan.directory, night)
        return night


def _begun(plan: NightPlan, say: Callable[[str], None]) -> Night:
    """Return the document of the night as it was left, or a new one."""
    path = path_of(plan.directory, plan.series, plan.night)
    if path.exists():
        with refusing(f"{shown(path)}: ", Unreadable, then="; move it away"):
            night = read_night(path)
        if night.reason:
            # Nothing, or not all, could be measured: perhaps it can now.
            night = replace(night, reason="", ended_at=None)
        if night.ended_at is None:
            say(f"going on with the night of {night.night}")
        return night
    night = Night(FORMAT, plan.series, plan.night, now(), plan.command, plan.against)
    write_night(plan.directory, night)
    return night


def _end_earlier(plan: NightPlan) -> None:
    """End the earlier nights of the series that were killed, with what they had decided."""
    files = sorted((plan.directory / plan.series).glob("*.json"))
    nights, _ = read_all((path for path in files if path.stem < f"{plan.night}"), read_night)
    for night in (night for night in nights if night.ended_at is None):
        parts = list(night.parts)
        for gate in (False, True):
            begun = _session_of(plan, _label(night, gate))
            if begun is not None and night.part(gate) is None:
                parts.append(part_of(begun, gate))
        reason = night.reason or ("" if parts else "the night was interrupted before any session")
        write_night(
            plan.directory, replace(night, parts=tuple(parts), reason=reason, ended_at=now())
        )


def _look(plan: NightPlan, night: Night, say: Callable[[str], None]) -> Night:
    """Note what makes the machine unfit. An earlier attempt may have found something else."""
    say("look at this machine")
    found = complaints(local_preflight(plan.results))
    for line in found:
        say(f"unfit: {line}")
    refused = f"the machine was not fit to measure: {'; '.join(found)}"
    return replace(
        night,
        unfit=tuple(dict.fromkeys((*night.unfit, *found))),
        reason=refused if found and plan.require_fit else "",
    )


def _pair(plan: NightPlan, night: Night, say: Callable[[str], None]) -> Night:
    if not plan.pair or night.pair or night.reason:
        return night
    say("compare the stack with itself")
    check = pair_check()
    text = check.complaint if check.problem else check.value
    say(text)
    return replace(night, pair=text)


def _measured(plan: NightPlan, night: Night, gate: bool, say: Callable[[str], None]) -> Night:
    """Run one session to its end, or go on with it, and add it to the night."""
    done = night.part(gate)
    if night.reason or (done is not None and done.has_ended):
        return night
    label = _label(night, gate)
    begun = _session_of(plan, label)
    if begun is None or not part_of(begun, gate).has_ended:
        goes_on = begun if begun is not None and has_this_format(begun.directory) else None
        resume = [f"--resume={goes_on.directory}"] if goes_on is not None else []
        say("the reference stack" if gate else "the session")
        options = [*plan.session(gate), f"--results={plan.results}", *resume]
        status = _pytest(plan.launch, options, label)
        begun = _session_of(plan, label)
        if begun is None or (is_without_session(status) and not begun.cases):
            which = "the session against the reference stack" if gate else "the session"
            return replace(night, reason=f"{which} ended with status {status}; see its output")
    others = tuple(part for part in night.parts if part is not done)
    return replace(night, parts=(*others, part_of(begun, gate)))


def _label(night: Night, gate: bool) -> str:
    return f"{night.series} {night.night}{' gate' * gate}"


def _pytest(launch: Sequence[str], arguments: Sequence[str], label: str) -> int:
    """Run pytest to its end, and return its exit status. It ends with this process. launch: words
    before it, such as those of mpirun. label: of the session."""
    # mpirun and srun find the command of that name in the activated environment.
    pytest = ["pytest"] if launch else [sys.executable, "-m", "pytest"]
    os.environ["HVDPERF_LABEL"] = label
    return ended(guarded([*launch, *pytest, *arguments]))


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
