"""A scaling breakdown in words: its fixed cost, and what explains the efficiency of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hvdperf.judge.scaling_breakdown import hidden_seconds
from hvdperf.judge.speedup import FIXED
from hvdperf.plan.terms import OF_STEPS
from hvdperf.records.outcome import ScalingBreakdown, Spent
from hvdperf.report.words import shown

# Terms below this share of a sum are left out of its text.
WORTH_A_WORD = 0.005
# Ranks count as equally fast if the upper bound of their balance is above this.
BALANCED = 0.97


def fixed_part(spent: Spent) -> str:
    """Return a sentence such as `8.7 s of its 14.0 s are fixed cost: trace 5.1, ...`."""
    fixed = {term: spent.terms[term] for term in FIXED}
    # The rest of the fixed cost that the two lengths of the run show is from slow first steps.
    fixed["slow first steps"] = spent.fixed.a_seconds - sum(fixed.values())
    return (
        f"{spent.fixed.a_seconds:.1f} s of its {spent.training_seconds:.1f} s are fixed cost: "
        f"{_largest(fixed)}; then {1000 * spent.fixed.b_seconds:.1f} ms a step. Starting the "
        f"processes takes {spent.wall_seconds - spent.training_seconds:.1f} s."
    )


def explanation(breakdown: ScalingBreakdown) -> str:
    """Return sentences on the efficiency by speed: its factors, and who and what is behind them."""
    factors = ("contention", "communication", "balance")
    product = " x ".join(f"{name} {shown(getattr(breakdown, name))}" for name in factors)
    failed = f", which is {shown(breakdown.product)} and does not explain it"
    told = f"efficiency {shown(breakdown.efficiency)} = {product}"
    return " ".join(
        [told + f"{'' if breakdown.explained else failed}.", *_behind_the_factors(breakdown)]
    )


def _behind_the_factors(breakdown: ScalingBreakdown) -> Iterator[str]:
    ours, late, met = breakdown.candidate, breakdown.late, breakdown.late_where_met
    total = sum(ours.terms[term] for term in OF_STEPS)
    shares = {
        str(term): 100 * ours.terms[term] / total for term in OF_STEPS if term not in ours.below
    }
    below = [
        f", {term} below {100 * share:.1f}"
        for term, share in ours.below.items()
        if share >= WORTH_A_WORD
    ]
    yield f"Shares of its steps' time in %: {_largest(shares)}{''.join(below)}."
    if late is not None:
        where_met = (
            f" ({1000 * met.lag_seconds:.1f} ms if all ranks synchronise before a step)"
            if met is not None and met.rank == late.rank
            else ""
        )
        yield (
            f"Rank {late.rank} keeps the others waiting: it is ready "
            f"{1000 * late.lag_seconds:.1f} ms after them{where_met}, last in "
            f"{100 * late.share:.0f} % of the steps."
        )
    if breakdown.slowest is not None and breakdown.balance.upper <= BALANCED:
        longer = 100 * (1 / breakdown.balance.estimate - 1)
        yield (
            f"Rank {breakdown.slowest} is slowest: its steps take {longer:.0f} % longer than those "
            "of a typical rank."
        )
    hidden = hidden_seconds(breakdown)
    if breakdown.wire_seconds is not None and hidden is not None:
        yield (
            f"Data moves between ranks for {1000 * breakdown.wire_seconds:.1f} ms of a step, of "
            f"which {1000 * hidden:.1f} ms or more are hidden behind computation."
        )


def _largest(values: Mapping[str, float]) -> str:
    """Return the values that are worth a word, each with its name."""
    least = max(0.05, WORTH_A_WORD * sum(max(0.0, value) for value in values.values()))
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items() if value >= least)
