"""The rules of the truth table: when a performance gate says that something is slower.

Each rule but ours is written anew from its public document, which its entry names. A rule is tried
at every round of a recording, on every arm: the arm is the candidate, and what the rule compares it
with are healthy runs (launches of the arm `none`). A trial that needs more rounds than are left
goes on with the first ones of the same recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from statistics import fmean, median, stdev

from bench.truth_data import NONE, Recording, Run, TimedBlock
from hvdperf.interim import EARLY_LOOKS, judge_rounds
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Side, Workload
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.records.rounds import Block, BlockReport, Launch, Round, Turns, back_to_back
from hvdperf.scatter import Row, turn_correlation
from hvdperf.verdict import REGRESSION, UNKNOWN_LAUNCH_SD, Noise, Verdict
from hvdperf.work.blocks import Blocks
from hvdperf.worker.strategies.table import Strategy

# Looks of the profile `nightly`, which leaves the least undecided.
LOOKS = (8, 12, 24)
# Marks a rule whose limit was set for another quantity than the one it is tried on.
BORROWED = "†"
# Healthy runs that a rule with a history has on file.
HISTORY, BASELINE, SERIES = 8, 4, 12


class Said(Enum):
    """What a rule says of a candidate."""

    SLOWER = "slower"
    FINE = "fine"
    NOTHING = "no verdict"


@dataclass(frozen=True)
class Decision:
    """What a rule said, after how many seconds of measuring, and from how many rounds of the
    candidate."""

    said: Said
    seconds: float
    rounds: int


@dataclass(frozen=True)
class Figures:
    """What rules see of one run: its blocks, one a turn.

    step: mean seconds of a step. steps: seconds of each step, of the slowest rank. own: by rank,
    mean seconds of a step without those in which the rank waited for the others. inside: by rank,
    mean seconds of a step from its batch on. input: by rank, median wait for a batch. seconds: that
    the run took, with its start.
    """

    step: float
    steps: Sequence[float]
    own: Sequence[float]
    inside: Sequence[float]
    input: Sequence[float]
    seconds: float


class Recorded:
    """A recording as rules see it. others: recordings of the same network at other times."""

    def __init__(self, recording: Recording, others: Sequence[Recorded] = ()) -> None:
        self.recording, self.others = recording, list(others)
        self.count = len(recording.rounds)

    @property
    def candidates(self) -> list[str]:
        return [arm for arm in self.recording.arms if arm != NONE]

    @cached_property
    def rest_seconds(self) -> float:
        """Seconds of a launch that are neither its start nor its timed steps: its processes start
        and end. They are what the session took beyond all of these, shared by all launches."""
        recorded = sum(
            run.start_seconds + sum(map(_seconds, run.blocks))
            for each in self.recording.rounds
            for run in each.values()
        )
        launches = sum(map(len, self.recording.rounds))
        share = launches / self.recording.launches
        return max(0.0, share * self.recording.elapsed_seconds - recorded) / launches

    @cached_property
    def runs(self) -> Mapping[str, Sequence[Figures]]:
        """Return the figures of every run, by arm and round."""
        return {
            arm: [_figures(each[arm], self.rest_seconds) for each in self.recording.rounds]
            for arm in self.recording.arms
        }

    def some(self, arm: str, begin: int, count: int) -> list[Figures]:
        """Return the figures of that many runs from a round on; after the last comes the first."""
        return [self.runs[arm][number % self.count] for number in range(begin, begin + count)]

    @cached_property
    def pairs(self) -> Mapping[str, Sequence[Pair]]:
        """Return the pairs of a candidate and a healthy run, by candidate and round."""
        return {
            arm: [
                _pair(arm, number, self.recording.rounds[number], self.rest_seconds)
                for number in range(self.count)
            ]
            for arm in self.candidates
        }


@dataclass(frozen=True)
class Pair:
    """A round of two arms as our rule sees it. row: ln speed of the candidate over that of the
    healthy arm, one a turn; () if other programs disturbed the round. seconds: that both took."""

    row: Row
    seconds: float


def _seconds(block: TimedBlock) -> float:
    return max(rank.seconds for rank in block.ranks)


def _figures(run: Run, rest_seconds: float) -> Figures:
    # The healthy arm is compared with several others, so it has several blocks a turn.
    blocks = list({block.turn: block for block in reversed(run.blocks)}.values())[::-1]
    steps = sum(block.steps for block in blocks)
    ranks = range(len(blocks[0].ranks))
    inside = [sum(block.ranks[rank].inside_seconds for block in blocks) / steps for rank in ranks]
    whole = [sum(block.ranks[rank].seconds for block in blocks) / steps for rank in ranks]
    least = min(inside)
    return Figures(
        sum(map(_seconds, blocks)) / steps,
        [
            max(of_ranks)
            for block in blocks
            for of_ranks in zip(*(rank.step_seconds for rank in block.ranks), strict=True)
        ],
        [whole[rank] - (inside[rank] - least) for rank in ranks],
        inside,
        [median(s for block in blocks for s in block.ranks[rank].input_seconds) for rank in ranks],
        run.start_seconds + rest_seconds + sum(map(_seconds, blocks)),
    )


def _arm(name: str) -> Arm:
    injected = "" if name == NONE else name
    return Arm(Workload("", "", 0, 1), Strategy.HOROVOD, 2, injected=injected)


def _pair(arm: str, number: int, runs: Mapping[str, Run], rest_seconds: float) -> Pair:
    sides = [_arm(arm), _arm(NONE)]
    blocks = [[_block(block) for block in run.blocks] for run in (runs[arm], runs[NONE])]
    launches = [
        Launch(side, number, work=Turns(blocks=of_side))
        for side, of_side in zip(sides, blocks, strict=True)
    ]
    comparison = Comparison(Question.WEAK_SCALING, Side(sides[0]), Side(sides[1]))
    row = Blocks.observe(comparison, Round(number, Schedule.ALTERNATE, launches))
    timed = sum(one.seconds + other.seconds for one, other in back_to_back(*blocks))
    starts = runs[arm].start_seconds + runs[NONE].start_seconds
    return Pair(row, starts + timed + 2 * rest_seconds)


def _block(timed: TimedBlock) -> Block:
    ranks = [
        BlockReport(
            rank.seconds,
            rank.step_seconds,
            rank.input_seconds,
            rank.inside_seconds,
            samples=timed.steps,
            cpu_seconds=rank.cpu_seconds,
            loss=math.nan,
        )
        for rank in timed.ranks
    ]
    return Block(BlockKind.FULL, timed.turn, timed.steps, ranks, timed.visit, timed.usage)


# Where a rule's healthy runs come from: of a recording, that many for a round -------------------

Healthy = Callable[[Recorded, int, int], list[Figures] | None]
# Takes a recording, a candidate and a round; None if the recording has no such trial.
Decide = Callable[[Recorded, str, int], Decision | None]


def side_by_side(recorded: Recorded, number: int, count: int) -> list[Figures] | None:
    """Return the healthy runs of the same rounds, which took turns with the candidate."""
    return recorded.some(NONE, number, count)


def before(recorded: Recorded, number: int, count: int) -> list[Figures] | None:
    """Return the healthy runs of the rounds before."""
    return recorded.some(NONE, number - count, count)


def another_session(recorded: Recorded, number: int, count: int) -> list[Figures] | None:
    """Return healthy runs of another session of the network, the next one in order; None if there
    is none."""
    return recorded.others[0].some(NONE, number, count) if recorded.others else None


# Rules ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A gate. given: what it is given, in words. source: where it is described, as Markdown.
    of_a_rank: whether it compares the ranks of one run, so that only faults of one rank count.
    ours: whether it is this suite's own.
    """

    name: str
    given: str
    source: str
    decide: Decide
    of_a_rank: bool = False
    ours: bool = False


