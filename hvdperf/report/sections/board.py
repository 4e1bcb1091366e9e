"""The tables that come first: throughputs with their ratios, and every case with its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hvdperf.judge.fails import notes_on_fails
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case
from hvdperf.records.fingerprinting import settings_beside
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.report import plots
from hvdperf.report.cases import asked, cells_of, confidence_of, number, scaled, speeds_of
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
from hvdperf.verdict import Band, Ceiling, Floor, Rule, Verdict, is_bounded, must_be, worst

# A plot shows at most this many rows: those that are nearest to their threshold.
ROWS = 40
# A case with such a verdict neither reaches nor misses its threshold, whatever its figure.
_NOT_BY_THE_FIGURE = (
    Verdict.INVALID.value,
    Verdict.NOT_RUN.value,
    Verdict.NOT_JUDGED.value,
)

COLUMNS = (
    Column("verdict", "verdict", brief="verdict"),
    *NAMES,
    # The case's name says these three; the page's filters use them.
    Column("question", "question", hidden=True),
    Column("model", "network", hidden=True),
    Column("world_size", "replicas", hidden=True),
    Column("figure", "figure", digits=3, brief="figure interval"),
    Column("lower", "lower", digits=3, brief="lower"),
    Column("upper", "upper", digits=3, brief="upper"),
    Column("must_be", "limit", brief="limit"),
    Column("confidence", "confidence", "%", digits=1),
    Column("margin", "margin", "%", digits=1),
    Column("margin_lower", "margin, lower", "%", digits=1, hidden=True),
    Column("margin_upper", "margin, upper", "%", digits=1, hidden=True),
    Column("rounds", "rounds", brief="n"),
    Column("minimum_detectable_effect", "minimum detectable effect", "%", digits=1),
    Column("nodes", "nodes", hidden=True),
    Column("settings", "settings"),
)
_MARGINS = ("margin", "margin_lower", "margin_upper")
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
        plot=_plot(min(len(near), ROWS)) if near else None,
        brief=True,
    )


def margin(figure: Interval, rule: Rule) -> tuple[float, float, float]:
    """Return how far the figure lies inside its rule, as a share of the limit: of the estimate, and
    the least and the most that the interval leaves. Negative values lie outside.

    The margin of a band is that to the nearer edge, of a floor that to the limit that decides.
    """

    def inside(value: float) -> float:
        if isinstance(rule, Floor):
            return value / rule.limit(figure) - 1
        if isinstance(rule, Ceiling):
            return 1 - value / rule.at_most
        return min(value / rule.low - 1, 1 - value / rule.high)

    ends = inside(figure.lower), inside(figure.upper)
    most = max(ends)
    if isinstance(rule, Band):
        # The point of the band whose margins to both edges are equal.
        middle = 2 * rule.low * rule.high / (rule.low + rule.high)
        most = inside(min(max(middle, figure.lower), figure.upper))
    return inside(figure.estimate), min(ends), most


def note(case: Case) -> CaseNote | None:
    """Return a note with the information that the case's row lacks; return None if it lacks
    none."""
    outcome = case.outcome
    failure, line = outcome.failure, outcome.threshold_line
    paragraphs = [case.reason] if case.reason else []
    if case.verdict is not Verdict.PASS and case.figure is not None and case.rule is not None:
        rounds = plural(outcome.judgement.rounds, "round")
        level = confidence_of(case)
        of = rounds if level is None else f"{rounds}, {level:.3g} % confidence"
        paragraphs.append(
            f"Figure {shown(case.figure)} of {of}; limit: {must_be(outcome.judgement)}"
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
    margins: tuple[float | None, ...] = (None, None, None)
    # A case with an injected fault should miss its threshold.
    if figure is not None and rule is not None and bounded and not case.comparison.is_fault_case:
        margins = tuple(100 * share for share in margin(figure, rule))
    judgement = case.outcome.judgement
    # Said of a change between sides that can be alike, not of the distance from a threshold.
    alike = case.judged_as in (JudgedAs.REGRESSION, JudgedAs.AA_PAIR)
    effect = judgement.detectable_effect if alike else None
    return {
        "verdict": case.verdict.value,
        "question": question_of(case),
        "model": case.workload.model,
        "world_size": case.world_size,
        **cells_of(figure, "figure", "lower", "upper"),
        "confidence": confidence_of(case),
        "must_be": must_be(judgement),
        **dict(zip(_MARGINS, margins, strict=True)),
        "rounds": judgement.rounds,
        "minimum_detectable_effect": scaled(effect),
        "nodes": len(case.replicas_per_node),
        **names_of(case),
        "settings": settings_beside(case.fingerprint, case.comparison),
    }


def _says(judged: Sequence[Row]) -> Iterator[str]:
    """Yield sentences on how many cases meet their thresholds, and on what a PASS leaves open."""
    if not judged:
        yield "No case with a threshold has a figure with an interval"
        return
    kept = sum(number(row["margin_lower"]) >= 0 for row in judged)
    yield f"Cases that meet their threshold with the whole interval: {kept} of {len(judged)}"
    passed = [row for row in judged if row["verdict"] == Verdict.PASS.value]
    key = "minimum_detectable_effect"
    changed = [row for row in passed if row[key] is not None]
    held = [row for row in passed if row[key] is None]
    if held:
        yield (
            "A PASS means that a figure meets its limit, not that nothing has become slower. "
            f"Margins to the limits: {_ends(held, 'margin')}"
        )
    if changed:
        yield (
            "Minimum detectable effect (a change that such a session finds in 90 %) of the cases "
            f"that PASS: {_ends(changed, key)}"
        )


def _ends(rows: Sequence[Row], key: str) -> str:
    """Return the least and the greatest value in %, each with the name of its case."""
    ends = [choose(rows, key=lambda row: number(row[key])) for choose in (min, max)]
    values = [(number(row[key]), row["case"]) for row in ends]
    told = (f"{share:.{0 if share >= 9.95 else 1}f} % ({case})" for share, case in values)
    return " to ".join(dict.fromkeys(told))


def _plot(rows: int) -> Plot:
    """Return a plot of the rows with the smallest margins, smallest first."""
    tip = plots.tooltip(COLUMNS, "case", "verdict", "figure", "must_be")
    margin = plots.field("margin", "quantitative", "margin in %", format="+.1f")
    return plots.estimates(
        {"y": plots.row_names("case", sort={"field": "margin_lower"})},
        plots.field("margin", "quantitative", "margin to the limit, in % of the limit"),
        ("margin_lower", "margin_upper"),
        plots.line("limit", x={"datum": 0}),
        rows=rows,
        point={
            **plots.by_verdict(),
            "tooltip": [*tip, margin],
        },
        transform=[
            plots.known("margin"),
            {"window": [{"op": "row_number", "as": "place"}], "sort": [{"field": "margin_lower"}]},
            {"filter": f"datum.place <= {ROWS}"},
        ],
    )


# Throughputs with their ratios -----------------------------------------------------------------

# The ratios beside the throughput, by the key of their columns.
_RATIOS = {
    "weak": Question.WEAK_SCALING,
    "strong": Question.STRONG_SCALING,
    "parity": Question.PARITY,
}
_SPEEDS = (
    Column("model", "network", brief="model"),
    Column("world_size", "replicas", brief="np"),
    Column("samples_per_second", "throughput", "samples/s", digits=0, brief="samples/s"),
    Column("slowest", "slowest round", "samples/s", digits=0, hidden=True),
    Column("fastest", "fastest round", "samples/s", digits=0, hidden=True),
    Column("rounds", "rounds", hidden=True),
)


def overview(cases: Sequence[Case], sessions: Sequence[Sequence[Case]] = ()) -> Figure | None:
    """Return a row per network and world size of which the throughput of Horovod with its defaults
    or one of the ratios was asked; None if there is no throughput. sessions: as in speeds_of."""
    speeds = throughputs(cases)
    if not speeds:
        return None
    centres = speeds_of(speeds, sessions)
    held = [(case.workload, case.world_size) for case in asked(cases, *_RATIOS.values())]
    labels = workload_labels(workload for workload, _ in (*speeds, *held))
    keys = sorted({*speeds, *held}, key=lambda key: (labels[key[0]], key[1]))
    rows = tuple(
        {
            **_of_network(key, labels[key[0]], speeds.get(key, ()), cases),
            "samples_per_second": centres[key].estimate if key in centres else None,
        }
        for key in keys
    )
    last = {str(row["model"]): row for row in rows if row["rounds"]}
    said = several(
        f"{label} {number(row['samples_per_second']):,.0f} samples/s on "
        f"{plural(int(number(row['world_size'])), 'replica')}"
        for label, row in last.items()
    )
    return Figure(
        "throughput",
        "Horovod with its defaults, all replicas together",
        f"Estimates over the rounds: {said}. Lines reach from the slowest round to the fastest. "
        "The ratios beside the throughput have intervals in the table of verdicts."
        f"{_by_step(cases)}",
        Table(_columns(rows), rows),
        _speeds(len(last), len({row["world_size"] for row in rows})),
        lead=said,
    )


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
    known = (number(row["samples_per_second"]) for row in rows if row["rounds"])
    speed = replace(_SPEEDS[2], digits=int(min(known) < 99.95))
    ratios = (
        column
        for key, question in _RATIOS.items()
        if any(row[key] is not None for row in rows)
        for column in (
            Column(key, question.label, digits=2, brief=question.label),
            Column(f"{key}_low", "lower", digits=2, hidden=True),
            Column(f"{key}_high", "upper", digits=2, hidden=True),
        )
    )
    verdict = Column("verdict", "worst verdict", brief="verdict")
    return (*_SPEEDS[:2], speed, *_SPEEDS[3:], *ratios, verdict)


def _of_network(
    key: tuple[Workload, int], label: str, speeds: Sequence[float], cases: Sequence[Case]
) -> Row:
    workload, world_size = key
    # Some cases of a network train a variant of its workload.
    own = [c for c in cases if (c.workload.model, c.world_size) == (workload.model, world_size)]
    held = {
        case.question: case.figure
        for case in asked(own, *_RATIOS.values())
        if case.workload == workload
    }
    ratios: dict[str, Value] = {}
    for name, question in _RATIOS.items():
        ratios |= cells_of(held.get(question), name, f"{name}_low", f"{name}_high")
    return {
        "model": label,
        "world_size": world_size,
        "slowest": min(speeds, default=None),
        "fastest": max(speeds, default=None),
        "rounds": len(speeds),
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
            color=plots.field("world_size", "ordinal", "replicas"),
            tooltip=plots.tooltip(_SPEEDS),
        ),
        plots.interval("slowest", "fastest", "x", **at),
        height=plots.rows_high(networks, max(26, 15 * sizes)),
    )
