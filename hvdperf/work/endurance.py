"""Launches that train for enough steps to detect a growing resident set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hvdperf.explain import training_runs
from hvdperf.explain.attribution import attribute_memory
from hvdperf.plan.arms import Arm
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Round
from hvdperf.verdict import Judgement
from hvdperf.work.base import Pair
from hvdperf.work.training import Training


@dataclass
class Endurance(Training):
    """Training for a number of steps, in which the resident set is read."""

    name = "endurance"
    has_section = True
    depends_on = ("runs.endurance_steps",)

    def length(self, arm: Arm) -> dict[str, float]:
        return {"steps": self.settings.runs.endurance_steps}

    @classmethod
    def observe(
        cls, comparison: Comparison, measured: Round, disturbed: bool = False
    ) -> list[float]:
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
    def cause(
        cls, comparison: Comparison, pairs: Sequence[Pair], hosts: Sequence[str]
    ) -> Attribution | None:
        return attribute_memory([candidate for candidate, _ in pairs], hosts)
