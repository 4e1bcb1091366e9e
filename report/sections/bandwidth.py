"""What collective operations reach, through Horovod and without, and what they leave of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.archive import Case
from harness.collectives import KIB, MIB, Collective, StepTimes, busbw
from harness.plan import SWEEP, BlockKind, Question, Strategy, Workload
from report.content import Column, Figure, Row, Section, Table, Value
from report.launches import trusted
from report.numbers import number, quantiles
from report.plots import (
    BOUNDED,
    dashes,
    field,
    interval,
    layered,
    rows_high,
    side_by_side,
    told_apart,
    tooltip,
)
from report.words import QUESTIONS, several, slug, workload_labels

# A size that a tool has rounded to whole parts of the ranks is still that of the row.
SAME_SIZE = 0.01
QUARTILES = (0.25, 0.5, 0.75)
_BARE = Strategy.BARE.value
Labels = Mapping[Workload, str]
TOOLS = {"osu": "OSU", "nccl": "nccl-tests"}


def section(cases: Sequence[Case]) -> Section:
    """Of sweeps, and of what the gradients of networks take."""
    sound = trusted(cases)
    figures = [
        _swept(case, pairs)
        for case in sound
        if case.question is Question.FRAMEWORK_TAX and case.workload == SWEEP
        for pairs in [_pairs(case)]
        if pairs
    ]
    labels = workload_labels(case.workload for case in sound if _is_of_gradients(case))
    figures += [*_gradients(sound, labels), *_bounds(sound, labels)]
    return Section(
        "bandwidth",
        "Collectives",
        "Bus bandwidth as nccl-tests has it: comparable with what the links can do, whatever the "
        "number of ranks. Medians over the turns of all rounds, with their quartiles. Bare is MPI "
        "on one buffer without a framework, as much as Horovod could reach.",
        tuple(figures),
        ""
        if figures
        else "No collective operation has been measured: pytest perf/test_communication.py",
    )


@dataclass(frozen=True)
class _Pair:
    """What a turn took through Horovod and bare, in seconds, for so many bytes and tensors."""

    size_bytes: int
    tensors: int
    horovod: float
    bare: float

    @property
    def tax(self) -> float:
        return self.horovod / self.bare


def _collective(case: Case) -> Collective:
    """What is asked about; of a bound, how gradients are exchanged."""
    return Collective(case.document["plan"]["collective"] or Collective.ALLREDUCE.value)


def _pairs(case: Case) -> list[_Pair]:
    """By rounds and turns, where both sides have a time."""
    found = []
    for measured in case.document["rounds"]:
        sides = {launch["strategy"]: launch["series"] for launch in measured["launches"]}
        bare = {(each["bytes"], each["turn"]): each for each in sides.get(_BARE, ())}
        for each in sides.get(Strategy.HOROVOD.value, ()):
            other = bare.get((each["bytes"], each["turn"]))
            if other and each["seconds"] and other["seconds"]:
                tensors = int(each["ranks"][0]["tensors"]) if each["ranks"] else 0
                times = float(each["seconds"]), float(other["seconds"])
                found.append(_Pair(int(each["bytes"]), tensors, *times))
    return found


# Sweeps ----------------------------------------------------------------------------------------

_SIZE = (Column("bytes", "size", "B", hidden=True), Column("size", "size"))
_TAX = (
    Column("tax", "time of Horovod / bare", "", 3),
    Column("tax_low", "time ratio, 25 %", "", 3),
    Column("tax_high", "time ratio, 75 %", "", 3),
    Column("turns", "turns"),
)


def _width(side: str, name: str) -> tuple[Column, ...]:
    return (
        Column(side, name, "GB/s", 3),
        Column(f"{side}_low", f"{name}, 25 %", "GB/s", 3),
        Column(f"{side}_high", f"{name}, 75 %", "GB/s", 3),
    )


_SIDES = {"horovod": "Horovod", "bare": "bare"}
_WIDTHS = tuple(column for side in _SIDES.items() for column in _width(*side))


def _swept(case: Case, pairs: Sequence[_Pair]) -> Figure:
    collective, n = _collective(case).value, case.world_size
    by_size: dict[int, list[_Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair.size_bytes):
        by_size.setdefault(pair.size_bytes, []).append(pair)
    rows: dict[int, dict[str, Value]] = {
        size: {"bytes": size, "size": _short(size), **_widths(case, group), **_taxes(group)}
        for size, group in by_size.items()
    }
    tools = _tools(case, rows)
    columns = (*_SIZE, *_WIDTHS, *_TAX, *(Column(t, TOOLS[t], "GB/s", 3) for t in tools))
    table = Table(columns, tuple(rows[size] for size in sorted(rows)))
    best = max(table.rows, key=lambda row: number(row["horovod"]))
    worst = max(table.rows, key=lambda row: number(row["tax"]))
    return Figure(
        name=slug("bandwidth", collective, f"np{n}"),
        title=f"{collective} on {n} ranks: bus bandwidth by size",
        says=(
            f"Through Horovod {number(best['horovod']):.2f} GB/s at most, at {best['size']}, where "
            f"the bare transport reaches {number(best['bare']):.2f}. Horovod takes longest in "
            f"proportion at {worst['size']}: {number(worst['tax']):.2f} times the bare transport's "
            "time."
        ),
        table=table,
        plot=_sweep_plot({**_SIDES, **{tool: TOOLS[tool] for tool in tools}}, sorted(rows)),
        tags={"world_size": str(n), "question": QUESTIONS[case.question]},
    )


def _widths(case: Case, group: Sequence[_Pair]) -> dict[str, Value]:
    """Of both sides. Bandwidth falls as time rises: none of a collective that moves nothing."""
    collective, n = _collective(case), case.world_size
    return {
        key: value
        for side in _SIDES
        for key, value in _spread(
            side,
            [busbw(collective, n, pair.size_bytes, getattr(pair, side)) for pair in group],
        ).items()
    }


def _taxes(group: Sequence[_Pair]) -> dict[str, Value]:
    return {**_spread("tax", [pair.tax for pair in group]), "turns": len(group)}


def _spread(key: str, values: Sequence[float]) -> dict[str, Value]:
    """Median and quartiles; none of what is 0, which no logarithm shows."""
    low, middle, high = (cut if cut > 0 else None for cut in quantiles(values, QUARTILES))
    return {key: middle, f"{key}_low": low, f"{key}_high": high}


def _tools(case: Case, rows: dict[int, dict[str, Value]]) -> list[str]:
    """Those with figures, which they add to the rows, or as rows of their own."""
    found = {run["tool"]: run["figures"] for run in case.document["tools"] if run["figures"]}
    own = list(rows)
    for tool in found:
        for row in rows.values():
            row[tool] = None
    for tool, figures in found.items():
        for figure in figures:
            size = int(figure["bytes"])
            near = next((s for s in own if math.isclose(s, size, rel_tol=SAME_SIZE)), size)
            row = rows.setdefault(near, _empty(near, found))
            width = float(figure["busbw_gb_per_s"])
            row[tool] = width if width > 0 else None
    return list(found)


def _empty(size: int, tools: Iterable[str]) -> dict[str, Value]:
    keys = [*(column.key for column in (*_WIDTHS, *_TAX)), *tools]
    return {"bytes": size, "size": _short(size), **dict.fromkeys(keys)}


def _short(size: int) -> str:
    for unit, name in ((MIB, "MB"), (KIB, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"


def _sweep_plot(names: Mapping[str, str], sizes: Sequence[int]) -> Mapping[str, Any]:
    """A line a side; shapes and dashes tell them apart, too. names: by column."""
    apart = told_apart(names.values())
    y = field("value", "quantitative", "bus bandwidth in GB/s", scale={"type": "log"})
    layers = (
        interval("value_low", "value_high"),
        {
            "mark": {"type": "line"},
            "encoding": {"y": y, "color": apart, "strokeDash": dashes(apart)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 50},
            "encoding": {
                "y": y,
                "color": apart,
                "shape": apart,
                "tooltip": tooltip((_SIZE[1], *BOUNDED, *_TAX[:1])),
            },
        },
    )
    x = field("bytes", "quantitative", "size", scale={"type": "log", "base": 2})
    return layered(
        *layers,
        encoding={"x": {**x, "axis": {"values": list(sizes), **_BINARY}}},
        transform=side_by_side(names),
    )


# As _short has it.
_BINARY = {
    "labelExpr": f"datum.value >= {MIB} ? datum.value / {MIB} + ' MB' : "
    f"datum.value >= {KIB} ? datum.value / {KIB} + ' KB' : datum.value + ' B'"
}


# Gradients of networks -------------------------------------------------------------------------

_WHOSE = (
    Column("network", "network"),
    Column("model", "name", hidden=True),
    Column("world_size", "replicas", hidden=True),
    Column("bytes", "gradients", "B"),
    Column("tensors", "tensors"),
)
_TIMES = (
    Column("horovod_ms", "through Horovod", "ms", 3),
    Column("bare_ms", "bare", "ms", 3),
)


def _gradients(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    """Of all networks of a session, in one figure; none if there are none."""
    found: dict[tuple[str, int], tuple[Case, list[_Pair]]] = {}
    for case in cases:
        pairs = _pairs(case) if _is_of_gradients(case) else []
        key = case.workload.name, case.world_size
        # Both questions are answered by the same launches, of which one may have had more rounds.
        if pairs and len(pairs) > len(found.get(key, (case, []))[1]):
            found[key] = case, pairs
    if not found:
        return []
    columns = (*_WHOSE, *_WIDTHS, *_TIMES, *_TAX)
    rows = [
        {
            **_whose(case, labels),
            "bytes": pairs[0].size_bytes,
            "tensors": pairs[0].tensors,
            **_widths(case, pairs),
            "horovod_ms": 1000 * quantiles([pair.horovod for pair in pairs], (0.5,))[0],
            "bare_ms": 1000 * quantiles([pair.bare for pair in pairs], (0.5,))[0],
            **_taxes(pairs),
        }
        for case, pairs in found.values()
    ]
    said = several(
        [
            f"{row['network']} {number(row['horovod_ms']):.2f} ms, bare "
            f"{number(row['bare_ms']):.2f} ms"
            for row in rows
        ]
    )
    return [
        Figure(
            name="bandwidth-gradients",
            title="All gradients of a step: bus bandwidth of their allreduce",
            says=f"Typical times of one exchange: {said}.",
            table=Table(columns, tuple(rows)),
            plot=_gradient_plot(len(rows)),
        )
    ]


def _is_of_gradients(case: Case) -> bool:
    tax = case.question is Question.FRAMEWORK_TAX and case.workload != SWEEP
    return tax or case.question is Question.BOUND


def _whose(case: Case, labels: Labels) -> dict[str, Value]:
    model = labels[case.workload]
    return {
        "network": f"{model}, np {case.world_size}",
        "model": model,
        "world_size": case.world_size,
    }


def _gradient_plot(rows: int) -> Mapping[str, Any]:
    apart = told_apart(_SIDES.values())
    return layered(
        interval("value_low", "value_high", "x"),
        {
            "mark": {"type": "point", "filled": True, "size": 70},
            "encoding": {
                "x": field("value", "quantitative", "bus bandwidth in GB/s"),
                "color": apart,
                "shape": apart,
                "tooltip": tooltip((_WHOSE[0], *_WHOSE[3:], *BOUNDED, *_TIMES, *_TAX[:1])),
            },
        },
        height=rows_high(rows, each=30),
        encoding={"y": field("network", "nominal", axis={"title": None, "labelLimit": 260})},
        transform=side_by_side(_SIDES),
    )


# What they leave of a step ---------------------------------------------------------------------

_OF_A_STEP = (
    *_WHOSE[:3],
    Column("step_ms", "a step", "ms", 2),
    Column("local_ms", "without exchange", "ms", 2),
    Column("exchange_ms", "bare exchange", "ms", 2),
    Column("all_hidden_ms", "if all were hidden", "ms", 2),
    Column("nothing_hidden_ms", "if nothing were", "ms", 2),
    Column("of_nothing_hidden", "step / nothing hidden", "", 3),
    Column("of_all_hidden", "step / all hidden", "", 3),
    Column("turns", "turns"),
)


def _bounds(cases: Sequence[Case], labels: Labels) -> list[Figure]:
    found = [
        (case, times)
        for case in cases
        if case.question is Question.BOUND
        for times in [_step_times(case)]
        if times
    ]
    rows = [_of_steps(case, times, labels) for case, times in found]
    if not rows:
        return []
    said = several(
        [
            f"{row['network']} {number(row['step_ms']):.1f} ms, where "
            f"{number(row['all_hidden_ms']):.1f} ms would hide all of the exchange and "
            f"{number(row['nothing_hidden_ms']):.1f} ms nothing of it"
            for row in rows
        ]
    )
    return [
        Figure(
            name="bandwidth-bound",
            title="A step and its bounds: all of the exchange hidden, and nothing of it",
            says=f"Typical steps: {said}.",
            table=Table(_OF_A_STEP, tuple(rows)),
            plot=_bound_plot(len(rows)),
        )
    ]


def _step_times(case: Case) -> list[StepTimes]:
    """As harness.measurement.step_times has them."""
    found = []
    for measured in case.document["rounds"]:
        launches = {launch["strategy"]: launch for launch in measured["launches"]}
        horovod, bare = launches.get(Strategy.HOROVOD.value), launches.get(_BARE)
        if horovod is None or bare is None:
            continue
        full, local = (
            {
                block["turn"]: block["seconds"] / block["steps"]
                for block in horovod["blocks"]
                if block["kind"] == kind.value and block["seconds"]
            }
            for kind in (BlockKind.FULL, BlockKind.LOCAL)
        )
        exchange = {each["turn"]: each["seconds"] for each in bare["series"] if each["seconds"]}
        turns = sorted(full.keys() & local.keys() & exchange.keys())
        found += [StepTimes(full[turn], local[turn], exchange[turn]) for turn in turns]
    return found


def _of_steps(case: Case, times: Sequence[StepTimes], labels: Labels) -> Row:
    def middle(values: Iterable[float], unit: float = 1000) -> float:
        return unit * quantiles(list(values), (0.5,))[0]

    return {
        **_whose(case, labels),
        "step_ms": middle(turn.full for turn in times),
        "local_ms": middle(turn.local for turn in times),
        "exchange_ms": middle(turn.exchange for turn in times),
        "all_hidden_ms": middle(max(turn.local, turn.exchange) for turn in times),
        "nothing_hidden_ms": middle(turn.local + turn.exchange for turn in times),
        "of_nothing_hidden": middle((turn.of_nothing_hidden for turn in times), 1),
        "of_all_hidden": middle((turn.of_all_hidden for turn in times), 1),
        "turns": len(times),
    }


def _bound_plot(rows: int) -> Mapping[str, Any]:
    """The band between both bounds, and where the step lies."""
    return layered(
        {
            "mark": {"type": "bar", "style": "band", "height": {"band": 0.6}},
            "encoding": {
                "x": field("all_hidden_ms", "quantitative", "step time in ms"),
                "x2": {"field": "nothing_hidden_ms"},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "shape": "diamond"},
            "encoding": {"x": field("step_ms", "quantitative", "step time in ms")},
        },
        height=rows_high(rows, each=30),
        encoding={
            "y": field("network", "nominal", axis={"title": None, "labelLimit": 260}),
            "tooltip": tooltip(_OF_A_STEP),
        },
    )
