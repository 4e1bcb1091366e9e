"""Interim analyses: after how many rounds a comparison may be judged, and by which bounds.

After three to six rounds (an early look) a comparison can PASS but not FAIL. The bounds then also
rest on the noise of turns within launches and on the known noise of launches on this machine. A
comparison FAILs only at the full looks of a profile (8, 12, ... rounds), by the exact bounds of the
signed-rank test. The error rates of both kinds of looks together are simulated
(docs/error_rates.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from hvdperf import stats
from hvdperf.stats import Interval, NotMeasurable, Row
from hvdperf.verdict import (
    FEWEST_ROUNDS,
    Judgement,
    Noise,
    Rule,
    Verdict,
    as_ratio,
    judge,
    undecided,
)

# Numbers of rounds after which a verdict is tried that can only be PASS.
EARLY_LOOKS = (3, 4, 5, 6)
# Factors of a bound's level. EARLY: at an early look. FIRST_FAIL: for the bound that may FAIL a
# comparison, except at the later full looks (0.025 becomes 0.0118, three of 256 sign patterns).
EARLY, FIRST_FAIL = 0.2, 0.472
# The level of each bound of an A/A pair before the first full look. With it, healthy pairs are
# INVALID in less than 1 of 1,000 sessions (docs/error_rates.md).
PAIR_ALPHA = 0.02
# The fewest degrees of freedom within launches from which the noise of turns can be estimated.
FEWEST_FREEDOM = 6
# The share of wrong verdicts on a figure that lies exactly on its limit: so much for the first
# analysis, and so much more for each further one (simulated: 2.8, 3.5, 5.1, 6.7, 8.1 and 9.6 % for
# 1 to 6 of them; docs/error_rates.md).
WRONG_AT_FIRST, WRONG_PER_ANALYSIS = 0.03, 0.015
# The weight of the variance's floor beside the variance of the rounds, in rounds.
PRIOR_ROUNDS = 4


def next_look(rounds: int, looks: Sequence[int], early: bool) -> int:
    """Return the number of rounds after which a verdict is tried next; past the last look, that
    look. early: whether the next look may be an early one."""
    before = EARLY_LOOKS if early else ()
    return next((look for look in (*before, *looks) if look > rounds), looks[-1])


def looks_after(rounds: int, looks: Sequence[int]) -> tuple[int, ...]:
    """Return the full looks of a session that is resumed after this number of rounds.

    Past its last look, each further look comes at twice as many rounds. The looks do not depend on
    the rounds of earlier resumptions, so a session that is resumed often has no more looks.
    """
    found = list(looks)
    while found[-1] <= rounds:
        found.append(2 * found[-1])
    return tuple(found)


def confidence_of_verdicts(looks: Sequence[int], rounds: int = 0, resumed: int = 0) -> float:
    """Return the confidence with which a PASS or a FAIL holds, whichever look decides it.

    The bounds of a single look have 97.5 %, but every look is another chance to err. looks: the
    full looks of the profile. rounds: of the case with the most, since a resumed session may have
    passed the last look. resumed: how often the session was resumed, since each part of it ends
    with an analysis.
    """
    passed = sum(look <= rounds for look in looks_after(rounds, looks))
    analyses = max(len(looks), passed) + resumed
    return 1 - WRONG_AT_FIRST - WRONG_PER_ANALYSIS * (analyses - 1)


def judge_rounds(
    rows: Sequence[Row],
    rule: Rule,
    looks: Sequence[int],
    noise: Noise | None,
    forced: bool = False,
) -> Judgement:
    """Judge a comparison by its rounds so far.

    rows: one row per round, with the ln ratios of its turns, or with a single value if the arms
    took no turns. looks: the full looks. noise: the noise that early looks assume; None for no
    early looks. forced: whether no further round will come, so that a verdict is tried even between
    looks. Without it the verdict is INCONCLUSIVE between looks. It is also INCONCLUSIVE at a look
    that does not decide.
    """
    values, count = [median(row) for row in rows], len(rows)
    widened = 1.0 if noise is None else noise.widening
    if count in looks or (forced and count >= looks[0]):
        return judge(values, rule, fail_alpha(count, rule.alpha, looks), widened)
    exact = judge(values, rule, widened=widened)
    if exact.verdict is Verdict.INVALID or count > looks[0]:
        return _left_open(exact)
    too_few = f"only {count} rounds: a FAIL needs {looks[0]}"
    if exact.verdict is Verdict.FAIL:
        exact = replace(exact, reason=too_few)
    early = None if noise is None else early_interval(rows, EARLY * rule.alpha, noise)
    if forced and count >= FEWEST_ROUNDS and exact.verdict is Verdict.PASS:
        return replace(exact, fail_alpha=None)
    if early is None:
        if noise is not None and count < EARLY_LOOKS[0] and any(len(row) > 1 for row in rows):
            rounds = f"only {count} round{'s' * (count != 1)}"
            needed = f"a PASS needs {EARLY_LOOKS[0]} or more, a FAIL {looks[0]}"
            exact = replace(exact, reason=f"{rounds}: {needed}")
        return _left_open(exact)
    if (forced or count in EARLY_LOOKS) and rule.passes(early):
        return Judgement(Verdict.PASS, early, rule, count, early=noise)
    if count < FEWEST_ROUNDS:
        exact = replace(exact, figure=early, early=noise, reason=too_few)
    return _left_open(exact)


def judge_pair(
    rows: Sequence[Row],
    rule: Rule,
    looks: Sequence[int],
    noise: Noise | None,
    forced: bool,
) -> Judgement:
    """Judge two identical groups by their rounds so far; the arguments are those of judge_rounds.

    Unlike any other comparison, a pair can FAIL from three rounds on: if the whole early interval
    at PAIR_ALPHA lies outside the band. From the first full look on, the exact bounds decide.
    """
    if noise is not None and len(rows) < looks[0]:
        early = early_interval(rows, PAIR_ALPHA, noise)
        if early is not None and rule.fails(early):
            return Judgement(
                Verdict.FAIL, early, rule, len(rows), fail_alpha=PAIR_ALPHA, early=noise
            )
    return judge_rounds(rows, rule, looks, noise, forced)


def is_failing(rows: Sequence[Row], rule: Rule, noise: Noise) -> bool:
    """Return whether an early look would FAIL the comparison, if early looks could. Such a
    comparison waits for a full look, which more turns per round do not bring nearer."""
    early = early_interval(rows, EARLY * rule.alpha, noise)
    return early is not None and rule.fails(early)


def _left_open(judgement: Judgement) -> Judgement:
    """Return the judgement as INCONCLUSIVE, because a figure is not judged after this many rounds.
    INVALID stays."""
    if judgement.verdict is Verdict.INVALID or judgement.figure is None:
        return judgement
    return replace(
        judgement,
        verdict=Verdict.INCONCLUSIVE,
        reason=judgement.reason or undecided(judgement.figure),
        fail_alpha=None,
    )


def fail_alpha(count: int, alpha: float, looks: Sequence[int]) -> float:
    """Return the level of the bound that may FAIL: alpha, which is the rule's own, at the later
    full looks, a lower one at any other."""
    return alpha if count in looks[1:] else FIRST_FAIL * alpha


def early_interval(rows: Sequence[Row], alpha: float, noise: Noise) -> Interval | None:
    """Return the figure with bounds from few rounds, as a ratio.

    Returns None if there are too few rounds, or too few turns to estimate their noise, or if a
    bound exceeds the range of a float.

    The floor of a round's variance is the known variance of launches on this machine plus at least
    twice the variance that its turns explain, since few turns give a poor estimate of that. The
    rounds' own variance is pooled with this floor as if the floor were known from PRIOR_ROUNDS
    rounds. The variance used is never below the floor.
    """
    count = len(rows)
    if not _has_variance(rows):
        return None
    values = [median(row) for row in rows]
    error = noise.widening * math.sqrt(early_variance(rows, noise) / count)
    half = stats.student_quantile(1 - alpha, PRIOR_ROUNDS + count - 1) * error
    centre = fmean(values)
    estimate = stats.hodges_lehmann(values, alpha).estimate
    try:
        return as_ratio(Interval(estimate, centre - half, centre + half, alpha, count))
    except NotMeasurable:
        return None


def early_shift(
    ours: tuple[Sequence[Row], Noise], theirs: tuple[Sequence[Row], Noise], alpha: float
) -> Interval | None:
    """Return how far the centre of `ours` lies above that of `theirs`, of two independent series of
    few rounds, as a ratio. Each has its rows and the noise of its machine.

    The error is that of two early intervals, with the degrees of freedom of both. Returns None as
    `early_interval` does.
    """
    both = (ours, theirs)
    if not all(_has_variance(rows) for rows, _ in both):
        return None
    a, b = ([median(row) for row in rows] for rows, _ in both)
    centre = fmean(a) - fmean(b)
    error = math.sqrt(
        sum(noise.widening**2 * early_variance(rows, noise) / len(rows) for rows, noise in both)
    )
    freedom = sum(PRIOR_ROUNDS + len(rows) - 1 for rows, _ in both)
    half = stats.student_quantile(1 - alpha, freedom) * error
    found = stats.shift(a, b, alpha)
    try:
        return as_ratio(replace(found, lower=centre - half, upper=centre + half))
    except NotMeasurable:
        return None


def _has_variance(rows: Sequence[Row]) -> bool:
    """Return whether there are enough rounds and turns for early_variance."""
    return len(rows) >= EARLY_LOOKS[0] and stats.turns_freedom(rows) >= FEWEST_FREEDOM


def early_variance(rows: Sequence[Row], noise: Noise) -> float:
    """Return the variance of a round that early bounds assume (early_interval)."""
    count = len(rows)
    correlated = (1 + noise.correlation) / (1 - noise.correlation)
    of_turns = max(2.0, 1.25 * correlated) * stats.turn_variance(rows) * stats.mean_of_inverse(rows)
    floor = noise.launch_sd**2 + of_turns
    pooled = (PRIOR_ROUNDS * floor + (count - 1) * stats.round_variance(rows)) / (
        PRIOR_ROUNDS + count - 1
    )
    return max(floor, pooled)
