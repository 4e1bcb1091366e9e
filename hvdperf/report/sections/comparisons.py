"""Ratios beside their bands, and the evidence that verdicts on them can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdperf.plan.comparisons import JudgedAs
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.report import plots, words
from hvdperf.report.cases import at_95, with_confidence
from hvdperf.report.content import Figure, Plot, Section, Table
from hvdperf.report.fields import Field, interval, table, value
from hvdperf.report.sections import board
from hvdperf.report.words import INTERVALS, plural, several, shown
from hvdperf.verdict import REGRESSION, SpeedFloor, Verdict
from hvdperf.work.table import work_of
from hvdperf.work.training import Epochs


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
            and not case.question.spec.scaling
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
    held = [
        case for case in cases if case.figure is not None and case.judged_as is JudgedAs.THRESHOLD
    ]
    return tuple(
        _figure(
            words.slug(question.value),
            question.label,
            [case for case in held if case.question is question],
            question.spec.meaning,
            {"question": question.label},
        )
        for question in sorted({case.question for case in held}, key=lambda each: each.place)
    )


def _figure(
    name: str, title: str, cases: Sequence[Case], meant: str, tags: Mapping[str, str]
) -> Figure:
    labels = words.workload_labels(case.workload for case in cases)
    # A throughput is not a ratio, and has no ideal.
    unit = "samples/s" if cases[0].question.spec.rule is SpeedFloor else ""
    digits = 1 if unit else 3
    fields: tuple[Field[Case], ...] = (
        value("case", "case", lambda case: case.name),
        value("model", "network", lambda case: labels[case.workload]),
        value("world_size", "ranks", lambda case: case.world_size),
        interval(
            "ratio",
            "result" if unit else "ratio",
            at_95,
            unit,
            digits,
            bounds=("lower", "upper"),
        ),
        value("low", "at least", lambda case: case.limit.at_least, unit, digits),
        value("high", "at most", lambda case: case.limit.at_most, unit, digits),
        value("rounds", "rounds", lambda case: case.outcome.judgement.rounds),
        value("verdict", "verdict", lambda case: case.verdict.value),
    )
    rows = table(cases, fields)
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
        rows,
        _forest(rows, meant, ideal=not unit),
        tags,
    )


def _forest(rows: Table, meant: str, *, ideal: bool) -> Plot:
    """Return a plot with a row per case: its interval over its band. ideal: whether to mark
    equality."""
    at = {"y": plots.row_names("case", sort=None)}
    low = plots.field("low", "quantitative")
    # The page chooses the colours and shapes of verdicts.
    verdict = plots.field("verdict", "nominal", "verdict")
    band = {"type": "bar", "style": "band"}
    a_floor = {"filter": "isValid(datum.low) && !isValid(datum.high)"}
    return plots.estimates(
        at,
        plots.field("ratio", "quantitative", meant, scale={"zero": False}),
        ("lower", "upper"),
        plots.layer(band, plots.known("low", "high"), **at, x=low, x2={"field": "high"}),
        plots.layer({"type": "tick", "style": "limit"}, a_floor, **at, x=low),
        *([plots.line("ideal", x={"datum": 1})] if ideal else []),
        rows=len(rows.rows),
        point={"color": verdict, "shape": verdict, "tooltip": plots.tooltip(rows.columns)},
    )


# Trust -----------------------------------------------------------------------------------------


def trust(cases: Sequence[Case]) -> Section:
    """Return the section on the session's A/A cases."""
    alike = [
        case for case in cases if case.judged_as is JudgedAs.AA_PAIR and case.figure is not None
    ]
    fields: tuple[Field[Case], ...] = (
        value("case", "case", lambda case: case.name),
        interval("ratio", "ratio", at_95, bounds=("lower", "upper")),
        board.EFFECT,
        value("verdict", "verdict", lambda case: case.verdict.value),
    )
    said = several(f"{case.name} {shown(at_95(case))} {case.verdict.value}" for case in alike)
    figure = Figure(
        "aa",
        "A/A: two groups of the same arm",
        f"Two groups of the same arm each: {said}.{INTERVALS}",
        table(alike, fields),
    )
    return Section(
        "trust",
        "Trust",
        "An A/A case compares an arm with itself: any difference is the noise of this session.",
        (figure,) if alike else (),
        "This session has no A/A case.",
    )
