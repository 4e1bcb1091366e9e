"""`python -m bench.truth_table [SESSION ...]`: how often performance gates err on the same runs.

It adds the sessions that are given (directories of results/runs/, of the profile `truth`) to the
data set in results/truth/, tries every rule on all recordings, prints the tables, and writes them
between the marks of docs/reference/truth_table.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import numpy as np

from bench import truth_data, truth_rules
from bench.pages import heading, put_into, row
from bench.truth_data import NONE, SAME, Planted, Recording
from bench.truth_rules import Compared, Decision, Recorded, Rule, Said
from hvdperf.errors import UserError
from hvdperf.machine.disturbance import taken_share
from hvdperf.paths import ROOT, shown
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.report.words import plural
from hvdperf.stats import Interval, hodges_lehmann, student_quantile

PAGE = ROOT / "docs" / "reference" / "truth_table.md"
# In words, what was planted, by the kind of the fault.
_WORDS = {
    "": "nothing",
    "slow": "each step {percent} % late on rank {rank}",
    "input": "each batch {percent} % of a step late on rank {rank}",
    "cycle": "Horovod waits up to 25 ms for tensors, on all ranks",
}
# The level of each bound of a 95 % interval, and of the range of times that is shown.
ALPHA, OUTER = 0.025, 0.1
# Into how many stretches of rounds a recording is cut, for intervals.
PARTS = 3


# Scores -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """A share of trials, with its 95 % interval. All from 0 to 1."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} [{100 * self.low:.0f}, {100 * self.high:.0f}]"


@dataclass(frozen=True)
class OfArm:
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
    estimate, lower, upper = map(math.expm1, (found.estimate, found.lower, found.upper))
    return replace(found, estimate=estimate, lower=lower, upper=upper)


# The parts of the page ---------------------------------------------------------------------------


def about(recorded: Sequence[Recorded], arms: Mapping[str, Planted]) -> list[str]:
    """Return what was recorded."""
    recordings = [each.recording for each in recorded]
    rounds = sum(each.count for each in recorded)
    pairs = sum(each.count * len(each.candidates) for each in recorded)
    machine, stack = recordings[-1].machine, recordings[-1].stack
    networks = sorted({each.network for each in recordings})
    return [
        f"{plural(len(recordings), 'recording')} with {rounds} rounds: {pairs} pairs of a "
        f"healthy run and another one, of which {rounds} had no fault either. They ran on "
        f"{machine['cores']} cores of {machine['cpu_model']}, with Horovod {stack['horovod']}, "
        f"TensorFlow {stack['tensorflow']} and {stack['mpi_library']}.",
        "",
        *heading("session", "network", "rounds", "minutes", "% of the cores taken by others"),
        *(
            row(
                each.session,
                f"`{each.network}`",
                f"{len(each.rounds)}",
                f"{each.elapsed_seconds / 60:.0f}",
                f"{100 * _taken(each):.1f}",
            )
            for each in recordings
        ),
        "",
        "What was planted, and by how much it made the steps of the job longer (95 % interval):",
        "",
        *heading("arm", "planted", *(f"`{name}`, %" for name in networks)),
        *(
            row(
                f"`{arm}`",
                _WORDS[planted.kind].format(
                    percent=round(100 * ((planted.factor or 1) - 1)), rank=planted.rank
                ),
                *(_longer(effect(recorded, arm, network)) for network in networks),
            )
            for arm, planted in arms.items()
        ),
    ]


def _taken(recording: Recording) -> float:
    blocks = (block for of in recording.rounds for run in of.values() for block in run.blocks)
    usages = [block.usage for block in blocks if block.usage is not None]
    return taken_share(usages) if usages else 0.0


def _longer(found: Interval) -> str:
    low, high = (100 * bound for bound in (found.lower, found.upper))
    return f"{100 * found.estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def main_table(scores: Sequence[Score], arms: Mapping[str, Planted]) -> list[str]:
    """Return the truth table."""
    faults = (f"`{arm}` missed, %" for arm in arms if arm != SAME)
    rows = heading("rule", "false alarms, %", *faults, "seconds")
    for each in scores:
        name = f"**{each.rule.name}**" if each.rule.ours else each.rule.name
        middle, low, high = each.seconds
        rows.append(row(name, *map(each.cell, arms), f"{middle:.0f} [{low:.0f}, {high:.0f}]"))
    return rows


def places_table(rules: Sequence[Compared], recorded: Sequence[Recorded]) -> list[str]:
    """Return the table of rules by the place that their healthy runs come from."""
    arms = planted_in(recorded)
    wrong = (f"`{arm}` {'alarms' if arm == SAME else 'missed'}, %" for arm in arms)
    rows = heading("rule", "its healthy run", *wrong)
    for rule in rules:
        for place, healthy in truth_rules.PLACES.items():
            found = score(replace(rule, healthy=healthy), recorded)
            rows += [row(rule.name, place, *map(found.cell, arms))] if found.arms else []
    return rows


def written(recorded: Sequence[Recorded]) -> list[str]:
    """Return the lines of the page between its marks."""
    arms = planted_in(recorded)
    scores = [found for rule in truth_rules.RULES if (found := score(rule, recorded)).arms]
    count = truth_rules.LOOKS[0]
    return [
        *("## What was recorded", "", *about(recorded, arms)),
        *("", "## The table", "", *main_table(scores, arms)),
        *("", "## What the reference is worth", ""),
        "The same rules, with healthy runs from elsewhere: of the same rounds, taking turns with",
        "the candidate, of the rounds before, or of another session of the network.",
        *("", *places_table(truth_rules.ELSEWHERE, recorded)),
        *("", "## With as many runs as hvdperf", ""),
        f"The same with {count} runs on either side, which hvdperf needs to say FAIL: the mean",
        "of their steps, all steps together in the t-test on steps, and the mean step of each run",
        "for benchstat.",
        *("", *places_table(truth_rules.LONGER, recorded)),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.truth_table", description=__doc__)
    text = "to add to the data set"
    parser.add_argument("sessions", nargs="*", type=Path, metavar="SESSION", help=text)
    data, page = truth_data.DATA, PAGE
    parser.add_argument("--data", type=Path, default=data, metavar="DIR", help=shown(data))
    parser.add_argument("--page", type=Path, default=page, metavar="FILE", help=shown(page))
    given = parser.parse_args(arguments)
    for session in given.sessions:
        try:
            added = truth_data.add(session, given.data)
            print(f"added: {', '.join(added)}", flush=True)
        except (UserError, OSError) as error:
            print(f"left out: {error}", file=sys.stderr, flush=True)
    try:
        lines = written(truth_rules.recorded_of(truth_data.read(given.data)))
        print(*lines, sep="\n", flush=True)
        put_into(given.page, "make truth", lines)
    except UserError as error:
        sys.exit(f"bench.truth_table: {error}")
    print(f"\nwritten to {shown(given.page)}")


if __name__ == "__main__":
    main()
