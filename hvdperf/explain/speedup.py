"""The speedups, the fixed cost that makes them differ, and the run length that they need.

The speedup by speed is `n speed_n / speed_1`; speed is the average samples per second of a replica
while it takes steps. The speedup by time is `time_1 / time_n` for the same work; time is the wall
time of the training, from the beginning of its trace to the end of its last step. The speedup by
job is the same from the launch to the end. Each divided by n is an efficiency. Weak scaling takes
as many steps on every replica; strong scaling divides them among the replicas.

A training of k steps takes t = a + b k seconds: a is a fixed cost (trace, first step, broadcast,
warming up) that does not shrink with more replicas. If the steps are divided, t = a + b k / n, and
in the end only a is left.

The breakdown of a case on wall time: its speedups, and the terms and factors that explain their
difference.

It covers all rounds of a comparison of wall time: speedups and factors with their
intervals, and the terms of both time breakdowns as means, which add up as those of a single run do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, median_low

from hvdperf.explain.steps import usual_seconds, usual_sum
from hvdperf.explain.time_breakdown import TimeBreakdown, time_breakdown
from hvdperf.plan.arms import OF_STEPS, TERMS, BlockKind, Term
from hvdperf.plan.comparisons import Comparison, Scaling
from hvdperf.records.outcome import FixedCost, ScalingBreakdown, Spent, Straggler
from hvdperf.records.rounds import Launch, Round
from hvdperf.stats import Interval, hodges_lehmann
from hvdperf.verdict import ALPHA, as_ratio

# Phases of a start-up that belong to the training, not to the start of its processes.
FIXED = ("trace", "first step", "broadcast")
TOO_SHORT = "the run is too short"


def steps_of_run(launch: Launch) -> int:
    return launch.run[0].steps


def fixed_seconds(launch: Launch) -> float:
    """Return the seconds from the beginning of the trace until steps can be taken, on the slowest
    rank."""
    return max(sum(rank[phase] for phase in FIXED) for rank in launch.startup_seconds)


def run_seconds(launch: Launch, steps: int = 0) -> float:
    """Return the seconds of a run with timestamps until the slowest rank had done `steps` steps; 0
    for all steps."""
    return max(rank.timestamps[steps - 1][-1] for rank in launch.run)


def training_seconds(launch: Launch, steps: int) -> float:
    """Return the seconds of a training of `steps` steps, without the start of the processes."""
    return fixed_seconds(launch) + run_seconds(launch, steps)


def replica_speed(launch: Launch) -> float:
    """Return the samples per second of an average replica, over all steps of the run."""
    return fmean(rank.samples for rank in launch.run) / run_seconds(launch)


def _usual_speed(launch: Launch) -> float:
    """Return the same without the extra time of long steps."""
    ends = [[0.0, *(step[-1] for step in rank.timestamps)] for rank in launch.run]
    seconds = max(usual_sum([b - a for a, b in pairwise(own)]) for own in ends)
    return replica_speed(launch) * run_seconds(launch) / seconds


def divides_steps(comparison: Comparison) -> bool:
    """Return whether the replicas divide the steps of a training."""
    return comparison.question.spec.scaling is Scaling.STRONG


def parts_of(comparison: Comparison) -> int:
    """Return into how many parts the replicas divide the steps of a training."""
    return comparison.world_size if divides_steps(comparison) else 1


def fixed_cost(launch: Launch) -> FixedCost:
    """Return the cost from two lengths of a run: half of it and all of it. Raises ValueError for
    fewer than two steps."""
    whole = steps_of_run(launch)
    half = whole // 2
    if half < 1:
        raise ValueError(f"a run of {whole} steps has no two lengths")
    longer, shorter = training_seconds(launch, whole), training_seconds(launch, half)
    slope = (longer - shorter) / (whole - half)
    return FixedCost(longer - slope * whole, slope)


def steps_of_each(steps: int, parts: int) -> int:
    """Return how many steps each replica takes if `steps` steps are divided into so many parts."""
    return max(1, math.ceil(steps / parts))


def observation(comparison: Comparison, candidate: Launch, reference: Launch) -> float:
    """Return ln of the efficiency by wall time: of weak scaling time_1 / time_n for as many steps,
    of strong scaling time_1 / (n time_n) for steps that are divided."""
    return math.log(training_speedup(comparison, candidate, reference) / comparison.world_size)


def training_speedup(comparison: Comparison, candidate: Launch, reference: Launch) -> float:
    """Return the speedup by wall time. Undivided, n replicas do n times the work."""
    parts, steps = parts_of(comparison), steps_of_run(reference)
    ours = training_seconds(candidate, steps_of_each(steps, parts))
    return comparison.world_size // parts * training_seconds(reference, steps) / ours


def steady_state_speedup(world_size: int, candidate: Launch, reference: Launch) -> float:
    """Return the speedup by samples per second; it is the same for both ways of scaling."""
    return world_size * replica_speed(candidate) / replica_speed(reference)


def end_to_end_speedup(
    comparison: Comparison, candidate: Launch, reference: Launch, walls: tuple[float, float]
) -> float:
    """Return the speedup by the time from launch to end. walls: the seconds of both sides."""
    parts, (ours, theirs) = parts_of(comparison), walls
    if parts > 1:
        ours -= _seconds_beyond(candidate, steps_of_each(steps_of_run(reference), parts))
    return comparison.world_size // parts * theirs / ours


def _seconds_beyond(launch: Launch, steps: int) -> float:
    """Return the seconds of the run's steps after the first `steps` steps."""
    return run_seconds(launch) - run_seconds(launch, steps)


