"""Who keeps the others waiting, and for how long: from when each rank was ready for its step.

Plain arithmetic on the marks of a run (worker/training_run.py): a rank is ready when it has its
batch. Each rank's times count from where all ranks left a common barrier, so that the clocks of
several hosts need not agree; a drift of 10 microseconds a second stays far below what is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p
from statistics import median

# Of one rank: begun, had its batch, had met the others, and ended, a row a step, in seconds.
StepMarks = Sequence[Sequence[float]]
# Who is last by chance is so this rarely.
CHANCE = 0.001
# What is below this share of a step is not worth a name.
SHARE_OF_A_STEP = 0.02


@dataclass(frozen=True)
class Straggler:
    """rank: the one that is last. lag_seconds: how much later than the typical other rank it is
    ready, in a typical step. share: of the steps, in how many it is the last."""

    rank: int
    lag_seconds: float
    share: float


def waits(ranks: Sequence[StepMarks], met: bool) -> list[list[float]]:
    """How long each rank waits for the last one, in seconds: a row a rank, a column a step.

    met: the ranks met before every step, which measures the waits themselves: the last rank waits
    for no longer than the meeting takes. Otherwise they follow from when each was ready.
    """
    if met:
        meetings = [[step[2] - step[1] for step in marks] for marks in ranks]
        shortest = [min(step) for step in zip(*meetings, strict=True)]
        return [[a - b for a, b in zip(own, shortest, strict=True)] for own in meetings]
    ready = [[step[1] for step in marks] for marks in ranks]
    last = [max(step) for step in zip(*ready, strict=True)]
    return [[b - a for a, b in zip(own, last, strict=True)] for own in ready]


def straggler(waited: Sequence[Sequence[float]], step_seconds: float) -> Straggler | None:
    """The rank that is last in more steps than chance allows (a binomial tail of CHANCE, were each
    rank as likely) by a lag worth a name; None if there is none. waited: as from `waits`."""
    if len(waited) < 2:
        return None
    steps = list(zip(*waited, strict=True))
    lasts = [step.index(min(step)) for step in steps]
    rank = max(range(len(waited)), key=lasts.count)
    times = lasts.count(rank)
    if not beyond_chance(times, len(steps), len(waited)):
        return None
    lag = median(
        median(other for i, other in enumerate(step) if i != rank) - step[rank] for step in steps
    )
    if lag < SHARE_OF_A_STEP * step_seconds:
        return None
    return Straggler(rank, lag, times / len(steps))


def beyond_chance(times: int, trials: int, ranks: int) -> bool:
    """Whether it is rarer than CHANCE that a rank is the one in so many of the trials, were each
    rank as likely in each."""
    return ranks > 1 and _tail(times, trials, 1 / ranks) <= CHANCE


def _tail(successes: int, trials: int, chance: float) -> float:
    """P(X >= successes) of a binomial distribution."""
    # In logarithms: the ways to choose from a thousand trials are more than a float can hold.
    terms = (
        exp(
            lgamma(trials + 1)
            - lgamma(k + 1)
            - lgamma(trials - k + 1)
            + k * log(chance)
            + (trials - k) * log1p(-chance)
        )
        for k in range(successes, trials + 1)
    )
    return float(sum(terms))
