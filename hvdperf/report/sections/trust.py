"""Evidence for trust in the suite: the minimum detectable effect of this session, and the detection
of injected faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import TRIALS
from hvdperf.records.detections import (
    Count,
    Entry,
    counts_of,
    expected_report,
    measured_here,
    of_newest,
    share_interval,
)
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.report.numbers import cells_of, confidence_of
from hvdperf.report.sections.board import row_of
from hvdperf.report.words import confidence_words, plural, several, shown

COLUMNS = (
    Column("trial", "fault case"),
    Column("fault", "--inject"),
    Column("model", "network"),
    Column("world_size", "replicas"),
    Column("must", "expected"),
    Column("reported", "reported"),
    Column("sessions", "of sessions"),
    Column("share", "share", "%", digits=0),
    Column("lower", "lower", "%", digits=0),
    Column("upper", "upper", "%", digits=0),
    Column("attributed", "right attribution"),
    Column("inconclusive", "undecided"),
)


def section(
    cases: Sequence[Case], log: Sequence[Entry], fingerprint: Mapping[str, object]
) -> Section:
    """Return the section. cases, fingerprint: of the session. log: entries of all sessions of `make
    trust`, including those that were measured on other machines and ship with the suite."""
    figures = [*_same(cases), *_caught(measured_here(log, fingerprint))]
    return Section(
        "trust",
        "Trust",
        "An A/A case compares an arm with itself: any difference is the noise of this session. "
        "If make trust has measured on this machine with this stack, a second table counts how "
        "often an injected fault was reported with the expected verdict, with 95 % intervals "
        "(Clopper and Pearson 1934).",
        tuple(figures),
        "This session has no A/A case, and make trust has measured no session on this machine "
        "with this stack.",
    )


def _same(cases: Sequence[Case]) -> list[Figure]:
    """Return the figure of the session's A/A cases."""
    alike = [case for case in cases if case.question is Question.AA and case.figure is not None]
    if not alike:
        return []
    columns = (
        Column("case", "case"),
        Column("ratio", "ratio", digits=3),
        Column("lower", "lower", digits=3),
        Column("upper", "upper", digits=3),
        Column("confidence", "confidence", "%", digits=1),
        Column("minimum_detectable_effect", "minimum detectable effect", "%", digits=1),
        Column("verdict", "verdict"),
    )
    rows = [{**row_of(each), **cells_of(each.figure, "ratio", "lower", "upper")} for each in alike]
    said = several([f"{case.name} {shown(case.figure)} {case.verdict.value}" for case in alike])
    return [
        Figure(
            "aa",
            "A/A: two groups of the same arm",
            f"Two groups of the same arm each: {said}."
            f"{confidence_words(map(confidence_of, alike))}",
            Table(columns, tuple(rows)),
        )
    ]


def _caught(log: Sequence[Entry]) -> list[Figure]:
    """Return the figure of detections in the sessions of make trust that have the machine, stack
    and settings of the newest one."""
    alike, others = of_newest(log)
    found = counts_of(alike)
    if not found:
        return []
    facts = alike[-1].fingerprint
    tried = sum(count.sessions for count in found)
    reported = sum(count.reported for count in found)
    more = f"; {len(others)} not counted, because their conditions differ" if others else ""
    return [
        Figure(
            "caught",
            "Injected faults, and the verdicts reported",
            f"{plural(len(alike), 'session')} on {facts['cores']} cores of {facts['cpu_model']}, "
            f"TensorFlow {facts['tensorflow']}, Horovod {facts['horovod']}{more}: {reported} of "
            f"{tried} fault cases were reported with the expected verdict.",
            Table(COLUMNS, tuple(map(_row, found))),
            _plot(len(found)),
        )
    ]


def _row(count: Count) -> Row:
    trial = TRIALS[count.trial]
    of = count.sessions
    low, high = share_interval(count.reported, of) if of else (None, None)
    return {
        "trial": count.trial,
        "fault": trial.fault or "nothing",
        "model": count.model,
        "world_size": count.world_size,
        "must": expected_report(trial),
        "reported": count.reported,
        "sessions": of,
        "share": 100 * count.reported / of if of else None,
        "lower": None if low is None else 100 * low,
        "upper": None if high is None else 100 * high,
        "attributed": count.attributed,
        "inconclusive": count.inconclusive,
    }


def _plot(rows: int) -> Plot:
    """Return a plot of shares with their intervals: a row per fault, network and world size."""
    named = "datum.trial + ', ' + datum.model + ' np ' + datum.world_size"
    tip = [column for column in COLUMNS if column.key in ("trial", "must", "reported", "sessions")]
    return plots.estimates(
        {"y": plots.row_names("into", sort=None)},
        plots.field(
            "share",
            "quantitative",
            "expected verdict reported, in % of sessions",
            scale={"domain": [0, 100]},
        ),
        ("lower", "upper"),
        rows=rows,
        point={"tooltip": plots.tooltip(tip)},
        transform=[{"calculate": named, "as": "into"}],
    )
