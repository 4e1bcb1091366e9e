"""The report of a session: its data, its cases sorted into sections, and its tables at the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable
from hvdperf.machine.disturbance import together
from hvdperf.paths import RESULTS, shown
from hvdperf.records.archive import Archive, OfEarlierFormat, read_document, read_session
from hvdperf.records.documents import SESSION_FILE, SessionDocument
from hvdperf.records.fingerprinting import told_settings
from hvdperf.report import pooled, words
from hvdperf.report.compare import beside
from hvdperf.report.content import Report, Section
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
from hvdperf.verdict import Verdict, worst


@dataclass(frozen=True)
class Sources:
    """The data of a report.

    archive: the session. earlier: session.json of the last session before it with the same profile
    and settings; None if there is none. left_out: a line for each file that could not be read.
    """

    archive: Archive
    earlier: SessionDocument | None
    left_out: tuple[str, ...]


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


def read_sources(directory: Path, others: Sequence[Path] = ()) -> Sources:
    """Read the data of a report. directory: of the session. others: of those that are put together
    with it. Raises UserError if there is no such session."""
    archive = read_session(directory)
    earlier, unreadable = _earlier(archive)
    if others:
        archive = pooled.pooled([archive, *map(read_session, others)])
    return Sources(archive, earlier, (*archive.left_out, *unreadable))


def _earlier(archive: Archive) -> tuple[SessionDocument | None, list[str]]:
    """Return the last session before this one with the same profile and settings and at least one
    verdict, and a line for each later session that could not be read."""
    session = archive.session
    if session is None:
        return None, []
    unreadable = []
    here = archive.directory.resolve()
    for other in sorted(here.parent.glob("*"), reverse=True):
        path = other / SESSION_FILE
        try:
            if other.name >= here.name or not path.is_file():
                continue
            document = read_document(path, SessionDocument)
        except OfEarlierFormat:
            break  # all earlier sessions have such a format, too
        except (Unreadable, OSError) as error:
            unreadable.append(f"{shown(path)}: left out: {' '.join(str(error).split())[:160]}")
            continue
        # Compare the settings, too: with other workloads, world sizes, thresholds, faults or
        # stacks, a case of the same name asks another question.
        asks_the_same = (document.profile, document.asked) == (session.profile, session.asked)
        if asks_the_same and document.verdicts:
            return document, unreadable
    return None, unreadable


# The report ------------------------------------------------------------------------------------


def session_report(sources: Sources) -> Report:
    """Return the report of a session. sources: have at least one document of the session."""
    archive = sources.archive
    cases, session, fingerprint = archive.cases, archive.session, archive.fingerprint
    together = [each.cases for each in archive.sessions]
    answers = [
        pooled.section(archive),
        board.against(cases, session),
        scaling.section(cases, together),
        scaling.by_nodes(cases, together),
        wall_time.section(cases),
    ]
    explanations = [
        board.parity(cases),
        launches.steps(cases),
        launches.startup(cases),
        collectives.section(cases),
        convergence.section(cases),
        launches.memory(cases),
        board.others(cases),
        board.trust(cases),
        machine.disturbance(session),
        machine.section(fingerprint, session, sources.earlier),
    ]
    folded = (replace(each, explains=True) for each in explanations if each is not None)
    return _report(archive, [*answers, *folded], sources.left_out)


def brief_report(archive: Archive, earlier: Archive | None = None) -> Report:
    """Return all of a session's report that a terminal shows, without reading a file. earlier: the
    session of --baseline."""
    sections = [part(archive.cases) for part in (wall_time.section, launches.steps)]
    brief = _report(archive, [*sections, collectives.section(archive.cases)], ())
    return brief if earlier is None else beside(brief, earlier, archive)


def _report(
    archive: Archive, sections: Iterable[Section | None], left_out: tuple[str, ...]
) -> Report:
    cases = archive.cases
    limits = "" if archive.session is None else archive.session.asked.thresholds.label
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
        overview=board.overview(cases, limits, [each.cases for each in archive.sessions]),
        limits=limits,
        next_steps=() if archive.session is None else archive.session.next_steps,
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
    cpu = (
        f"{words.plural(known['cores'], 'core')} of {known['cpu_model']}, {known['memory_gib']} GiB"
    )
    gpus = f"{known['gpus']} x {', '.join(known['gpu_model'])}; " if known["gpus"] else ""
    stack = [f"TensorFlow {known['tensorflow']}", f"Horovod {known['horovod']}"]
    # mpi_library is None if Horovod was built without MPI.
    stack += filter(None, [known["mpi_library"]])
    facts = {}
    if session is not None:
        facts["began"] = began(session)
        facts["host" if len(session.hosts) == 1 else "hosts"] = ", ".join(session.hosts)
    facts |= {"machine": f"{gpus}{cpu}", "stack": ", ".join(stack)}
    if session is not None:
        facts["ranks"] = session.launched
        facts["world sizes"] = ", ".join(map(str, session.world_sizes))
        timed = session.timed_seconds / max(session.elapsed_seconds, 1e-9)
        minutes = session.elapsed_seconds / 60
        facts["took"] = f"{minutes:.1f} min, {100 * timed:.0f} % of it in timed blocks"
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
    settings = told_settings(archive.fingerprint, (case.comparison for case in archive.cases))
    warnings += [f"Setting: {line}." for line in settings]
    if session is not None and session.resumed_at:
        before = [case.name for case in archive.cases if case.outcome.taken_over]
        more = f" Measured before: {', '.join(before)}." if before else ""
        warnings.append(f"Resumed at {', '.join(map(str, session.resumed_at))}.{more}")
    return warnings


def pytest_hvdperf_tables(archive: Archive, earlier: Archive | None) -> list[str]:
    return lines_of(brief_report(archive, earlier))
