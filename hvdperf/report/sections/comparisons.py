"""Ratios beside their bands, and the evidence that verdicts on them can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.report import plots
from hvdperf.report.cases import at_95, with_confidence
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table
from hvdperf.report.sections import scaling
from hvdperf.report.sections.board import row_of
from hvdperf.report.words import INTERVALS, plural, several, shown, slug, workload_labels
from hvdperf.verdict import REGRESSION, Band, Ceiling, Floor, Verdict
from hvdperf.work.table import work_of
from hvdperf.work.training import Epochs

COLUMNS = (
    Column("case", "case"),
    Column("model", "network"),
    Column("world_size", "ranks"),
    Column("ratio", "ratio", digits=3),
    Column("lower", "lower", digits=3),
    Column("upper", "upper", digits=3),
    Column("low", "at least", digits=3),
    Column("high", "at most", digits=3),
    Column("rounds", "rounds"),
    Column("verdict", "verdict"),
)


def parity(cases: Sequence[Case]) -> Section:
    """Return the section that compares Horovod with other ways to train on several devices."""
    return Section(
        "parity",
        "Parity",
        "Horovod compared with MirroredStrategy and others on the same devices: a ratio of "
        "speeds, above 1 if Horovod is faster. A case passes if its whole interval lies in the "
        "band.",
        _figures([case for case in cases if case.comparison.compares_strategies]),
        "Not measured; to measure: pytest perf/test_parity.py",
    )


def others(cases: Sequence[Case]) -> Section:
    """Return the section on the figures that no other section has, such as the cost of
    communication, other exchanges, and convergence."""
    figures = _figures(
        [
            case
            for case in cases
            if not work_of(case.question).has_section
            and case.question not in scaling.ASKED
            and not case.comparison.compares_strategies
        ]
    )
    return Section(
        "comparisons",
        "Comparisons",
        "Each figure stands with its interval beside the limits of its case.",
        figures,
        "Not measured; to measure: make perf PROFILE=nightly.",
    )


def against(cases: Sequence[Case], session: SessionDocument | None = None) -> Section | None:
    """Return the section that compares this stack with that of --against; None without one.
    session: its document, of which the confidence of the verdicts is known."""
    found = [case for case in cases if case.comparison.reference.arm.stack]
    if not found:
        return None
    learnt = any(work_of(case.question) is Epochs for case in found)
    meant = (
        "speed, or validation result: this stack / the other one"
        if learnt
        else "speed of this stack / speed of the other one"
    )
    # No tag for a question: the figure covers several, each with a name of its own on the board.
    figure = _figure("against", "This stack compared with the other one", found, meant, {})
    return Section(
        "against",
        "Two stacks",
        "The turns of both stacks were interleaved in this session. A figure is the "
        "speed under this stack / the speed under the other one; for a validation it is the "
        "ratio of losses or accuracies. A ratio of speeds FAILs if it is below "
        f"{REGRESSION.fail_below}, and PASSes if it is not below {REGRESSION.pass_from}"
        f"{with_confidence(session, found)}; 'at least' is the limit that decided. "
        "Section Machine lists the differences between the stacks.",
        (figure,),
    )


def _figures(cases: Sequence[Case]) -> tuple[Figure, ...]:
    """Return a figure for each question of the cases."""
    return tuple(
        _figure(
            slug(question.value),
            question.label,
            found,
            question.spec.meaning,
            {"question": question.label},
        )
        for question in Question
        if (
            found := [
                case
                for case in cases
                if case.question is question
                and case.figure is not None
                and case.judged_as is JudgedAs.THRESHOLD
            ]
        )
    )


def _figure(
    name: str, title: str, cases: Sequence[Case], meant: str, tags: Mapping[str, str]
) -> Figure:
    labels = workload_labels(case.workload for case in cases)
    rows = tuple(_row(case, labels[case.workload]) for case in cases)
    said = several(
        f"{case.name} {shown(at_95(case))}"
        + ("" if case.verdict is Verdict.PASS else f" {case.verdict.value}")
        for case in cases
    )
    kept = sum(case.verdict is Verdict.PASS for case in cases)
    return Figure(
        name,
        f"{title[0].upper()}{title[1:]}",
        f"{meant[0].upper()}{meant[1:]}, {kept} of {plural(len(cases), 'case')} PASS: {said}."
        f"{INTERVALS}",
        Table(COLUMNS, rows),
        _forest(len(rows), meant),
        tags,
    )


def _row(case: Case, label: str) -> Row:
    rule = case.rule
    low = high = None
    if isinstance(rule, Band):
        low, high = rule.low, rule.high
    elif isinstance(rule, Floor):
        low = rule.limit(case.figure)
    elif isinstance(rule, Ceiling):
        high = rule.at_most
    row = row_of(case)
    return {**row, "model": label, "ratio": row["figure"], "low": low, "high": high}


def _forest(rows: int, meant: str) -> Plot:
    """Return a plot with a row per case: its interval over its band, and a line at equality."""
    at = {"y": plots.row_names("case", sort=None)}
    low = plots.field("low", "quantitative")
    a_floor = {"filter": "isValid(datum.low) && !isValid(datum.high)"}
    tip = ("case", "verdict", "ratio", "lower", "upper", "low", "high")
    return plots.estimates(
        at,
        plots.field("ratio", "quantitative", meant, scale={"zero": False}),
        ("lower", "upper"),
        plots.layer(
            {"type": "bar", "style": "band"},
            plots.known("low", "high"),
            **at,
            x=low,
            x2={"field": "high"},
        ),
        plots.layer({"type": "tick", "style": "limit"}, a_floor, **at, x=low),
        plots.line("ideal", x={"datum": 1}),
        rows=rows,
        point={**plots.by_verdict(), "tooltip": plots.tooltip(COLUMNS, *tip)},
    )


# Trust -----------------------------------------------------------------------------------------


def trust(cases: Sequence[Case]) -> Section:
    """Return the section on the session's A/A cases."""
    return Section(
        "trust",
        "Trust",
        "An A/A case compares an arm with itself: any difference is the noise of this session.",
        tuple(_same(cases)),
        "This session has no A/A case.",
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
        Column("minimum_detectable_effect", "minimum detectable effect", "%", digits=1),
        Column("verdict", "verdict"),
    )
    rows = [{**row, "ratio": row["figure"]} for row in map(row_of, alike)]
    said = several(f"{case.name} {shown(at_95(case))} {case.verdict.value}" for case in alike)
    return [
        Figure(
            "aa",
            "A/A: two groups of the same arm",
            f"Two groups of the same arm each: {said}.{INTERVALS}",
            Table(columns, tuple(rows)),
        )
    ]
