"""Proposes thresholds for a machine from the measurements of several of its sessions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hvdperf.errors import UserError
from hvdperf.machine.host import Gpu, Machine
from hvdperf.paths import shown
from hvdperf.plan import thresholds
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.records.archive import Archive
from hvdperf.records.documents import SessionDocument
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.verdict import FEWEST_ROUNDS, Verdict

# The fewest rounds of a case. From fewer, some proposals FAIL unchanged builds in many nights.
ENOUGH_ROUNDS = 32
# Thresholds hold for one kind of hardware: sessions that differ in these fields are not pooled.
_HARDWARE = ("cpu_model", "cores", "gpus", "gpu_model")


@dataclass(frozen=True)
class Proposal:
    """Proposed thresholds. text: the content of a file for --thresholds. left_out: a line on the
    cases with too few rounds, and how to measure them; "" if there are none."""

    text: str
    left_out: str


def propose(archives: Sequence[Archive]) -> Proposal:
    """Return thresholds that unchanged builds PASS (plan/threshold_proposal.py), from the rounds of
    all sessions together.

    Raises UserError if a session cannot be read or had a fault injected, if sessions are of
    different machines, or if no case has enough rounds."""
    sessions = [_session_of(archive) for archive in archives]
    first: Mapping[str, object] = sessions[0].fingerprint
    for archive, session in zip(archives, sessions, strict=True):
        theirs: Mapping[str, object] = session.fingerprint
        other = [name for name in _HARDWARE if theirs[name] != first[name]]
        if other:
            raise UserError(
                f"{shown(archive.directory)}: of another machine than "
                f"{shown(archives[0].directory)}: {', '.join(other)} differ"
            )
    found = _observations(archives)
    enough = {case: values for case, values in found.items() if _rounds(values) >= ENOUGH_ROUNDS}
    few = {case: values for case, values in found.items() if case not in enough}
    command = next((each.command for each in reversed(sessions) if each.command), "pytest perf/")
    too_few = _too_few(few, command) if few else ""
    if not enough:
        raise UserError(f"no thresholds proposed: {too_few or 'no case can be trusted'}")
    # After a session's first full look it may FAIL a case.
    rounds = min(min(each.asked.looks, default=FEWEST_ROUNDS) for each in sessions)
    machine = _machine_of(sessions[0].fingerprint)
    return Proposal(thresholds.propose(enough, rounds, machine), too_few)


def _session_of(archive: Archive) -> SessionDocument:
    if archive.session is None:
        raise UserError(f"{shown(archive.directory)}: {archive.why_no_session}")
    if archive.session.asked.inject:
        raise UserError(f"{shown(archive.directory)}: a fault was injected (--inject)")
    return archive.session


def _rounds(sessions: Sequence[Sequence[float]]) -> int:
    return sum(map(len, sessions))


def _too_few(few: Mapping[thresholds.Case, Sequence[Sequence[float]]], command: str) -> str:
    """Return a line on the cases with too few rounds, with the number of further sessions and their
    command."""
    case, sessions = min(few.items(), key=lambda item: _rounds(item[1]))
    has = _rounds(sessions)
    more = math.ceil((ENOUGH_ROUNDS - has) * len(sessions) / has)
    cases = f"{len(few)} case{'s' * (len(few) > 1)}"
    return (
        f"{cases} with fewer than {ENOUGH_ROUNDS} rounds: {'/'.join(case.parts)} has {has}, and "
        f"needs {ENOUGH_ROUNDS - has} more; give {more} more session{'s' * (more > 1)} like these, "
        f"by: {command}"
    )


def _observations(archives: Iterable[Archive]) -> dict[thresholds.Case, list[list[float]]]:
    """Return the ln ratios of each case whose evidence is sound, by session. A case that is INVALID
    only because it has no threshold yet counts."""
    found: dict[thresholds.Case, list[list[float]]] = {}
    for case in (case for archive in archives for case in archive.cases):
        invalid = case.verdict is Verdict.INVALID and not case.is_sound
        if case.judged_as is not JudgedAs.THRESHOLD or case.failed or invalid:
            continue
        values = [value for value in case.outcome.observations if math.isfinite(value)]
        if values:
            key = thresholds.case_of(case.comparison, len(case.replicas_per_node))
            found.setdefault(key, []).append(values)
    return found


def _machine_of(fingerprint: Fingerprint) -> Machine:
    """Return a machine with the fields that define its class."""
    models = fingerprint["gpu_model"]
    gpus = tuple(Gpu("", models[i % len(models)]) for i in range(fingerprint["gpus"]))
    cores = tuple(range(fingerprint["cores"]))
    return Machine("", cores, gpus, cpu_model=fingerprint["cpu_model"])
