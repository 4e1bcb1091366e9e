"""A table of 80 columns with one line for every network at every world size.

It stands above the verdicts, which show the same figures case by case with one more digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hvdperf.columns import Columns, number
from hvdperf.plan.arms import SWEEP
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.plan.question import Question
from hvdperf.records.outcome import Outcome
from hvdperf.records.throughput import throughputs_of
from hvdperf.stats import Interval
from hvdperf.verdict import is_bounded, worst
from hvdperf.work.blocks import Blocks
from hvdperf.work.table import work_of

_NAME = 15
_TABLE = Columns(
    ("model", -_NAME),
    ("np", 3),
    ("samples/s", 9),
    ("weak scaling", -14),
    ("strong", 6),
    ("parity", -14),
    ("verdict", 0),
)

Key = tuple[str, int]


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return one line for each network and world size; [] if nothing was trained in turns.

    samples/s: of all replicas of plain Horovod together, the median over the rounds
    (hvdperf.records.throughput). weak, strong: efficiencies. parity: Horovod's speed over
    MirroredStrategy's. verdict: the worst on any of the cases. "-" stands for a figure that was not
    measured.
    """
    by_line: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.comparison.workload != SWEEP:
            by_line.setdefault(_key(outcome), []).append(outcome)
    speeds = {
        (workload.model, world_size): median(of_rounds)
        for (workload, world_size), of_rounds in throughputs_of(outcomes).items()
    }
    models = list(dict.fromkeys(model for model, _ in by_line))
    lines = [
        _line(key, speeds.get(key), by_line[key])
        for key in sorted(by_line, key=lambda key: (models.index(key[0]), key[1]))
        if key in speeds or any(work_of(c.comparison.question) is Blocks for c in by_line[key])
    ]
    return [_TABLE.header, *lines] if lines else []


def _key(outcome: Outcome) -> Key:
    return outcome.comparison.workload.model, outcome.comparison.world_size


def _line(key: Key, speed: float | None, cases: Sequence[Outcome]) -> str:
    model, world_size = key
    weak, strong, parity = (
        _figure(cases, question)
        for question in (Question.WEAK_SCALING, Question.STRONG_SCALING, Question.PARITY)
    )
    verdict = worst([case.judgement.verdict for case in cases])
    return _TABLE.row(
        model[:_NAME],
        world_size,
        _speed(speed),
        _interval(weak),
        "-" if strong is None else number(strong.estimate, 4, 2),
        _interval(parity),
        verdict.value,
    )


def _figure(cases: Sequence[Outcome], question: Question) -> Interval | None:
    """Return the figure of the case with this question; None if there is none. A case that compares
    an arm with the same one under another stack, or without its fault, shows no efficiency and is
    left out."""
    for case in cases:
        if case.comparison.question is question and case.comparison.judged_as is JudgedAs.THRESHOLD:
            return case.judgement.figure
    return None


def _interval(figure: Interval | None) -> str:
    """Return estimate and bounds, such as `0.79 0.75-0.80`."""
    if figure is None:
        return "   -"
    bounds = (figure.lower, figure.upper)
    known = "-".join(number(bound, 4, 2) for bound in bounds) if is_bounded(figure) else "-"
    return f"{number(figure.estimate, 4, 2)} {known}"


def _speed(value: float | None) -> str:
    """Return the value with one digit after the point below 100, and with none above."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
