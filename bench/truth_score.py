"""How often rules err on recordings: false alarms, misses and time to verdict, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from bench.truth_data import NONE, SAME, Planted
from bench.truth_rules import PLACES, Decision, Elsewhere, Recorded, Rule, Said
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.stats import Interval, hodges_lehmann, student_quantile

# The level of each bound of a 95 % interval, and of the range of times that is shown.
ALPHA, OUTER = 0.025, 0.1
# Into how many stretches of rounds a recording is cut, for intervals.
PARTS = 3


@dataclass(frozen=True)
class Share:
    """A share of trials, with its 95 % interval. All from 0 to 1."""

    of: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class OfArm:
    """What a rule said of one arm. slower, fine, nothing: the shares of trials with these answers.
    seconds: of every trial."""

    slower: Share
    fine: Share
    nothing: Share
    seconds: Sequence[float]

    @property
    def not_found(self) -> Share:
        """The share of trials without the answer `slower`."""
        found = self.slower
        return Share(found.of, 1 - found.share, 1 - found.high, 1 - found.low)


@dataclass(frozen=True)
class Score:
    """A rule with what it said, by arm; arms that it cannot judge are missing."""

    rule: Rule
    arms: Mapping[str, OfArm]

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Return the median, the lower and the upper tenth of the seconds to its answers. All arms
        weigh the same, although some have more trials."""
        seconds = [each for arm in self.arms.values() for each in arm.seconds]
        weights = [1 / len(arm.seconds) for arm in self.arms.values() for _ in arm.seconds]
        middle, low, high = np.quantile(
            seconds, (0.5, OUTER, 1 - OUTER), weights=weights, method="inverted_cdf"
        )
        return float(middle), float(low), float(high)


def share_of(answers: Sequence[Sequence[bool]], distinct: float) -> Share:
    """Return the share of trials with an answer, and its interval. answers: of each recording,
    whether each trial had the answer, by round. distinct: number of trials that share no run of the
    candidate.

    The interval is that of Clopper and Pearson (1934) for the effective number of trials of Korn
    and Graubard (1998, Survey Methodology 24, 193): as many independent trials as would have the
    variance that groups of trials have about their common share, with Student's t in place of the
    normal distribution, because there are few groups. The groups are the recordings, or the
    recordings cut in PARTS, whichever have the larger variance. The effective number is at most
    `distinct`, and is that for a share of 0 or 1.
    """
    from scipy.special import betaincinv  # imported here, because the import takes a while

    every = [answer for of_one in answers for answer in of_one]
    share, effective = fmean(every), max(1.0, distinct)
    parts = [part for of_one in answers for part in _parts(of_one)]
    variance = max(_variance(answers), _variance(parts))
    if variance > 0:
        normal, few = (student_quantile(1 - ALPHA, len(of) - 1) for of in (every, parts))
        effective = min(effective, share * (1 - share) / variance)
        effective = max(1.0, effective * (normal / few) ** 2)
    yes, no = share * effective, (1 - share) * effective
    low = float(betaincinv(yes, no + 1, ALPHA)) if yes else 0.0
    high = float(betaincinv(yes + 1, no, 1 - ALPHA)) if no else 1.0
    return Share(len(every), share, low, high)


def _parts(of_one: Sequence[bool]) -> list[Sequence[bool]]:
    bounds = [round(len(of_one) * part / PARTS) for part in range(PARTS + 1)]
    return [of_one[a:b] for a, b in pairwise(bounds) if b > a]


def _variance(groups: Sequence[Sequence[bool]]) -> float:
    """Return the variance of the share of all trials, as groups differ; 0 for one group."""
    if len(groups) < 2:
        return 0.0
    of = sum(map(len, groups))
    share = sum(map(sum, groups)) / of
    squares = sum((sum(group) - share * len(group)) ** 2 for group in groups)
    return len(groups) / (len(groups) - 1) * squares / of**2


def score(rule: Rule, recorded: Sequence[Recorded]) -> Score:
    """Return the score of a rule, tried at every round of every recording that has such trials."""
    arms = {}
    for arm, planted in planted_in(recorded).items():
        if rule.of_a_rank and planted.kind and planted.rank is None:
            continue
        decisions = [
            [decided for number in range(each.count) if (decided := rule.decide(each, arm, number))]
            for each in recorded
            if arm in each.candidates
        ]
        if any(decisions):
            arms[arm] = _of_arm([each for each in decisions if each])
    return Score(rule, arms)


def _of_arm(decisions: Sequence[Sequence[Decision]]) -> OfArm:
    rounds = fmean(each.rounds for of_one in decisions for each in of_one)
    distinct = sum(max(1, math.floor(len(of_one) / rounds)) for of_one in decisions)
    slower, fine, nothing = (
        share_of([[each.said is said for each in of_one] for of_one in decisions], distinct)
        for said in (Said.SLOWER, Said.FINE, Said.NOTHING)
    )
    return OfArm(slower, fine, nothing, [each.seconds for of in decisions for each in of])


def by_place(
    rules: Mapping[str, Elsewhere], recorded: Sequence[Recorded]
) -> dict[str, dict[str, Score]]:
    """Return the scores of rules by the place that their healthy runs come from."""
    return {
        name: {
            place: score(Rule(name, place, "", rule(healthy)), recorded)
            for place, healthy in PLACES.items()
        }
        for name, rule in rules.items()
    }


def planted_in(recorded: Sequence[Recorded]) -> dict[str, Planted]:
    """Return what was planted, by arm, in the order of the fault cases; first the arm without."""
    found = {
        arm: planted
        for each in recorded
        for arm, planted in each.recording.arms.items()
        if arm != NONE
    }
    order = [SAME, *FAULT_CASES]
    return {arm: found[arm] for arm in sorted(found, key=order.index)}


def effect(recorded: Sequence[Recorded], arm: str, network: str) -> Interval:
    """Return by what a step of an arm takes longer than that of the healthy arm, as a share, with
    its 95 % interval: the Hodges-Lehmann estimate over all rounds that nothing disturbed."""
    values = [
        -median(pair.row)
        for each in recorded
        if each.recording.network == network and arm in each.candidates
        for pair in each.pairs[arm]
        if pair.row
    ]
    found = hodges_lehmann(values, ALPHA)
    return Interval(
        math.expm1(found.estimate),
        math.expm1(found.lower),
        math.expm1(found.upper) if math.isfinite(found.upper) else math.inf,
        found.alpha,
        found.observations,
    )
