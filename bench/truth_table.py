"""`python -m bench truth`: how often performance gates err on the same runs. It tries every rule on
all recordings of results/truth/, and writes docs/reference/truth_table.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from bench import truth_rules
from bench.truth_rules import DATA, SAME, Recorded, Rule
from docs.markdown import heading, put_into, row
from hvdperf.errors import UserError
from hvdperf.machine.disturbance import taken_share
from hvdperf.paths import ROOT, shown
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.report.words import plural
from hvdperf.stats import Interval, hodges_lehmann, student_quantile

PAGE = ROOT / "docs" / "reference" / "truth_table.md"
# The level of each bound of a 95 % interval, and of the range of times that is shown.
ALPHA, OUTER = 0.025, 0.1
# Into how many stretches of rounds a recording is cut, for intervals.
PARTS = 3


# Scores -----------------------------------------------------------------------------------------


class Share(NamedTuple):
    """A share of trials, with its 95 % interval. All from 0 to 1."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} [{100 * self.low:.0f}, {100 * self.high:.0f}]"


class OfArm(NamedTuple):
    """What a rule said of one arm. slower, fine, nothing: the shares of trials with these answers.
    seconds: of every trial."""

    slower: Share
    fine: Share
    nothing: Share
    seconds: Sequence[float]


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

    def cell(self, arm: str) -> str:
        """Return the share of wrong answers, and that of trials without one if there are some."""
        if arm not in self.arms:
            return "-"
        found = self.arms[arm]
        open_ = f"; {100 * found.nothing.share:.0f} open" if found.nothing.share else ""
        return f"{found.slower if arm == SAME else found.fine}{open_}"


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
    return Share(share, low, high)


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
    for arm in planted_in(recorded):
        decisions = [
            [decided for number in range(each.count) if (decided := rule.decide(each, arm, number))]
            for each in recorded
            if arm in each.candidates
        ]
        tried = [each for each in decisions if each]
        if tried:
            rounds = fmean(each.rounds for of_one in tried for each in of_one)
            distinct = sum(max(1, math.floor(len(of_one) / rounds)) for of_one in tried)
            slower, fine, nothing = (
                share_of([[each.said is said for each in of_one] for of_one in tried], distinct)
                for said in truth_rules.Said
            )
            seconds = [each.seconds for of_one in tried for each in of_one]
            arms[arm] = OfArm(slower, fine, nothing, seconds)
    return Score(rule, arms)


def planted_in(recorded: Iterable[Recorded]) -> list[str]:
    """Return the candidates of the recordings, in the order of the fault cases; first the arm
    without a fault."""
    found = {arm for each in recorded for arm in each.candidates}
    return [arm for arm in FAULT_CASES if arm in found]


def effect(recorded: Sequence[Recorded], arm: str, network: str) -> Interval:
    """Return by what a step of an arm takes longer than that of the healthy arm, as a share, with
    its 95 % interval: the Hodges-Lehmann estimate over all rounds that nothing disturbed."""
    values = [
        -median(pair.row)
        for each in recorded
        if each.network == network and arm in each.candidates
        for pair in each.pairs[arm]
        if pair.row
    ]
    found = hodges_lehmann(values, ALPHA)
    estimate, lower, upper = map(math.expm1, (found.estimate, found.lower, found.upper))
    return replace(found, estimate=estimate, lower=lower, upper=upper)


# The parts of the page ---------------------------------------------------------------------------


def about(recorded: Sequence[Recorded]) -> Iterator[str]:
    """Yield what was recorded."""
    rounds = sum(each.count for each in recorded)
    pairs = sum(each.count * len(each.candidates) for each in recorded)
    facts = recorded[-1].session.fingerprint
    yield (
        f"{plural(len(recorded), 'recording')} with {rounds} rounds: {pairs} pairs of a "
        f"healthy run and another one, of which {rounds} had no fault either. They ran on "
        f"{facts['cores']} cores of {facts['cpu_model']}, with Horovod {facts['horovod']}, "
        f"TensorFlow {facts['tensorflow']} and {facts['mpi_library']}.\n"
    )
    yield from heading("session", "network", "rounds", "minutes", "% of the cores taken by others")
    for each in recorded:
        minutes, taken = each.session.elapsed_seconds / 60, 100 * _taken(each)
        counts = f"{each.count}", f"{minutes:.0f}", f"{taken:.1f}"
        yield row(each.session.session, f"`{each.network}`", *counts)


def planted_table(recorded: Sequence[Recorded]) -> Iterator[str]:
    """Yield what was planted, and by how much it made the steps longer."""
    networks = sorted({each.network for each in recorded})
    yield from heading("arm", "planted", *(f"`{name}`, %" for name in networks))
    for arm in planted_in(recorded):
        longer = (_longer(effect(recorded, arm, network)) for network in networks)
        yield row(f"`{arm}`", f"`{FAULT_CASES[arm].fault or 'nothing'}`", *longer)


def _taken(recorded: Recorded) -> float:
    launches = (launch for of_round in recorded.launches for launch in of_round.values())
    blocks = (block for launch in launches for block in launch.blocks)
    usages = [block.usage for block in blocks if block.usage is not None]
    return taken_share(usages) if usages else 0.0


def _longer(found: Interval) -> str:
    low, high = (100 * bound for bound in (found.lower, found.upper))
    return f"{100 * found.estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def main_table(recorded: Sequence[Recorded]) -> Iterator[str]:
    """Yield the truth table."""
    arms = planted_in(recorded)
    faults = (f"`{arm}` missed, %" for arm in arms if arm != SAME)
    yield from heading("rule", "false alarms, %", *faults, "seconds")
    for rule in truth_rules.RULES:
        if (found := score(rule, recorded)).arms:
            name = f"**{rule.name}**" if rule.ours else rule.name
            middle, low, high = found.seconds
            yield row(name, *map(found.cell, arms), f"{middle:.0f} [{low:.0f}, {high:.0f}]")


def make(*sessions: Path, data: Path = DATA, page: Path = PAGE) -> int:
    """Try the rules of performance gates on recorded runs with planted faults, and write how often
    each errs and how long it takes.

    [SESSION ...]: Add these sessions of the profile `truth`, such as
        results/runs/20260131T235959Z-4711.
    --data DIR: Read and extend this data set. Default: results/truth.
    --page FILE: Write into this page. Default: docs/reference/truth_table.md.
    """
    for session in sessions:
        try:
            print(f"added: {truth_rules.add(session, data)}", flush=True)
        except (UserError, OSError) as error:
            print(f"left out: {error}", file=sys.stderr, flush=True)
    recorded = truth_rules.read(data)
    parts = [[*part(recorded)] for part in (about, planted_table, main_table)]
    print(*("\n".join(part) for part in parts), sep="\n\n", flush=True)
    put_into(page, "make truth", *parts)
    print(f"\nwritten to {shown(page)}")
    return 0
