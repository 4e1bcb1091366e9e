"""The tables that come first: throughputs with their ratios, and every case with its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hvdperf.columns import interval
from hvdperf.judge.fails import notes_on_fails
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case
from hvdperf.records.fingerprinting import settings_beside
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.report import plots
from hvdperf.report.cases import asked, at_95, cells_of, number, scaled, speeds_of
from hvdperf.report.content import CaseNote, Column, Figure, Plot, Row, Table, Value
from hvdperf.report.words import (
    NAMES,
    names_of,
    plural,
    question_of,
    several,
    shown,
    workload_labels,
)
from hvdperf.stats import Interval
from hvdperf.verdict import Ceiling, Floor, Rule, Verdict, is_bounded, must_be, worst

# A case with such a verdict neither reaches nor misses its threshold, whatever its figure.
_NOT_BY_THE_FIGURE = (
    Verdict.INVALID.value,
    Verdict.NOT_RUN.value,
    Verdict.INFO.value,
)

COLUMNS = (
    Column("verdict", "verdict", brief="verdict"),
    *NAMES,
    # The case's name says these three; the page's filters use them.
    Column("question", "question", hidden=True),
    Column("model", "network", hidden=True),
    Column("world_size", "ranks", hidden=True),
    Column("figure", "result", digits=3, brief="result 95 % interval"),
    Column("lower", "lower", digits=3, brief="lower"),
    Column("upper", "upper", digits=3, brief="upper"),
    Column("must_be", "limit", brief="limit"),
    Column("margin", "margin", "%", digits=1),
    Column("rounds", "rounds", brief="rounds"),
    Column("minimum_detectable_effect", "minimum detectable effect", "%", digits=1),
    Column("nodes", "nodes", hidden=True),
    Column("settings", "settings"),
)
# Only shown if a case has one: a change between two sides that can be alike; settings that touch
# the case.
_OPTIONAL = ("minimum_detectable_effect", "settings")


def ranked(cases: Iterable[Case]) -> list[Case]:
    """Return the cases, the worst verdict first."""
    order = list(Verdict)
    return sorted(cases, key=lambda case: order.index(case.verdict))


def board(cases: Sequence[Case]) -> Figure:
    """Return a row per case, the worst verdict first."""
    rows = tuple(map(row_of, ranked(cases)))
    near = [row for row in rows if row["margin"] is not None]
    judged = [row for row in near if row["verdict"] not in _NOT_BY_THE_FIGURE]
    told = (*_says(judged), *notes_on_fails(case.outcome for case in cases))
    return Figure(
        name="board",
        title="Verdicts",
        says=" ".join(f"{sentence}." for sentence in told),
        table=Table(
            tuple(
                column
                for column in COLUMNS
                if column.key not in _OPTIONAL or any(row[column.key] for row in rows)
            ),
            rows,
        ),
        brief=True,
    )


def margin(figure: Interval, rule: Rule) -> float:
    """Return how far the estimate lies inside its rule, as a share of the limit; negative outside.

    The margin of a band is that to the nearer edge, of a floor that to the limit that decides.
    """
    value = figure.estimate
    if isinstance(rule, Floor):
        return value / rule.limit(figure) - 1
    if isinstance(rule, Ceiling):
        return 1 - value / rule.at_most
    return min(value / rule.low - 1, 1 - value / rule.high)


def note(case: Case) -> CaseNote | None:
    """Return a note with the information that the case's row lacks; return None if it lacks
    none."""
    outcome = case.outcome
    failure, line = outcome.failure, outcome.threshold_line
    paragraphs = [case.reason] if case.reason else []
    if case.verdict is not Verdict.PASS and case.figure is not None and case.rule is not None:
        paragraphs.append(
            f"Result {shown(case.figure)} after {plural(outcome.judgement.rounds, 'round')}, with "
            f"the confidence that a verdict needs; limit: {must_be(outcome.judgement)}"
        )
    if failure is not None:
        who = "" if failure.rank is None else f", rank {failure.rank}"
        paragraphs.append(f"{failure.arm}{who}, {failure.phase}: {failure.cause}")
    if line:
        paragraphs.append(f"To judge it, add this line to the file of thresholds: {line}")
    if not paragraphs and case.verdict is Verdict.PASS:
        return None
    output = tuple(failure.tail) if failure is not None else ()
    return CaseNote(case.name, case.verdict, tuple(dict.fromkeys(paragraphs)), output, case.reason)


def row_of(case: Case) -> Row:
    """Return the row of a case, which tables of some of the cases have, too."""
    figure, rule = case.figure, case.rule
    bounded = figure is not None and is_bounded(figure)
    inside = None
    # A case with an injected fault should miss its threshold.
    if figure is not None and rule is not None and bounded and not case.comparison.is_fault_case:
        inside = 100 * margin(figure, rule)
    judgement = case.outcome.judgement
    # Said of a change between sides that can be alike, not of the distance from a threshold.
    alike = case.judged_as in (JudgedAs.REGRESSION, JudgedAs.AA_PAIR)
    effect = judgement.detectable_effect if alike else None
    return {
        "verdict": case.verdict.value,
        "question": question_of(case),
        "model": case.workload.model,
        "world_size": case.world_size,
        **cells_of(at_95(case), "figure", "lower", "upper"),
        "must_be": must_be(judgement),
        "margin": inside,
        "rounds": judgement.rounds,
        "minimum_detectable_effect": scaled(effect),
        "nodes": len(case.replicas_per_node),
        **names_of(case),
        "settings": settings_beside(case.fingerprint, case.comparison),
    }


def _says(judged: Sequence[Row]) -> Iterator[str]:
    """Yield sentences on how many results are within their limits, and on what a PASS leaves
    open."""
    if not judged:
        yield "No result with a limit has an interval"
        return
    passed = [row for row in judged if row["verdict"] == Verdict.PASS.value]
    key = "minimum_detectable_effect"
    changed = [row for row in passed if row[key] is not None]
    held = [row for row in passed if row[key] is None]
    by = f"; estimates clear them by {_ends(held, 'margin')}" if held else ""
    yield f"Results within their limits: {len(passed)} of {len(judged)}{by}"
    if held:
        yield (
            "PASS means within the limit, not that nothing changed; to find smaller slowdowns, use "
            "--baseline SESSION or --against PYTHON"
        )
    if changed:
        yield (
            "Minimum detectable effect (found by 90 % of such sessions) of the results that PASS: "
            f"{_ends(changed, key)}"
        )


def _ends(rows: Sequence[Row], key: str) -> str:
    """Return the least and the greatest value in %, each with the name of its case."""
    ends = [choose(rows, key=lambda row: number(row[key])) for choose in (min, max)]
    values = [(number(row[key]), row["case"]) for row in ends]
    told = (f"{share:.{0 if share >= 9.95 else 1}f} % ({case})" for share, case in values)
    return " to ".join(dict.fromkeys(told))


# Throughputs with their ratios -----------------------------------------------------------------

# The ratios beside the throughput, by the key of their columns: with the heading on a terminal, and
# with the factor and the digits in which they are shown.
_RATIOS = {
    "weak": (Question.WEAK_SCALING, "weak scaling", 100.0, 0),
    "strong": (Question.STRONG_SCALING, "strong scaling", 100.0, 0),
    "parity": (Question.PARITY, "vs Mirrored", 1.0, 2),
}
_ASKED = tuple(question for question, *_ in _RATIOS.values())
_SPEEDS = (
    Column("model", "network", brief="network"),
    Column("world_size", "ranks", brief="ranks"),
    Column("samples_per_second", "throughput", "samples/s", digits=0, brief="samples/s"),
    Column("samples_per_second_low", "lower", "samples/s", digits=0, hidden=True),
    Column("samples_per_second_high", "upper", "samples/s", digits=0, hidden=True),
)


def overview(
    cases: Sequence[Case], limits: str = "", sessions: Sequence[Sequence[Case]] = ()
) -> Figure | None:
    """Return the answer to how training scales: a row per network and world size with the
    throughput of Horovod with its defaults and the ratios that were measured, each with its 95 %
    interval; None if there is no throughput. limits: the label of the thresholds. sessions: as in
    speeds_of."""
    speeds = throughputs(cases)
    if not speeds:
        return None
    centres = speeds_of(speeds, sessions)
    held = [(case.workload, case.world_size) for case in asked(cases, *_ASKED)]
    labels = workload_labels(workload for workload, _ in (*speeds, *held))
    keys = sorted({*speeds, *held}, key=lambda key: (labels[key[0]], key[1]))
    rows = tuple(_of_network(key, labels[key[0]], centres.get(key), cases) for key in keys)
    measured = [row for row in rows if row["samples_per_second"]]
    return Figure(
        "throughput",
        "How training scales",
        "Horovod with default settings: samples/s of all ranks, scaling in % of ideal, 95 % "
        f"intervals.{_limits(cases, limits)}{_by_step(cases)}",
        Table(_columns(rows), rows),
        _speeds(len({row["model"] for row in measured}), len({row["world_size"] for row in rows})),
        lead=_lead(measured),
    )


def _lead(rows: Sequence[Row]) -> str:
    """Return in a sentence how each network scales on the most ranks, of those for which that has
    an interval: where ranks share cores, a ratio is only shown."""
    scaled = {row["model"]: row for row in rows if row["weak_low"] is not None}
    if not scaled:
        return several(
            f"{row['model']} {number(row['samples_per_second']):,.0f} samples/s on "
            f"{plural(int(number(row['world_size'])), 'rank')}"
            for row in {row["model"]: row for row in rows}.values()
        )
    told = (
        f"{row['model']} {number(row['weak']):.0f} % "
        f"{interval(number(row['weak_low']), number(row['weak_high']), 5, 0)} on "
        f"{row['world_size']} ranks"
        for row in sorted(scaled.values(), key=lambda row: number(row["weak"]))
    )
    return f"Weak scaling, in % of ideal: {several(told)}."


def _limits(cases: Sequence[Case], label: str) -> str:
    """Return a sentence, with a blank before it, on the limits of the ratios; "" without any."""
    found: dict[str, dict[str, int]] = {}
    for question, brief, factor, _ in _RATIOS.values():
        for case in asked(cases, question):
            limit, rule = f"{case.rule or ''}", case.rule
            if factor > 1 and isinstance(rule, Floor):
                limit = f">= {factor * rule.limit(case.figure):.3g} %"
            if limit:
                found.setdefault(brief, {})[limit] = case.world_size
    told = (
        f"{brief} {limit}" + f" ({plural(size, 'rank')})" * (len(sizes) > 1)
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


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns, without those of ratios that were not measured. Throughputs have a digit
    after the point if one of them is below 100."""
    known = [speed for row in rows if (speed := number(row["samples_per_second"]))]
    speeds = (replace(column, digits=int(min(known) < 99.95)) for column in _SPEEDS[2:])
    ratios = (
        column
        for key, (question, brief, factor, digits) in _RATIOS.items()
        if any(row[key] is not None for row in rows)
        for column in (
            Column(key, question.label, "%" * (factor > 1), digits, brief=brief),
            Column(f"{key}_low", "lower", "%" * (factor > 1), digits, hidden=True, brief="lower"),
            Column(f"{key}_high", "upper", "%" * (factor > 1), digits, hidden=True, brief="upper"),
        )
    )
    return (*_SPEEDS[:2], *speeds, *ratios, Column("verdict", "worst verdict"))


