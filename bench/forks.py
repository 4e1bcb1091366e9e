"""Throughput of forked ranks compared with fresh ones, and the spread of launches of each kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import mean, stdev

from bench.pairs import block_seconds, ratio, started
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.plan.arms import Arm

ROUNDS = 6
TURNS = 8
STEPS = 20
WARM_UP_BLOCKS = 3
FORKED, FRESH = "forked", "fresh"
# Two launches of a kind, to be compared with each other.
LAUNCHES = (0, 1)

# ln(seconds of a block) turn by turn, by kind and launch.
Blocks = Mapping[tuple[str, int], Sequence[float]]


def run(arm_launcher: ArmLauncher, arm: Arm) -> list[str]:
    """Measure rounds in which four launches take turns, forwards and backwards."""
    rounds = [_round(arm_launcher, arm, number) for number in range(ROUNDS)]
    pairs = [
        fresh - forked
        for blocks in rounds
        for i in LAUNCHES
        for forked, fresh in zip(blocks[FORKED, i], blocks[FRESH, i], strict=True)
    ]
    return [
        f"{arm.name}: throughput of forked ranks / fresh ones",
        f"  {ratio(pairs)}  {len(pairs)} pairs in {len(rounds)} rounds",
        *(_spread(kind, rounds) for kind in (FORKED, FRESH)),
    ]


def _round(arm_launcher: ArmLauncher, arm: Arm, number: int) -> Blocks:
    forker = replace(arm_launcher)
    names = [(kind, i) for i in LAUNCHES for kind in (FORKED, FRESH)][:: 1 if number % 2 else -1]
    blocks: dict[tuple[str, int], list[float]] = {name: [] for name in names}
    with forker.forking(print), ExitStack() as end:
        groups = {}
        for name in names:
            launcher = forker if name[0] == FORKED else arm_launcher
            groups[name] = end.enter_context(started(launcher, arm))
            groups[name].pause()
        for turn in range(-WARM_UP_BLOCKS, TURNS):
            for name in names if turn % 2 else names[::-1]:
                taken = block_seconds(arm_launcher, groups[name], STEPS)
                if turn >= 0:
                    blocks[name].append(math.log(taken))
    return blocks


def _spread(kind: str, rounds: Sequence[Blocks]) -> str:
    """Return a line with the difference of two launches of one kind, and the part of it that the
    scatter of turns explains."""
    twins = [
        [a - b for a, b in zip(blocks[kind, 0], blocks[kind, 1], strict=True)] for blocks in rounds
    ]
    between = stdev(mean(twin) for twin in twins)
    explained = math.sqrt(mean(stdev(twin) ** 2 / len(twin) for twin in twins))
    return (
        f"  two {kind} launches of a round differ by {between:.1%} (sd over rounds); "
        f"their turns explain {explained:.1%}"
    )
