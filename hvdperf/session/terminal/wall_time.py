"""The scaling breakdown of a case in words: its speedups, and the terms that explain their
difference."""

from __future__ import annotations

from collections.abc import Mapping

from hvdperf.columns import interval, wrapped
from hvdperf.explain.scaling_breakdown import hidden_seconds
from hvdperf.explain.speedup import FIXED, divides_steps
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.terms import OF_STEPS
from hvdperf.records.outcome import ScalingBreakdown, Spent
from hvdperf.stats import Interval

# Terms below this share of a sum are left out of its text.
WORTH_A_WORD = 0.005
# Ranks count as equally fast if the upper bound of their balance is above this.
BALANCED = 0.97


def lines(comparison: Comparison, breakdown: ScalingBreakdown, briefly: bool = False) -> list[str]:
    """Return lines of at most 80 columns. briefly: leave out the parts that are the same for
    another length of the same run."""
    ours, n = breakdown.candidate, breakdown.world_size
    weak = not divides_steps(comparison)
    how = f"{ours.steps} steps on each" if weak else f"{breakdown.reference.steps} steps divided"
    speedups = (
        ("speed", breakdown.by_speed),
        ("time", breakdown.by_time),
        ("job", breakdown.by_job),
    )
    said = ", ".join(
        f"{value.estimate:.2f} by {name} ({100 * value.estimate / n:.0f} %)"
        for name, value in speedups
    )
    paragraphs = [
        f"{comparison.workload.model} on {n} replicas, {how}: {said}.",
        fixed_part(ours),
        steps_part(ours),
        f"{_factor('efficiency by speed', breakdown.efficiency)} = "
        f"{_factor('contention', breakdown.contention)} x "
        f"{_factor('communication', breakdown.communication)} x "
        f"{_factor('balance', breakdown.balance)}; {_factor('the product', breakdown.product)}"
        f"{'' if breakdown.explained else ' does not explain it'}.",
    ]
    paragraphs += filter(None, (_late(breakdown), _unbalanced(breakdown), _wire(breakdown)))
    first, *others = paragraphs[:2] if briefly else paragraphs
    return [*wrapped(first), *(text for each in others for text in wrapped(each, "  "))]


def fixed_part(spent: Spent) -> str:
    """Return a text such as
    `Of 14.0 s, 8.7 s fixed: trace 5.1, first step 2.4, broadcast 0.7, ...`."""
    fixed = {term: spent.terms[term] for term in FIXED}
    # The rest of the fixed cost that the two lengths of the run show is from slow first steps.
    fixed["slow first steps"] = spent.fixed.a_seconds - sum(fixed.values())
    return (
        f"{spent.fixed.a_seconds:.1f} s of its {spent.training_seconds:.1f} s are fixed cost: "
        f"{_sum(fixed)}; then {1000 * spent.fixed.b_seconds:.1f} ms a step. Starting the "
        f"processes takes {spent.wall_seconds - spent.training_seconds:.1f} s."
    )


def steps_part(spent: Spent) -> str:
    """Return a text with the shares of the steps' time, in %."""
    of_steps = {term: spent.terms[term] for term in OF_STEPS}
    total = sum(of_steps.values())
    shares = ", ".join(
        f"{term} below {100 * spent.below[term]:.1f}"
        if term in spent.below
        else f"{term} {100 * seconds / total:.1f}"
        for term, seconds in of_steps.items()
        if max(seconds / total, spent.below.get(term, 0.0)) >= WORTH_A_WORD
    )
    return f"Shares of its steps' time in %: {shares}."


def _late(breakdown: ScalingBreakdown) -> str:
    late, met = breakdown.late, breakdown.late_where_met
    if late is None:
        return ""
    where_met = (
        f" ({1000 * met.lag_seconds:.1f} ms if all ranks synchronise before a step)"
        if met is not None and met.rank == late.rank
        else ""
    )
    return (
        f"Rank {late.rank} keeps the others waiting: it is ready {1000 * late.lag_seconds:.1f} ms "
        f"after them{where_met}, last in {100 * late.share:.0f} % of the steps."
    )


def _unbalanced(breakdown: ScalingBreakdown) -> str:
    """Return a text that names the rank that is slow within its steps; "" if no rank is slowest in
    most rounds, or if the upper bound of the balance is above BALANCED."""
    if breakdown.slowest is None or breakdown.balance.upper > BALANCED:
        return ""
    longer = 100 * (1 / breakdown.balance.estimate - 1)
    return (
        f"Rank {breakdown.slowest} is slowest: its steps take {longer:.0f} % longer than those of "
        "a typical rank."
    )


def _wire(breakdown: ScalingBreakdown) -> str:
    hidden = hidden_seconds(breakdown)
    if breakdown.wire_seconds is None or hidden is None:
        return ""
    return (
        f"Data moves between ranks for {1000 * breakdown.wire_seconds:.1f} ms of a step, of which "
        f"{1000 * hidden:.1f} ms or more are hidden behind computation."
    )


def _sum(seconds: Mapping[str, float]) -> str:
    total = sum(max(0.0, value) for value in seconds.values())
    return ", ".join(
        f"{term} {value:.1f}"
        for term, value in seconds.items()
        if value >= max(0.05, WORTH_A_WORD * total)
    )


def _factor(name: str, value: Interval) -> str:
    return f"{name} {value.estimate:.3f} {interval(value.lower, value.upper)}"