def _of_network(
    key: tuple[Workload, int], label: str, speed: Interval | None, cases: Sequence[Case]
) -> Row:
    workload, world_size = key
    # Some cases of a network train a variant of its workload.
    own = [c for c in cases if (c.workload.model, c.world_size) == (workload.model, world_size)]
    held = {case.question: case for case in asked(own, *_ASKED) if case.workload == workload}
    ratios: dict[str, Value] = {}
    for name, (question, _, factor, _) in _RATIOS.items():
        figure = at_95(held[question]) if question in held else None
        cells = cells_of(figure, name, f"{name}_low", f"{name}_high")
        ratios |= {
            each: None if value is None else factor * number(value) for each, value in cells.items()
        }
    return {
        "model": label,
        "world_size": world_size,
        **cells_of(speed, *(column.key for column in _SPEEDS[2:5])),
        **ratios,
        "verdict": worst([case.verdict for case in own]).value if own else None,
    }


def _speeds(networks: int, sizes: int) -> Plot:
    """Return a plot with a bar per network and world size."""
    at = {
        "y": plots.row_names("model", sort=None),
        "yOffset": {"field": "world_size", "type": "ordinal"},
    }
    return plots.layered(
        plots.layer(
            "bar",
            **at,
            x=plots.field("samples_per_second", "quantitative", "samples/s"),
            color=plots.field("world_size", "ordinal", "ranks"),
            tooltip=plots.tooltip(_SPEEDS),
        ),
        plots.interval("samples_per_second_low", "samples_per_second_high", "x", **at),
        height=plots.rows_high(networks, max(26, 15 * sizes)),
    )
