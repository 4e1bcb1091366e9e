"""Figures of training runs: samples, and growth of memory.

Plain arithmetic on the ranks' reports of a run (worker/steps.py). No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hvdperf.plan.arms import Workload
from hvdperf.records.rounds import RunReport
from hvdperf.verdict import Ceiling, Judgement, Verdict

# Share of an endurance run that is left out, because caches, arenas and queues fill up first.
SETTLING_SHARE = 1 / 3
STEPS_OF_GROWTH = 1000
# A growth has ended if the rate of the resident set is then at most FLAT of that before, in so many
# readings and for such a share of the run. It is one only if it is at least LEAST_GROWTH of the
# resident set; what a process takes while it settles is less.
FLAT, FLAT_READINGS, FLAT_SHARE, LEAST_GROWTH = 0.1, 5, 0.15, 0.01
# A resident set rests while it grows at that share of its mean rate, or less.
RESTING = 0.1
# A growth slows down if its rate in the last third of a run is at most that share of the rate in
# the second third.
SLOWER = 0.7
# So many readings without growth show that it slowed down, but not that it has ended.
LATE_READINGS = 3

Reports = Sequence[RunReport]
# Rows of [steps, bytes of the resident set].
Readings = Sequence[Sequence[float]]


def samples_per_second(ranks: Reports) -> float:
    """Return samples per second by the slowest rank's own time, because a run lasts longer than
    asked: its ranks vote on its end only every few steps."""
    return samples(ranks) / max(rank.seconds for rank in ranks)


def samples(ranks: Reports) -> int:
    """Return the number of samples that all ranks together trained on."""
    return sum(rank.samples for rank in ranks)


# Growth of memory ------------------------------------------------------------------------------


def growth(memory: Readings) -> float:
    """Return the growth of ln(resident set) in STEPS_OF_GROWTH steps, as it is at the end of the
    run: from `settled_at` on.

    It is the median of the slopes between any two readings (Theil 1950; Sen 1968). Raises
    ValueError for fewer than three readings.
    """
    begin = settled_at(memory)
    settled = [(step, math.log(size)) for step, size in memory if step >= begin]
    if len(settled) < 3:
        raise ValueError(f"{len(settled)} readings of memory are too few for a slope")
    from scipy.stats import theilslopes  # imported here, because the import takes seconds

    steps, sizes = zip(*settled, strict=True)
    return STEPS_OF_GROWTH * float(theilslopes(sizes, steps).slope)


def settled_at(memory: Readings) -> float:
    """Return the step from which on growth counts: the end of SETTLING_SHARE of the run, or the
    step at which a growth ended after that."""
    last = memory[-1][0] if memory else 0
    return ended_at(memory) or SETTLING_SHARE * last


def ended_at(
    memory: Readings, readings: int = FLAT_READINGS, share: float = FLAT_SHARE
) -> float | None:
    """Return the step at which a growth ended, as that of a cache does when it is full, or the end
    of SETTLING_SHARE of the run if it ended before; None if it did not end, or if there was none.

    It has ended if the resident set then rose at FLAT of the rate until there, or less, in as many
    readings and in that share of the run. Memory that an allocator takes in large pieces rests
    between them, so the rest at the end must also be twice as long as any one before.
    """
    if not memory:
        return None
    (first, base), (last, _) = memory[0], memory[-1]
    for at, (step, size) in enumerate(memory):
        left = last - step
        long_enough = len(memory) - at >= readings and left >= share * last
        if step < SETTLING_SHARE * last or size < (1 + LEAST_GROWTH) * base or not long_enough:
            continue
        rate = (size - base) / (step - first)
        risen = max(each for _, each in memory[at:]) - size
        if risen <= FLAT * rate * left and left >= 2 * _longest_rest(memory[: at + 1], rate):
            return step
    return None


def explained(judgement: Judgement, workload: Workload, rounds: Sequence[Reports]) -> Judgement:
    """Return the judgement on growth with a reason, and INCONCLUSIVE instead of FAIL if the growth
    may end. rounds: of the candidate."""
    if not isinstance(judgement.rule, Ceiling) or judgement.verdict is not Verdict.FAIL:
        return judgement
    # Data of the user's own is named after its network.
    reason = _may_end(rounds, own_data=workload.dataset == workload.model)
    verdict = Verdict.INCONCLUSIVE if reason else Verdict.FAIL
    return replace(judgement, verdict=verdict, reason=reason)


def _may_end(rounds: Sequence[Reports], own_data: bool) -> str:
    """Return why the growth of memory may be that of a cache which is not yet full; "" if it is a
    leak. own_data: whether the user's own input pipeline was read, which may keep what it has
    read."""
    if _most(_slows_down, rounds):
        seen = "memory still grew at the end of the run, but more slowly"
    elif own_data and _most(_is_like_a_cache, rounds):
        seen = (
            "memory grew on all ranks alike with the samples that were read, and the run had not "
            "left a first pass over them behind"
        )
    else:
        return ""
    return f"{seen}: a cache may still be filling; run longer (runs.endurance_steps of a profile)"


def _most(is_so: Callable[[Reports], bool], rounds: Sequence[Reports]) -> bool:
    return 2 * sum(map(is_so, rounds)) > len(rounds)


def _slows_down(ranks: Reports) -> bool:
    """Return whether memory, on the rank where it grew most, grew steadily but slowed down: in the
    last third of the run, or in its last LATE_READINGS."""
    memory = max((rank.memory for rank in ranks), key=growth)
    if ended_at(memory, LATE_READINGS, share=0.0) is not None:
        return True
    last = memory[-1][0]
    second, third = (_rate(memory, at * last, (at + 1 / 3) * last) for at in (1 / 3, 2 / 3))
    rest = _longest_rest([each for each in memory if each[0] >= SETTLING_SHARE * last], third)
    return rest <= FLAT_SHARE * last and third <= SLOWER * second


def _is_like_a_cache(ranks: Reports) -> bool:
    """Return whether memory grew in proportion to the samples of a pass that no rank has left
    behind: from the beginning on, and on all ranks alike."""
    third = ranks[0].steps / 3
    early = [_rate(rank.memory, 0, third) for rank in ranks]
    late = [_rate(rank.memory, third, rank.steps) for rank in ranks]
    alike = min(late) >= max(late) / 2
    proportional = all(begun >= rate / 2 for begun, rate in zip(early, late, strict=True))
    return alike and proportional and not any(map(has_left_a_pass, ranks))


def has_left_a_pass(rank: RunReport) -> bool:
    """Return whether the run went on so long after a first pass over the user's own data that
    `ended_at` would have seen the end of a cache's growth."""
    pass_ = rank.samples_of_a_pass
    return pass_ is not None and pass_ <= (1 - FLAT_SHARE) * rank.samples


def _longest_rest(memory: Readings, rate: float) -> float:
    """Return the most steps in which the resident set rose at RESTING of a rate, or less. rate: in
    bytes a step."""
    return max(
        later - step
        for at, (step, size) in enumerate(memory)
        for later, grown in memory[at:]
        if grown - size <= RESTING * rate * (later - step)
    )


def _rate(memory: Readings, begin: float, end: float) -> float:
    """Return the bytes a step by which the resident set rose between two steps; 0.0 if there are
    less than two readings."""
    part = [each for each in memory if begin <= each[0] <= end]
    if len(part) < 2:
        return 0.0
    (first, base), (last, size) = part[0], part[-1]
    return (size - base) / (last - first)
