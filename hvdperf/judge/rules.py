"""The rules that a session's cases are compared with, and which cases are not judged at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from hvdperf.machine.placement import Slot, is_oversubscribed, nodes, place_group
from hvdperf.plan.comparisons import AskedBy, Comparison, JudgedAs
from hvdperf.plan.options import Profile
from hvdperf.plan.thresholds import Case, Thresholds, case_of
from hvdperf.verdict import ALPHA, REGRESSION, Band, Rule
from hvdperf.worker.strategies import Strategy


@dataclass(frozen=True)
class Rules:
    """The rules of a session with this profile on these slots."""

    profile: Profile
    thresholds: Thresholds
    slots: Sequence[Slot]

    def judged(self, comparison: Comparison) -> bool:
        """Return whether the comparison is compared with a threshold. If replicas share a core,
        only speeds within one launch are compared."""
        return not self.unjudged(comparison)

    def unjudged(self, comparison: Comparison) -> str:
        """Return why the comparison is not compared with a threshold; return "" if it is."""
        if not comparison.question.spec.is_speed:
            return ""
        on_device = any(slot.device is not None for slot in self.slots)
        if on_device and any(arm.strategy is Strategy.BARE for arm in comparison.arms):
            return "Horovod exchanges tensors on GPUs, bare MPI exchanges host memory"
        if not is_oversubscribed(self.slots, comparison.world_size):
            return ""
        models = self.profile.oversubscribed or self.profile.models
        if comparison.within_a_launch and comparison.workload.model in models:
            return ""
        return "more ranks than cores or devices"

    def hosts(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the host of each of the candidate's ranks; () if its ranks are not replicas, or if
        the session has fewer slots than it has."""
        arm = comparison.candidate.arm
        if arm.processes != arm.world_size or arm.world_size > len(self.slots):
            return ()
        return tuple(slot.host for slot in place_group(self.slots, arm.world_size))

    def rule(self, comparison: Comparison) -> Rule | None:
        """Return the rule of the comparison; return None if nobody has set a threshold."""
        slower = comparison.judged_as in (JudgedAs.REGRESSION, JudgedAs.DETECTION)
        two_groups = not comparison.is_of_one_arm
        if slower and two_groups and comparison.question.spec.is_speed:
            return REGRESSION
        if comparison.question.spec.asked_by is AskedBy.BASELINE:
            return REGRESSION
        rule = self.thresholds.rule(self._case(comparison))
        is_precise = self.profile.sampling.precision and comparison.question.spec.is_speed
        if isinstance(rule, Band) and is_precise:
            # Who asks for precision publishes the interval, beside those of efficiencies.
            return replace(rule, alpha=ALPHA)
        return rule

    def pasteable_line(self, comparison: Comparison, observations: Sequence[float]) -> str:
        """Return a line for the file of thresholds, for a comparison that has none there."""
        return self.thresholds.pasteable_line(self._case(comparison), observations)

    def _case(self, comparison: Comparison) -> Case:
        return case_of(comparison, nodes(self.slots, comparison.world_size))
