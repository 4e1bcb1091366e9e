"""The work of a round's launches once they have started: what every LaunchMode has in common."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.group import Group
from hvdperf.machine.cpu_usage import CpuMeter
from hvdperf.measure.interleaving import Pair
from hvdperf.measure.live_groups import LiveGroups, Progress
from hvdperf.measure.records import Block, Launch
from hvdperf.measure.reports import BlockReport
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.collectives import Transfer
from hvdperf.plan.profile import Runs, Sampling

# A block that takes this many times as long as the launch's own pace predicts is taken to hang.
PATIENCE = 3


@dataclass(frozen=True)
class RoundRequest:
    """What one round is to hold.

    number: the round's, from 0. arms: to launch. kinds: kinds of blocks wanted of each arm. pairs:
    what is compared, and so timed one right after the other. turns: how often the arms of a launch
    take turns.
    """

    number: int
    arms: Sequence[Arm]
    kinds: Mapping[Arm, Collection[BlockKind]]
    pairs: Sequence[Pair]
    turns: int


@dataclass(frozen=True)
class RoundSettings:
    """What all rounds of a workload have in common.

    order: draws every random order. progress: is called with a line for each event; doing, with
    what passes between two lines. runs: lengths of training runs. transfers: what each arm
    exchanges in a turn, after its blocks. meter: reads the CPU usage of blocks; None if the kernel
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
    """The work of launches that have started. This one is for start-ups: there is none.

    forks: whether ranks may be forked, which is quick; a start that is measured must be like a
    user's, whose ranks are not. draws_seeds: whether every session draws other weights, because the
    result depends on them; blocks are compared by their speed only, and train the same every night.
    validates: whether training ends with a validation, for which every strategy trains on the same
    batches. stamps: whether launches keep their timestamps. records: whether each arm with an
    exchange is launched once more to `record`. steps: of a block, by arm and kind. turn_seconds:
    mean seconds of a turn of all arms in the last round.
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
        """Record what would disturb a launch that is timed. group: another launch of the arm."""

    def take_block(
        self,
        group: Group,
        launch: Launch,
        kind: BlockKind,
        turn: int,
        steps: int,
        wait: bool = False,
    ) -> Block:
        """Return a block that the group has timed. wait: whether each step is waited for."""
        ranks = group.reports(
            BlockReport,
            "block",
            self.deadline_s(launch, kind, steps),
            kind=kind.value,
            steps=steps,
            wait=wait,
        )
        return Block(kind, turn, steps, ranks)

    def deadline_s(self, launch: Launch, kind: BlockKind, steps: int) -> float:
        """Return the deadline of that many steps, in seconds. A launch that is known to be slow
        gets longer, because it does not hang."""
        known = [b.seconds / b.steps for b in launch.warm_up + launch.blocks if b.kind is kind]
        known = known or [rank.seconds / rank.steps for rank in launch.run]
        pace = median(known) if known else 0.0
        return max(self.settings.sampling.block_deadline_s, PATIENCE * pace * steps)

    def steps_of_a_block(self, step_seconds: float) -> int:
        """Return how many steps a block must have at this pace."""
        sampling = self.settings.sampling
        return max(sampling.min_block_steps, math.ceil(sampling.min_block_seconds / step_seconds))
