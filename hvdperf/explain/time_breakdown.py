"""The time breakdown of a launch: where every second of a training run went.

wall = launch + import + init + build + input + trace + first step + broadcast + ready
         + steps (between + input wait + straggler wait + compute + apply + rare long steps
                  + exposed communication)
         + end

The session's clock measures wall; the ranks' clocks measure the terms. The residual is the time of
messages, and the disagreement of clocks. The terms are measured as follows:

- launch: from before the launcher was started, by the time of day. end: until the launcher had
  ended. A time of day that is set in between is detected (clock_set), and such a launch has no
  time breakdown.
- ready: waiting for the slowest rank's start, and for the order to run.
- between steps, input wait: by the timestamps of every step (hvdperf.worker.steps).
- straggler wait: until the last rank has its batch and has computed its gradients
  (`waits`). Waiting for a rank that computes longer is no communication.
- compute, apply: by ablation. After the run, blocks of whole steps, of steps without exchange, and
  of forward and backward passes alone take turns in the same processes. The medians of their ratios
  in a turn are the parts of a step that compute and that apply; what slows the machine down for a
  while slows both sides of a ratio.
- rare long steps: their extra time from the batch on, without straggler wait, on the rank that
  pauses and on those that wait for it (hvdperf.explain.steps).
- exposed communication: the rest of the steps.

The session's own work between the run and the end (ablation, evidence) is not part of the training,
and is neither in wall nor in a term.

Finds the straggler, and how long the other ranks wait for it, from the times at which the ranks
were ready.

Arithmetic on the timestamps of a run (worker/steps.py): a rank is ready for its step when
it has its batch. Each rank's times count from a common barrier, so the clocks of several hosts need
not agree. A drift of 10 microseconds a second is far below the smallest lag that is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev

from hvdperf.explain.steps import excess, group_apart, usual_inside, usual_sum
from hvdperf.plan.arms import START, TERMS, BlockKind, Term
from hvdperf.records.outcome import Straggler
from hvdperf.records.rounds import Block, Launch, StampedRun, Timestamps

# Timestamps of one rank in seconds, one row per step: begun, had its batch, ended. In earlier
# sessions ranks could meet before the third of four.
StepTimestamps = Sequence[Sequence[float]]
# Significance level for naming a straggler.
CHANCE = 0.001
# A lag below this share of a step is not worth a name.
SHARE_OF_A_STEP = 0.02
# Stretches of a run whose typical lags are compared. The lags of neighbouring steps are alike, but
# those of stretches much less so.
STRETCHES = 8
# Standard errors by which the correlation of neighbouring steps may be higher than its estimate.
ERRORS = 2
# Where steps are still more alike, a run cannot tell a rank that is always late from one that is
# late for a while.
MOST_CORRELATED = 0.98


def waits(ranks: Sequence[StepTimestamps], computing: Sequence[float]) -> list[list[float]]:
    """Return how long each rank waits for the last one, in seconds: one row per rank, one column
    per step. A rank is ready when it has computed. computing: seconds that each rank computes
    before it exchanges."""
    ready = [
        [step[1] + own for step in timestamps]
        for timestamps, own in zip(ranks, computing, strict=True)
    ]
    last = [max(step) for step in zip(*ready, strict=True)]
    return [[b - a for a, b in zip(own, last, strict=True)] for own in ready]


def straggler(waited: Sequence[Sequence[float]], step_seconds: float) -> Straggler | None:
    """Return the rank that is last in more steps than chance allows (`beyond_chance`), lags by at
    least SHARE_OF_A_STEP, and does so throughout the run; return None if there is none. waited: as
    from `waits`."""
    if len(waited) < 2:
        return None
    steps = list(zip(*waited, strict=True))
    # The last one has waited least.
    lasts = [step.index(min(step)) for step in steps]
    rank = max(range(len(waited)), key=lasts.count)
    times = lasts.count(rank)
    if not beyond_chance(times, len(steps), len(waited)):
        return None
    lags = [
        median(other for i, other in enumerate(step) if i != rank) - step[rank] for step in steps
    ]
    lag = median(lags)
    if lag < SHARE_OF_A_STEP * step_seconds or not _endures(lags, len(waited)):
        return None
    return Straggler(rank, lag, times / len(steps))


def _endures(lags: Sequence[float], ranks: int) -> bool:
    """Return whether the lag of one of several ranks is above 0 throughout a run, though who is
    late may drift.

    It is tested twice, each time at CHANCE for all ranks: by the medians of STRETCHES (t-test), and
    by the mean of all steps, which follow each other like an autoregressive process of the first
    order.
    """
    count = min(STRETCHES, len(lags))
    ends = [len(lags) * number // count for number in range(count + 1)]
    stretches = [median(lags[begin:end]) for begin, end in pairwise(ends)]
    chance = CHANCE / ranks
    return _is_above_0(stretches, 0.0, chance) and _is_above_0(lags, _correlation(lags), chance)


def _correlation(values: Sequence[float]) -> float:
    """Return the correlation of neighbouring values, as high as it may well be: one that is
    underestimated would name ranks that are late by turns."""
    count, mean = len(values), fmean(values)
    apart = [value - mean for value in values]
    whole = sum(value * value for value in apart)
    if count < 3 or whole == 0.0:
        return 0.0
    found = sum(a * b for a, b in pairwise(apart)) / whole
    # The estimate is too low by so much (Kendall 1954), and its standard error (Bartlett 1946).
    likely = found + (1 + 3 * found) / count
    error = math.sqrt(max(1 - likely * likely, 0.0) / count)
    return min(max(likely + ERRORS * error, 0.0), MOST_CORRELATED)


def _is_above_0(values: Sequence[float], correlation: float, chance: float) -> bool:
    """Return whether the mean of values is above 0, by a t-test.

    correlation: of neighbouring values (autoregressive process of the first order). Then the mean
    varies more, the values about it vary less, and there are fewer degrees of freedom (Bayley and
    Hammersley 1946).
    """
    from scipy.special import stdtr  # imported here, because the import takes a while

    count = len(values)
    if count < 2:
        return False
    mean, deviation = fmean(values), stdev(values)
    if deviation <= 1e-9 * abs(mean):
        return mean > 0.0
    r = correlation
    # Variance of the mean, as a share of that of the process.
    of_mean = ((1 + r) / (1 - r) - 2 * r * (1 - r**count) / (count * (1 - r) ** 2)) / count
    within = (1 - of_mean) * count / (count - 1)
    error = deviation * math.sqrt(of_mean / within)
    freedom = max(1.0, (count - 1) * (1 - r * r) / (1 + r * r))
    return float(stdtr(freedom, -mean / error)) <= chance


def beyond_chance(times: int, trials: int, ranks: int) -> bool:
    """Return whether a given rank is picked in at least `times` of the trials with a probability of
    at most CHANCE, if every trial picks each rank with the same probability."""
    from scipy.special import bdtrc  # imported here, because the import takes a while

    return ranks > 1 and float(bdtrc(times - 1, trials, 1 / ranks)) <= CHANCE


def standing_out(seconds: Mapping[int, float]) -> int | None:
    """Return the rank that has more than twice as much as any other rank; None without such a one,
    or without others. seconds: by rank."""
    *others, most = sorted(seconds, key=seconds.__getitem__)
    return most if others and seconds[most] > 2 * seconds[others[-1]] else None


# A launch is INVALID if its time breakdown leaves more than this share of the time unexplained.
CLOSES_WITHIN = 0.02
# Seconds by which the time of day may move against the monotonic clock, because a process may be
# interrupted between reading the two.
CLOCKS_AGREE_WITHIN_S = 0.05
# Share of the elapsed time by which NTP may slew the time of day (adjtimex, 500 ppm).
SLEWED = 5e-4


@dataclass(frozen=True)
class TimeBreakdown:
    """The time breakdown of one launch.

    wall_seconds: of the run, measured from outside. ranks: the seconds of each of TERMS, by rank.
    steps: of the run. late: the straggler, if there is one.
    """

    wall_seconds: float
    ranks: tuple[Mapping[str, float], ...]
    steps: int
    late: Straggler | None

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of each term, of an average rank."""
        return {term: fmean(rank[term] for rank in self.ranks) for term in TERMS}

    @property
    def residual_seconds(self) -> float:
        """The largest unexplained time of a rank, in seconds; negative if its terms add up to too
        much."""
        left = [self.wall_seconds - sum(rank.values()) for rank in self.ranks]
        return max(left, key=abs)

    @property
    def residual(self) -> float:
        """The residual as a share of the wall time."""
        return self.residual_seconds / self.wall_seconds

    @property
    def closes(self) -> bool:
        return abs(self.residual) <= CLOSES_WITHIN


