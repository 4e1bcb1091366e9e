"""Launches that train: for a number of epochs, of seconds, or of steps in which memory is read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from hvdperf.explain import training_runs
from hvdperf.explain.attribution import attribute_memory
from hvdperf.json_records import plain
from hvdperf.launch.arm_launcher import PATIENCE
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import Arm
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Launch, Round, Run, RunReport
from hvdperf.verdict import Judgement
from hvdperf.work.base import Durations, Hosts, LiveLaunches, Pairs, RoundRequest, Work

# This share of the loss of a uniform guess is added to both compared losses.
NOTHING_TO_LEARN = 0.01


@dataclass
class Training(Work, ABC):
    """Training for the steps or the seconds that `length` returns."""

    starts = 3
    draws_seeds = True

    def measure(self, live: LiveLaunches, request: RoundRequest) -> None:
        live.run_each(self.train)

    def train(self, group: LiveLaunch, launch: Launch) -> None:
        self.settings.progress(f"train {launch.arm.label}")
        reports = self.run(group, launch.arm, validate=self.validates, **self.length(launch.arm))
        launch.work = Run(reports)

    @abstractmethod
    def length(self, arm: Arm) -> dict[str, float]:
        """Return the steps or the seconds of a run, as an argument of the order."""

    def run(self, group: LiveLaunch, arm: Arm, **wanted: object) -> list[RunReport]:
        """Return the reports of a run. wanted: arguments of the order."""
        steps = wanted.get("steps")
        known_s = PATIENCE * steps * self.known_pace(arm) if isinstance(steps, int) else 0.0
        deadline_s = max(self.settings.runs.deadline_s, known_s)
        return group.reports(RunReport, "run", deadline_s, limit="deadline_s of [runs]", **wanted)

    @classmethod
    def problems(cls, launch: Launch) -> list[str]:
        found = super().problems(launch)
        return found + problems_of_run(launch.arm, launch.run) if launch.run else found

    @classmethod
    def durations(cls, comparison: Comparison, rounds: Sequence[Round]) -> Durations:
        launches = [measured.of(comparison.candidate.arm) for measured in rounds]
        # A launch that ended before its time has no run.
        runs = [launch.run for launch in launches if launch.run]
        return Durations(
            [max(rank.seconds for rank in ranks) for ranks in runs],
            {
                "samples": [training_runs.samples(ranks) for ranks in runs],
                "validation": [plain(ranks[0].validation) for ranks in runs],
            },
        )


def both_runs(comparison: Comparison, measured: Round) -> tuple[Sequence[RunReport], ...]:
    """Return the runs of candidate and reference."""
    return tuple(measured.of(side.arm).run for side in comparison.sides)


@dataclass
class Epochs(Training):
    """Training from new weights for a number of epochs, then a validation."""

    name = "epochs"
    depends_on = ("runs.epochs", "runs.steps_max")
    validates = True

    def length(self, arm: Arm) -> dict[str, float]:
        # The number of updates is the same for every arm.
        runs = self.settings.runs
        wanted = runs.epochs * self.settings.arm_launcher.epoch_steps(arm)
        return {"steps": min(wanted, runs.steps_max * arm.passes)}

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln of the ratio of the losses or the accuracies. Raises ValueError if the sides
        did not validate on the same number of samples."""
        ours, theirs = (ranks[0].validation for ranks in both_runs(comparison, measured))
        if ours is None or theirs is None:
            raise ValueError("a run was not validated")
        if ours.samples != theirs.samples:
            raise ValueError(f"validated on {ours.samples} and on {theirs.samples} samples")
        if comparison.question.spec.part == "loss":
            # Two networks with losses near 0 have both learned everything, so neither is better.
            nothing = NOTHING_TO_LEARN * ours.chance_loss
            return [math.log((ours.loss + nothing) / (theirs.loss + nothing))]
        # Both sides get half a sample more, because an accuracy of 0 has no logarithm.
        half = 0.5 / ours.samples
        return [math.log((ours.accuracy + half) / (theirs.accuracy + half))]


@dataclass
class Seconds(Training):
    """Training for a number of seconds."""

    name = "time"
    depends_on = ("runs.seconds",)

    def length(self, arm: Arm) -> dict[str, float]:
        return {"seconds": self.settings.runs.seconds}

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln of the ratio of samples in the time, over the ideal ratio."""
        ours, theirs = map(training_runs.samples_per_second, both_runs(comparison, measured))
        return [math.log(ours / theirs) - math.log(comparison.ideal_ratio)]


@dataclass
class Endurance(Training):
    """Training for a number of steps, in which the resident set is read."""

    name = "endurance"
    has_section = True
    depends_on = ("runs.endurance_steps",)

    def length(self, arm: Arm) -> dict[str, float]:
        return {"steps": self.settings.runs.endurance_steps}

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return the growth of ln(resident set) in 1,000 steps, where it grows most."""
        run = measured.of(comparison.candidate.arm).run
        return [max(training_runs.growth(rank.memory) for rank in run)]

    @classmethod
    def explained(
        cls, judgement: Judgement, comparison: Comparison, rounds: Sequence[Round]
    ) -> Judgement:
        runs = [measured.of(comparison.candidate.arm).run for measured in rounds]
        return training_runs.explained(judgement, comparison.workload, runs)

    @classmethod
    def cause(cls, comparison: Comparison, pairs: Pairs, hosts: Hosts) -> Attribution | None:
        return attribute_memory([candidate for candidate, _ in pairs], hosts)


def problems_of_run(arm: Arm, ranks: Sequence[RunReport]) -> list[str]:
    """Return why a run is invalid, one text per reason: a missing rank, ranks that stopped at
    different steps, samples that were not consumed, losses that are not finite."""
    found = []
    if len(ranks) != arm.processes:
        found.append(f"{arm.name}: {len(ranks)} of {arm.processes} ranks reported their run")
    steps = sorted({rank.steps for rank in ranks})
    if len(steps) > 1:
        found.append(f"{arm.name}: ranks stopped at different steps: {steps}")
    if arm.workload.is_script:
        return found  # its batches and losses are its own
    expected = steps[0] * arm.workload.batch * arm.world_size
    consumed = training_runs.samples(ranks)
    if consumed != expected:
        found.append(f"{arm.name}: {consumed} samples were consumed instead of {expected}")
    for number, rank in enumerate(ranks):
        figures = [rank.loss, *(astuple(rank.validation) if rank.validation else ())]
        if not all(math.isfinite(figure) for figure in figures):
            by = next((int(row[0]) for row in rank.curve if not math.isfinite(row[1])), rank.steps)
            found.append(f"{arm.name}: rank {number}: the loss is not finite by step {by}")
    return found
