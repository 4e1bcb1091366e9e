"""Measures one night: looks at the machine, then runs each session in a process of its own.

The night's document is written after every step. A night that was killed goes on where it was: a
session that had begun is resumed, and steps that are done are not done again.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.history.measure import ended, is_without_session
from hvdperf.json_records import Unreadable
from hvdperf.launch import guard
from hvdperf.machine.fitness import complaints
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers, place
from hvdperf.nightly.night import (
    FORMAT,
    NIGHTS,
    Night,
    part_of,
    path_of,
    read_night,
    write_night,
)
from hvdperf.paths import shown
from hvdperf.results.archive import Archive, read_document, read_session
from hvdperf.results.documents import SESSION_FILE, SessionDocument, now
from hvdperf.session.doctor import pair_check
from hvdperf.session.preflight import preflight

# Seconds for which the load of the machine is watched.
WATCHED_S = 2.0
# Exit statuses of pytest after which the session may be resumed: it was interrupted.
INTERRUPTED = 2


@dataclass(frozen=True)
class Wish:
    """What a night is to measure.

    results: as --results of a session. night: its date, such as 2026-11-24. against: the reference
    stack's interpreter, or "". pair: whether an A/A pair comes first. launch: words before pytest,
    such as those of mpirun. arguments: more options of pytest.
    """

    results: Path
    series: str
    night: str
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
        return ["perf/", f"--profile={self.profile}", *self.arguments, *against]

    @property
    def command(self) -> str:
        """Return a command that repeats the night's own session."""
        return shlex.join([*self.launch, "pytest", *self.session(gate=False)])


def run(wish: Wish, say: Callable[[str], None]) -> Night:
    """Measure the night, or go on with it, and return its document. say: takes lines of progress.

    Raises UserError if another process runs a night here, or if a document cannot be written.
    """
    wish.directory.mkdir(parents=True, exist_ok=True)
    with _alone(wish.directory):
        _end_earlier(wish)
        night = _begun(wish, say)
        if night.ended_at is not None:
            say(f"{night.night} has been measured: {night.verdict.value}, {night.told}")
            return night
        for step in (_look, _pair, _own_session, _gate):
            night = step(wish, night, say)
            write_night(wish.directory, night)
        night = replace(night, ended_at=now())
        write_night(wish.directory, night)
        return night


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold a lock. Raises UserError if another process holds it."""
    with open(directory / ".lock", "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{shown(directory)}: another night is being measured here; wait for its end"
            ) from None
        yield


def _begun(wish: Wish, say: Callable[[str], None]) -> Night:
    """Return the document of the night as it was left, or a new one."""
    path = path_of(wish.directory, wish.series, wish.night)
    if path.exists():
        try:
            night = read_night(path)
        except Unreadable as error:
            raise UserError(f"{shown(path)}: {error}; move it away") from None
        if night.ended_at is None:
            say(f"going on with the night of {night.night}")
        return night
    night = Night(FORMAT, wish.series, wish.night, now(), wish.command)
    write_night(wish.directory, night)
    return night


def _end_earlier(wish: Wish) -> None:
    """End the earlier nights of the series that were killed, with what they had decided."""
    for path in sorted((wish.directory / wish.series).glob("*.json")):
        if path.stem >= wish.night:
            continue
        try:
            night = read_night(path)
        except Unreadable:
            continue
        if night.ended_at is not None:
            continue
        parts = list(night.parts)
        for gate in (False, True):
            begun = _begun_session(wish, night, gate)
            if begun is not None and all(part.is_gate != gate for part in parts):
                parts.append(part_of(begun, gate))
        reason = night.reason or ("" if parts else "the night was interrupted before any session")
        write_night(
            wish.directory, replace(night, parts=tuple(parts), reason=reason, ended_at=now())
        )


def _look(wish: Wish, night: Night, say: Callable[[str], None]) -> Night:
    """Note what makes the machine unfit. An earlier attempt may have found something else."""
    say("look at this machine")
    machine = local_machine()
    slots = place(local_offers(machine))
    found = complaints(preflight(machine, slots, wish.results, WATCHED_S))
    for line in found:
        say(f"unfit: {line}")
    refused = f"the machine was not fit to measure: {'; '.join(found)}"
    return replace(
        night,
        unfit=tuple(dict.fromkeys((*night.unfit, *found))),
        reason=refused if found and wish.require_fit else "",
    )


def _pair(wish: Wish, night: Night, say: Callable[[str], None]) -> Night:
    if not wish.pair or night.pair or night.reason:
        return night
    say("compare the stack with itself")
    check = pair_check()
    text = check.complaint if check.problem else check.value
    say(text)
    return replace(night, pair=text)


def _own_session(wish: Wish, night: Night, say: Callable[[str], None]) -> Night:
    return _measured(wish, night, False, say)


def _gate(wish: Wish, night: Night, say: Callable[[str], None]) -> Night:
    return _measured(wish, night, True, say) if wish.against else night


def _measured(wish: Wish, night: Night, gate: bool, say: Callable[[str], None]) -> Night:
    """Run one session to its end, and add it to the night."""
    if night.reason or any(part.is_gate == gate for part in night.parts):
        return night
    begun = _begun_session(wish, night, gate)
    if begun is None or _may_go_on(begun):
        resume = [f"--resume={begun.directory}"] if begun is not None else []
        say("the reference stack" if gate else "the session")
        status = _pytest(wish.launch, [*wish.session(gate), f"--results={wish.results}", *resume])
        begun = _begun_session(wish, night, gate)
        if begun is None:
            ending = f"ended with status {status}; see its output"
            return replace(night, reason=f"pytest {ending}")
        if is_without_session(status) and not begun.cases:
            return replace(night, reason=f"pytest ended with status {status} and no case")
    part = part_of(begun, gate)
    return replace(night, parts=(*night.parts, part))


def _pytest(launch: Sequence[str], arguments: Sequence[str]) -> int:
    """Run pytest to its end, and return its exit status. It ends with this process. launch: words
    before it, such as those of mpirun."""
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid())]
    # mpirun and srun find the command of that name in the activated environment.
    pytest = ["pytest"] if launch else [sys.executable, "-m", "pytest"]
    return ended([*guarded, *launch, *pytest, *arguments])


def _may_go_on(archive: Archive) -> bool:
    """Return whether the session was killed or interrupted."""
    return archive.session is not None and archive.session.exit_status in (None, INTERRUPTED)


def _begun_session(wish: Wish, night: Night, gate: bool) -> Archive | None:
    """Return the last session that began after the night with these settings; None without one."""
    first = f"{night.began_at:%Y%m%dT%H%M%SZ}"
    known = {part.session for part in night.parts}
    for directory in sorted((wish.results / "runs").glob("*T*Z-*"), reverse=True):
        if directory.name < first or directory.name in known:
            continue
        try:
            document = read_document(directory / SESSION_FILE, SessionDocument)
        except Unreadable:
            continue
        wanted = Path(wish.profile).stem if wish.profile.endswith(".toml") else wish.profile
        if document.profile == wanted and (document.against is not None) == gate:
            return read_session(directory)
    return None