def shortest_work(
    a_reference: float, a_candidate: float, world_size: int, efficiency: float
) -> float:
    """Return the work on one replica, in seconds of steps, below which strong scaling cannot reach
    that efficiency by time, because of the fixed cost alone.

    Perfect scaling takes a_1 + W on one replica and a_n + W/n on n. Its efficiency is thus (a_1 +
    W) / (n a_n + W); with one a for both it is below E if W < a (n E - 1) / (1 - E)
    (docs/time_breakdown.md). Return infinity for an efficiency of 1 or more.
    """
    if efficiency >= 1:
        return math.inf
    return max(0.0, (world_size * a_candidate * efficiency - a_reference) / (1 - efficiency))


def refusal(efficiency: float, candidate: Launch, reference: Launch, world_size: int) -> str:
    """Return why the run is too short to show that efficiency by time under strong scaling, with
    the length that it would need; return "" if it is long enough."""
    ours, theirs, steps_taken = (
        fixed_cost(candidate),
        fixed_cost(reference),
        steps_of_run(reference),
    )
    work = theirs.b_seconds * steps_taken
    needed = shortest_work(theirs.a_seconds, ours.a_seconds, world_size, efficiency)
    if work >= needed:
        return ""
    if math.isinf(needed):
        return f"{TOO_SHORT}: no run is long enough for an efficiency by time of 1"
    steps = math.ceil(needed / theirs.b_seconds)
    seconds = training_seconds(candidate, steps_of_each(steps_taken, world_size))
    return (
        f"{TOO_SHORT}: {ours.a_seconds:.1f} s of its {seconds:.1f} s are fixed cost, so even "
        f"perfect scaling would stay below {efficiency:.3g}; measure {steps} steps "
        f"({needed:.0f} s on one replica) instead of {steps_taken}"
    )


# Terms that follow from one another's measurements, so that noise can make one of them negative.
BY_ABLATION = (Term.STRAGGLER, Term.COMPUTE, Term.APPLY, Term.EXCHANGE)


def physical(terms: Mapping[str, float]) -> dict[str, float]:
    """Return the terms with no time below 0: what a part of the steps lacks is taken from the other
    parts that are measured beside it, in proportion, so that the sum stays."""
    if min(terms.values(), default=0.0) >= 0.0:
        return dict(terms)
    whole = sum(terms.get(term, 0.0) for term in BY_ABLATION)
    kept = sum(max(0.0, terms.get(term, 0.0)) for term in BY_ABLATION)
    scale = max(0.0, whole) / kept if kept else 0.0
    return {
        term: max(0.0, seconds) * (scale if term in BY_ABLATION else 1.0)
        for term, seconds in terms.items()
    }


def scaling_breakdown(comparison: Comparison, rounds: Sequence[Round]) -> ScalingBreakdown:
    """Return the breakdown of a comparison from its rounds. Raises ValueError without a time
    breakdown."""
    n = comparison.world_size
    pairs = [
        (each.of(comparison.candidate.arm), each.of(comparison.reference.arm)) for each in rounds
    ]
    breakdowns = [(time_breakdown(own), time_breakdown(other)) for own, other in pairs]
    factors = [_factors(*pair) for pair in pairs]
    steps = steps_of_run(pairs[0][1])
    taken = steps_of_each(steps, parts_of(comparison))
    return ScalingBreakdown(
        world_size=n,
        steady_state=_interval([steady_state_speedup(n, *both) for both in pairs]),
        training=_interval([training_speedup(comparison, *both) for both in pairs]),
        end_to_end=_interval(
            [
                end_to_end_speedup(comparison, *both, (ours.wall_seconds, theirs.wall_seconds))
                for both, (ours, theirs) in zip(pairs, breakdowns, strict=True)
            ]
        ),
        computation=_interval([computation for computation, _, _ in factors]),
        communication=_interval([communication for _, communication, _ in factors]),
        load_balance=_interval([load_balance for _, _, load_balance in factors]),
        product=_interval([math.prod(of_round) for of_round in factors]),
        efficiency=_interval([_usual_speed(own) / _usual_speed(other) for own, other in pairs]),
        candidate=_spent([own for own, _ in pairs], [ours for ours, _ in breakdowns], taken),
        reference=_spent(
            [other for _, other in pairs], [theirs for _, theirs in breakdowns], steps
        ),
        late=_late([ours.late for ours, _ in breakdowns]),
    )


