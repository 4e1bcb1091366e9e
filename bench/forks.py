"""Throughput of forked ranks compared with fresh ones, and the spread of launches of each kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import mean, stdev

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.group import Group
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import as_ratio

ROUNDS = 6
TURNS = 8
STEPS = 20
WARM_UP_BLOCKS = 3
FORKED, FRESH = "forked", "fresh"
# Two launches of a kind, to be compared with each other.
LAUNCHES = (0, 1)

# ln(seconds of a block) turn by turn, by kind and launch.
Blocks = Mapping[tuple[str, int], Sequence[float]]


def compare(arm_launcher: ArmLauncher, arm: Arm) -> list[Blocks]:
    """Return the blocks of each round. In a round, four launches take turns, forwards and
    backwards."""
    return [_round(arm_launcher, arm, number) for number in range(ROUNDS)]


def _round(arm_launcher: ArmLauncher, arm: Arm, number: int) -> Blocks:
    forker = replace(arm_launcher)
    names = [(kind, i) for i in LAUNCHES for kind in (FORKED, FRESH)][:: 1 if number % 2 else -1]
    blocks: dict[tuple[str, int], list[float]] = {name: [] for name in names}
    with forker.forking(print), ExitStack() as end:
        groups = {}
        for name in names:
            by = forker if name[0] == FORKED else arm_launcher
            groups[name] = by.start(arm, {BlockKind.FULL}, data_seed=1, share_startup=False)
            end.callback(groups[name].end)
            groups[name].wait_ready(arm_launcher.startup_deadline_s)
            groups[name].pause()
        for turn in range(-WARM_UP_BLOCKS, TURNS):
            for name in names if turn % 2 else names[::-1]:
                taken = _block(groups[name], arm_launcher.order_deadline_s)
                if turn >= 0:
                    blocks[name].append(math.log(taken))
    return blocks


def _block(group: Group, deadline_s: float) -> float:
    group.resume()
    replies = group.ask("block", deadline_s, kind="full", steps=STEPS)
    group.pause()
    return max(float(reply["seconds"]) for reply in replies)


def report(arm: Arm, rounds: Sequence[Blocks]) -> list[str]:
    pairs = [
        fresh - forked
        for blocks in rounds
        for i in LAUNCHES
        for forked, fresh in zip(blocks[FORKED, i], blocks[FRESH, i], strict=True)
    ]
    ratio = as_ratio(hodges_lehmann(pairs, 0.025))
    return [
        f"{arm.name}: throughput of forked ranks / fresh ones",
        f"  {ratio.estimate:.4f} [{ratio.lower:.4f}, {ratio.upper:.4f}]  "
        f"{len(pairs)} pairs in {len(rounds)} rounds",
        *(_spread(kind, rounds) for kind in (FORKED, FRESH)),
    ]


def _spread(kind: str, rounds: Sequence[Blocks]) -> str:
    """Return how far two launches of one kind are apart, and what of it their turns explain."""
    twins = [
        [a - b for a, b in zip(blocks[kind, 0], blocks[kind, 1], strict=True)] for blocks in rounds
    ]
    between = stdev(mean(twin) for twin in twins)
    explained = math.sqrt(mean(stdev(twin) ** 2 / len(twin) for twin in twins))
    return (
        f"  two {kind} launches of a round differ by {between:.1%} (sd over rounds); "
        f"their turns explain {explained:.1%}"
    )
