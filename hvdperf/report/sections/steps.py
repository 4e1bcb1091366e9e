"""Times of steps: distributions by rank, and of strategies side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hvdperf.explain.long_steps import long_steps
from hvdperf.explain.time_breakdown import beyond_chance
from hvdperf.plan.arms import BlockKind
from hvdperf.records.documents import Case
from hvdperf.records.rounds import Block
from hvdperf.report import plots
from hvdperf.report.cases import Started, finite, grouped, launches, number, quantiles, trusted
from hvdperf.report.content import Column, Figure, Row, Section, Table, Value
from hvdperf.report.words import plural, several, slug, span, workload_labels
from hvdperf.work.blocks import Blocks
from hvdperf.work.table import work_of
from hvdperf.worker.strategies import Strategy

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_QUANTILES = (
    *(Column(f"q{100 * share:02.0f}_ms", f"{100 * share:.0f} %", "ms", 2) for share in SHARES),
    Column("max_ms", "longest", "ms", 2),
    Column("steps", "steps"),
)
_MEDIAN = plots.field("q50_ms", "quantitative", "step time in ms", scale={"zero": False})


def section(cases: Sequence[Case]) -> Section:
    """Return the section on timed blocks of whole steps."""
    sound = trusted(cases)
    return Section(
        "steps",
        "Step times",
        "Times of all steps in timed blocks, by each rank's own clock. A line spans the 1st to "
        "the 99th percentile, its bar the 25th to the 75th, and its tick is the median. A "
        "diamond marks a rank that is the slowest in more blocks than chance explains "
        "(probability 1 in 1000).",
        (*_by_rank(sound), *_of_strategies(sound)),
        "No steps were timed; to measure: pytest perf/test_scaling.py",
    )


# Rank by rank ----------------------------------------------------------------------------------

_OF_A_RANK = (
    Column("rank", "rank"),
    *_QUANTILES,
    Column("slowest", "slowest in", "% of blocks", 1),
    Column("named", "more often than by chance"),
)


def _by_rank(cases: Sequence[Case]) -> list[Figure]:
    # Not those of variants of a workload.
    asked = [
        case
        for case in cases
        if work_of(case.question) is Blocks and not case.question.spec.own_rounds
    ]
    labels = workload_labels(case.workload for case in asked)
    timed = filter(_blocks, launches(asked))
    ours = (each for each in timed if each.launch.arm.strategy is Strategy.HOROVOD)
    found = grouped(ours, lambda each: (each.case.workload, each.world_size))
    ordered = sorted(found, key=lambda key: (key[0].name, key[1]))
    return [_ranks(key[0].model, labels[key[0]], key[1], found[key]) for key in ordered]


def _blocks(started: Started) -> list[Block]:
    """Return the timed blocks of whole steps."""
    return started.launch.of_kind(BlockKind.FULL)


def _ranks(model: str, label: str, world_size: int, group: Sequence[Started]) -> Figure:
    blocks = [block for started in group for block in _blocks(started)]
    steps: list[list[float]] = [[] for _ in range(world_size)]
    last = [0] * world_size
    for block in blocks:
        clocks = [rank.seconds if math.isfinite(rank.seconds) else 0.0 for rank in block.ranks]
        # If several ranks take as long, none of them is the slowest.
        if clocks.count(max(clocks)) == 1:
            last[clocks.index(max(clocks))] += 1
        for own, rank in zip(steps, block.ranks, strict=False):
            own += finite(rank.step_seconds)
    named = [beyond_chance(times, len(blocks), world_size) for times in last]
    rows: list[Row] = [
        {
            "rank": rank,
            **_distribution(own),
            "slowest": 100 * last[rank] / len(blocks),
            "named": "yes" if named[rank] else "no",
        }
        for rank, own in enumerate(steps)
        if own
    ]
    medians = plots.layer("tick", x=_MEDIAN)
    diamond = {"type": "point", "size": 70, "style": "named", "shape": "diamond"}
    marked = plots.layer(diamond, {"filter": "datum.named === 'yes'"}, x=_MEDIAN)
    y = plots.field("rank", "ordinal", "rank", axis={"labelOverlap": "greedy"})
    rare = long_steps([started.launch for started in group])
    also = "" if rare is None else f" Rare long steps: {rare}."
    return Figure(
        slug("steps", "ranks", label, f"np{world_size}"),
        f"{label}, Horovod on {plural(world_size, 'replica')}: step times by rank",
        _said_of_ranks(rows, len(blocks), len(group)) + also,
        Table(_OF_A_RANK, tuple(rows)),
        plots.boxes(_OF_A_RANK, len(rows), y, medians, marked),
        {"model": model, "world_size": str(world_size)},
        brief=rare is not None,
    )


def _distribution(seconds: Sequence[float]) -> dict[str, Value]:
    cuts = quantiles(seconds, SHARES)
    return {
        **{f"q{100 * share:02.0f}_ms": 1000 * cut for share, cut in zip(SHARES, cuts, strict=True)},
        "max_ms": 1000 * max(seconds),
        "steps": len(seconds),
    }


def _said_of_ranks(rows: Sequence[Row], blocks: int, started: int) -> str:
    middle = [number(row["q50_ms"]) for row in rows]
    longest = max(rows, key=lambda row: number(row["q99_ms"]))
    said = (
        f"In {plural(blocks, 'block')} of {plural(started, 'launch', 'launches')} the median "
        f"step takes {span(middle, '.1f')} ms; 1 % of the steps of rank "
        f"{longest['rank']} take more than {number(longest['q99_ms']):.1f} ms. "
    )
    named = [row for row in rows if row["named"] == "yes"]
    if len(rows) < 2:
        return said.rstrip()
    if not named:
        return said + "No rank is the slowest in more blocks than chance explains."
    several = ", ".join(f"rank {row['rank']} in {number(row['slowest']):.0f} %" for row in named)
    return f"{said}Slowest in more blocks than chance explains: {several}."


# Strategies side by side -----------------------------------------------------------------------

_OF_AN_ARM = (
    Column("arm", "strategy"),
    Column("strategy", "kind", hidden=True),
    Column("world_size", "ranks", hidden=True),
    *_QUANTILES,
    Column("launches", "launches"),
)


def _of_strategies(cases: Sequence[Case]) -> list[Figure]:
    """Return a figure per workload, of all ranks together."""
    asked = [case for case in cases if case.comparison.compares_strategies]
    labels = workload_labels(case.workload for case in asked)
    found = grouped(filter(_blocks, launches(asked)), lambda each: each.case.workload)
    arms = {workload: grouped(own, lambda each: each.arm) for workload, own in found.items()}
    return [
        _strategies(workload.model, labels[workload], own)
        for workload, own in arms.items()
        if len(own) > 1
    ]


def _strategies(model: str, label: str, arms: Mapping[str, Sequence[Started]]) -> Figure:
    rows: list[Row] = [
        {
            "arm": arm,
            "strategy": group[0].strategy,
            "world_size": group[0].world_size,
            **_distribution(seconds),
            "launches": len(group),
        }
        for arm, group in arms.items()
        if (seconds := _step_seconds(group))
    ]
    rows.sort(key=lambda row: (number(row["world_size"]), str(row["arm"])))
    said = several(f"{row['arm']} {number(row['q50_ms']):.1f} ms" for row in rows)
    strategy = plots.field("strategy", "nominal", legend=plots.LEGEND)
    medians = plots.layer({"type": "point", "size": 70}, x=_MEDIAN, color=strategy, shape=strategy)
    y = plots.row_names("arm", sort=[str(row["arm"]) for row in rows])
    return Figure(
        slug("steps", "strategies", label),
        f"{label}: step times of strategies side by side",
        f"Medians of all steps of all ranks: {said}.",
        Table(_OF_AN_ARM, tuple(rows)),
        plots.boxes(_OF_AN_ARM, len(rows), y, medians),
        {"model": model},
    )


def _step_seconds(group: Sequence[Started]) -> list[float]:
    return [
        second
        for started in group
        for block in _blocks(started)
        for rank in block.ranks
        for second in finite(rank.step_seconds)
    ]
