"""Collective operations: their bandwidth with and without Horovod, and their part of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from hvdperf.explain.collectives import StepTimes, paired, step_times
from hvdperf.plan.arms import KIB, MIB, SWEEP, Collective, busbw
from hvdperf.records.documents import Case
from hvdperf.report import plots, words
from hvdperf.report.cases import grouped, trusted
from hvdperf.report.content import Field, Figure, Section, Table, interval, value
from hvdperf.stats import Interval
from hvdperf.work.collectives import Collectives
from hvdperf.work.table import work_of

QUARTILES = (0.25, 0.5, 0.75)
SIDES = {"horovod": "Horovod", "bare": "bare"}

# Sweeps ----------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """One turn of an operation with its size. horovod, bare: seconds through Horovod and bare."""

    size_bytes: int
    horovod: float
    bare: float


Turns = Sequence[Pair]


def pairs_of(case: Case) -> list[Pair]:
    """Return the turns in which both sides have a time, by round and size."""
    found = []
    for measured in case.rounds:
        horovod, bare = (measured.of(arm).series for arm in case.comparison.arms)
        for both in paired(horovod, bare, _collective_of(case)).values():
            found += [
                Pair(ours.size_bytes, ours.seconds, theirs.seconds)
                for ours, theirs in both
                if ours.repeats
            ]
    return found


def _collective_of(case: Case) -> Collective:
    return case.comparison.collective or Collective.ALLREDUCE


def _quartiles(
    key: str, title: str, called: str, unit: str, values: Callable[[Turns], Sequence[float]]
) -> Field[Turns]:
    """Return the field of a median and its quartiles. called: in the titles of the quartiles. A
    bandwidth of 0 (a collective that moves no data) is None, since a logarithmic axis cannot show
    it."""

    def quartiles(turns: Turns) -> Interval | None:
        low, middle, high = plots.quantiles(values(turns), QUARTILES)
        return Interval(middle, low, high, QUARTILES[0], len(turns)) if low > 0 else None

    ends, brief = (f"{called}, 25 %", f"{called}, 75 %"), title if unit else "ratio"
    return interval(key, title, quartiles, unit, ends=ends, brief=brief)


def swept(case: Case, pairs: Turns) -> Figure:
    """Return the figure of a sweep: the bus bandwidth of each side by size."""
    collective, n = _collective_of(case), case.world_size

    def widths(side: str) -> Callable[[Turns], list[float]]:
        return lambda turns: [
            busbw(collective, n, pair.size_bytes, getattr(pair, side)) for pair in turns
        ]

    by_size = grouped(sorted(pairs), lambda pair: pair.size_bytes)
    fields: tuple[Field[Turns], ...] = (
        value("bytes", "size", lambda turns: turns[0].size_bytes, "B", hidden=True),
        value("size", "size", lambda turns: _short(turns[0].size_bytes), brief="size"),
        *(_quartiles(side, title, title, "GB/s", widths(side)) for side, title in SIDES.items()),
        _quartiles(
            "overhead",
            "time of Horovod / bare",
            "time ratio",
            "",
            lambda turns: [pair.horovod / pair.bare for pair in turns],
        ),
        value("turns", "turns", len),
    )
    rows = Table.of(by_size.values(), *fields)
    return Figure(
        words.slug("bandwidth", collective.value, f"np{n}"),
        f"{collective.value} on {n} ranks: bus bandwidth in GB/s by size",
        "",
        rows,
        plots.curve(
            rows,
            plots.field("size", "ordinal", sort=None, axis={"labelAngle": 0}),
            plots.field("value", title="bus bandwidth in GB/s", scale={"type": "log"}),
            sides=tuple(SIDES),
        ),
    )


def _short(size: int) -> str:
    for unit, name in ((MIB, "MB"), (KIB, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"


# Bounds of a step ------------------------------------------------------------------------------


class Steps(NamedTuple):
    """The turns of a case. label: of its workload."""

    case: Case
    label: str
    turns: Sequence[StepTimes]

    @property
    def network(self) -> str:
        return f"{self.label}, {words.plural(self.case.world_size, 'rank')}"


def _median(
    key: str, title: str, get: Callable[[StepTimes], float], unit: str = "ms", digits: int = 2
) -> Field[Steps]:
    """Return the field of a median over the turns. get: returns seconds, or a ratio."""
    scale = 1000 if unit == "ms" else 1
    return value(key, title, lambda steps: scale * median(map(get, steps.turns)), unit, digits)


def bounds(cases: Sequence[Case]) -> Iterator[Figure]:
    """Yield one figure of all steps with a bare exchange, of medians over every turn of all
    rounds, from which a case's figure is computed; none if there are none."""
    of_collectives = (case for case in cases if work_of(case.question) is Collectives)
    asked = [case for case in of_collectives if case.question.spec.without_exchange]
    labels = words.workload_labels(case.workload for case in asked)
    every = (Steps(case, labels[case.workload], _step_times(case)) for case in asked)
    rows = Table.of(
        (steps for steps in every if steps.turns),
        value("network", "network", lambda steps: steps.network),
        value("model", "name", lambda steps: steps.label, hidden=True),
        value("world_size", "ranks", lambda steps: steps.case.world_size, hidden=True),
        _median("step_ms", "a step", lambda turn: turn.full),
        _median("local_ms", "without exchange", lambda turn: turn.local),
        _median("exchange_ms", "bare exchange", lambda turn: turn.exchange),
        _median("all_hidden_ms", "bound, all hidden", lambda t: max(t.local, t.exchange)),
        _median("nothing_hidden_ms", "bound, nothing hidden", lambda t: t.local + t.exchange),
        _median("of_nothing_hidden", "step / nothing hidden", lambda t: t.of_nothing_hidden, "", 3),
        _median("of_all_hidden", "step / all hidden", lambda turn: turn.of_all_hidden, "", 3),
        value("turns", "turns", lambda steps: len(steps.turns)),
    )
    if not rows.rows:
        return
    yield Figure(
        "bandwidth-bound",
        "A step and its bounds: all of the exchange hidden, or nothing of it",
        "",
        rows,
        plots.interval(
            rows,
            "network",
            plots.axis(rows, "step_ms", "step time in ms"),
            bounds=("all_hidden_ms", "nothing_hidden_ms"),
        ),
    )


def _step_times(case: Case) -> list[StepTimes]:
    return [
        turn
        for measured in case.rounds
        for turn in step_times(*map(measured.of, case.comparison.arms))
    ]


# The section -----------------------------------------------------------------------------------


def section(cases: Sequence[Case]) -> Section:
    """Return the section on sweeps and on bounds of steps."""
    sound = trusted(cases)
    sweeps = ((case, pairs_of(case)) for case in sound if case.workload == SWEEP)
    return Section(
        "bandwidth",
        "Collectives",
        "Bus bandwidth as nccl-tests defines it: for any number of ranks, it can be compared "
        "with the bandwidth of the links. Values are medians over the turns of all "
        "rounds, with their quartiles. Bare is MPI on one buffer without a framework, an upper "
        "limit for Horovod.",
        (*(swept(case, pairs) for case, pairs in sweeps if pairs), *bounds(sound)),
        "No collective operation was measured; to measure: pytest perf/test_communication.py",
    )
