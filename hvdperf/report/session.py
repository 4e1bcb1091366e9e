"""The report of a session, or of several as one: its data, its cases sorted into sections, and its
tables at the end.

Rounds of one session share its day: the machine's temperature, other jobs, the place of memory. So
an interval over all rounds of several sessions would be too short. Here a session is one
observation: the figure is the geometric mean of the sessions' estimates, and its interval is that
of Student's t over them. It is exact however the variance is divided between rounds and sessions,
if their estimates are normal; two sessions give a very wide one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.machine.disturbance import together
from hvdperf.paths import RESULTS, shown
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.records.fingerprinting import told_settings
from hvdperf.report import words
from hvdperf.report.cases import mean_of
from hvdperf.report.compare import asked_apart, new_series
from hvdperf.report.content import Figure, Report, Section, Table, interval, value
from hvdperf.report.sections import (
    board,
    collectives,
    convergence,
    launches,
    machine,
    scaling,
    wall_time,
)
from hvdperf.report.text import lines_of
from hvdperf.verdict import ALPHA, Verdict, decide, undecided, worst


def results_of(session: Path) -> Path:
    """Return the results that a session, or a run of a script, belongs to: the directory that holds
    its runs/ or scripts/, as --results named it. Return the project's own results for one outside
    of them."""
    runs = Path(os.path.realpath(session)).parent  # unlike Path.resolve, accepts a loop of links
    return runs.parent if runs.name in ("runs", "scripts") else RESULTS


def newest_session(results: Path) -> Path:
    """Return the directory of the session that began last. results: as --results has it. Raises
    UserError if there is no session."""
    sessions = sorted(path for path in (results / "runs").glob("*") if path.is_dir())
    if not sessions:
        raise UserError(
            f"{shown(results / 'runs')}: there is no session yet; measure one: make perf, or "
            "pytest perf/ --profile=smoke"
        )
    return sessions[-1]


def read_sessions(directory: Path, others: Sequence[Path] = ()) -> Archive:
    """Return the session of a report. others: directories of those that are put together with it.
    Raises UserError if there is no such session."""
    archive = read_session(directory)
    return pooled([archive, *map(read_session, others)]) if others else archive


# Several sessions as one ------------------------------------------------------------------------


def pooled(archives: Sequence[Archive]) -> Archive:
    """Return several sessions as one. A case that only one of them measured soundly is left out,
    and so are breakdowns of wall time, which are of one session. Raises UserError for sessions that
    cannot be put together."""
    first = archives[0]
    documents = [archive.session for archive in archives]
    known = {case.name: case for case in first.cases}
    for number, archive in enumerate(archives[1:], start=1):
        path = shown(archive.directory)
        if documents[number].session in {each.session for each in documents[:number]}:
            raise UserError(f"{path}: given twice; give each session once")
        unlike = f"cannot be put together with {shown(first.directory)}"
        if changed := new_series(first, archive):
            raise UserError(f"{path}: {unlike}: {changed[0]}; hvdperf compare shows what differs")
        for case in archive.cases:
            own = known.get(case.name)
            if own is not None and (differ := asked_apart(first, archive, own, case)):
                raise UserError(f"{path} (B): {unlike} (A): {case.name}: {differ[0]}")
    found: dict[str, list[Case]] = {}
    offset = 0
    for archive in archives:
        cases = [_renumbered(case, offset) for case in archive.cases]
        for case in cases:
            if case.is_sound:
                found.setdefault(case.name, []).append(case)
        numbers = (each.number for case in cases for each in case.rounds)
        offset = max(numbers, default=offset) + 1
    names = sorted({case.name for archive in archives for case in archive.cases})
    alone = [name for name in names if len(found.get(name, ())) < 2]
    left_out = [line for archive in archives for line in archive.left_out]
    if alone:
        left_out.append(
            f"left out, because fewer than two sessions have a sound figure: {', '.join(alone)}"
        )
    return Archive(
        first.directory,
        _one_document(documents),
        tuple(_pooled_case(found[name]) for name in names if name not in alone),
        tuple(left_out),
        sessions=tuple(archives),
    )


def _one_document(documents: Sequence[SessionDocument]) -> SessionDocument:
    """Return the document of all sessions together. Nothing is said of looks, since no look decided
    the figures."""
    first = documents[0]
    return replace(
        first,
        session=f"{first.session} and {words.plural(len(documents) - 1, 'other')}",
        profile=_all_of(each.profile for each in documents),
        suite=_all_of(each.suite for each in documents),
        hosts=tuple(dict.fromkeys(host for each in documents for host in each.hosts)),
        command="",
        asked=replace(first.asked, looks=(), early=False),
        exit_status=max((each.exit_status or 0 for each in documents), default=0),
        elapsed_seconds=sum(each.elapsed_seconds for each in documents),
        timed_seconds=sum(each.timed_seconds for each in documents),
        unfit=tuple(dict.fromkeys(line for each in documents for line in each.unfit)),
        disturbances=tuple(one for each in documents for one in each.disturbances),
        resumed_at=(),
        verdicts=None,
        precision=0.0,
        next_steps=(),
    )


def _all_of(texts: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def _renumbered(case: Case, offset: int) -> Case:
    """Return a case whose rounds have numbers that no earlier session's have."""
    rounds = tuple(replace(each, number=each.number + offset) for each in case.rounds)
    return replace(case, outcome=replace(case.outcome, rounds=rounds))


