"""The work of a round's launches once they have started: what every LaunchMode has in common."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from hvdperf.launch.arm_launcher import PATIENCE, ArmLauncher
from hvdperf.launch.group import Group
from hvdperf.machine.cpu_usage import CpuMeter
from hvdperf.measure.interleaving import Pair
from hvdperf.measure.live_groups import LiveGroups, Progress
from hvdperf.plan.arms import Arm, BlockKind, Transfer
from hvdperf.plan.profile import Runs, Sampling
from hvdperf.records.reports import BlockReport
from hvdperf.records.rounds import Block, Launch

# A block of slow steps has fewer of them than the profile says, but not less than one, so that it
# does not take longer than this, in seconds.
LONGEST_BLOCK_S = 30.0
# Times that a block is taken again because something was stopped meanwhile.
TAKEN_AGAIN = 3


@dataclass(frozen=True)
class RoundRequest:
    """The plan of one round.

    number: the round's, from 0. arms: to launch. kinds: kinds of blocks wanted of each arm. pairs:
    the compared sides, which are timed one right after the other. turns: number of turns of the
    round.
    """

    number: int
    arms: Sequence[Arm]
    kinds: Mapping[Arm, Collection[BlockKind]]
    pairs: Sequence[Pair]
    turns: int


@dataclass(frozen=True)
class RoundSettings:
    """The settings that all rounds of a workload have in common.

    order: draws every random order. progress: called with a line for each event. doing: called with
    each activity between two lines. runs: lengths of training runs. transfers: the exchanges of
    each arm in a turn, after its blocks. meter: reads the CPU usage of blocks; None if the kernel
    does not report it.
    """

    arm_launcher: ArmLauncher
    sampling: Sampling
    order: random.Random
    progress: Progress
    doing: Progress = lambda text: None
    runs: Runs = field(default_factory=Runs)
    transfers: Mapping[Arm, Sequence[Transfer]] = field(default_factory=dict)
    meter: CpuMeter | None = None


@dataclass
class Mode:
    """The work of launches that have started. This class is for start-ups, which have none.

    forks: whether ranks may be forked, which is quick but unlike a user's start, so a measured
    start is not forked. draws_seeds: whether every session draws other initial weights, because the
    figure depends on them; the speed of a block does not. validates: whether training ends with a
    validation, for which every strategy trains on the same batches. stamps: whether launches keep
    their timestamps. records: whether each arm with several replicas is launched once more to
    `record`. steps: steps of a block, by arm and kind. turn_seconds: mean seconds of a turn of all
    arms in the last round.
    """

    forks: ClassVar[bool] = False
    draws_seeds: ClassVar[bool] = False
    validates: ClassVar[bool] = False
    stamps: ClassVar[bool] = False
    records: ClassVar[bool] = False

    settings: RoundSettings
    steps: dict[tuple[Arm, BlockKind], int] = field(default_factory=dict)
    turn_seconds: float = 0.0

    def measure(self, live: LiveGroups, request: RoundRequest) -> None:
        """Have the groups do their work, and add their reports to their launches."""

    def record(self, group: Group, launch: Launch) -> None:
        """Add records whose making slows a launch. group: another launch of the arm, which is not
        timed."""

    def take_block(
        self,
        group: Group,
        launch: Launch,
        kind: BlockKind,
        turn: int,
        steps: int,
        wait: bool = False,
    ) -> Block:
        """Return a block that the group has timed. wait: whether each step is waited for. A block
        during which this session or a rank was stopped is taken again."""
        for _ in range(TAKEN_AGAIN + 1):
            before = group.stops
            ranks = group.reports(
                BlockReport,
                "block",
                self.deadline_s(launch, kind, steps),
                kind=kind.value,
                steps=steps,
                wait=wait,
            )
            stopped = [str(number) for number, rank in enumerate(ranks) if rank.resumed]
            if group.stops == before and not stopped:
                break
            whose = f"rank {', '.join(stopped)}" if stopped else "this session"
            self.settings.progress(
                f"{whose} was stopped for a while: the block of {launch.arm.label} is taken again"
            )
        return Block(kind, turn, steps, ranks)

    def deadline_s(self, launch: Launch, kind: BlockKind, steps: int) -> float:
        """Return the deadline of that many steps, in seconds. A launch whose known pace is slow
        gets a later one."""
        known = [b.seconds / b.steps for b in launch.warm_up + launch.blocks if b.kind is kind]
        known = known or [rank.seconds / rank.steps for rank in launch.run]
        pace = median(known) if known else self.known_pace(launch.arm)
        return max(self.settings.sampling.block_deadline_s, PATIENCE * pace * steps)

    def steps_of_a_block(self, step_seconds: float) -> int:
        """Return how many steps a block must have at this pace."""
        sampling = self.settings.sampling
        wanted = math.ceil(sampling.min_block_seconds / step_seconds)
        return affordable(max(sampling.min_block_steps, wanted), step_seconds)

    def known_pace(self, arm: Arm) -> float:
        """Return the seconds of a step of the arm's network when it was tried; 0 if it was not."""
        return self.settings.arm_launcher.pace(arm).step_seconds


def affordable(steps: int, step_seconds: float) -> int:
    """Return as many of the steps as end within LONGEST_BLOCK_S, but at least one."""
    if steps * step_seconds <= LONGEST_BLOCK_S:
        return steps
    return max(1, int(LONGEST_BLOCK_S / step_seconds))