def decided(slower: bool, seconds: float, rounds: int = 1) -> Decision:
    return Decision(Said.SLOWER if slower else Said.FINE, seconds, rounds)


def compared(
    slower: Callable[[list[float], list[float]], bool],
    healthy: Healthy,
    known: int,
    count: int,
    measured: bool = True,
    of_run: Callable[[Figures], Sequence[float]] = lambda run: (run.step,),
) -> Decide:
    """Return the rule that compares the values of `count` runs with those of `known` healthy ones.
    measured: whether the healthy runs are measured for it, and not on file. of_run: the values of
    a run, by default its mean step alone."""

    def decide(recorded: Recorded, arm: str, number: int) -> Decision | None:
        references = healthy(recorded, number, known)
        if references is None:
            return None
        runs = recorded.some(arm, number, count)
        seconds = sum(run.seconds for run in [*runs, *(references if measured else ())])
        ours, theirs = ([s for run in side for s in of_run(run)] for side in (runs, references))
        return decided(slower(ours, theirs), seconds, count)

    return decide


def ratio_above(limit: float, healthy: Healthy, count: int = 1, measured: bool = True) -> Decide:
    """Return the rule of a run whose mean step takes `limit` times that of a healthy run, or
    longer. count: number of runs on either side, whose mean is taken."""
    return compared(
        lambda ours, theirs: fmean(ours) >= limit * fmean(theirs), healthy, count, count, measured
    )


