"""Launches that train: for a number of epochs, of seconds, or of steps with timestamps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import median

from hvdperf.launch.arm_launcher import PATIENCE
from hvdperf.launch.group import Group
from hvdperf.measure.live_groups import LiveGroups
from hvdperf.measure.mode import Mode, RoundRequest
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.records.reports import RunReport, TimelineReport
from hvdperf.records.rounds import Block, Launch

# Steps of a run in which all ranks meet before every step, and steps that Horovod records.
MET_STEPS = 60
TIMELINE_STEPS = 20


@dataclass
class Training(Mode, ABC):
    """Training for the steps or the seconds that `length` returns."""

    forks = True
    draws_seeds = True

    def measure(self, live: LiveGroups, request: RoundRequest) -> None:
        live.run_each(self.train)

    def train(self, group: Group, launch: Launch) -> None:
        self.settings.progress(f"train {launch.arm.label}")
        launch.run = self.run(group, launch.arm, validate=self.validates, **self.length(launch.arm))

    @abstractmethod
    def length(self, arm: Arm) -> dict[str, float]:
        """Return the steps or the seconds of a run, as an argument of the order."""

    def run(self, group: Group, arm: Arm, **wanted: object) -> list[RunReport]:
        """Return the reports of a run. wanted: arguments of the order."""
        steps = wanted.get("steps")
        known_s = PATIENCE * steps * self.known_pace(arm) if isinstance(steps, int) else 0.0
        deadline_s = max(self.settings.runs.deadline_s, known_s)
        return group.reports(RunReport, "run", deadline_s, **wanted)


@dataclass
class TrainEpochs(Training):
    """Training from new weights for a number of epochs, then a validation."""

    validates = True

    def length(self, arm: Arm) -> dict[str, float]:
        # The number of updates is the same for every arm.
        runs = self.settings.runs
        wanted = runs.epochs * self.settings.arm_launcher.epoch_steps(arm)
        return {"steps": min(wanted, runs.steps_max * arm.passes)}


@dataclass
class TrainSeconds(Training):
    """Training for a number of seconds."""

    def length(self, arm: Arm) -> dict[str, float]:
        return {"seconds": self.settings.runs.seconds}


@dataclass
class TrainLong(Training):
    """Training for enough steps to detect a growing resident set."""

    def length(self, arm: Arm) -> dict[str, float]:
        return {"steps": self.settings.runs.endurance_steps}


@dataclass
class TrainWithTimestamps(Training):
    """Training for a number of steps with the time of every part. Blocks without a part of the step
    follow, and another launch in which Horovod records its timeline."""

    forks = False
    stamps = True
    records = True

    def length(self, arm: Arm) -> dict[str, float]:
        return {"steps": self.settings.runs.wall_time_steps}

    def train(self, group: Group, launch: Launch) -> None:
        settings, length = self.settings, self.length(launch.arm)
        settings.progress(f"train {launch.arm.label} with timestamps")
        launch.run = self.run(group, launch.arm, validate=False, with_timestamps=True, **length)
        settings.progress(f"time the parts of a step of {launch.arm.label}")
        if launch.arm.world_size > 1:
            launch.met_run = self.run(
                group, launch.arm, validate=False, with_timestamps=True, steps=MET_STEPS, meet=True
            )
        group.ask("ablation", settings.arm_launcher.startup_deadline(launch.arm))
        run_seconds = median(rank.seconds for rank in launch.run)
        steps = self.steps_of_a_block(run_seconds / length["steps"])
        kinds = [BlockKind.FULL, BlockKind.LOCAL, BlockKind.COMPUTE]
        # The first steps of a kind are slow.
        launch.warm_up += self._ablation(group, launch, kinds, 0, steps)
        for turn in range(settings.runs.ablation_turns):
            launch.blocks += self._ablation(group, launch, kinds, turn, steps)

    def _ablation(
        self, group: Group, launch: Launch, kinds: list[BlockKind], turn: int, steps: int
    ) -> list[Block]:
        """Time one block of each kind, in random order. Each step ends before the next begins,
        because steps are divided into their parts."""
        self.settings.order.shuffle(kinds)
        return [self.take_block(group, launch, kind, turn, steps, wait=True) for kind in kinds]

    def record(self, group: Group, launch: Launch) -> None:
        """Have Horovod record some steps, in a launch in which nothing is timed."""
        arm = launch.arm
        path = (
            self.settings.arm_launcher.scratch / f"timeline-{arm.workload.model}-{arm.label}.json"
        )
        deadline_s = self.deadline_s(launch, BlockKind.FULL, TIMELINE_STEPS)
        launch.timeline = group.reports(
            TimelineReport, "timeline", deadline_s, steps=TIMELINE_STEPS, path=str(path)
        )
