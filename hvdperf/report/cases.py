"""What sections read of cases: the numbers of their tables, and the launches behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TypeVar

from hvdperf.interim import PRIOR_ROUNDS
from hvdperf.plan.arms import Schedule, Workload
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case
from hvdperf.records.outcome import each_launch, throughputs
from hvdperf.records.rounds import Launch
from hvdperf.report.content import Value
from hvdperf.report.words import plural
from hvdperf.stats import Interval, fewest_bounded, hodges_lehmann, student_quantile
from hvdperf.verdict import ALPHA, Verdict, as_ratio, is_bounded

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the values that are finite numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order in which keys come first."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def number(value: Value) -> float:
    """Return the number in a table's cell; return 0 if the cell holds no number."""
    return float(value) if isinstance(value, int | float) else 0.0


def scaled(value: float | None, by: float = 100) -> float | None:
    """Return the value in a smaller unit, by default a share in %; None for None."""
    return None if value is None else by * value


def at_95(case: Case) -> Interval | None:
    """Return the result of a case with a 95 % interval, whatever level its verdict needed, so that
    results can be compared; None without a result.

    The interval of an early analysis is Student's (interim.early_interval), and is scaled by the
    quantiles."""
    figure = case.figure
    if figure is None or not is_bounded(figure) or figure.alpha == ALPHA:
        return figure
    freedom = figure.observations - 1
    freedom += PRIOR_ROUNDS if case.outcome.judgement.early is not None else 0
    scale = student_quantile(1 - ALPHA, freedom) / student_quantile(1 - figure.alpha, freedom)
    centre = math.sqrt(figure.lower * figure.upper)
    lower, upper = (centre * (end / centre) ** scale for end in (figure.lower, figure.upper))
    return replace(figure, lower=lower, upper=upper, alpha=ALPHA)


def times(ratio: Interval, factor: float, parts: int = 1) -> Interval:
    """Return the ratio times factor / parts, with its bounds."""
    ends = (ratio.estimate, ratio.lower, ratio.upper)
    estimate, lower, upper = (each * factor / parts for each in ends)
    return replace(ratio, estimate=estimate, lower=lower, upper=upper)


def centre_of(values: Sequence[float]) -> Interval:
    """Return the centre of several positive values, at least one, with an interval of 95 %
    confidence that covers that of further ones like them, such as of launches of the same session.

    The interval is that of Hodges and Lehmann over the logarithms; with fewer values than its exact
    bounds need, it is that of `mean_of`. One value has no interval.
    """
    count = len(values)
    if 1 < count < fewest_bounded(ALPHA):
        return mean_of(values)
    return as_ratio(hodges_lehmann([math.log(each) for each in values], ALPHA))


def mean_of(values: Sequence[float]) -> Interval:
    """Return the geometric mean of two positive values or more with Student's interval of 95 %
    confidence."""
    logs, count = [math.log(each) for each in values], len(values)
    middle, half = fmean(logs), student_quantile(1 - ALPHA, count - 1) * stdev(logs) / count**0.5
    return as_ratio(Interval(middle, middle - half, middle + half, ALPHA, count))


def over_sessions(observed: Sequence[Sequence[float]]) -> Interval:
    """Return the centre of what was observed in one session; of several, each is one
    observation."""
    centres = [centre_of(values) for values in observed]
    return centres[0] if len(centres) == 1 else mean_of([each.estimate for each in centres])


Size = tuple[Workload, int]


def size_of(case: Case) -> Size:
    return case.workload, case.world_size


def speeds_of(
    launches: Mapping[Size, Sequence[float]], sessions: Sequence[Sequence[Case]] = ()
) -> dict[Size, Interval]:
    """Return the throughput by workload and world size. launches: that of every launch, as
    `throughputs` has it. sessions: the cases of each session, if several were put together."""
    each: list[Mapping[Size, Sequence[float]]] = [throughputs(cases) for cases in sessions]
    each = each or [launches]
    return {key: over_sessions([own[key] for own in each if key in own]) for key in launches}


# Launches --------------------------------------------------------------------------------------

# Verdicts of cases whose evidence is unsound, or that could not be run.
_UNTRUSTED = (Verdict.INVALID, Verdict.NOT_RUN)


@dataclass(frozen=True)
class Started:
    """A launch with its case. case: the first case that uses the launch. alone: whether it started
    with no other launch beside it."""

    case: Case
    alone: bool
    launch: Launch

    @property
    def strategy(self) -> str:
        return self.launch.arm.strategy.spec.name

    @property
    def world_size(self) -> int:
        return self.launch.arm.world_size

    @property
    def arm(self) -> str:
        """Return a name such as `horovod, 2 ranks`, with settings unlike the workload's."""
        arm, usual = self.launch.arm, self.case.workload
        changed = [arm.exchange] if arm.exchange else []
        if arm.workload.batch != usual.batch:
            changed.append(f"batch {arm.workload.batch}")
        for setting in ("precision", "learning_rate"):
            if (own := getattr(arm.workload, setting)) != getattr(usual, setting):
                changed.append(own)
        if arm.passes > 1:
            changed.append(f"{arm.passes} passes")
        return ", ".join((self.strategy, plural(self.world_size, "rank"), *changed))


def trusted(cases: Iterable[Case]) -> list[Case]:
    """Return the cases without those that are INVALID or NOT RUN, unless only a threshold line was
    missing."""
    return [case for case in cases if case.verdict not in _UNTRUSTED or case.outcome.threshold_line]


def launches(cases: Iterable[Case]) -> list[Started]:
    """Return the launches on the session's own stack without an injected fault, in the order of
    cases, rounds and sides."""
    return [
        Started(case, measured.schedule is not Schedule.ALTERNATE, launch)
        for case, measured, launch in each_launch(cases)
        if not launch.arm.stack and not launch.arm.injected
    ]


def held(cases: Iterable[Case]) -> list[Case]:
    """Return the cases that have thresholds."""
    return [case for case in cases if case.judged_as is JudgedAs.THRESHOLD]


def asked(cases: Iterable[Case], *questions: Question) -> list[Case]:
    """Return the cases of these questions that have thresholds."""
    return [case for case in held(cases) if case.question in questions]