def time_breakdown(launch: Launch) -> TimeBreakdown:
    """Return the time breakdown of a launch with timestamps. Raises ValueError, with the
    reason, if its timestamps do not give one."""
    work = launch.work
    if not isinstance(work, StampedRun) or work.timestamps is None:
        raise ValueError("the launch has no timestamps")
    steps = [rank.timestamps for rank in work.run]
    if not steps or not all(steps) or len({len(timestamps) for timestamps in steps}) > 1:
        raise ValueError("the timestamps of the run's steps are not complete on all ranks")
    out_of_order = disorder(work.timestamps)
    if out_of_order:
        raise ValueError(out_of_order)
    parts = [shares(work.blocks, rank) for rank in range(len(steps))]
    computing = _computing(work.blocks, steps, [computes for computes, _ in parts])
    waited = waits(steps, computing)
    ranks = tuple(
        {
            **_outside_of_steps(work.timestamps, rank),
            **_of_steps(steps[rank], waited[rank], *parts[rank]),
        }
        for rank in range(len(steps))
    )
    return TimeBreakdown(
        wall_seconds(work.timestamps),
        ranks,
        len(steps[0]),
        straggler(waited, max(own[-1][-1] for own in steps) / len(steps[0])),
    )


def wall_seconds(timestamps: Timestamps) -> float:
    """Return the seconds from before the launch until the launcher had ended, by the session's
    clock, without the time between the run and the order to close."""
    run = next(asked for asked in timestamps.asked if asked.op == "run")
    close = timestamps.asked[-1]
    return run.answered + close.answered - close.asked


