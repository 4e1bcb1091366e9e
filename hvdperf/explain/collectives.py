"""Collective operations compared, through Horovod and through bare MPI, and the physical
bounds of a step.

Plain arithmetic on what was measured. No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from hvdperf.plan.arms import BlockKind, Collective, Transfer
from hvdperf.records.rounds import Launch, Series, back_to_back
from hvdperf.stats import hodges_lehmann

# A step may seem faster than possible by this share, because its parts are measured one after the
# other. By chance it seems faster still at one look in forty.
FASTER_BY_NOISE = 0.05
ALPHA_FASTER = 0.025


def paired(
    horovod: Iterable[Series], bare: Iterable[Series], collective: Collective | None
) -> dict[Transfer, list[tuple[Series, Series]]]:
    """Return, for each transfer by that operation, the pairs of series from the same turn. Smaller
    transfers come first."""
    other = {(series.transfer, series.turn): series for series in bare}
    found: dict[Transfer, list[tuple[Series, Series]]] = {}
    for series in sorted(horovod, key=lambda series: sum(series.transfer.tensor_bytes)):
        partner = other.get((series.transfer, series.turn))
        if series.transfer.collective is collective and partner and partner.repeats:
            found.setdefault(series.transfer, []).append((series, partner))
    return found


def collective_overhead(
    horovod: Iterable[Series], bare: Iterable[Series], collective: Collective | None
) -> float:
    """Return the time through Horovod over the time through bare MPI.

    It is the median over the turns of a transfer, and the geometric mean over several transfers.
    Raises ValueError if there is no pair.
    """
    logs = [
        math.log(median(ours.seconds / theirs.seconds for ours, theirs in pairs))
        for pairs in paired(horovod, bare, collective).values()
    ]
    if not logs:
        raise ValueError("no collective operation was measured through both transports")
    return math.exp(sum(logs) / len(logs))


class StepTimes(NamedTuple):
    """The step times of one turn, in seconds a step.

    full: a step with everything. local: a step without exchange. exchange: the time of the bare
    transport for the step's gradients in one buffer. A step can hide all of the shorter part behind
    the longer part, or nothing: `full` lies between max(local, exchange) and local + exchange
    (docs/figures.md, Bounds).
    """

    full: float
    local: float
    exchange: float

    @property
    def of_nothing_hidden(self) -> float:
        """Step time over that of a step that computes, then exchanges: at most 1 by physics."""
        return self.full / (self.local + self.exchange)

    @property
    def of_all_hidden(self) -> float:
        """Step time over the shortest possible step time: at least 1 by physics."""
        return self.full / max(self.local, self.exchange)


def invalid_reasons(arm: str, processes: int, series: Sequence[Series]) -> list[str]:
    """Return why the series of a launch are invalid, one text per reason: a missing transport, a
    missing rank, wrong numbers, times that are not positive and finite."""
    found = []
    for each in series:
        where = f"{arm}, {each.transfer.collective.value} of {each.size_bytes} bytes"
        if len(each.ranks) != processes:
            found.append(f"{where}: {len(each.ranks)} of {processes} ranks reported")
        for number, rank in enumerate(each.ranks):
            if rank.problem:
                found.append(f"{where}: rank {number}: {rank.problem}")
            elif not rank.seconds or not all(0 < each < math.inf for each in rank.seconds):
                found.append(
                    f"{where}: rank {number} reported a time that is not positive and finite"
                )
        if len({len(rank.seconds) for rank in each.ranks}) > 1:
            found.append(f"{where}: the ranks repeated it different numbers of times")
    return found


def library_mismatch(horovod: Iterable[Series], bare: Iterable[Series]) -> str:
    """Return an error message if Horovod and bare MPI used different MPI libraries.
    Return "" if not, or if one library is unknown."""
    ours, theirs = (
        {rank.library for each in series for rank in each.ranks} for series in (horovod, bare)
    )
    if ours == theirs or not ours or not theirs:
        return ""
    names = [" and ".join(sorted(map(str, libraries))) for libraries in (ours, theirs)]
    return (
        f"Horovod uses {names[0]}, but mpi4py uses {names[1]}: install an mpi4py that is built "
        "for Horovod's MPI"
    )


def step_times(horovod: Launch, bare: Launch) -> list[StepTimes]:
    """Return the step times of every turn in which a step was timed with its exchange and without
    it, and the exchange alone through bare MPI."""
    exchange = {series.turn: series.seconds for series in bare.series if series.repeats}
    return [
        StepTimes(full.seconds / full.steps, local.seconds / local.steps, exchange[full.turn])
        for full, local in back_to_back(*map(horovod.of_kind, (BlockKind.FULL, BlockKind.LOCAL)))
        if full.turn in exchange
    ]


def too_fast(arm: str, launches: Sequence[Sequence[StepTimes]]) -> str:
    """Return an error message if steps take less time than one of their parts alone, else "".

    launches: the turns of each launch. Steps are too fast if even the upper bound of step time /
    time without exchange, or of step time / time of the exchange alone, over the launches is below
    1 by more than noise. Each part is compared by itself, because the longer one of two noisy times
    is longer than either usually is. A step that omits so little of its computing that the exchange
    hides it (10 to 30 %, say) is not found.
    """
    found = []
    for part in ("local", "exchange"):
        observed = [
            median(math.log(turn.full / getattr(turn, part)) for turn in turns)
            for turns in launches
            if turns
        ]
        if observed:
            share = hodges_lehmann(observed, ALPHA_FASTER)
            if share.upper < math.log(1 - FASTER_BY_NOISE):
                found.append(share.estimate)
    if not found:
        return ""
    return (
        f"{arm}: a step takes only {math.exp(min(found)):.3f} times as long as the longer "
        "of its parts (computation, exchange) measured alone: the step omits work, or its time "
        "is wrong"
    )
