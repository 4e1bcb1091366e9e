"""What launches report: times of steps by rank, the phases of a start, and the growth of
memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from hvdperf.explain.steps import long_steps
from hvdperf.explain.time_breakdown import beyond_chance
from hvdperf.plan.arms import BlockKind
from hvdperf.records.documents import Case
from hvdperf.records.rounds import Block
from hvdperf.report import plots, words
from hvdperf.report.cases import Started, finite, grouped, held, launches, number, trusted
from hvdperf.report.content import Column, Field, Figure, Row, Section, Table, value
from hvdperf.work.blocks import Blocks
from hvdperf.work.table import work_of
from hvdperf.work.training import Endurance
from hvdperf.worker.protocol import STARTUP
from hvdperf.worker.strategies import Strategy

# The launches of an arm, at least one.
Arm = Sequence[Started]


# Steps -----------------------------------------------------------------------------------------

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_QUANTILES = (
    *(Column(f"q{100 * share:02.0f}_ms", f"{100 * share:.0f} %", "ms", 2) for share in SHARES),
    Column("max_ms", "longest", "ms", 2),
    Column("steps", "steps"),
)


def steps(cases: Sequence[Case]) -> Section:
    """Return the section on timed blocks of whole steps."""
    return Section(
        "steps",
        "Step times",
        "Times of all steps in timed blocks, by each rank's own clock. A line spans the 1st to "
        "the 99th percentile, its bar the 25th to the 75th, and its tick is the median. A "
        "diamond marks a rank that is the slowest in more blocks than chance explains "
        "(probability 1 in 1000).",
        tuple(_by_rank(trusted(cases))),
        "No steps were timed; to measure: pytest perf/test_scaling.py",
    )


def _distribution(seconds: Sequence[float]) -> Row:
    cuts = (*plots.quantiles(seconds, SHARES), max(seconds))
    in_ms = {column.key: 1000 * cut for column, cut in zip(_QUANTILES, cuts, strict=False)}
    return {**in_ms, "steps": len(seconds)}


def _by_rank(cases: Sequence[Case]) -> list[Figure]:
    # Not those of variants of a workload.
    asked = [
        case
        for case in cases
        if work_of(case.question) is Blocks and not case.question.spec.own_rounds
    ]
    labels = words.workload_labels(case.workload for case in asked)
    timed = filter(_blocks, launches(asked))
    ours = (each for each in timed if each.launch.arm.strategy is Strategy.HOROVOD)
    found = grouped(ours, lambda each: (each.case.workload, each.world_size))
    ordered = sorted(found, key=lambda key: (key[0].name, key[1]))
    return [_ranks(labels[key[0]], key[1], found[key]) for key in ordered]


def _blocks(started: Started) -> list[Block]:
    """Return the timed blocks of whole steps."""
    return started.launch.of_kind(BlockKind.FULL)


_OF_A_RANK = (
    Column("rank", "rank"),
    *_QUANTILES,
    Column("slowest", "slowest in", "% of blocks", 1),
    Column("named", "more often than by chance"),
)


def _ranks(label: str, world_size: int, group: Sequence[Started]) -> Figure:
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
    table = Table(_OF_A_RANK, tuple(rows))
    rare = long_steps([started.launch for started in group])
    return Figure(
        words.slug("steps", "ranks", label, f"np{world_size}"),
        f"{label}, Horovod on {words.plural(world_size, 'replica')}: step times by rank",
        "" if rare is None else f"Rare long steps: {rare}.",
        table,
        plots.boxes(table, "rank", named="named"),
        brief=rare is not None,
    )


# Starts ----------------------------------------------------------------------------------------

# The phases of a start, with the keys of their columns.
PHASES = {phase.value: phase.value.replace(" ", "_") for phase in STARTUP}


def startup(cases: Sequence[Case]) -> Section:
    """Return the section on all launches of the session's own stack without an injected fault."""
    timed = (each for each in launches(trusted(cases)) if each.launch.startup_seconds)
    # The learning rate does not affect the start.
    found = grouped(timed, lambda each: replace(each.case.workload, learning_rate="constant"))
    labels = words.workload_labels(found)
    figures = tuple(_starts(labels[workload], _arms(own)) for workload, own in found.items())
    return Section(
        "startup",
        "Start-up",
        "Seconds of the slowest rank in each phase, medians over the launches. Arms that start "
        "at the same time as others share the cores with them, and therefore take longer.",
        figures,
        "No start was measured; to measure: pytest perf/test_startup.py",
    )


