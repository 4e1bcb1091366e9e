"""Step times beside their bounds: all of the exchange hidden behind computation, or none of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from hvdperf.explain.collectives import StepTimes, step_times
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Table
from hvdperf.report.numbers import number
from hvdperf.report.sections.collectives.pairs import WHOSE, whose
from hvdperf.report.words import Labels, several

_OF_A_STEP = (
    *WHOSE[:3],
    Column("step_ms", "a step", "ms", 2),
    Column("local_ms", "without exchange", "ms", 2),
    Column("exchange_ms", "bare exchange", "ms", 2),
    Column("all_hidden_ms", "bound, all hidden", "ms", 2),
    Column("nothing_hidden_ms", "bound, nothing hidden", "ms", 2),
    Column("of_nothing_hidden", "step / nothing hidden", "", 3),
    Column("of_all_hidden", "step / all hidden", "", 3),
    Column("turns", "turns"),
)


def bounds(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    found = [
        (case, times)
        for case in cases
        if case.question is Question.OVERLAP
        for times in [_step_times(case)]
        if times
    ]
    rows = [_of_steps(case, times, labels) for case, times in found]
    if not rows:
        return []
    said = several(
        [
            f"{row['network']} {number(row['step_ms']):.1f} ms (bounds: "
            f"{number(row['all_hidden_ms']):.1f} ms with all of the exchange hidden, "
            f"{number(row['nothing_hidden_ms']):.1f} ms with nothing hidden)"
            for row in rows
        ]
    )
    return [
        Figure(
            name="bandwidth-bound",
            title="A step and its bounds: all of the exchange hidden, or nothing of it",
            says=f"Typical steps: {said}.",
            table=Table(_OF_A_STEP, tuple(rows)),
            plot=_plot(len(rows)),
        )
    ]


def _step_times(case: Case) -> list[StepTimes]:
    """Return the times of every turn of all rounds, from which the case's figure is computed."""
    return [
        times
        for measured in case.rounds
        for times in step_times(*map(measured.of, case.comparison.arms))
    ]


def _of_steps(case: Case, times: Sequence[StepTimes], labels: Labels) -> Row:
    def middle(values: Iterable[float], unit: float = 1000) -> float:
        return unit * median(values)

    return {
        **whose(case, labels),
        "step_ms": middle(turn.full for turn in times),
        "local_ms": middle(turn.local for turn in times),
        "exchange_ms": middle(turn.exchange for turn in times),
        "all_hidden_ms": middle(max(turn.local, turn.exchange) for turn in times),
        "nothing_hidden_ms": middle(turn.local + turn.exchange for turn in times),
        "of_nothing_hidden": middle((turn.of_nothing_hidden for turn in times), 1),
        "of_all_hidden": middle((turn.of_all_hidden for turn in times), 1),
        "turns": len(times),
    }


def _plot(rows: int) -> Plot:
    """Return a plot of the band between both bounds, with the measured step."""
    return plots.layered(
        plots.layer(
            {"type": "bar", "style": "band", "height": {"band": 0.6}},
            x=plots.field("all_hidden_ms", "quantitative"),
            x2={"field": "nothing_hidden_ms"},
        ),
        plots.layer(
            {"type": "point", "size": 70, "shape": "diamond"},
            x=plots.field("step_ms", "quantitative", "step time in ms"),
        ),
        height=plots.rows_high(rows, each=30),
        encoding={"y": plots.row_names("network", 260), "tooltip": plots.tooltip(_OF_A_STEP)},
    )
