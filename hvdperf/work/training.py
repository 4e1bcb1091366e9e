"""Launches that only start, and launches that train to an end: for a number of epochs, of seconds,
of steps in which memory is read, or of steps with the time of every part."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from statistics import median

from hvdperf.explain import attribution, speedup, training_runs
from hvdperf.explain.collectives import ALPHA_FASTER, FASTER_BY_NOISE
from hvdperf.explain.speedup import BY_ABLATION, divides_steps, scaling_breakdown
from hvdperf.explain.time_breakdown import CLOSES_WITHIN, time_breakdown
from hvdperf.launch.arm_launcher import PATIENCE
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import Arm, BlockKind, Term
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Attribution, ScalingBreakdown
from hvdperf.records.rounds import Block, Launch, Round, Run, RunReport, StampedRun
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import Floor, Judgement, Rule
from hvdperf.work.base import Hosts, LiveLaunches, Pairs, RoundRequest, Work
from hvdperf.work.blocks import LENGTH_OF_BLOCKS
from hvdperf.worker.protocol import Phase

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
    def durations(cls, comparison: Comparison, launch: Launch) -> list[float]:
        return [max(rank.seconds for rank in launch.run)] if launch.run else []


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
        return attribution.attribute_memory([candidate for candidate, _ in pairs], hosts)


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


@dataclass
class WallTime(Training):
    """Training for a number of steps with the time of every part. Blocks without a part of the step
    follow."""

    name = "wall time"
    depends_on = ("runs.wall_time_steps", "runs.ablation_turns", *LENGTH_OF_BLOCKS)
    forks = False

    def length(self, arm: Arm) -> dict[str, float]:
        return {"steps": self.settings.runs.wall_time_steps}

    def train(self, group: LiveLaunch, launch: Launch) -> None:
        settings, length = self.settings, self.length(launch.arm)
        settings.progress(f"train {launch.arm.label} with timestamps")
        reports = self.run(group, launch.arm, validate=False, with_timestamps=True, **length)
        launch.work = work = StampedRun(reports)
        settings.progress(f"time the parts of a step of {launch.arm.label}")
        group.ask("ablation", settings.arm_launcher.startup_deadline(launch.arm))
        run_seconds = median(rank.seconds for rank in work.run)
        steps = self.steps_of_a_block(run_seconds / length["steps"])
        kinds = [BlockKind.FULL, BlockKind.LOCAL, BlockKind.COMPUTE]
        # The first steps of a kind are slow.
        work.warm_up += self._ablation(group, launch, kinds, 0, steps)
        for turn in range(settings.runs.ablation_turns):
            work.blocks += self._ablation(group, launch, kinds, turn, steps)

    def _ablation(
        self, group: LiveLaunch, launch: Launch, kinds: list[BlockKind], turn: int, steps: int
    ) -> list[Block]:
        """Time one block of each kind, in random order. Each step ends before the next begins,
        because steps are divided into their parts."""
        self.settings.order.shuffle(kinds)
        return [self.take_block(group, launch, kind, turn, steps, wait=True) for kind in kinds]

    # Figures -----------------------------------------------------------------------------------

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln of the efficiency by wall time (explain/speedup.py)."""
        ours, theirs = (measured.of(side.arm) for side in comparison.sides)
        return [speedup.observation(comparison, ours, theirs)]

    @classmethod
    def problems(cls, launch: Launch) -> list[str]:
        return super().problems(launch) + _breakdown_problems(launch)

    @classmethod
    def problems_of_rounds(
        cls, comparison: Comparison, rounds: Sequence[Round], judged: bool, at_look: bool
    ) -> list[str]:
        if not at_look:
            return []
        of_arms = ([measured.of(arm) for measured in rounds] for arm in comparison.arms)
        return [problem for problem in map(impossible_shares, of_arms) if problem]

    @classmethod
    def too_short(cls, comparison: Comparison, rounds: Sequence[Round], rule: Rule) -> str:
        if not divides_steps(comparison) or not isinstance(rule, Floor):
            return ""
        reasons = [
            speedup.refusal(
                rule.pass_from,
                measured.of(comparison.candidate.arm),
                measured.of(comparison.reference.arm),
                comparison.world_size,
            )
            for measured in rounds
        ]
        refused = [reason for reason in reasons if reason]
        return refused[0] if 2 * len(refused) > len(reasons) else ""

    @classmethod
    def breakdown(cls, comparison: Comparison, rounds: Sequence[Round]) -> ScalingBreakdown | None:
        return scaling_breakdown(comparison, rounds)

    @classmethod
    def cause(cls, comparison: Comparison, pairs: Pairs, hosts: Hosts) -> Attribution | None:
        return attribution.attribute_training(comparison, pairs, hosts)