def _arms(started: Iterable[Started]) -> list[Arm]:
    """Return the launches by arm, small arms first."""
    arms = grouped(started, _beside)
    return [arms[name] for name in sorted(arms, key=lambda name: (arms[name][0].world_size, name))]


def _beside(started: Started) -> str:
    return started.arm + ("" if started.alone else ", beside others")


def _seconds_of(phase: str, arm: Arm) -> float | None:
    """Return the median, over the launches that went through a phase, of the slowest rank's."""
    launched = (started.launch.startup_seconds for started in arm)
    known = (finite(rank.get(phase) for rank in ranks) for ranks in launched)
    slowest = [max(seconds) for seconds in known if seconds]
    return median(slowest) if slowest else None


def _all_phases(arm: Arm) -> float:
    return sum(number(_seconds_of(phase, arm)) for phase in PHASES)


def _phase(phase: str) -> Field[Arm]:
    return value(PHASES[phase], phase, lambda arm: _seconds_of(phase, arm), "s", 3)


_OF_A_START: tuple[Field[Arm], ...] = (
    value("arm", "started", lambda arm: _beside(arm[0])),
    value("strategy", "strategy", lambda arm: arm[0].strategy, hidden=True),
    value("world_size", "ranks", lambda arm: arm[0].world_size, hidden=True),
    value(
        "beside", "beside it", lambda arm: "nothing" if arm[0].alone else "other arms", hidden=True
    ),
    *map(_phase, PHASES),
    value("all_phases", "all phases", _all_phases, "s", 3),
    value("launches", "launches", len),
)


def _starts(label: str, arms: Sequence[Arm]) -> Figure:
    rows = Table.of(arms, *_OF_A_START)
    return Figure(
        words.slug("startup", label),
        f"{label}: from the order to launch until the first step can be taken",
        "",
        rows,
        plots.stacked(rows, "arm", *PHASES.values()),
    )


# Memory ----------------------------------------------------------------------------------------

MIB = 1024 * 1024
# If there are more ranks than this, only those that grow most are shown.
SHOWN = 8
Readings = Sequence[tuple[int, float]]


def memory(cases: Sequence[Case]) -> Section:
    """Return the section on endurance runs."""
    found = [case for case in held(trusted(cases)) if work_of(case.question) is Endurance]
    labels = words.workload_labels(case.workload for case in found)
    figures = tuple(figure for case in found for figure in _memory(case, labels[case.workload]))
    return Section(
        "memory",
        "Memory",
        "Resident set of each rank during training, medians over the rounds. In the first third of "
        "the run caches and queues fill up; the cases judge the growth after that.",
        figures,
        "Memory was not measured; to measure: pytest perf/test_memory.py",
    )


def _memory(case: Case, label: str) -> Iterator[Figure]:
    """Yield the figure of a case; none if no memory was read."""
    candidate, n = case.comparison.candidate.arm, case.world_size
    started = [each for each in launches([case]) if each.launch.arm == candidate]
    ranks = _readings(started)
    if not ranks:
        return
    grown = {rank: readings[-1][1] - readings[0][1] for rank, readings in ranks.items()}
    shown = sorted(sorted(ranks, key=grown.__getitem__, reverse=True)[:SHOWN])
    columns = (
        Column("rank", "rank"),
        Column("steps", "steps"),
        Column("resident_mib", "resident set", "MiB", 1),
        Column("rounds", "rounds"),
    )
    rows = Table.filled(
        columns,
        ((rank, steps, size / MIB, len(started)) for rank in shown for steps, size in ranks[rank]),
    )
    yield Figure(
        words.slug("memory", label, f"np{n}"),
        f"{label} on {words.plural(n, 'replica')}: resident set of each rank",
        f"The {SHOWN} of {len(ranks)} ranks that grow most." if len(ranks) > SHOWN else "",
        rows,
        plots.curve(
            rows,
            plots.axis(rows, "steps"),
            plots.axis(rows, "resident_mib", scale={"zero": False}),
            "rank",
        ),
    )


def _readings(started: Sequence[Started]) -> dict[int, Readings]:
    """Return steps and bytes of each rank: medians over the launches with a reading at that
    step."""
    found: dict[int, dict[int, list[float]]] = {}
    for each in started:
        for rank, run in enumerate(each.launch.run):
            for steps, size in run.memory:
                found.setdefault(rank, {}).setdefault(int(steps), []).append(float(size))
    return {
        rank: [(steps, median(sizes)) for steps, sizes in sorted(read.items())]
        for rank, read in found.items()
    }
