"""Rounds as launches would have measured them, had the arms run at given speeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.measurement import Block, Launch, Round
from harness.plan import Arm, BlockKind, Comparison, Schedule, Side, Strategy, Workload
from harness.session import Outcome
from harness.stats import hodges_lehmann
from harness.verdict import Floor, Judgement, Rule, Verdict, as_ratio

WORKLOAD = Workload("resnet_50_s", "cifar10", 32, batch=32)
HOROVOD_1 = Arm(WORKLOAD, Strategy.HOROVOD, 1)
HOROVOD_2 = Arm(WORKLOAD, Strategy.HOROVOD, 2)
MIRRORED_2 = Arm(WORKLOAD, Strategy.MIRRORED, 2)


def samples_per_step(arm: Arm, kind: BlockKind) -> int:
    """Of all replicas together."""
    return arm.workload.batch * (1 if kind is BlockKind.SPLIT else arm.world_size)


def rank_report(seconds: float, samples: int, steps: int = 10, **other: Any) -> dict[str, Any]:
    """What harness.worker.loop.run_block returns."""
    return {
        "seconds": seconds,
        "step_seconds": [seconds / steps] * steps,
        "input_seconds": [seconds / steps / 10] * steps,
        "inside_seconds": 0.9 * seconds,
        "samples": samples,
        "cpu_seconds": seconds * 0.9,
        "loss": 1.5,
        **other,
    }


def run_report(
    steps: int = 100,
    samples: int = 3200,
    loss: float = 0.5,
    accuracy: float = 0.8,
    growth: float = 0.0,
    seconds: float = 2.0,
    validated: int = 1000,
    chance_loss: float = 0.0,
) -> dict[str, Any]:
    """What harness.worker.run.run returns; growth: of the resident set, in bytes a step."""
    return {
        "seconds": seconds,
        "steps": steps,
        "epochs": steps / 50,
        "samples": samples,
        "loss": 0.4,
        "learning_rate": 1e-3,
        "memory": [[step, int(5e8 + growth * step)] for step in range(25, steps + 1, 25)],
        "marks": [],
        "validation": {
            "loss": loss,
            "accuracy": accuracy,
            "samples": validated,
            "chance_loss": chance_loss,
        },
    }


def block(
    arm: Arm,
    seconds: float | Sequence[float] = 1.0,
    kind: BlockKind = BlockKind.FULL,
    turn: int = 0,
    steps: int = 10,
) -> Block:
    """A sound block; seconds: of every rank, or one for all."""
    n = arm.processes
    clocks = [seconds] * n if isinstance(seconds, int | float) else list(seconds)
    samples = steps * samples_per_step(arm, kind)
    ranks = [rank_report(clock, samples // n, steps) for clock in clocks]
    ranks[0]["samples"] += samples - samples // n * n
    return Block(kind, turn, steps, ranks)


def launch(
    arm: Arm, speeds: Mapping[BlockKind, float], number: int = 0, turns: int = 3, steps: int = 10
) -> Launch:
    """A sound launch; speeds: samples per second of all replicas, by the kind of block."""
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
        facts=[
            {
                "rank": rank,
                "world_size": replicas,
                "transport": "mpi",
                **({"nccl": False} if arm.strategy is Strategy.HOROVOD else {}),
                "parameters": 511530,
                "gradient_tensors": 54,
                "gradient_bytes": 2046120,
            }
            for rank in range(n)
        ],
        warm_up=[block(arm, 0.1, kind, turn, 5) for turn in range(3) for kind in speeds],
        blocks=blocks,
        evidence=[
            {"world_size": replicas, "learning_rate": 1e-3, "digests": ["a1b2"] * (replicas // n)}
            for _ in range(n)
        ],
    )


def one_round(
    comparison: Comparison,
    ratio: float,
    number: int = 0,
    schedule: Schedule = Schedule.ALTERNATE,
    turns: int = 3,
) -> Round:
    """A round in which the comparison's figure is `ratio`; the reference does 1000 samples/s."""
    reference = 1000.0
    speeds: dict[Side, float] = {
        comparison.reference: reference,
        comparison.candidate: reference * ratio * comparison.ideal_ratio,
    }
    by_arm: dict[Arm, dict[BlockKind, float]] = {}
    for side, speed in speeds.items():
        by_arm.setdefault(side.arm, {})[side.kind] = speed
    launches = {arm: launch(arm, kinds, number, turns) for arm, kinds in by_arm.items()}
    return Round(number, schedule, launches)


def outcome(
    comparison: Comparison,
    ratios: Sequence[float],
    rule: Rule | None = None,
    verdict: Verdict = Verdict.PASS,
    reason: str = "",
    **other: Any,
) -> Outcome:
    """An outcome with a figure from its ratios, one a round."""
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
