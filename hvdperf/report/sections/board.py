"""The tables of cases: throughputs with their ratios, every case with its verdict, and one stack
beside another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hvdperf import columns, verdict
from hvdperf.judge.trust import note_on_fails
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case, SessionDocument
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.report import plots, words
from hvdperf.report.cases import (
    Size,
    asked,
    at_95,
    number,
    scaled,
    size_of,
    speeds_of,
    times,
)
from hvdperf.report.content import CaseNote, Field, Figure, Row, Section, Table, interval, value
from hvdperf.stats import Interval
from hvdperf.verdict import Verdict
from hvdperf.work.table import work_of
from hvdperf.work.training import Epochs

# The verdicts that follow from a result and its limit.
_BY_THE_RESULT = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)

# Only shown if a case has one: a change between two sides that can be alike.
_EFFECT = "minimum_detectable_effect"


def ranked(cases: Iterable[Case]) -> list[Case]:
    """Return the cases, the worst verdict first."""
    order = list(Verdict)
    return sorted(cases, key=lambda case: order.index(case.verdict))


def board(cases: Sequence[Case]) -> Figure:
    """Return a row per case, the worst verdict first."""
    whole = Table.of(ranked(cases), *FIELDS)
    rows = whole.rows
    told = (*_says(cases), note_on_fails(case.outcome for case in cases))
    return Figure(
        name="board",
        title="Verdicts",
        says=" ".join(f"{sentence}." for sentence in told if sentence),
        table=Table(
            tuple(
                column
                for column in whole.columns
                if column.key != _EFFECT or any(row[_EFFECT] for row in rows)
            ),
            rows,
        ),
        brief=True,
    )


def note(case: Case) -> CaseNote | None:
    """Return a note with the information that the case's row lacks; return None if it lacks
    none."""
    outcome = case.outcome
    failure = outcome.failure
    paragraphs = [case.reason] if case.reason else []
    if case.verdict is not Verdict.PASS and case.figure is not None and case.rule is not None:
        paragraphs.append(
            f"Result {words.shown(case.figure)} after "
            f"{words.plural(outcome.judgement.rounds, 'round')}, with the confidence that a "
            f"verdict needs; limit: {verdict.must_be(outcome.judgement)}"
        )
    if not paragraphs and case.verdict is Verdict.PASS:
        return None
    output = tuple(failure.tail) if failure is not None else ()
    return CaseNote(case.name, case.verdict, tuple(paragraphs), output, case.reason)


def _effect_of(case: Case) -> float | None:
    """Return the minimum detectable effect in %; None for a distance from a threshold, since only
    sides that can be alike have one."""
    alike = case.judged_as in (JudgedAs.REGRESSION, JudgedAs.AA_PAIR)
    return scaled(case.outcome.judgement.detectable_effect if alike else None)


FIELDS: tuple[Field[Case], ...] = (
    value("verdict", "verdict", lambda case: case.verdict.value, brief="verdict"),
    Field(words.NAMES, words.names_of),
    # The case's name says these three; the page finds cases by them.
    value("question", "question", words.question_of, hidden=True),
    value("model", "network", lambda case: case.workload.model, hidden=True),
    value("world_size", "ranks", lambda case: case.world_size, hidden=True),
    interval(
        "figure",
        "result",
        at_95,
        bounds=("lower", "upper"),
        brief="result 95 % interval",
        brief_bounds=True,
    ),
    value("must_be", "limit", lambda case: verdict.must_be(case.outcome.judgement), brief="limit"),
    value("rounds", "rounds", lambda case: case.outcome.judgement.rounds, brief="rounds"),
    value(_EFFECT, "minimum detectable effect", _effect_of, "%", 1),
    value("nodes", "nodes", lambda case: len(case.replicas_per_node), hidden=True),
)


def _says(cases: Sequence[Case]) -> Iterator[str]:
    """Yield sentences on how many results are within their limits, and on what a PASS leaves
    open."""
    judged = [
        case
        for case in cases
        if case.verdict in _BY_THE_RESULT
        and case.rule is not None
        and case.figure is not None
        and verdict.is_bounded(case.figure)
        and not case.comparison.is_fault_case
    ]
    if not judged:
        yield "No result with a limit has an interval"
        return
    passed = [case for case in judged if case.verdict is Verdict.PASS]
    effects = sorted((each, case.name) for case in passed if (each := _effect_of(case)) is not None)
    yield f"Results within their limits: {len(passed)} of {len(judged)}"
    if len(effects) < len(passed):
        yield (
            "PASS means within the limit, not that nothing changed; to find smaller slowdowns, use "
            "--against PYTHON"
        )
    if effects:
        ends = dict.fromkeys((effects[0], effects[-1]))
        told = (f"{share:.{0 if share >= 9.95 else 1}f} % ({name})" for share, name in ends)
        yield (
            "Minimum detectable effect (found by 90 % of such sessions) of the results that PASS: "
            f"{' to '.join(told)}"
        )


# Throughputs with their ratios -----------------------------------------------------------------

# The ratios beside the throughput, by the key of their columns: with the heading on a terminal, and
# with the factor and the digits in which they are shown.
_RATIOS = {
    "weak": (Question.WEAK_SCALING, "weak scaling", 100.0, 0),
    "strong": (Question.STRONG_SCALING, "strong scaling", 100.0, 0),
    "parity": (Question.PARITY, "vs Mirrored", 1.0, 2),
}
_ASKED = tuple(question for question, *_ in _RATIOS.values())
_SPEED = "samples_per_second"


def overview(
    cases: Sequence[Case], limits: str = "", sessions: Sequence[Sequence[Case]] = ()
) -> Figure | None:
    """Return the answer to how training scales: a row per network and world size with the
    throughput of Horovod with its defaults and the ratios that were measured, each with its 95 %
    interval; None if there is no throughput. limits: the label of the thresholds. sessions: as in
    speeds_of."""
    speeds = speeds_of(throughputs(cases), sessions)
    if not speeds:
        return None
    # A digit more if one of them is below 100.
    digits = int(min(speed.estimate for speed in speeds.values()) < 99.95)
    ratios = [_ratio(name, cases) for name in _RATIOS]
    judged = {size_of(case) for case in asked(cases, *_ASKED)}
    labels = words.workload_labels(workload for workload, _ in (*speeds, *judged))
    keys = sorted({*speeds, *judged}, key=lambda key: (labels[key[0]], key[1]))
    fields: list[Field[Size]] = [
        value("model", "network", lambda key: labels[key[0]], brief="network"),
        value("world_size", "ranks", lambda key: key[1], brief="ranks"),
        interval(_SPEED, "throughput", speeds.get, "samples/s", digits, brief="samples/s"),
        # Ratios that were not measured have no column.
        *(each for each in ratios if any(each.cells(key)[each.columns[0].key] for key in keys)),
        value("verdict", "worst verdict", lambda key: _worst(key, cases)),
    ]
    rows = Table.of(keys, *map(_narrow, fields))
    measured = [row for row in rows.rows if row[_SPEED]]
    return Figure(
        "throughput",
        "How training scales",
        "Horovod with default settings: samples/s of all ranks, scaling in % of ideal, 95 % "
        f"intervals.{_limits(cases, limits)}{_by_step(cases)}",
        rows,
        plots.interval(rows, "model", plots.axis(rows, _SPEED, scale={"zero": True}), "world_size"),
        lead=_lead(measured),
    )


def _narrow(field: Field[Size]) -> Field[Size]:
    """Return the field without bounds on the page, where they would make its first table wide."""
    first, *bounds = field.columns
    return replace(field, columns=(first, *(replace(each, hidden=True) for each in bounds)))


def _ratio(name: str, cases: Sequence[Case]) -> Field[Size]:
    """Return the field of a ratio beside the throughput."""
    question, brief, factor, digits = _RATIOS[name]
    results = {size_of(case): at_95(case) for case in asked(cases, question)}

    def ratio(key: Size) -> Interval | None:
        found = results.get(key)
        return None if found is None else times(found, factor)

    unit = "%" * (factor > 1)
    return interval(name, question.label, ratio, unit, digits, brief=brief, brief_bounds=True)


def _worst(key: Size, cases: Sequence[Case]) -> str | None:
    """Return the worst verdict of a network's cases, some of which train a variant of the
    workload; None without any."""
    found = [c.verdict for c in cases if (c.workload.model, c.world_size) == (key[0].model, key[1])]
    return verdict.worst(found).value if found else None


def _lead(rows: Sequence[Row]) -> str:
    """Return in a sentence how each network scales on the most ranks, of those for which that has
    an interval: where ranks share cores, a ratio is only shown."""
    scaled = {row["model"]: row for row in rows if row.get("weak_low") is not None}
    if not scaled:
        return words.several(
            f"{row['model']} {row['samples_per_second']:,.0f} samples/s on "
            f"{words.plural(int(number(row['world_size'])), 'rank')}"
            for row in {row["model"]: row for row in rows}.values()
        )
    told = (
        f"{row['model']} {row['weak']:.0f} % "
        f"{columns.interval(number(row['weak_low']), number(row['weak_high']), 5, 0)} on "
        f"{row['world_size']} ranks"
        for row in sorted(scaled.values(), key=lambda row: number(row["weak"]))
    )
    return f"Weak scaling, in % of ideal: {words.several(told)}."


def _limits(cases: Sequence[Case], label: str) -> str:
    """Return a sentence, with a blank before it, on the limits of the ratios; "" without any."""
    found: dict[str, dict[str, int]] = {}
    for question, brief, factor, _ in _RATIOS.values():
        for case in asked(cases, question):
            limit, rule = f"{case.rule or ''}", case.rule
            if factor > 1 and isinstance(rule, verdict.Floor):
                limit = f">= {factor * rule.limit(case.figure):.3g} %"
            if limit:
                found.setdefault(brief, {})[limit] = case.world_size
    told = (
        f"{brief} {limit}" + f" ({words.plural(size, 'rank')})" * (len(sizes) > 1)
        for brief, sizes in found.items()
        for limit, size in sizes.items()
    )
    of = f" ({label})" if label else ""
    return f" Limits{of}: {', '.join(told)}." if found else ""


def _by_step(cases: Sequence[Case]) -> str:
    """Return a sentence, with a blank before it, on scripts whose batches are not seen."""
    scripts = {
        case.workload.model
        for case, _, launch in each_launch(cases)
        if case.workload.is_script
        and any(rank.samples == block.steps for block in launch.blocks for rank in block.ranks)
    }
    names = ", ".join(sorted(scripts))
    return f" A step of {names} counts as one sample: no batch is seen." if names else ""


# Two stacks --------------------------------------------------------------------------------------


def against(cases: Sequence[Case], session: SessionDocument) -> Section | None:
    """Return the section that compares this stack with that of --against, each result over its
    band; None without one. session: its document, of which the confidence of the verdicts is
    known."""
    found = [case for case in cases if case.comparison.reference.arm.stack]
    if not found:
        return None
    limit = verdict.REGRESSION
    learnt = any(work_of(case.question) is Epochs for case in found)
    meant = (
        "speed, or validation result: this stack / the other one"
        if learnt
        else "speed of this stack / speed of the other one"
    )
    labels = words.workload_labels(case.workload for case in found)
    rows = Table.of(
        found,
        value("case", "case", lambda case: case.name),
        value("model", "network", lambda case: labels[case.workload]),
        value("world_size", "ranks", lambda case: case.world_size),
        interval("ratio", "ratio", at_95, bounds=("lower", "upper")),
        value("low", "at least", lambda case: case.limit.at_least, digits=3),
        value("high", "at most", lambda case: case.limit.at_most, digits=3),
        value("rounds", "rounds", lambda case: case.outcome.judgement.rounds),
        value("verdict", "verdict", lambda case: case.verdict.value),
    )
    low = plots.field("low")
    band = {"type": "bar", "style": "band"}
    a_floor = {"filter": "isValid(datum.low) && !isValid(datum.high)"}
    plot = plots.interval(
        rows,
        "case",
        plots.axis(rows, "ratio", meant, scale={"zero": False}),
        "verdict",
        plots.layer(band, plots.known("low", "high"), x=low, x2={"field": "high"}),
        plots.layer({"type": "tick", "style": "limit"}, a_floor, x=low),
        plots.line("ideal", x={"datum": 1}),
    )
    return Section(
        "against",
        "Two stacks",
        "The turns of both stacks were interleaved in this session. A figure is the "
        "speed under this stack / the speed under the other one; for a validation it is the "
        "ratio of losses or accuracies. A ratio of speeds FAILs if it is below "
        f"{limit.fail_below}, and PASSes if it is not below {limit.pass_from}"
        f"{words.with_confidence(session, found)}; 'at least' is the limit that decided. "
        "The head of the page lists the differences between the stacks.",
        (Figure("against", "This stack compared with the other one", words.INTERVALS, rows, plot),),
    )
