"""The report of a session: its cases sorted into sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC

from hvdperf.machine.disturbance import together
from hvdperf.records.archive import Archive
from hvdperf.records.documents import SessionDocument
from hvdperf.records.fingerprinting import told_settings
from hvdperf.report.compare import beside
from hvdperf.report.content import Report, Section
from hvdperf.report.sections import (
    board,
    collectives,
    comparisons,
    convergence,
    disturbance,
    machine,
    memory,
    nodes,
    overview,
    releases,
    scaling,
    startup,
    steps,
    trust,
    wall_time,
)
from hvdperf.report.sources import Sources
from hvdperf.report.words import plural, several
from hvdperf.verdict import Verdict, worst


def session_report(sources: Sources) -> Report:
    """Return the report of a session. sources: have at least one document of the session."""
    archive = sources.archive
    cases, session, fingerprint = archive.cases, archive.session, archive.fingerprint
    sections = [
        comparisons.against(cases, session),
        scaling.section(cases),
        nodes.section(cases),
        comparisons.parity(cases),
        wall_time.section(cases),
        steps.section(cases),
        startup.section(cases),
        collectives.section(cases),
        convergence.section(cases),
        memory.section(cases),
        comparisons.others(cases),
        trust.section(cases, sources.trust, fingerprint),
        releases.section(fingerprint, sources.history),
        disturbance.section(session),
        machine.section(fingerprint, session, sources.earlier),
    ]
    return _report(archive, sections, sources.left_out)


def brief_report(archive: Archive, earlier: Archive | None = None) -> Report:
    """Return all of a session's report that a terminal shows, without reading a file. earlier: the
    session of --baseline."""
    sections = [part(archive.cases) for part in (wall_time.section, steps.section)]
    brief = _report(archive, [*sections, collectives.section(archive.cases)], ())
    return brief if earlier is None else beside(brief, earlier, archive)


def _report(
    archive: Archive, sections: Iterable[Section | None], left_out: tuple[str, ...]
) -> Report:
    cases = archive.cases
    profile = "" if archive.session is None else f"profile {archive.session.profile}, "
    counts = Counter(case.verdict for case in cases)
    return Report(
        title=f"hvdperf: {profile}session {archive.name}",
        verdict=worst(list(counts)),
        counts={word: counts[word] for word in Verdict if counts[word]},
        facts=_facts(archive),
        warnings=tuple(_warnings(archive)),
        board=board.board(cases),
        notes=tuple(filter(None, map(board.note, board.ranked(cases)))),
        sections=named_apart(filter(None, sections)),
        left_out=left_out,
        overview=overview.overview(cases),
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
    cpu = f"{plural(known['cores'], 'core')} of {known['cpu_model']}, {known['memory_gib']} GiB"
    gpus = f"{known['gpus']} x {', '.join(known['gpu_model'])}; " if known["gpus"] else ""
    stack = [f"TensorFlow {known['tensorflow']}", f"Horovod {known['horovod']}"]
    # mpi_library is None if Horovod was built without MPI.
    stack += filter(None, [known["mpi_library"]])
    facts = {}
    if session is not None:
        facts["began"] = began(session)
        if session.hosts:
            facts["host" if len(session.hosts) == 1 else "hosts"] = ", ".join(session.hosts)
    facts |= {"machine": f"{gpus}{cpu}", "stack": ", ".join(stack)}
    if session is not None:
        if session.launched:
            facts["ranks"] = session.launched
        facts["world sizes"] = ", ".join(map(str, session.world_sizes))
        timed = session.timed_seconds / max(session.elapsed_seconds, 1e-9)
        minutes = session.elapsed_seconds / 60
        facts["took"] = f"{minutes:.1f} min, {100 * timed:.0f} % of it in timed blocks"
        if session.suite:
            facts["suite"] = session.suite
        thresholds = session.asked.thresholds
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
    if session is None:
        warnings.append("session.json cannot be read: the report shows the cases that were found.")
    if archive.unfinished:
        warnings.append(archive.unfinished)
    if session is not None:
        if session.asked.inject:
            warnings.append(f"Injected fault: {session.asked.inject}.")
        if session.oversubscribed_sizes:
            sizes = ", ".join(map(str, session.oversubscribed_sizes))
            warnings.append(
                f"At world size {sizes} there are more replicas than cores or devices: "
                "efficiencies are shown, but not judged."
            )
        if session.against:
            warnings.append(
                "Every figure is the speed of this session's stack / the speed of the stack of "
                f"{session.against}. Differences from that stack to this one:"
            )
            warnings += session.changed or ["none: both are the same stack"]
        warnings += [f"Unfit to measure: {line}." for line in session.unfit]
        whole = together(session.disturbances)
        # The reason of an undecided case tells the disturbance.
        told = any(case.verdict is Verdict.INCONCLUSIVE for case in archive.cases)
        if whole is not None and whole.is_disturbed and not told:
            warnings.append(f"Disturbed repetitions were measured again: {whole.reason()}.")
    settings = told_settings(archive.fingerprint, (case.comparison for case in archive.cases))
    warnings += [f"Setting: {line}." for line in settings]
    if session is not None and session.resumed_at:
        before = [case.name for case in archive.cases if case.outcome.taken_over]
        more = f" Measured before: {several(before)}." if before else ""
        warnings.append(f"Resumed at {', '.join(map(str, session.resumed_at))}.{more}")
    return warnings
