"""Collective operations: their bandwidth with and without Horovod, and their part of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from hvdperf.explain.collectives import paired, step_times
from hvdperf.plan.arms import KIB, MIB, SWEEP, Collective, busbw
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.report import plots
from hvdperf.report.cases import number, quantiles, trusted
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table, Value
from hvdperf.report.words import Labels, plural, several, slug, workload_labels

QUARTILES = (0.25, 0.5, 0.75)


def _quartiles(key: str, title: str, called: str, unit: str = "") -> tuple[Column, ...]:
    """Return the columns of a median and its quartiles. called: in the titles of the quartiles."""
    return (
        Column(key, title, unit, 3),
        Column(f"{key}_low", f"{called}, 25 %", unit, 3),
        Column(f"{key}_high", f"{called}, 75 %", unit, 3),
    )


OVERHEAD = (
    *_quartiles("overhead", "time of Horovod / bare", "time ratio"),
    Column("turns", "turns"),
)
SIDES = {"horovod": "Horovod", "bare": "bare"}


WIDTHS = tuple(
    column for key, name in SIDES.items() for column in _quartiles(key, name, name, "GB/s")
)
WHOSE = (
    Column("network", "network"),
    Column("model", "name", hidden=True),
    Column("world_size", "ranks", hidden=True),
    Column("bytes", "gradients", "B"),
    Column("tensors", "tensors"),
)


@dataclass(frozen=True)
class Pair:
    """One turn of an operation with its size. horovod, bare: seconds through Horovod and bare."""

    size_bytes: int
    tensors: int
    horovod: float
    bare: float

    @property
    def overhead(self) -> float:
        return self.horovod / self.bare


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


def _measured(case: Case, pairs: Sequence[Pair]) -> dict[str, Value]:
    """Return medians and quartiles: of the bus bandwidth of both sides, in GB/s, and of the ratio
    of their times. None for a bandwidth of 0 (a collective that moves no data), which a logarithmic
    axis cannot show."""
    collective, n = collective_of(case), case.world_size
    values = {
        side: [busbw(collective, n, pair.size_bytes, getattr(pair, side)) for pair in pairs]
        for side in SIDES
    }
    cells: dict[str, Value] = {"turns": len(pairs)}
    for key, found in {**values, "overhead": [pair.overhead for pair in pairs]}.items():
        low, middle, high = (cut if cut > 0 else None for cut in quantiles(found, QUARTILES))
        cells |= {key: middle, f"{key}_low": low, f"{key}_high": high}
    return cells


def is_of_gradients(case: Case) -> bool:
    alone = case.question is Question.COLLECTIVE_OVERHEAD and case.workload != SWEEP
    return alone or case.question is Question.OVERLAP


def whose(case: Case, labels: Labels) -> dict[str, Value]:
    model = labels[case.workload]
    return {
        "network": f"{model}, {plural(case.world_size, 'rank')}",
        "model": model,
        "world_size": case.world_size,
    }


# Sweeps ----------------------------------------------------------------------------------------

_SIZE = (Column("bytes", "size", "B", hidden=True), Column("size", "size"))
_BRIEF = {"size": "size", "horovod": "Horovod", "bare": "bare", "overhead": "ratio"}
_COLUMNS = tuple(
    replace(column, brief=_BRIEF.get(column.key, "")) for column in (*_SIZE, *WIDTHS, *OVERHEAD)
)


def swept(case: Case, pairs: Sequence[Pair]) -> Figure:
    collective, n = collective_of(case).value, case.world_size
    by_size: dict[int, list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair.size_bytes):
        by_size.setdefault(pair.size_bytes, []).append(pair)
    rows: dict[int, dict[str, Value]] = {
        size: {"bytes": size, "size": _short(size), **_measured(case, group)}
        for size, group in by_size.items()
    }
    table = Table(_COLUMNS, tuple(rows.values()))
    best = max(table.rows, key=lambda row: number(row["horovod"]))
    worst = max(table.rows, key=lambda row: number(row["overhead"]))
    return Figure(
        name=slug("bandwidth", collective, f"np{n}"),
        title=f"{collective} on {n} ranks: bus bandwidth in GB/s by size",
        says=(
            f"Through Horovod {number(best['horovod']):.2f} GB/s at most, at {best['size']}, where "
            f"bare MPI reaches {number(best['bare']):.2f}. Horovod takes longest in "
            f"proportion at {worst['size']}: {number(worst['overhead']):.2f} times the bare "
            "transport's time."
        ),
        table=table,
        plot=_curves(list(rows)),
        tags={"world_size": str(n), "question": case.question.label},
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


def _curves(sizes: Sequence[int]) -> Plot:
    """Return a plot with a line per side."""
    lines = plots.curves(
        plots.field("value", "quantitative", "bus bandwidth in GB/s", scale={"type": "log"}),
        plots.distinguished(SIDES.values()),
        50,
        tooltip=plots.tooltip((_SIZE[1], *plots.BOUNDED, *OVERHEAD[:1])),
    )
    axis = {"values": list(sizes), **_BINARY}
    x = plots.field("bytes", "quantitative", "size", scale={"type": "log", "base": 2}, axis=axis)
    return plots.layered(
        plots.interval("value_low", "value_high"),
        *lines,
        encoding={"x": x},
        transform=plots.side_by_side(SIDES),
    )


# The exchange of a step's gradients ------------------------------------------------------------

_TIMES = (
    Column("horovod_ms", "through Horovod", "ms", 3),
    Column("bare_ms", "bare", "ms", 3),
)


def gradients(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    """Return one figure for all networks of a session; return [] if no exchange was measured."""
    found: dict[tuple[str, int], tuple[Case, list[Pair]]] = {}
    for case in cases:
        pairs = pairs_of(case) if is_of_gradients(case) else []
        key = case.workload.name, case.world_size
        # The same launches answer both questions, and one of these may have had more rounds.
        if pairs and len(pairs) > len(found.get(key, (case, []))[1]):
            found[key] = case, pairs
    if not found:
        return []
    columns = (*WHOSE, *WIDTHS, *_TIMES, *OVERHEAD)
    rows = [
        {
            **whose(case, labels),
            "bytes": pairs[0].size_bytes,
            "tensors": pairs[0].tensors,
            "horovod_ms": 1000 * median(pair.horovod for pair in pairs),
            "bare_ms": 1000 * median(pair.bare for pair in pairs),
            **_measured(case, pairs),
        }
        for case, pairs in found.values()
    ]
    said = several(
        f"{row['network']} {number(row['horovod_ms']):.2f} ms, bare {number(row['bare_ms']):.2f} ms"
        for row in rows
    )
    return [
        Figure(
            name="bandwidth-gradients",
            title="All gradients of a step: bus bandwidth of their allreduce",
            says=f"Typical times of one exchange: {said}.",
            table=Table(columns, tuple(rows)),
            plot=_widths_plot(len(rows)),
        )
    ]


def _widths_plot(rows: int) -> Plot:
    apart = plots.distinguished(SIDES.values())
    tip = plots.tooltip((WHOSE[0], *WHOSE[3:], *plots.BOUNDED, *_TIMES, OVERHEAD[0]))
    return plots.estimates(
        {"y": plots.row_names("network", 260)},
        plots.field("value", "quantitative", "bus bandwidth in GB/s"),
        ("value_low", "value_high"),
        rows=rows,
        each=30,
        size=70,
        point={"color": apart, "shape": apart, "tooltip": tip},
        transform=plots.side_by_side(SIDES),
    )


# Bounds of a step ------------------------------------------------------------------------------

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
    """Return one figure of all steps with a bare exchange; return [] if there are none."""
    rows = [
        row
        for case in cases
        if case.question is Question.OVERLAP
        for row in _of_steps(case, labels)
    ]
    if not rows:
        return []
    said = several(
        f"{row['network']} {number(row['step_ms']):.1f} ms (bounds: "
        f"{number(row['all_hidden_ms']):.1f} ms with all of the exchange hidden, "
        f"{number(row['nothing_hidden_ms']):.1f} ms with nothing hidden)"
        for row in rows
    )
    return [
        Figure(
            name="bandwidth-bound",
            title="A step and its bounds: all of the exchange hidden, or nothing of it",
            says=f"Typical steps: {said}.",
            table=Table(_OF_A_STEP, tuple(rows)),
            plot=_bound_plot(len(rows)),
        )
    ]


def _of_steps(case: Case, labels: Labels) -> list[Row]:
    """Return the row of a case, of medians over every turn of all rounds, from which the case's
    figure is computed; return [] if there was no turn."""
    times = [
        turn
        for measured in case.rounds
        for turn in step_times(*map(measured.of, case.comparison.arms))
    ]
    if not times:
        return []
    seconds = {
        "step_ms": [turn.full for turn in times],
        "local_ms": [turn.local for turn in times],
        "exchange_ms": [turn.exchange for turn in times],
        "all_hidden_ms": [max(turn.local, turn.exchange) for turn in times],
        "nothing_hidden_ms": [turn.local + turn.exchange for turn in times],
    }
    row: dict[str, Value] = {
        **whose(case, labels),
        **{key: 1000 * median(found) for key, found in seconds.items()},
        "of_nothing_hidden": median(turn.of_nothing_hidden for turn in times),
        "of_all_hidden": median(turn.of_all_hidden for turn in times),
        "turns": len(times),
    }
    return [row]


def _bound_plot(rows: int) -> Plot:
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


# The section -----------------------------------------------------------------------------------


def section(cases: Sequence[Case]) -> Section:
    """Return the section on sweeps and on the exchange of networks' gradients."""
    sound = trusted(cases)
    figures = [
        swept(case, pairs)
        for case in sound
        if case.question is Question.COLLECTIVE_OVERHEAD and case.workload == SWEEP
        for pairs in [pairs_of(case)]
        if pairs
    ]
    labels = workload_labels(case.workload for case in sound if is_of_gradients(case))
    figures += [*gradients(sound, labels), *bounds(sound, labels)]
    return Section(
        "bandwidth",
        "Collectives",
        "Bus bandwidth as nccl-tests defines it: for any number of ranks, it can be compared "
        "with the bandwidth of the links. Values are medians over the turns of all "
        "rounds, with their quartiles. Bare is MPI on one buffer without a framework, an upper "
        "limit for Horovod.",
        tuple(figures),
        "No collective operation was measured; to measure: pytest perf/test_communication.py",
    )