def disorder(timestamps: Timestamps) -> str:
    """Return the first problem of the timestamps, in words. Return "" if each rank goes through
    START in order, runs and ends, and all clocks go forwards and agree."""
    if (
        not any(asked.op == "run" for asked in timestamps.asked)
        or timestamps.asked[-1].op != "close"
    ):
        return "the launch had no order to run and then to close"
    for rank, own in enumerate(timestamps.ranks):
        phases = tuple(timestamp.phase for timestamp in own)
        if phases[: len(START) + 1] != (*START, "run") or phases[-1] != "end":
            return f"rank {rank} went through its phases in the order {', '.join(phases)}"
        if any(b.clock < a.clock for a, b in pairwise(own)):
            return f"rank {rank}: its clock went backwards"
    moved = clock_set(timestamps)
    if moved:
        return moved
    for rank, own in enumerate(timestamps.ranks):
        if own[0].at < timestamps.launched_at or own[-1].at > timestamps.ended_at:
            return (
                f"rank {rank} began before its launch, or ended after its end: the clocks of "
                "its host and of this host differ; synchronise them, for example by NTP"
            )
    return ""


def clock_set(timestamps: Timestamps) -> str:
    """Return an error message if somebody set the time of day during the launch, else "". The terms
    launch and end rest on the time of day, all others on clocks that are never set."""
    passed = timestamps.ended_at - timestamps.launched_at
    moved = {"the session": passed - timestamps.asked[-1].answered}
    for rank, own in enumerate(timestamps.ranks):
        offsets = [timestamp.at - timestamp.clock for timestamp in own]
        moved[f"rank {rank}"] = max((o - offsets[0] for o in offsets), key=abs)
    for whose, seconds in moved.items():
        if abs(seconds) > CLOCKS_AGREE_WITHIN_S + SLEWED * passed:
            return (
                f"clocks disagree: the time of day of {whose} moved by {seconds:+.2f} s "
                "compared with the monotonic clock; do not set the clock during a session"
            )
    return ""


