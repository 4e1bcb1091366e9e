"""Requirements on the rounds of some comparisons, so that all of them can be judged.

The comparisons are those of one workload and one kind of work, which share rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hvdperf.plan.arms import SWEEP, Arm, BlockKind, Collective, Schedule, Transfer
from hvdperf.plan.collectives import SWEEP_BYTES
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.faults import trial_of
from hvdperf.plan.profile import Profile, Sampling
from hvdperf.plan.question import LaunchMode, Question
from hvdperf.plan.terms import NEED_LOCAL_BLOCKS
from hvdperf.worker.protocol import Phase

SWEEP_TURNS = 3


def sampling_of(comparisons: Sequence[Comparison], sampling: Sampling) -> Sampling:
    """Return the profile's sampling. A sweep gets SWEEP_TURNS turns at most, because each of its
    turns takes seconds and has several repeats."""
    if comparisons[0].workload != SWEEP:
        return sampling
    fewest, most = (min(n, SWEEP_TURNS) for n in (sampling.turns_min, sampling.turns_max))
    return replace(sampling, turns_min=fewest, turns_max=most)


def schedule_of(work: LaunchMode, profile: Profile) -> Schedule:
    """Return the schedule for this kind of work. Start-ups have the schedule FRESH, because arms
    that start side by side slow each other down; so have runs, which take no turns. Collective
    operations have ALTERNATE, because they are compared back to back. Blocks have the profile's
    schedule."""
    if work is LaunchMode.COLLECTIVES:
        return Schedule.ALTERNATE
    return profile.schedule if work is LaunchMode.BLOCKS else Schedule.FRESH


def last_phase(comparisons: Sequence[Comparison]) -> Phase:
    """Return the phase with which a start-up ends: the trace if all comparisons are about it. If
    all are about collective overhead, it is the init for a sweep, and the build for a model's
    gradients. In all other cases it is the broadcast."""
    asked = {comparison.question for comparison in comparisons}
    if all(question.spec.phase == Phase.TRACE.value for question in asked):
        return Phase.TRACE
    if all(_only_exchanges(question) for question in asked):
        return Phase.INIT if comparisons[0].workload == SWEEP else Phase.BUILD
    return Phase.BROADCAST


def kinds_of(
    comparisons: Sequence[Comparison], judged: Callable[[Comparison], bool]
) -> dict[Arm, set[BlockKind]]:
    """Return the kinds of blocks wanted of each arm: full ones for every comparison of steps; local
    ones if a comparison, a bound of a step or the cause of a FAIL needs them; split ones only if
    they are judged."""
    kinds: dict[Arm, set[BlockKind]] = {arm: set() for c in comparisons for arm in c.arms}
    for comparison in comparisons:
        if _only_exchanges(comparison.question):
            continue
        if comparison.question.spec.times_steps:
            kinds[comparison.candidate.arm] |= {BlockKind.FULL, BlockKind.LOCAL}
            continue
        trial = trial_of(comparison)
        for side in comparison.sides:
            kinds[side.arm].add(BlockKind.FULL)
            if trial is not None and trial.term in NEED_LOCAL_BLOCKS:
                kinds[side.arm].add(BlockKind.LOCAL)
            if side.kind is not BlockKind.SPLIT or judged(comparison):
                kinds[side.arm].add(side.kind)
        if judged(comparison) and _exchange_may_be_at_fault(comparison):
            kinds[comparison.candidate.arm].add(BlockKind.LOCAL)
    return kinds


def _exchange_may_be_at_fault(comparison: Comparison) -> bool:
    """Return whether a FAIL needs to be told whether the exchange or the computing of a rank is its
    cause. A comparison of two ways of exchange says that by itself, and a comparison of stacks is
    attributed as far as the rounds that it shares allow."""
    arm, question = comparison.candidate.arm, comparison.question.spec
    return (
        comparison.judged_as is JudgedAs.THRESHOLD
        and question.mode is LaunchMode.BLOCKS
        and arm.strategy.spec.horovod
        and arm.world_size > 1
        and not question.has_variants
    )


def _only_exchanges(question: Question) -> bool:
    """Return whether the question is about collective operations without steps."""
    return question.mode is LaunchMode.COLLECTIVES and not question.spec.times_steps


def transfers_of(comparisons: Sequence[Comparison]) -> dict[Arm, list[Transfer]]:
    """Return the transfers of each arm in a turn, besides its blocks: every size of each compared
    collective in a sweep; for a network, its gradients."""
    wanted: dict[Arm, dict[Transfer, None]] = {}
    for comparison in comparisons:
        if comparison.question.mode is not LaunchMode.COLLECTIVES:
            continue
        collective = comparison.collective or Collective.ALLREDUCE
        sizes = [(size,) for size in SWEEP_BYTES] if comparison.workload == SWEEP else [()]
        for arm in comparison.arms:
            transfers = (Transfer(collective, size) for size in sizes)
            wanted.setdefault(arm, {}).update(dict.fromkeys(transfers))
    return {arm: list(transfers) for arm, transfers in wanted.items()}