def stamped(launch: Launch) -> StampedRun:
    """Return the run with timestamps of a launch that has trained."""
    assert isinstance(launch.work, StampedRun)
    return launch.work


def _breakdown_problems(launch: Launch) -> list[str]:
    """Return the problem of a launch's time breakdown, which must explain every second."""
    try:
        breakdown = time_breakdown(launch)
    except ValueError as error:
        return [f"{launch.arm.name}: no time breakdown: {error}"]
    if breakdown.closes:
        return []
    return [
        f"{launch.arm.name}: its time breakdown leaves {breakdown.residual_seconds:.2f} s of "
        f"{breakdown.wall_seconds:.2f} s unexplained, more than {100 * CLOSES_WITHIN:.0f} %"
    ]


def impossible_shares(launches: Sequence[Launch]) -> str:
    """Return an error message if the parts of a step add up to more than the step, beyond noise,
    else "". launches: with timestamps, of one arm."""
    observed = []
    for launch in launches:
        terms = time_breakdown(launch).terms
        inside = sum(terms[term] for term in BY_ABLATION)
        observed.append(-terms[Term.EXCHANGE] / inside)
    if not observed or hodges_lehmann(observed, ALPHA_FASTER).lower <= FASTER_BY_NOISE:
        return ""
    over = 100 * (1 + median(observed))
    return (
        f"{launches[0].arm.name}: the parts of a step, measured alone, take {over:.0f} % of its "
        "time; look for rare long steps and for other programs, and measure again"
    )


@dataclass
class Startup(Work):
    """A start-up. Each launch runs alone, because arms that start side by side slow each other
    down."""

    name = "startup"
    forks = False

    @classmethod
    def last_phase(cls, comparisons: Sequence[Comparison]) -> Phase:
        """Return the trace if all comparisons are about it, else the broadcast."""
        only_trace = all(map(_is_of_trace, comparisons))
        return Phase.TRACE if only_trace else Phase.BROADCAST

    def measure(self, live: LiveLaunches, request: RoundRequest) -> None:
        """Do nothing: the start was all."""

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln(seconds), or ln of the ratio of speeds of two stacks."""
        ours, theirs = (
            startup_seconds(comparison, measured.of(side.arm)) for side in comparison.sides
        )
        return [math.log(ours) if comparison.is_of_one_arm else math.log(theirs / ours)]

    @classmethod
    def cause(cls, comparison: Comparison, pairs: Pairs, hosts: Hosts) -> Attribution | None:
        phase = comparison.question.spec.part
        if comparison.is_of_one_arm:
            return attribution.attribute_slow_start(phase, [launch for launch, _ in pairs], hosts)
        return attribution.attribute_start(phase, pairs, hosts)

    @classmethod
    def durations(cls, comparison: Comparison, launch: Launch) -> list[float]:
        with suppress(LookupError, ValueError, ZeroDivisionError):
            return [startup_seconds(comparison, launch)]
        return []


def _is_of_trace(comparison: Comparison) -> bool:
    return comparison.question.spec.part == Phase.TRACE.value


def startup_seconds(comparison: Comparison, launch: Launch) -> float:
    """Return the seconds that the slowest rank took for the phase; for the trace, per gradient
    tensor."""
    seconds = max(rank[comparison.question.spec.part] for rank in launch.startup_seconds)
    return seconds / launch.metadata[0].gradient_tensors if _is_of_trace(comparison) else seconds