def _pooled_case(cases: Sequence[Case]) -> Case:
    figure = mean_of([case.figure.estimate for case in cases if case.figure is not None])
    first = cases[0].outcome
    rule = first.judgement.rule
    verdict, reason = first.judgement.verdict, first.judgement.reason
    if rule is not None:
        verdict = decide(rule, figure, figure)
        reason = undecided(figure) if verdict is Verdict.INCONCLUSIVE else ""
    judgement = replace(
        first.judgement,
        verdict=verdict,
        figure=figure,
        rounds=sum(case.outcome.judgement.rounds for case in cases),
        reason=reason,
        fail_alpha=None,
        early=None,
        widened=1.0,
    )
    outcome = replace(
        first,
        judgement=judgement,
        observations=tuple(one for case in cases for one in case.outcome.observations),
        rounds=tuple(each for case in cases for each in case.rounds),
        breakdown=None,
        cause=None,
        taken_over=False,
    )
    return replace(cases[0], outcome=outcome)


def by_session(archive: Archive) -> Section | None:
    """Return a table of all sessions' figures beside the pooled ones; None for one session."""
    if not archive.sessions:
        return None
    sound = [{case.name: case for case in each.cases if case.is_sound} for each in archive.sessions]

    def estimate(number: int, case: Case) -> float | None:
        own = sound[number].get(case.name)
        return None if own is None or own.figure is None else own.figure.estimate

    days = [f"{each.session.began_at:%Y-%m-%d %H:%M}" for each in archive.sessions]
    rows = Table.of(
        archive.cases,
        value("case", "case", lambda case: case.name),
        *(value(f"session_{n}", day, partial(estimate, n), digits=3) for n, day in enumerate(days)),
        value("sessions", "sessions", lambda case: case.figure and case.figure.observations),
        interval("figure", "all sessions", lambda case: case.figure, bounds=("lower", "upper")),
    )
    return Section(
        "sessions",
        "Sessions",
        "Each session is one observation: a figure is the geometric mean of its sessions, with "
        f"Student's interval ({100 * (1 - 2 * ALPHA):.0f} % confidence), which includes the "
        "variance between them.",
        (Figure("sessions", "Figures by session", "", rows),),
    )


# The report ------------------------------------------------------------------------------------


def session_report(archive: Archive) -> Report:
    """Return the report of a session."""
    cases, session = archive.cases, archive.session
    together = [each.cases for each in archive.sessions]
    answers = [
        by_session(archive),
        board.against(cases, session),
        scaling.section(cases, together),
        wall_time.section(cases),
    ]
    explanations = [
        launches.steps(cases),
        launches.startup(cases),
        collectives.section(cases),
        convergence.section(cases),
        launches.memory(cases),
        machine.section(archive.fingerprint, session.disturbances),
    ]
    folded = (replace(each, explains=True) for each in explanations)
    return _report(archive, [*answers, *folded])


def brief_report(archive: Archive) -> Report:
    """Return all of a session's report that a terminal shows, without reading a file."""
    sections = [part(archive.cases) for part in (wall_time.section, launches.steps)]
    return _report(archive, [*sections, collectives.section(archive.cases)])


