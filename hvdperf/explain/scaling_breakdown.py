"""The breakdown of a case on wall time: its speedups, and the terms and factors that explain their
difference.

It covers all rounds of a comparison of wall time: speedups and factors with their
intervals, and the terms of both time breakdowns as means, which add up as those of a single run do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, median_low

from hvdperf.explain import speedup
from hvdperf.explain.speedup import Training, training
from hvdperf.explain.time_breakdown import TimeBreakdown, time_breakdown
from hvdperf.plan.arms import BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.terms import OF_STEPS, TERMS, Term
from hvdperf.records.outcome import FixedCost, ScalingBreakdown, Spent, Straggler
from hvdperf.records.rounds import Launch, Round, StampedRun
from hvdperf.stats import Interval, hodges_lehmann
from hvdperf.verdict import ALPHA, as_ratio

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
        (
            measured.of(comparison.candidate.arm),
            measured.of(comparison.reference.arm),
        )
        for measured in rounds
    ]
    breakdowns = [(time_breakdown(ours), time_breakdown(theirs)) for ours, theirs in pairs]
    trainings = [(training(ours), training(theirs)) for ours, theirs in pairs]
    factors = [_factors(ours, theirs) for ours, theirs in pairs]
    steps = trainings[0][1].steps
    taken = speedup.steps_of_each(steps, n) if speedup.divides_steps(comparison) else steps
    by_speed = [speedup.by_speed(n, *both) for both in trainings]
    return ScalingBreakdown(
        world_size=n,
        by_speed=_interval(by_speed),
        by_time=_interval([speedup.by_time(comparison, *both) for both in trainings]),
        by_job=_interval(
            [
                speedup.by_job(comparison, *both, (ours.wall_seconds, theirs.wall_seconds))
                for both, (ours, theirs) in zip(trainings, breakdowns, strict=True)
            ]
        ),
        contention=_interval([contention for contention, _, _ in factors]),
        communication=_interval([communication for _, communication, _ in factors]),
        balance=_interval([balance for _, _, balance in factors]),
        product=_interval([math.prod(of_round) for of_round in factors]),
        efficiency=_interval([value / n for value in by_speed]),
        candidate=_spent([ours for ours, _ in trainings], [ours for ours, _ in breakdowns], taken),
        reference=_spent([t for _, t in trainings], [theirs for _, theirs in breakdowns], steps),
        late=_late([ours.late for ours, _ in breakdowns]),
        late_where_met=_late([ours.late_where_met for ours, _ in breakdowns]),
        slowest=_most([_slowest(ours) for ours, _ in pairs]),
        wire_seconds=_wire_seconds([ours for ours, _ in pairs]),
    )


def _interval(ratios: Sequence[float]) -> Interval:
    return as_ratio(hodges_lehmann([math.log(ratio) for ratio in ratios], ALPHA))


def _factors(candidate: Launch, reference: Launch) -> tuple[float, float, float]:
    """Return contention, communication and balance, from blocks.

    Their product is (a step at 1) / (a step at n). contention: a step at 1 / the typical rank's
    step at n without exchange. balance: the typical rank's step without exchange / the slowest
    one's. communication: the slowest one's / the step with exchange (docs/time_breakdown.md). The
    typical rank is the median one, and of two the faster one: what slows one rank is no contention.
    If it takes less time than one replica alone, because another rank has a part of its work, the
    mean of all ranks counts, up to the time of one replica alone.
    """
    alone = median(block.seconds / block.steps for block in reference.of_kind(BlockKind.FULL))
    whole = median(block.seconds / block.steps for block in candidate.of_kind(BlockKind.FULL))
    ranks = _without_exchange(candidate)
    typical = max(median_low(ranks), min(fmean(ranks), alone))
    return alone / typical, max(ranks) / whole, typical / max(ranks)


def _without_exchange(launch: Launch) -> list[float]:
    """Return the seconds of a step without exchange, by rank."""
    local = launch.of_kind(BlockKind.LOCAL)
    return [
        median(block.ranks[rank].seconds / block.steps for block in local)
        for rank in range(len(local[0].ranks))
    ]


def _slowest(launch: Launch) -> int:
    ranks = _without_exchange(launch)
    return ranks.index(max(ranks))


def _wire_seconds(launches: Sequence[Launch]) -> float | None:
    """Return the seconds of a step in which data moves, by rank 0's Horovod timelines, or None."""
    timelines = [
        launch.work.timeline[0]
        for launch in launches
        if isinstance(launch.work, StampedRun) and launch.work.timeline
    ]
    seconds = [
        rank.wire_seconds / rank.steps for rank in timelines if rank.wire_seconds is not None
    ]
    return fmean(seconds) if seconds else None


def _spent(trainings: Sequence[Training], breakdowns: Sequence[TimeBreakdown], steps: int) -> Spent:
    """Return the time spent by a training of `steps` steps, which may be fewer than the run had."""
    costs = [speedup.fixed_cost(trained) for trained in trainings]
    left_out = fmean(
        trained.seconds_of_steps(trained.steps) - trained.seconds_of_steps(steps)
        for trained in trainings
    )
    return Spent(
        steps=steps,
        steps_of_run=trainings[0].steps,
        wall_seconds=fmean(breakdown.wall_seconds for breakdown in breakdowns) - left_out,
        training_seconds=fmean(trained.seconds(steps) for trained in trainings),
        terms=physical(
            {term: fmean(breakdown.terms[term] for breakdown in breakdowns) for term in TERMS}
        ),
        residual=max((breakdown.residual for breakdown in breakdowns), key=abs),
        fixed=FixedCost(
            fmean(cost.a_seconds for cost in costs), fmean(cost.b_seconds for cost in costs)
        ),
        below=_below([breakdown.terms for breakdown in breakdowns]),
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
    rank = _most([None if late is None else late.rank for late in named])
    if rank is None:
        return None
    own = [late for late in named if late is not None and late.rank == rank]
    return Straggler(
        rank, median(late.lag_seconds for late in own), fmean(late.share for late in own)
    )


def _most(ranks: Sequence[int | None]) -> int | None:
    """Return the rank of more than half of the rounds, or None."""
    rank = max(ranks, key=ranks.count)
    return rank if 2 * ranks.count(rank) > len(ranks) else None


def hidden_seconds(breakdown: ScalingBreakdown) -> float | None:
    """Return the least seconds of a step in which data moves behind computation; None without a
    timeline."""
    if breakdown.wire_seconds is None:
        return None
    exposed = breakdown.candidate.terms[Term.EXCHANGE] / breakdown.candidate.steps_of_run
    return max(0.0, breakdown.wire_seconds - max(0.0, exposed))
