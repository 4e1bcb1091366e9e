"""Launches that train with the time of every part of a step, from the launch to the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hvdperf.explain import speedup
from hvdperf.explain.attribution import attribute_training
from hvdperf.explain.collectives import ALPHA_FASTER, FASTER_BY_NOISE
from hvdperf.explain.speedup import BY_ABLATION, divides_steps, scaling_breakdown, training
from hvdperf.explain.time_breakdown import CLOSES_WITHIN, time_breakdown
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.terms import Term
from hvdperf.records.outcome import Attribution, ScalingBreakdown
from hvdperf.records.rounds import Block, Launch, Round, StampedRun
from hvdperf.stats import hodges_lehmann
from hvdperf.verdict import Floor, Rule
from hvdperf.work.base import BlockOrder, Hosts, Pairs
from hvdperf.work.blocks import LENGTH_OF_BLOCKS
from hvdperf.work.training import Training

# Steps of a run in which all ranks meet before every step.
MET_STEPS = 60


@dataclass
class WallTime(Training):
    """Training for a number of steps with the time of every part. Blocks without a part of the step
    follow."""

    name = "wall time"
    has_section = True
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
        if launch.arm.world_size > 1:
            work.met_run = self.run(
                group, launch.arm, validate=False, with_timestamps=True, steps=MET_STEPS, meet=True
            )
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
        return [
            self.take_block(group, launch, BlockOrder(kind, turn, steps, wait=True))
            for kind in kinds
        ]

    # Figures -----------------------------------------------------------------------------------

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln of the efficiency by wall time (explain/speedup.py)."""
        ours, theirs = (training(measured.of(side.arm)) for side in comparison.sides)
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
                training(measured.of(comparison.candidate.arm)),
                training(measured.of(comparison.reference.arm)),
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
        return attribute_training(comparison, pairs, hosts)


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
