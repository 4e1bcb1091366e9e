"""A table of 80 columns with one line for every network at every world size.

It stands above the verdicts, which show the same figures case by case with one more digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hvdperf.columns import Columns, number
from hvdperf.judge.outcome import Outcome
from hvdperf.measure.records import median_speed
from hvdperf.plan.arms import SWEEP, Arm, BlockKind
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.plan.question import LaunchMode, Question
from hvdperf.stats import Interval
from hvdperf.verdict import is_bounded, worst
from hvdperf.worker.strategies.table import Strategy

# Launch modes that time blocks of a training in turns with other launches.
_IN_TURNS = (LaunchMode.BLOCKS, LaunchMode.COLLECTIVES)
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

    samples/s: of all replicas of plain Horovod together, the median over the rounds of a round's
    median. weak, strong: efficiencies. parity: Horovod's speed over MirroredStrategy's. verdict:
    the worst on any of the cases. "-" stands for a figure that was not measured.
    """
    by_line: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.comparison.workload != SWEEP:
            by_line.setdefault(_key(outcome), []).append(outcome)
    speeds = {key: samples_per_second(cases) for key, cases in by_line.items()}
    if not any(speeds.values()):
        return []
    models = list(dict.fromkeys(model for model, _ in by_line))
    lines = [
        _line(key, speeds[key], by_line[key])
        for key in sorted(by_line, key=lambda key: (models.index(key[0]), key[1]))
        if speeds[key] or any(c.comparison.question.mode is LaunchMode.BLOCKS for c in by_line[key])
    ]
    return [_TABLE.header, *lines]


def samples_per_second(cases: Sequence[Outcome]) -> float | None:
    """Return the samples per second of all replicas together, at the world size of the cases; None
    if none of the cases has timed plain Horovod. The case with the most rounds is used, because
    cases share their launches."""
    found: list[float] = []
    for case in cases:
        speeds = _speeds(case)
        found = max(found, speeds, key=len)
    return median(found) if found else None


def _speeds(case: Outcome) -> list[float]:
    """Return the samples per second of plain Horovod, one value a round."""
    comparison = case.comparison
    plain = Arm(comparison.workload, Strategy.HOROVOD, comparison.world_size)
    if plain not in comparison.arms or comparison.question.mode not in _IN_TURNS:
        return []
    of_rounds = (measured.of(plain).of_kind(BlockKind.FULL) for measured in case.rounds)
    timed = ([block for block in blocks if block.seconds > 0] for blocks in of_rounds)
    return [median_speed(blocks) for blocks in timed if blocks]


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