def _interval(ratios: Sequence[float]) -> Interval:
    return as_ratio(hodges_lehmann([math.log(ratio) for ratio in ratios], ALPHA))


def _factors(candidate: Launch, reference: Launch) -> tuple[float, float, float]:
    """Return computation, communication and load balance, from blocks.

    Their product is (a step at 1) / (a step at n). computation: a step at 1 / the typical rank's
    step at n without exchange. load_balance: the typical rank's step without exchange / the slowest
    one's. communication: the slowest one's / the step with exchange (docs/time_breakdown.md). All
    steps count without the extra time of rare long ones. The typical rank is the median one, and of
    two the faster one: what slows one rank does not count as contention.
    If it takes less time than one replica alone, because another rank has a part of its work, the
    mean of all ranks counts, up to the time of one replica alone.
    """
    alone, whole = (max(_usual_steps(each, BlockKind.FULL)) for each in (reference, candidate))
    ranks = _usual_steps(candidate, BlockKind.LOCAL)
    typical = max(median_low(ranks), min(fmean(ranks), alone))
    return alone / typical, max(ranks) / whole, typical / max(ranks)


def _usual_steps(launch: Launch, kind: BlockKind) -> list[float]:
    """Return the seconds of a step of this kind, by rank, without the extra time of long steps."""
    blocks = launch.of_kind(kind)
    return [
        median(usual_seconds(block.ranks[rank]) / block.steps for block in blocks)
        for rank in range(len(blocks[0].ranks))
    ]


def _spent(launches: Sequence[Launch], breakdowns: Sequence[TimeBreakdown], steps: int) -> Spent:
    """Return the time spent by a training of `steps` steps, which may be fewer than the run had."""
    costs = [fixed_cost(launch) for launch in launches]
    terms = physical(
        {term: fmean(breakdown.terms[term] for breakdown in breakdowns) for term in TERMS}
    )
    below = _below([breakdown.terms for breakdown in breakdowns])
    if len(breakdowns[0].ranks) == 1:
        # One replica exchanges nothing: what its parts, measured alone, leave of a step is its own.
        terms[Term.COMPUTE] += terms[Term.EXCHANGE]
        terms[Term.EXCHANGE] = 0.0
        below.pop(Term.EXCHANGE, None)
    left_out = fmean(_seconds_beyond(launch, steps) for launch in launches)
    return Spent(
        steps=steps,
        steps_of_run=steps_of_run(launches[0]),
        wall_seconds=fmean(breakdown.wall_seconds for breakdown in breakdowns) - left_out,
        training_seconds=fmean(training_seconds(launch, steps) for launch in launches),
        terms=terms,
        residual=max((breakdown.residual for breakdown in breakdowns), key=abs),
        fixed=FixedCost(
            fmean(cost.a_seconds for cost in costs), fmean(cost.b_seconds for cost in costs)
        ),
        below=below,
    )


def _below(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the upper bounds of the shares that cannot be told from 0. rounds: terms by round."""
    found = {}
    for term in (Term.APPLY, Term.EXCHANGE):
        share = hodges_lehmann(
            [terms[term] / sum(terms[each] for each in OF_STEPS) for terms in rounds], ALPHA
        )
        if share.lower <= 0.0 and math.isfinite(share.upper):
            found[term.value] = max(0.0, share.upper)
    return found


def _late(named: Sequence[Straggler | None]) -> Straggler | None:
    """Return the straggler named in more than half of the rounds, with its typical lag, or None."""
    ranks = [late.rank for late in named if late is not None]
    rank = max(ranks, key=ranks.count, default=0)
    own = [late for late in named if late is not None and late.rank == rank]
    if 2 * len(own) <= len(named):
        return None
    return Straggler(
        rank, median(late.lag_seconds for late in own), fmean(late.share for late in own)
    )
