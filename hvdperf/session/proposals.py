"""Thresholds and the sessions of a machine: which limits hold there, and what those of a file
mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.plan import proposals
from hvdperf.plan.comparisons import AskedBy, JudgedAs
from hvdperf.plan.proposals import FEWEST_SESSIONS, MOST_A_YEAR, Scatter, holding_line, scatter
from hvdperf.plan.thresholds import (
    WITHOUT_THRESHOLD,
    Case,
    case_of,
    key,
    load_thresholds,
    select,
    speed_of,
)
from hvdperf.records.archive import Archive, throughputs_by_nodes
from hvdperf.records.documents import SessionDocument
from hvdperf.records.fingerprinting import machine_of
from hvdperf.stats import NotMeasurable
from hvdperf.verdict import FEWEST_ROUNDS, Rule, Verdict

# Thresholds hold for one kind of hardware: sessions that differ in these fields are not pooled.
_HARDWARE = ("cpu_model", "cores", "gpus", "gpu_model")
# The number of cases that are named.
_NAMED = 3

Observations = Mapping[Case, Sequence[Sequence[float]]]


def proposal(archives: Sequence[Archive]) -> tuple[str, str]:
    """Return a file of thresholds that hold, from the rounds of these sessions, and a line on the
    cases with too few sessions and how to measure them; "" if there are none.

    Raises UserError if a session cannot be read or had a fault injected, if sessions are of
    different machines, or if no case has enough sessions."""
    sessions = _of_one_machine(archives)
    found = _observations(archives)
    enough = {case: values for case, values in found.items() if len(values) >= FEWEST_SESSIONS}
    few = {case: values for case, values in found.items() if case not in enough}
    command = next((each.command for each in reversed(sessions) if each.command), "pytest perf/")
    looks = _looks(sessions)
    too_few = _too_few(few, len(found), looks, command) if few else ""
    if not enough:
        raise UserError(f"no thresholds proposed: {too_few or 'no case can be trusted'}")
    machine = machine_of(sessions[0].fingerprint)
    return proposals.propose(enough, looks, machine), too_few


def checked(archives: Sequence[Archive], path: Path | None) -> tuple[float, list[str]]:
    """Return the false FAILs to expect in a year of the thresholds of this file, or of those of the
    sessions' machine, and lines that say so.

    Raises UserError as `proposal` does, and if no case has a threshold and two sessions."""
    sessions = _of_one_machine(archives)
    machine = machine_of(sessions[0].fingerprint)
    thresholds = select(machine) if path is None else load_thresholds(path, machine)
    looks = _looks(sessions)
    judged: dict[Case, tuple[Rule, Scatter]] = {}
    without, unknown = [], []
    for case, values in _observations(archives).items():
        rule = thresholds.rule(case)
        if rule is None:
            # Without a line a throughput is no case.
            without += [key(case)] * (case.question.spec.asked_by is not AskedBy.LINE)
            continue
        try:
            judged[case] = (rule, scatter(values))
        except NotMeasurable as error:
            unknown.append(f"{key(case)} ({error})")
    if not judged:
        names = (
            f"no noise is known of {_several(unknown)}" if unknown else "no case has a threshold"
        )
        raise UserError(f"{thresholds.path.name} cannot be checked: {names}")
    of_year = proposals.of_year(judged.values(), looks)
    lines = [
        f"thresholds: {thresholds.path.name}: {thresholds.label}",
        f"{proposals.year_in_words(of_year)} "
        f"({len(judged)} case{'s' * (len(judged) > 1)}, {len(archives)} sessions)",
    ]
    if of_year > MOST_A_YEAR:
        lines.append(_what_would_hold(judged, looks))
    if unknown:
        lines.append(f"not counted, because their noise is not known: {_several(unknown)}")
    if without:
        lines.append(f"{WITHOUT_THRESHOLD}: {_several(without)}")
    return of_year, lines


def _what_would_hold(judged: Mapping[Case, tuple[Rule, Scatter]], looks: Sequence[int]) -> str:
    """Return a line on the cases with the most false FAILs, and the limits that would hold."""
    often = {case: proposals.of_year([of], looks) for case, of in judged.items()}
    worst = sorted(often, key=lambda case: -often[case])[:_NAMED]
    told = []
    for case in worst:
        rule, noise = judged[case]
        line = holding_line(case, type(rule), noise, looks, len(judged))
        told.append(f"{often[case]:.2f} by {rule}, where this would hold: {line}")
    return f"these are more than {MOST_A_YEAR:g} a year, most of them {'; '.join(told)}"


def _several(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _of_one_machine(archives: Sequence[Archive]) -> list[SessionDocument]:
    """Return the documents of the sessions, of one machine. Raises UserError if they are of
    several, if one cannot be read, or if a fault was injected into one."""
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
    return sessions


def _session_of(archive: Archive) -> SessionDocument:
    if archive.session is None:
        raise UserError(f"{shown(archive.directory)}: {archive.why_no_session}")
    if archive.session.asked.inject:
        raise UserError(f"{shown(archive.directory)}: a fault was injected (--inject)")
    return archive.session


def _looks(sessions: Sequence[SessionDocument]) -> tuple[int, ...]:
    """Return the full looks of all sessions: each of them may FAIL a case."""
    found = {look for each in sessions for look in each.asked.looks or (FEWEST_ROUNDS,)}
    return tuple(sorted(found))


def _too_few(few: Observations, cases: int, looks: Sequence[int], command: str) -> str:
    """Return a line on the cases with too few sessions: the number of further sessions, their
    command, and the limit that would hold from those that there are. cases: number of all."""
    case, sessions = min(few.items(), key=lambda item: len(item[1]))
    more = FEWEST_SESSIONS - len(sessions)
    try:
        line = holding_line(case, case.question.spec.rule, scatter(sessions), looks, cases)
        would_hold = f"from {len(sessions)}, only {line} would hold"
    except NotMeasurable as error:
        would_hold = str(error)
    return (
        f"{len(few)} case{'s' * (len(few) > 1)} with fewer than {FEWEST_SESSIONS} sessions: "
        f"{key(case)} has {len(sessions)} ({would_hold}); give {more} more "
        f"session{'s' * (more > 1)}, by: {command}"
    )


def _observations(archives: Iterable[Archive]) -> dict[Case, list[list[float]]]:
    """Return the ln ratios of each case whose evidence is sound, by session. A case that is INVALID
    only because it has no threshold yet counts. Of throughputs, all launches count, whichever
    cases asked for them."""
    archives = list(archives)
    found: dict[Case, list[list[float]]] = {}
    for case in (case for archive in archives for case in archive.cases):
        invalid = case.verdict is Verdict.INVALID and not case.is_sound
        is_of_speed = case.question.spec.asked_by is not AskedBy.PROFILE
        if case.judged_as is not JudgedAs.THRESHOLD or case.failed or invalid or is_of_speed:
            continue
        values = [value for value in case.outcome.observations if math.isfinite(value)]
        if values:
            found.setdefault(case_of(case.comparison, len(case.replicas_per_node)), []).append(
                values
            )
    for archive in archives:
        for (workload, size, nodes), launches in throughputs_by_nodes(archive).items():
            speed = speed_of(workload, size, nodes)
            found.setdefault(speed, []).append([math.log(each) for each in launches])
    return found
