"""Several sessions as one: each figure with the variance between the sessions.

Rounds of one session share its day: the machine's temperature, other jobs, the place of memory. So
an interval over all rounds of several sessions would be too short. Here a session is one
observation: the figure is the geometric mean of the sessions' estimates, and its interval is that
of Student's t over them. It is exact however the variance is divided between rounds and sessions,
if their estimates are normal; two sessions give a very wide one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist, fmean, variance

from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.report import words
from hvdperf.report.cases import mean_of
from hvdperf.report.compare import asked_apart, new_series
from hvdperf.report.content import Figure, Section, Table, interval, value
from hvdperf.stats import Interval
from hvdperf.verdict import ALPHA, Verdict, decide, is_bounded, undecided


def pooled(archives: Sequence[Archive]) -> Archive:
    """Return several sessions as one. A case that only one of them measured soundly is left out,
    and so are breakdowns of wall time, which are of one session. Raises UserError for sessions that
    cannot be put together."""
    first = archives[0]
    documents = [_document(archive) for archive in archives]
    for number, archive in enumerate(archives[1:], start=1):
        if documents[number].session in {each.session for each in documents[:number]}:
            raise UserError(f"{shown(archive.directory)}: given twice; give each session once")
        if changed := new_series(first, archive):
            raise UserError(
                f"{shown(archive.directory)}: cannot be put together with "
                f"{shown(first.directory)}: {changed[0]}; hvdperf compare shows what differs"
            )
        _check_alike(first, archive)
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
        _together(documents),
        tuple(_pooled_case(found[name]) for name in names if name not in alone),
        tuple(left_out),
        sessions=tuple(archives),
    )


def _check_alike(first: Archive, other: Archive) -> None:
    """Raise UserError if a case of one name asks another thing in the other session."""
    known = {case.name: case for case in first.cases}
    for case in other.cases:
        if case.name not in known:
            continue
        own = known[case.name]
        differ = asked_apart(first, other, own, case)
        if differ:
            raise UserError(
                f"{shown(other.directory)} (B): cannot be put together with "
                f"{shown(first.directory)} (A): {case.name}: {differ[0]}"
            )


def _document(archive: Archive) -> SessionDocument:
    if archive.session is None:
        raise UserError(f"{shown(archive.directory)}: {archive.why_no_session}")
    return archive.session


def _together(documents: Sequence[SessionDocument]) -> SessionDocument:
    """Return the document of all sessions together. Nothing is said of looks, since no look decided
    the figures."""
    first, last = documents[0], documents[-1]
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
        budget_spent_seconds=sum(each.budget_spent_seconds for each in documents),
        written_at=last.written_at,
        unfit=tuple(dict.fromkeys(line for each in documents for line in each.unfit)),
        disturbances=tuple(one for each in documents for one in each.disturbances),
        resumed_at=(),
        taken_over=(),
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
    return replace(cases[0], outcome=outcome, written_at=cases[-1].written_at)


def between(figures: Sequence[Interval]) -> float:
    """Return the standard deviation between sessions of ln of a figure, without what the rounds
    within them explain; 0 if they explain all of it. That is estimated from the intervals."""
    logs = [math.log(figure.estimate) for figure in figures]
    within = [
        (math.log(figure.upper / figure.lower) / (2 * NormalDist().inv_cdf(1 - figure.alpha))) ** 2
        for figure in figures
        if is_bounded(figure)
    ]
    explained = fmean(within) if within else 0.0
    return math.sqrt(max(0.0, variance(logs) - explained))


def section(archive: Archive) -> Section | None:
    """Return a table of all sessions' figures beside the pooled ones; None for one session."""
    if not archive.sessions:
        return None
    sound = [{case.name: case for case in each.cases if case.is_sound} for each in archive.sessions]

    def figures(case: Case) -> list[Interval]:
        own = (known[case.name].figure for known in sound if case.name in known)
        return [figure for figure in own if figure is not None]

    def estimate(number: int, case: Case) -> float | None:
        own = sound[number].get(case.name)
        return None if own is None or own.figure is None else own.figure.estimate

    days = [f"{_document(each).began_at:%Y-%m-%d %H:%M}" for each in archive.sessions]
    rows = Table.of(
        archive.cases,
        value("case", "case", lambda case: case.name),
        *(value(f"session_{n}", day, partial(estimate, n), digits=3) for n, day in enumerate(days)),
        value("sessions", "sessions", lambda case: len(figures(case))),
        interval("figure", "all sessions", lambda case: case.figure, bounds=("lower", "upper")),
        value("between", "sd between sessions", lambda case: 100 * between(figures(case)), "%", 1),
    )
    says = words.several(f"{case.name} {words.shown(case.figure)}" for case in archive.cases)
    return Section(
        "sessions",
        "Sessions",
        "Each session is one observation: a figure is the geometric mean of its sessions, with "
        f"Student's interval ({100 * (1 - 2 * ALPHA):.0f} % confidence), which includes the "
        "variance between them. The last column has that variance without what the rounds within "
        "sessions explain.",
        (Figure("sessions", "Figures by session", f"{says}.", rows),),
    )