def _report(archive: Archive, sections: Iterable[Section | None]) -> Report:
    cases, session = archive.cases, archive.session
    limits = session.asked.thresholds.label
    counts = Counter(case.verdict for case in cases)
    return Report(
        title=f"hvdperf: profile {session.profile}, session {archive.name}",
        verdict=worst(list(counts)),
        counts={word: counts[word] for word in Verdict if counts[word]},
        facts=_facts(archive),
        warnings=tuple(_warnings(archive)),
        board=board.board(cases),
        notes=tuple(filter(None, map(board.note, board.ranked(cases)))),
        sections=named_apart(filter(None, sections)),
        left_out=archive.left_out,
        overview=board.overview(cases, limits, [each.cases for each in archive.sessions]),
        limits=limits,
        next_steps=session.next_steps,
    )


def named_apart(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Return the sections with a number appended to the name of a figure that is already taken."""
    taken: set[str] = set()

    def free(name: str) -> str:
        names = (name, *(f"{name}_{times}" for times in range(2, len(taken) + 2)))
        found = next(each for each in names if each not in taken)
        taken.add(found)
        return found

    return tuple(
        replace(
            section,
            figures=tuple(replace(figure, name=free(figure.name)) for figure in section.figures),
        )
        for section in sections
    )


def _facts(archive: Archive) -> dict[str, str]:
    """Return facts about the session in a few words each, by name."""
    known, session = archive.fingerprint, archive.session
    timed = session.timed_seconds / max(session.elapsed_seconds, 1e-9)
    minutes, thresholds = session.elapsed_seconds / 60, session.asked.thresholds
    facts = {
        "began": began(session),
        "host" if len(session.hosts) == 1 else "hosts": ", ".join(session.hosts),
        "machine": words.machine(known),
        "stack": words.stack(known),
        "ranks": session.launched,
        "world sizes": ", ".join(map(str, session.world_sizes)),
        "took": f"{minutes:.1f} min, {100 * timed:.0f} % of it in timed blocks",
        "suite": session.suite,
    }
    if thresholds.name:
        facts["thresholds"] = f"{thresholds.name}, hash {thresholds.sha256}"
    if session.against:
        facts["against"] = session.against
    if session.command:
        facts["command"] = session.command
    return facts


def began(session: SessionDocument) -> str:
    """Return when the session began, in words."""
    moment = session.began_at.astimezone(UTC)
    return f"{moment:%A}, {moment.day} {moment:%B %Y, %H:%M} UTC"


def _warnings(archive: Archive) -> list[str]:
    session = archive.session
    warnings = []
    if archive.unfinished:
        warnings.append(archive.unfinished)
    if session.asked.inject:
        warnings.append(f"Injected fault: {session.asked.inject}.")
    if session.oversubscribed_sizes:
        sizes = ", ".join(map(str, session.oversubscribed_sizes))
        warnings.append(
            f"At world size {sizes} there are more ranks than cores or devices: "
            "efficiencies are shown, but not judged."
        )
    if session.against:
        changed = "; ".join(session.changed) or "none, both are the same stack"
        warnings.append(
            "Every figure is the speed of this session's stack / the speed of the stack of "
            f"{session.against}. Differences from that stack to this one: {changed}."
        )
    warnings += [f"Not ready to measure: {line}." for line in session.unfit]
    whole = together(session.disturbances)
    # The reason of an undecided case tells the disturbance.
    told = any(case.verdict is Verdict.INCONCLUSIVE for case in archive.cases)
    if whole is not None and whole.is_disturbed and not told:
        warnings.append(f"Disturbed turns were measured again: {whole.reason()}.")
    settings = told_settings(archive.fingerprint)
    warnings += [f"Setting: {line}." for line in settings]
    if session.resumed_at:
        before = [case.name for case in archive.cases if case.outcome.taken_over]
        more = f" Measured before: {', '.join(before)}." if before else ""
        warnings.append(f"Resumed at {', '.join(map(str, session.resumed_at))}.{more}")
    return warnings


def pytest_hvdperf_tables(archive: Archive) -> list[str]:
    return lines_of(brief_report(archive))
