"""Interim analyses: after how many rounds a comparison may be judged, and by which bounds.

After three to six rounds a comparison can PASS and no more, by bounds that also rest on how far
turns of a launch differ and on what launches of this machine are known to differ by. It FAILs only
at the full looks of a profile (8, 12, ...), by the exact bounds of the signed-rank test. The error
rates of both together are simulated (docs/measurement.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean, median

from hvdperf.scatter import (
    Noise,
    Row,
    mean_of_inverse,
    round_variance,
    turn_variance,
    turns_freedom,
)
from hvdperf.stats import Interval, NotMeasurable, hodges_lehmann
from hvdperf.verdict import FEWEST_ROUNDS, Judgement, Rule, Verdict, as_ratio, judge, undecided

# Rounds after which a verdict is tried that can only be PASS.
EARLY_LOOKS = (3, 4, 5, 6)
# What a bound's level is multiplied by: at an early look, and, of the bound that may FAIL a
# comparison, at all but the later full looks (0.025 becomes 0.0118, three of 256 sign patterns).
EARLY, FIRST_FAIL = 0.2, 0.472
# Degrees of freedom within launches without which the noise of turns is not known.
FEWEST_FREEDOM = 6
# What the floor of the variance counts for beside the rounds' own, in rounds.
PRIOR_ROUNDS = 4


def next_look(rounds: int, looks: Sequence[int], early: bool) -> int:
    """Returns after how many rounds a verdict is tried next; past the last look that one. early:
    whether that may be an early look."""
    before = EARLY_LOOKS if early else ()
    return next((look for look in (*before, *looks) if look > rounds), looks[-1])


def looks_after(rounds: int, looks: Sequence[int]) -> tuple[int, ...]:
    """Returns the full looks of a session that goes on after so many rounds: past its last one,
    another at twice as many rounds, and so on. The same on every way there, so that who goes on
    again and again looks no more often."""
    found = list(looks)
    while found[-1] <= rounds:
        found.append(2 * found[-1])
    return tuple(found)


def judge_rounds(
    rows: Sequence[Row],
    rule: Rule,
    looks: Sequence[int],
    noise: Noise | None,
    forced: bool = False,
) -> Judgement:
    """Judge a comparison after so many rounds.

    rows: a row a round, the ln ratios of its turns; of what has one value a launch, that value.
    looks: the full ones. noise: what early looks rest on; None for none of them. forced: whether
    there will be no further round. Between looks, and at a look that leaves it open, the verdict is
    INCONCLUSIVE.
    """
    values, count = [median(row) for row in rows], len(rows)
    if count in looks or (forced and count >= looks[0]):
        return judge(values, rule, fail_alpha=_fail_alpha(count, rule, looks))
    exact = judge(values, rule)
    if exact.verdict is Verdict.INVALID or count > looks[0]:
        return _left_open(exact)
    too_few = f"only {count} rounds: they could not FAIL it, {looks[0]} could; raise --budget"
    if exact.verdict is Verdict.FAIL:
        exact = replace(exact, reason=too_few)
    early = None if noise is None else early_interval(rows, EARLY * rule.alpha, noise)
    if forced and count >= FEWEST_ROUNDS and exact.verdict is Verdict.PASS:
        return replace(exact, fail_alpha=None)
    if early is None:
        if noise is not None and count < EARLY_LOOKS[0] and any(len(row) > 1 for row in rows):
            told = f"only {count} round{'s' * (count != 1)}: {EARLY_LOOKS[0]} could PASS it"
            exact = replace(exact, reason=f"{told}, {looks[0]} could FAIL it; raise --budget")
        return _left_open(exact)
    if (forced or count in EARLY_LOOKS) and rule.passes(early):
        return Judgement(Verdict.PASS, early, rule, count, early=noise)
    if count < FEWEST_ROUNDS:
        exact = replace(exact, figure=early, early=noise, reason=too_few)
    return _left_open(exact)


def is_failing(rows: Sequence[Row], rule: Rule, noise: Noise) -> bool:
    """Returns whether an early look would FAIL the comparison, if it could. It then waits for a
    full look, which more turns a round bring no nearer."""
    early = early_interval(rows, EARLY * rule.alpha, noise)
    return early is not None and rule.fails(early)


def _left_open(judgement: Judgement) -> Judgement:
    """Returns it without a verdict on the figure, which these rounds may not give."""
    if judgement.verdict is Verdict.INVALID or judgement.figure is None:
        return judgement
    return replace(
        judgement,
        verdict=Verdict.INCONCLUSIVE,
        reason=judgement.reason or undecided(judgement.figure),
        fail_alpha=None,
    )


def _fail_alpha(count: int, rule: Rule, looks: Sequence[int]) -> float:
    """Returns the level of the bound that may FAIL: the rule's own at the later full looks."""
    return rule.alpha if count in looks[1:] else FIRST_FAIL * rule.alpha


def early_interval(rows: Sequence[Row], alpha: float, noise: Noise) -> Interval | None:
    """Returns the figure with bounds from few rounds, as a ratio; None where there are too few
    turns to tell their noise, or the bounds are beyond what a number can hold.

    The variance of a round is at least what launches of this machine are known to vary by and what
    its turns explain, twice over, since few turns tell that poorly; the rounds' own variance is
    pooled with it as if it were known from PRIOR_ROUNDS rounds.
    """
    count = len(rows)
    if count < EARLY_LOOKS[0] or turns_freedom(rows) < FEWEST_FREEDOM:
        return None
    correlated = (1 + noise.correlation) / (1 - noise.correlation)
    of_turns = max(2.0, 1.25 * correlated) * turn_variance(rows) * mean_of_inverse(rows)
    floor = noise.launch_sd**2 + of_turns
    pooled = (PRIOR_ROUNDS * floor + (count - 1) * round_variance(rows)) / (
        PRIOR_ROUNDS + count - 1
    )
    values = [median(row) for row in rows]
    half = _quantile(1 - alpha, PRIOR_ROUNDS + count - 1) * math.sqrt(max(floor, pooled) / count)
    centre = fmean(values)
    estimate = hodges_lehmann(values, alpha).estimate
    try:
        return as_ratio(Interval(estimate, centre - half, centre + half, alpha, count))
    except NotMeasurable:
        return None


@cache
def _quantile(probability: float, freedom: int) -> float:
    """Returns that quantile of Student's t."""
    from scipy.special import stdtrit  # late: it takes a while to import

    return float(stdtrit(freedom, probability))