def shares(blocks: Sequence[Block], rank: int) -> tuple[float, float]:
    """Return the shares of a step that compute and that apply, on that rank: medians over the
    turns, without the extra time of rare long steps. Raises ValueError if no turn has every kind
    of step."""
    of_kind = {
        kind: {block.turn: usual_inside(block, rank) for block in blocks if block.kind is kind}
        for kind in (BlockKind.FULL, BlockKind.LOCAL, BlockKind.COMPUTE)
    }
    full, local, compute = of_kind.values()
    turns = sorted(full.keys() & local.keys() & compute.keys())
    if not turns:
        raise ValueError("no turn in which every kind of step was timed")
    computes = median(compute[turn] / full[turn] for turn in turns)
    applies = median((local[turn] - compute[turn]) / full[turn] for turn in turns)
    return computes, applies


def _computing(
    blocks: Sequence[Block], steps: Sequence[StepTimestamps], computes: Sequence[float]
) -> list[float]:
    """Return the seconds that each rank computes in a step of the run before it exchanges; the same
    for all ranks if none computes for surely longer than others do in blocks without exchange, or
    by little: otherwise noise would seem to keep ranks waiting.

    computes: the share of a step that each rank computes.
    """
    found = [share * _inside(own) / len(own) for share, own in zip(computes, steps, strict=True)]
    rows = [
        [math.log(usual_inside(block, rank)) for rank in range(len(steps))]
        for block in blocks
        if block.kind in (BlockKind.LOCAL, BlockKind.COMPUTE)
    ]
    least = SHARE_OF_A_STEP * fmean(own[-1][-1] / len(own) for own in steps)
    if max(found) - min(found) > least and group_apart(rows) is not None:
        return found
    return [fmean(found)] * len(found)


def _inside(timestamps: StepTimestamps) -> float:
    """Return the seconds of all steps from their batch on, without the extra time of long ones."""
    return usual_sum([end - batch for _, batch, *_, end in timestamps])


def _outside_of_steps(timestamps: Timestamps, rank: int) -> dict[str, float]:
    own = timestamps.ranks[rank]
    terms: dict[str, float] = {
        Term.LAUNCH.value: own[0].at - timestamps.launched_at,
        Term.END.value: timestamps.ended_at - own[-1].at,
    }
    for timestamp, following in pairwise(own[: len(START) + 1]):
        terms[timestamp.phase] = following.clock - timestamp.clock
    return terms


def _of_steps(
    timestamps: StepTimestamps, waited: Sequence[float], computes: float, applies: float
) -> dict[str, float]:
    pauses = (after[0] - before[-1] for before, after in pairwise(timestamps))
    between = timestamps[0][0] + sum(pauses)
    inside = [step[-1] - step[1] - own for step, own in zip(timestamps, waited, strict=True)]
    compute, apply = (share * _inside(timestamps) for share in (computes, applies))
    return {
        Term.BETWEEN: between,
        Term.INPUT: sum(batch - begin for begin, batch, *_ in timestamps),
        Term.STRAGGLER: sum(waited),
        Term.COMPUTE: compute,
        Term.APPLY: apply,
        Term.LONG_STEPS: sum(excess(inside)),
        Term.EXCHANGE: usual_sum(inside) - compute - apply,
    }
