"""How often the arms of a launch should take turns. Numbers in, numbers out.

What varies from turn to turn is averaged out by turns, what varies from launch to launch only by
launches. On a machine that does nothing else a handful of turns makes the former the smaller; on
one that is shared it may be five times as large (docs/measurement.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from harness.stats import SD_OF_MAD


def most_turns(usual: int, spread: float, rounds: Sequence[Sequence[float]]) -> int:
    """How many turns a launch is worth. usual: on a machine whose pairs of blocks differ by the
    spread, a standard deviation of their ln ratio. rounds: of one comparison, a row a round, the ln
    ratios of its turns in their order.

    Turns beyond the usual make up for what pairs differ by more: the error of a round's median
    falls as 1 / sqrt(turns). Their number says nothing of which side is the faster.
    """
    return math.ceil(usual * max(1.0, noise(rounds) / spread) ** 2)


def noise(rounds: Sequence[Sequence[float]]) -> float:
    """The standard deviation of a turn's ln ratio, robustly, from turns that follow each other; 0
    where none do."""
    steps = [abs(later - turn) for turns in rounds for turn, later in pairwise(turns)]
    return SD_OF_MAD * median(steps) / math.sqrt(2) if steps else 0.0
