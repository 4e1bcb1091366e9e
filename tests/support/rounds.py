"""Rounds that launches would have measured if the arms had run at given speeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from hvdperf.machine.disturbance import Culprit, Disturbance, Usage
from hvdperf.plan.arms import (
    SWEEP,
    SWEEP_BYTES,
    Arm,
    BlockKind,
    Collective,
    Schedule,
    Side,
    Transfer,
    Workload,
)
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import (
    Block,
    BlockReport,
    CollectiveReport,
    Evidence,
    Launch,
    Metadata,
    Round,
    RunReport,
    Series,
    StampedRun,
    Turns,
    Validation,
)
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import Floor, Judgement, Rule, Verdict, as_ratio
from hvdperf.work.blocks import turns_of
from hvdperf.work.collectives import Collectives
from hvdperf.work.table import work_of
from hvdperf.worker.strategies import Strategy

WORKLOAD = Workload("resnet_50_s", "cifar10", 32, batch=32)
HOROVOD_1 = Arm(WORKLOAD, Strategy.HOROVOD, 1)
HOROVOD_2 = Arm(WORKLOAD, Strategy.HOROVOD, 2)
MIRRORED_2 = Arm(WORKLOAD, Strategy.MIRRORED, 2)
BARE_2 = Arm(WORKLOAD, Strategy.BARE, 2)
GRADIENTS = Transfer(Collective.ALLREDUCE)
GRADIENT_BYTES = 2046120
MPI = "Open MPI v4.1.8"


def samples_per_step(arm: Arm, kind: BlockKind) -> int:
    """Return the samples of a step, of all replicas together."""
    return arm.workload.batch * (1 if kind is BlockKind.SPLIT else arm.world_size)


def usage(foreign: float = 0.0, wait: float | None = None, wall_seconds: float = 0.4) -> Usage:
    """Return the usage of two cores. foreign: the share that other programs used. wait: the share
    for which ranks waited; by default as much as `foreign`."""
    wait = foreign if wait is None else wait
    offered = 2 * wall_seconds
    own = offered * (0.9 - foreign)
    return Usage(wall_seconds, 2, offered * 0.9, own, 0.0, offered * wait, 0.0)


def disturbance(foreign: float = 0.0, at: float = 60.0, *culprits: Culprit) -> Disturbance:
    """Return the disturbance of a round of 20 s, half of them timed. at: seconds from the start of
    the session to that of the round."""
    measured = usage(foreign, wall_seconds=10.0)
    return Disturbance(at, measured, measured.taken_seconds, 20.0, culprits)


def rank_report(seconds: float, samples: int, steps: int = 10, **other: Any) -> BlockReport:
    """Return the report of a sound block."""
    report = BlockReport(
        seconds=seconds,
        step_seconds=[seconds / steps] * steps,
        input_seconds=[seconds / steps / 10] * steps,
        inside_seconds=0.9 * seconds,
        samples=samples,
        loss=1.5,
    )
    return replace(report, **other)


DATA = "6 files, 18.4 MB, 0f3a5c7e9b1d2f48"


def evidence_report(**other: Any) -> Evidence:
    """Return the report of a rank after its last block."""
    return replace(Evidence(2, 1e-3, ["a1b2"], DATA, DATA), **other)


def run_report(
    steps: int = 100,
    samples: int = 3200,
    loss: float = 0.5,
    accuracy: float = 0.8,
    growth: float = 0.0,
    seconds: float = 2.0,
    validated: int = 1000,
    chance_loss: float = 0.0,
) -> RunReport:
    """Return the report of a run. growth: of the resident set, in bytes a step."""
    return RunReport(
        seconds=seconds,
        steps=steps,
        epochs=steps / 50,
        samples=samples,
        loss=0.4,
        memory=[[step, int(5e8 + growth * step)] for step in range(25, steps + 1, 25)],
        timestamps=[],
        curve=[[step, 2.3 / step] for step in range(20, steps + 1, 20)],
        validation=Validation(loss, accuracy, validated, chance_loss),
    )


def series_report(
    seconds: Sequence[float], size_bytes: int = GRADIENT_BYTES, **other: Any
) -> CollectiveReport:
    """Return the report of a sound series."""
    return replace(CollectiveReport(size_bytes, 1, list(seconds), MPI, ""), **other)


def series(
    seconds: float, transfer: Transfer = GRADIENTS, turn: int = 0, processes: int = 2, **other: Any
) -> Series:
    """Return a sound series of three repeats, of which the second is typical."""
    size = sum(transfer.tensor_bytes) or GRADIENT_BYTES
    ranks = [
        series_report([seconds * 0.9, seconds, seconds * 1.2], size, **other)
        for _ in range(processes)
    ]
    return Series(transfer, turn, ranks)


def block(
    arm: Arm,
    seconds: float | Sequence[float] = 1.0,
    kind: BlockKind = BlockKind.FULL,
    turn: int = 0,
    steps: int = 10,
) -> Block:
    """Return a sound block. seconds: of every rank, or one value for all."""
    n = arm.processes
    clocks = [seconds] * n if isinstance(seconds, int | float) else list(seconds)
    samples = steps * samples_per_step(arm, kind)
    ranks = [rank_report(clock, samples // n, steps) for clock in clocks]
    ranks[0] = replace(ranks[0], samples=samples - samples // n * (n - 1))
    return Block(kind, turn, steps, ranks)


def launch(
    arm: Arm, speeds: Mapping[BlockKind, float], number: int = 0, turns: int = 3, steps: int = 10
) -> Launch:
    """Return a sound launch. speeds: samples per second of all replicas, by the kind of block."""
    blocks = [
        block(arm, steps * samples_per_step(arm, kind) / speed, kind, turn, steps)
        for turn in range(turns)
        for kind, speed in speeds.items()
    ]
    replicas, n = arm.world_size, arm.processes
    return Launch(
        arm,
        number,
        startup_seconds=[
            {
                "launch": 0.2,
                "import": 1.6,
                "init": 0.2,
                "build": 0.4,
                "input": 0.5,
                "trace": 2.5,
                "first step": 1.1,
                "broadcast": 0.3,
            }
            for _ in range(n)
        ],
        metadata=[Metadata(rank, replicas, "mpi", **MODEL_FACTS) for rank in range(n)],
        work=Turns(
            [block(arm, 0.1, kind, turn, 5) for turn in range(3) for kind in speeds], blocks
        ),
        evidence=[
            evidence_report(world_size=replicas, digests=["a1b2"] * (replicas // n))
            for _ in range(n)
        ],
    )


def change_reports(
    launched: Launch,
    change: Callable[[int, BlockReport], BlockReport],
    of: Callable[[Block], bool] = lambda block: True,
) -> None:
    """Replace the report of each rank on each of these blocks by `change(rank, report)`."""
    work = launched.work
    assert isinstance(work, Turns | StampedRun)
    work.blocks = [
        replace(block, ranks=[change(rank, report) for rank, report in enumerate(block.ranks)])
        if of(block)
        else block
        for block in launched.blocks
    ]


# The facts that a rank knows once it has built the model.
MODEL_FACTS = {"parameters": 511530, "gradient_tensors": 54, "gradient_bytes": GRADIENT_BYTES}


def launch_without_model(arm: Arm, number: int = 0) -> Launch:
    """Return a sound launch that started only until it had a group, and built no model."""
    sound = launch(arm, {}, number)
    sound.startup_seconds = [
        {phase: rank[phase] for phase in ("launch", "import", "init")}
        for rank in sound.startup_seconds
    ]
    sound.metadata = [
        replace(rank, parameters=0, gradient_tensors=0, gradient_bytes=0) for rank in sound.metadata
    ]
    return sound


def exchanging_round(comparison: Comparison, ratio: float, number: int = 0) -> Round:
    """Return a round of collective operations in which the comparison's figure is `ratio`.

    Bare MPI takes 10 ms for everything, and a step without exchange 30 ms.
    """
    bare_seconds, local_seconds = 0.010, 0.030
    ours, theirs = comparison.candidate.arm, comparison.reference.arm
    kinds: dict[BlockKind, float] = {}
    if comparison.question is Question.OVERLAP:
        steps = {
            BlockKind.FULL: ratio * (bare_seconds + local_seconds),
            BlockKind.LOCAL: local_seconds,
        }
        kinds = {kind: samples_per_step(ours, kind) / seconds for kind, seconds in steps.items()}
    swept = comparison.workload == SWEEP
    horovod = launch_without_model(ours, number) if swept else launch(ours, kinds, number)
    bare = launch_without_model(theirs, number)
    collective = comparison.collective or Collective.ALLREDUCE
    sizes = [(size,) for size in SWEEP_BYTES] if swept else [()]
    for turn in range(3):
        for size in sizes:
            transfer, n = Transfer(collective, size), ours.processes
            turns_of(horovod).series.append(series(ratio * bare_seconds, transfer, turn, n))
            turns_of(bare).series.append(series(bare_seconds, transfer, turn, n))
    return Round(number, Schedule.ALTERNATE, [horovod, bare])


def one_round(
    comparison: Comparison,
    ratio: float,
    number: int = 0,
    schedule: Schedule = Schedule.ALTERNATE,
    turns: int = 3,
) -> Round:
    """Return a round in which the comparison's figure is `ratio`. The reference reaches 1000
    samples/s."""
    if work_of(comparison.question) is Collectives:
        return exchanging_round(comparison, ratio, number)
    reference = 1000.0
    speeds: dict[Side, float] = {
        comparison.reference: reference,
        comparison.candidate: reference * ratio * comparison.ideal_ratio,
    }
    by_arm: dict[Arm, dict[BlockKind, float]] = {}
    for side, speed in speeds.items():
        by_arm.setdefault(side.arm, {})[side.kind] = speed
    launches = [launch(arm, kinds, number, turns) for arm, kinds in by_arm.items()]
    return Round(number, schedule, launches)


def observation(comparison: Comparison, measured: Round) -> float:
    """Return the median of the observations of a round. Raises as Work.observe does."""
    return median(work_of(comparison.question).observe(comparison, measured))


def outcome(
    comparison: Comparison,
    ratios: Sequence[float],
    rule: Rule | None = None,
    verdict: Verdict = Verdict.PASS,
    reason: str = "",
    **other: Any,
) -> Outcome:
    """Return an outcome whose figure follows from its ratios, one per round."""
    logs = [math.log(ratio) for ratio in ratios]
    rule = Floor.at(0.8) if rule is None else rule
    figure = as_ratio(hodges_lehmann(logs, rule.alpha)) if logs else None
    return Outcome(
        comparison,
        Judgement(verdict, figure, rule, len(logs), reason),
        observations=tuple(logs),
        rounds=tuple(one_round(comparison, ratio, i) for i, ratio in enumerate(ratios)),
        **other,
    )