def beyond_sds(sds: float, count: int, healthy: Healthy) -> Decide:
    """Return the rule of a run whose mean step is longer than the mean of `count` healthy runs by
    more than so many of their standard deviations."""
    return compared(
        lambda ours, past: ours[0] > fmean(past) + sds * stdev(past), healthy, count, 1, False
    )


def welch(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return whether ours are longer by Welch's t-test, at 5 % two-sided."""
    from scipy.stats import ttest_ind  # imported here, because the import takes seconds

    return bool(ttest_ind(ours, theirs, equal_var=False, alternative="greater").pvalue < 0.025)


def mann_whitney(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return whether ours are longer by the test of Mann and Whitney, at 5 % two-sided."""
    from scipy.stats import mannwhitneyu

    return bool(mannwhitneyu(ours, theirs, alternative="greater").pvalue < 0.025)


def welch_on_steps(healthy: Healthy, count: int = 1) -> Decide:
    """Return the rule of runs whose steps, all together, are longer by Welch's test."""
    return compared(welch, healthy, count, count, of_run=lambda run: run.steps)


def twice(share: float, count: int, healthy: Healthy) -> Decide:
    """Return the rule of two runs in a row whose speeds are both below a share of the median speed
    of `count` healthy runs."""
    return compared(
        lambda ours, past: 1 / min(ours) < share * median(1 / step for step in past),
        healthy,
        count,
        2,
        measured=False,
    )


def score_below(limit: float, times: Callable[[Figures], Sequence[float]]) -> Decide:
    """Return the rule of a run in which the time of the fastest rank is less than `limit` times
    that of another rank."""

    def decide(recorded: Recorded, arm: str, number: int) -> Decision | None:
        run = recorded.runs[arm][number]
        return decided(min(times(run)) < limit * max(times(run)), run.seconds)

    return decide


def visible_gap(limit: float) -> Decide:
    """Return the rule of a run in which the rank that spends the least time inside of a step (the
    last to arrive, which waits for nobody) is ahead of the other by `limit` of its iteration."""

    def decide(recorded: Recorded, arm: str, number: int) -> Decision | None:
        run = recorded.runs[arm][number]
        # The upper median of the ranks; of two ranks that is the one that waits.
        victim = sorted(range(len(run.inside)), key=run.inside.__getitem__)[len(run.inside) // 2]
        gap = run.inside[victim] - min(run.inside)
        iteration = run.input[victim] + run.inside[victim]
        return decided(gap >= limit * iteration, run.seconds)

    return decide


def ours(most: int | None = None) -> Decide:
    """Return our rule: pairs of launches in rounds, until a look decides. most: rounds after which
    it has to end; None for as many as the recording has."""

    def decide(recorded: Recorded, arm: str, number: int) -> Decision | None:
        rows: list[Row] = []
        seconds, rounds = 0.0, recorded.count if most is None else min(most, recorded.count)
        verdict = Verdict.INCONCLUSIVE
        for taken in range(rounds):
            pair = recorded.pairs[arm][(number + taken) % recorded.count]
            seconds += pair.seconds
            if pair.row:
                rows.append(pair.row)
            last = taken == rounds - 1
            if not rows or not (last or len(rows) in (*EARLY_LOOKS, *LOOKS)):
                continue
            noise = Noise(UNKNOWN_LAUNCH_SD, turn_correlation([rows]))
            verdict = judge_rounds(rows, REGRESSION, LOOKS, noise, forced=last).verdict
            if verdict in (Verdict.PASS, Verdict.FAIL):
                return decided(verdict is Verdict.FAIL, seconds, taken + 1)
        return Decision(Said.NOTHING, seconds, rounds)

    return decide


_REFRAME = "https://github.com/reframe-hpc/reframe/pull/2492"
_TRACEML = (
    "https://github.com/traceopt-ai/traceml/blob/1ca18b0e8a6cf087637fa2bc07480241e8fcb453/"
    "src/traceml_ai/reporting/compare/policy.py"
)
_TRACEML_RANKS = (
    "https://github.com/traceopt-ai/traceml/blob/40e8231cad81e7ff666b563ba19dfc398a56098b/"
    "docs/developer_guide/rank-straggler-policy.md"
)
_NVIDIA = "https://nvidia.github.io/nvidia-resiliency-ext/straggler_det/usage_guide.html"
_HUD = (
    "https://github.com/pytorch/test-infra/blob/084380df88371edde25ff77cfa5c99bd3cd31138/"
    "aws/lambda/benchmark_regression_summary_report/common/regression_utils.py"
)
_SHEWHART = (
    "https://support.sas.com/documentation/cdl/en/qcug/67522/HTML/default/qcug_shewhart_sect003.htm"
)
_BENCHSTAT = (
    "https://go.googlesource.com/perf/+/02c55175bb825ade4507ee5d459ea6a1ab6e0af5/cmd/benchstat"
)
_OURS = "../figures.md#when-a-figure-is-judged"

GOLDEN = Rule(
    "golden, 5 %",
    "one run; its reference is one run of another session, as a golden file is",
    f"a reference with thresholds, as of [ReFrame]({_REFRAME})",
    ratio_above(1.05, another_session, measured=False),
)
SDS = Rule(
    "mean + 3 sd",
    f"one run; the {HISTORY} healthy runs before it are on file",
    f"a [control chart of Shewhart]({_SHEWHART})",
    beyond_sds(3, HISTORY, before),
)
T_TEST = Rule(
    "t-test on steps",
    "two runs, one after the other: all of their steps",
    "Welch's test at p < 0.05, as if the steps of a run were independent",
    welch_on_steps(before),
)
BENCHSTAT, BENCHSTAT_T = (
    Rule(
        f"benchstat, {LOOKS[0]} runs{words}",
        f"{LOOKS[0]} runs on either side, one side after the other: the mean step of each run",
        f"{source} at p < 0.05",
        compared(test, before, LOOKS[0], LOOKS[0]),
    )
    for test, words, source in (
        (mann_whitney, "", f"the Mann-Whitney test of [benchstat]({_BENCHSTAT})"),
        (welch, ", t-test", "Welch's test, an option of its earlier releases,"),
    )
)
TRACEML_3, TRACEML_8 = (
    Rule(
        f"TraceML compare, {percent} %",
        "two runs, one after the other: their mean steps",
        f"`step_avg_pct_{word}` of [TraceML's policy]({_TRACEML})",
        ratio_above(1 + percent / 100, before),
    )
    for percent, word in ((3, "moderate"), (8, "material"))
)
HUD = Rule(
    f"PyTorch HUD, 15 % twice {BORROWED}",
    f"two runs in a row; the {BASELINE} healthy runs before them are on file",
    "speed below 0.85 of the baseline's median, which is the limit of `helion_speedup` (how much "
    "faster a kernel is) in `config.py` of test-infra, of the last two points, as its "
    f"[`classify_flags`]({_HUD})",
    twice(0.85, BASELINE, before),
)
TRACEML_RANKS = Rule(
    f"TraceML straggler, 10 % {BORROWED}",
    "one run: the seconds of its ranks from the batch on",
    f"the score of its [rank straggler policy]({_TRACEML_RANKS}), with the whole step from its "
    "batch on in place of the backward pass",
    visible_gap(0.10),
    of_a_rank=True,
)
NVIDIA = Rule(
    f"NVIDIA relative score, 0.7 {BORROWED}",
    "one run: each rank's own seconds a step, without its wait for the others",
    f"`gpu_relative_perf_threshold` of its [usage guide]({_NVIDIA}), which is for the time of GPU "
    "kernels, by the clock of the CPU",
    score_below(0.7, lambda run: run.own),
    of_a_rank=True,
)
NVIDIA_LOADING = Rule(
    "NVIDIA section `data_loading`, 0.75",
    "one run: each rank's median wait for its batch",
    f"a section of its [usage guide]({_NVIDIA}), by the threshold that `identify_stragglers` has "
    "without arguments",
    score_below(0.75, lambda run: run.input),
    of_a_rank=True,
)
OURS = Rule(
    "hvdperf, in its own time",
    f"pairs of runs side by side, up to {LOOKS[-1]} rounds; it may end after "
    f"{', '.join(map(str, EARLY_LOOKS))} (PASS only), {', '.join(map(str, LOOKS))}",
    f"[the rule of `--against`]({_OURS}): FAIL if more than 2 % slower, PASS if less than 5 %",
    ours(),
    ours=True,
)
CUT = tuple(
    Rule(
        f"hvdperf, cut to {rounds} round{'s' * (rounds > 1)}",
        "the same, ended there",
        "the same",
        ours(rounds),
        ours=True,
    )
    for rounds in (1, 3, 8)
)
# Without Otava, which decides in a process of its own (bench.truth_otava).
RULES = (
    *(GOLDEN, SDS, T_TEST, BENCHSTAT, BENCHSTAT_T, TRACEML_3, TRACEML_8, HUD),
    *(TRACEML_RANKS, NVIDIA, NVIDIA_LOADING),
    *(OURS, *CUT),
)
# Rules that one may also give other healthy runs: name, and the rule by where these come from.
PLACES: Mapping[str, Healthy] = {
    "side by side": side_by_side,
    "before": before,
    "another session": another_session,
}
Elsewhere = Callable[[Healthy], Decide]
_AT_ANY_COUNT: Mapping[str, Callable[..., Decide]] = {
    GOLDEN.name: partial(ratio_above, 1.05),
    T_TEST.name: welch_on_steps,
    TRACEML_3.name: partial(ratio_above, 1.03),
    TRACEML_8.name: partial(ratio_above, 1.08),
}
ELSEWHERE: Mapping[str, Elsewhere] = {**_AT_ANY_COUNT, SDS.name: partial(beyond_sds, 3, HISTORY)}
# The same with as many runs on either side as our rule needs to say FAIL.
LONGER: Mapping[str, Elsewhere] = {
    **{name: partial(rule, count=LOOKS[0]) for name, rule in _AT_ANY_COUNT.items()},
    BENCHSTAT.name: partial(compared, mann_whitney, known=LOOKS[0], count=LOOKS[0]),
    BENCHSTAT_T.name: partial(compared, welch, known=LOOKS[0], count=LOOKS[0]),
}


def recorded_of(recordings: Sequence[Recording]) -> list[Recorded]:
    """Return recordings as rules see them: each knows the others of its network, the next one
    first."""
    found = [Recorded(recording) for recording in recordings]
    for network in {each.recording.network for each in found}:
        same = [each for each in found if each.recording.network == network]
        for place, each in enumerate(same):
            each.others = [*same[place + 1 :], *same[:place]]
    return found
