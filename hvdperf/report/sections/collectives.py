"""Collective operations: their bandwidth with and without Horovod, and their part of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Generic, TypeVar

from hvdperf.explain.collectives import StepTimes, paired, step_times
from hvdperf.plan.arms import KIB, MIB, SWEEP, Collective, busbw
from hvdperf.records.documents import Case
from hvdperf.report import plots, words
from hvdperf.report.cases import grouped, number, trusted
from hvdperf.report.content import Field, Figure, Section, Table, interval, value
from hvdperf.stats import Interval
from hvdperf.work.collectives import Collectives
from hvdperf.work.table import work_of

QUARTILES = (0.25, 0.5, 0.75)
SIDES = {"horovod": "Horovod", "bare": "bare"}
Turn = TypeVar("Turn")


@dataclass(frozen=True)
class Pair:
    """One turn of an operation with its size. horovod, bare: seconds through Horovod and bare."""

    size_bytes: int
    tensors: int
    horovod: float
    bare: float


@dataclass(frozen=True)
class _Turns(Generic[Turn]):
    """The subject of a row: turns of a case."""

    case: Case
    turns: Sequence[Turn]


def collective_of(case: Case) -> Collective:
    """Return the operation of the case; for a bound of a step, the one that exchanges gradients."""
    return case.comparison.collective or Collective.ALLREDUCE


def pairs_of(case: Case) -> list[Pair]:
    """Return the turns in which both sides have a time, by round and size."""
    found = []
    for measured in case.rounds:
        horovod, bare = (measured.of(arm).series for arm in case.comparison.arms)
        for both in paired(horovod, bare, collective_of(case)).values():
            found += [
                Pair(ours.size_bytes, ours.ranks[0].tensors, ours.seconds, theirs.seconds)
                for ours, theirs in both
                if ours.repeats
            ]
    return found


def _quartiles(
    key: str, title: str, called: str, unit: str, values: Callable[[_Turns[Pair]], Sequence[float]]
) -> Field[_Turns[Pair]]:
    """Return the field of a median and its quartiles. called: in the titles of the quartiles. A
    bandwidth of 0 (a collective that moves no data) is None, since a logarithmic axis cannot show
    it."""

    def quartiles(of_row: _Turns[Pair]) -> Interval | None:
        low, middle, high = plots.quantiles(values(of_row), QUARTILES)
        return Interval(middle, low, high, QUARTILES[0], len(of_row.turns)) if low > 0 else None

    return interval(key, title, quartiles, unit, ends=(f"{called}, 25 %", f"{called}, 75 %"))


def _width(side: str) -> Field[_Turns[Pair]]:
    """Return the field of the bus bandwidth of a side."""

    def widths(of_row: _Turns[Pair]) -> list[float]:
        collective, n = collective_of(of_row.case), of_row.case.world_size
        return [busbw(collective, n, p.size_bytes, getattr(p, side)) for p in of_row.turns]

    return _quartiles(side, SIDES[side], SIDES[side], "GB/s", widths)


_WIDTHS = tuple(map(_width, SIDES))
_OVERHEAD: tuple[Field[_Turns[Pair]], ...] = (
    _quartiles(
        "overhead",
        "time of Horovod / bare",
        "time ratio",
        "",
        lambda of_row: [pair.horovod / pair.bare for pair in of_row.turns],
    ),
    value("turns", "turns", lambda of_row: len(of_row.turns)),
)


def is_of_gradients(case: Case) -> bool:
    return work_of(case.question) is Collectives and case.workload != SWEEP


def _whose(labels: words.Labels) -> tuple[Field[_Turns[Any]], ...]:
    def network(of_row: _Turns[Any]) -> str:
        return f"{labels[of_row.case.workload]}, {words.plural(of_row.case.world_size, 'rank')}"

    return (
        value("network", "network", network),
        value("model", "name", lambda of_row: labels[of_row.case.workload], hidden=True),
        value("world_size", "ranks", lambda of_row: of_row.case.world_size, hidden=True),
    )


# Sweeps ----------------------------------------------------------------------------------------

_BRIEF = {"size": "size", "horovod": "Horovod", "bare": "bare", "overhead": "ratio"}
_OF_A_SIZE: tuple[Field[_Turns[Pair]], ...] = (
    value("bytes", "size", lambda of_row: of_row.turns[0].size_bytes, "B", hidden=True),
    value("size", "size", lambda of_row: _short(of_row.turns[0].size_bytes)),
    *_WIDTHS,
    *_OVERHEAD,
)


def _size(pair: Pair) -> int:
    return pair.size_bytes


def swept(case: Case, pairs: Sequence[Pair]) -> Figure:
    collective, n = collective_of(case).value, case.world_size
    by_size = grouped(sorted(pairs, key=_size), _size)
    rows = Table.of([_Turns(case, group) for group in by_size.values()], *_OF_A_SIZE)
    columns = {each.key: replace(each, brief=_BRIEF.get(each.key, "")) for each in rows.columns}
    best = max(rows.rows, key=lambda row: number(row["horovod"]))
    worst = max(rows.rows, key=lambda row: number(row["overhead"]))
    axis = {"values": list(by_size), **_BINARY}
    return Figure(
        words.slug("bandwidth", collective, f"np{n}"),
        f"{collective} on {n} ranks: bus bandwidth in GB/s by size",
        f"Through Horovod {number(best['horovod']):.2f} GB/s at most, at {best['size']}, where "
        f"bare MPI reaches {number(best['bare']):.2f}. Horovod takes longest in "
        f"proportion at {worst['size']}: {number(worst['overhead']):.2f} times the bare "
        "transport's time.",
        replace(rows, columns=tuple(columns.values())),
        plots.curve(
            rows,
            plots.axis(rows, "bytes", "size", scale={"type": "log", "base": 2}, axis=axis),
            plots.field("value", title="bus bandwidth in GB/s", scale={"type": "log"}),
            sides=tuple(SIDES),
        ),
        {"world_size": str(n), "question": case.question.label},
    )


def _short(size: int) -> str:
    for unit, name in ((MIB, "MB"), (KIB, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"


# The same units as in _short.
_BINARY = {
    "labelExpr": f"datum.value >= {MIB} ? datum.value / {MIB} + ' MB' : "
    f"datum.value >= {KIB} ? datum.value / {KIB} + ' KB' : datum.value + ' B'"
}


# The exchange of a step's gradients ------------------------------------------------------------


def _median(
    key: str, title: str, get: Callable[[Turn], float], unit: str = "ms", digits: int = 2
) -> Field[_Turns[Turn]]:
    """Return the field of a median over the turns. get: returns seconds, or a ratio."""
    scale = 1000 if unit == "ms" else 1
    return value(key, title, lambda of_row: scale * median(map(get, of_row.turns)), unit, digits)


def gradients(cases: Sequence[Case], labels: words.Labels) -> Iterator[Figure]:
    """Yield one figure for all networks of a session; none if no exchange was measured."""
    found: dict[tuple[str, int], _Turns[Pair]] = {}
    for case in cases:
        pairs = pairs_of(case) if is_of_gradients(case) else []
        key = case.workload.name, case.world_size
        # The same launches answer both questions, and one of these may have had more rounds.
        if pairs and (key not in found or len(pairs) > len(found[key].turns)):
            found[key] = _Turns(case, pairs)
    if not found:
        return
    rows = Table.of(
        found.values(),
        *_whose(labels),
        value("bytes", "gradients", lambda of_row: of_row.turns[0].size_bytes, "B"),
        value("tensors", "tensors", lambda of_row: of_row.turns[0].tensors),
        *_WIDTHS,
        _median("horovod_ms", "through Horovod", lambda pair: pair.horovod, digits=3),
        _median("bare_ms", "bare", lambda pair: pair.bare, digits=3),
        *_OVERHEAD,
    )
    said = words.several(
        f"{row['network']} {row['horovod_ms']:.2f} ms, bare {row['bare_ms']:.2f} ms"
        for row in rows.rows
    )
    yield Figure(
        "bandwidth-gradients",
        "All gradients of a step: bus bandwidth of their allreduce",
        f"Typical times of one exchange: {said}.",
        rows,
        plots.interval(
            rows,
            "network",
            plots.field("value", title="bus bandwidth in GB/s"),
            sides=tuple(SIDES),
        ),
    )


# Bounds of a step ------------------------------------------------------------------------------


def bounds(cases: Sequence[Case], labels: words.Labels) -> Iterator[Figure]:
    """Yield one figure of all steps with a bare exchange, of medians over every turn of all
    rounds, from which a case's figure is computed; none if there are none."""
    found = [
        _Turns(case, times)
        for case in cases
        if is_of_gradients(case) and case.question.spec.without_exchange
        if (times := _step_times(case))
    ]
    if not found:
        return
    rows = Table.of(
        found,
        *_whose(labels),
        _median("step_ms", "a step", lambda turn: turn.full),
        _median("local_ms", "without exchange", lambda turn: turn.local),
        _median("exchange_ms", "bare exchange", lambda turn: turn.exchange),
        _median("all_hidden_ms", "bound, all hidden", lambda t: max(t.local, t.exchange)),
        _median("nothing_hidden_ms", "bound, nothing hidden", lambda t: t.local + t.exchange),
        _median("of_nothing_hidden", "step / nothing hidden", lambda t: t.of_nothing_hidden, "", 3),
        _median("of_all_hidden", "step / all hidden", lambda turn: turn.of_all_hidden, "", 3),
        value("turns", "turns", lambda of_row: len(of_row.turns)),
    )
    said = words.several(
        f"{row['network']} {row['step_ms']:.1f} ms (bounds: "
        f"{row['all_hidden_ms']:.1f} ms with all of the exchange hidden, "
        f"{row['nothing_hidden_ms']:.1f} ms with nothing hidden)"
        for row in rows.rows
    )
    yield Figure(
        "bandwidth-bound",
        "A step and its bounds: all of the exchange hidden, or nothing of it",
        f"Typical steps: {said}.",
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
    """Return the section on sweeps and on the exchange of networks' gradients."""
    sound = trusted(cases)
    figures = [
        swept(case, pairs) for case in sound if case.workload == SWEEP and (pairs := pairs_of(case))
    ]
    labels = words.workload_labels(case.workload for case in sound if is_of_gradients(case))
    return Section(
        "bandwidth",
        "Collectives",
        "Bus bandwidth as nccl-tests defines it: for any number of ranks, it can be compared "
        "with the bandwidth of the links. Values are medians over the turns of all "
        "rounds, with their quartiles. Bare is MPI on one buffer without a framework, an upper "
        "limit for Horovod.",
        (*figures, *gradients(sound, labels), *bounds(sound, labels)),
        "No collective operation was measured; to measure: pytest perf/test_communication.py",
    )
