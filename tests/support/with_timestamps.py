"""Launches with a time breakdown, made from the time that ranks spend on each term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hvdperf.plan.arms import START, Arm, BlockKind, Schedule
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.rounds import (
    Asked,
    Launch,
    Round,
    RunReport,
    StampedRun,
    Timestamp,
    Timestamps,
)
from tests.support.rounds import block, launch, run_report

LAUNCH_S, END_S = 0.2, 0.3
SECONDS = {
    "import": 1.5,
    "init": 0.1,
    "build": 0.2,
    "input": 0.3,
    "trace": 2.0,
    "first step": 1.0,
    "broadcast": 0.5,
    "ready": 0.01,
}
# The parts of a step in seconds, one after the other.
BETWEEN, INPUT, COMPUTE, APPLY = 0.001, 0.002, 0.012, 0.004


def step_timestamps(
    steps: int,
    late: Sequence[float],
    exchange: float = 0.0,
    slow_first: float = 0.0,
    computes: Sequence[float] = (),
) -> list[list[list[float]]]:
    """Return timestamps by rank and step: when the step began to take its batch, had it, and
    ended. late: seconds by which each rank has its batch later. All ranks end
    a step together. slow_first: extra seconds of the first step. computes: seconds that each rank
    computes longer."""
    longer = computes or [0.0] * len(late)
    rows: list[list[list[float]]] = [[] for _ in late]
    began = 0.0
    for step in range(steps):
        ready = [began + BETWEEN + INPUT + lag for lag in late]
        work = COMPUTE + APPLY + exchange + (slow_first if step == 0 else 0.0)
        end = max(map(sum, zip(ready, longer, strict=True))) + work
        for row, has_batch in zip(rows, ready, strict=True):
            row.append([has_batch - INPUT, has_batch, end])
        began = end
    return rows


def timestamps_of(run_seconds: float, ranks: int, unexplained: float = 0.0) -> Timestamps:
    """Return the timestamps of a launch. run_seconds: of the steps. unexplained: seconds between
    the last step and the answer."""
    launched = 1.7e9
    begins = [launched + LAUNCH_S]
    for phase in START:
        begins.append(begins[-1] + SECONDS[phase])
    answered = begins[-1] + run_seconds + unexplained
    # The session's own questions take 5 s before the order to close.
    phases = [*START, "run", "ready", "ablation", "ready", "end"]
    times = [*begins, answered, answered + 1, answered + 2, answered + 5]
    of_rank = [
        Timestamp(phase, at, at - launched + 77.0) for phase, at in zip(phases, times, strict=True)
    ]
    since = [time - launched for time in times]
    asked = [
        Asked("run", since[len(START)], since[len(START) + 1]),
        Asked("ablation", since[-3], since[-2]),
        Asked("close", since[-1], since[-1] + END_S),
    ]
    return Timestamps(launched, times[-1] + END_S, [of_rank] * ranks, asked)


def with_timestamps(
    arm: Arm,
    number: int = 0,
    steps: int = 40,
    late: Sequence[float] | None = None,
    exchange: float = 0.0,
    slow_first: float = 0.0,
    unexplained: float = 0.0,
    turns: int = 3,
    computes: Sequence[float] = (),
) -> Launch:
    """Return a launch with timestamps. late: seconds by which each rank has its batches
    later. exchange: seconds of a step that are exposed communication. computes: seconds that each
    rank computes longer."""
    lags = list(late or [0.0] * arm.world_size)
    own = list(computes or [0.0] * len(lags))
    rows = step_timestamps(steps, lags, exchange, slow_first=slow_first, computes=own)
    seconds = max(row[-1][-1] for row in rows)
    before, work = BETWEEN + INPUT, COMPUTE + APPLY
    slowest = before + max(map(sum, zip(lags, own, strict=True))) + work + exchange
    # By the kind of block, the seconds of a step of each rank, and those of them inside of it.
    of_kinds = {
        BlockKind.FULL: [(slowest, slowest - before - lag) for lag in lags],
        BlockKind.LOCAL: [
            (before + lag + work + more, work + more) for lag, more in zip(lags, own, strict=True)
        ],
        BlockKind.COMPUTE: [(before + COMPUTE + more, COMPUTE + more) for more in own],
    }
    blocks = []
    for turn in range(turns):
        for kind, of_kind in of_kinds.items():
            timed = block(arm, [10 * whole for whole, _ in of_kind], kind, turn)
            ranks = [
                replace(report, inside_seconds=10 * inside)
                for report, (_, inside) in zip(timed.ranks, of_kind, strict=True)
            ]
            blocks.append(replace(timed, ranks=ranks))
    start = {"launch": LAUNCH_S, **SECONDS}
    del start["ready"]
    # The facts and the evidence are those of a sound launch.
    made = launch(arm, {}, number)
    made.startup_seconds = [dict(start) for _ in lags]
    made.work = StampedRun(
        _reports(rows),
        blocks=blocks,
        timestamps=timestamps_of(seconds, len(lags), unexplained),
    )
    return made


def _reports(rows: Sequence[list[list[float]]]) -> list[RunReport]:
    """Return the reports of a run with these timestamps, by rank."""
    steps, seconds = len(rows[0]), max(row[-1][-1] for row in rows)
    report = run_report(steps=steps, samples=32 * steps, seconds=seconds)
    return [replace(report, timestamps=row, curve=[], validation=None) for row in rows]


def round_with_timestamps(comparison: Comparison, number: int = 0, **candidate: object) -> Round:
    """Return a round. candidate: arguments of `with_timestamps` for the side that is judged."""
    ours, theirs = comparison.candidate.arm, comparison.reference.arm
    judged = with_timestamps(ours, number, **candidate)  # type: ignore[arg-type]
    return Round(number, Schedule.FRESH, [judged, with_timestamps(theirs, number)])
