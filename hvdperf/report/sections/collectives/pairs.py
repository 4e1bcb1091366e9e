"""Times of Horovod and of bare MPI in the same turn, and the columns for these times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hvdperf.explain.collectives import paired
from hvdperf.plan.arms import SWEEP, Collective, busbw
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Case
from hvdperf.report.content import Column, Value
from hvdperf.report.numbers import quantiles
from hvdperf.report.words import Labels

QUARTILES = (0.25, 0.5, 0.75)
OVERHEAD = (
    Column("overhead", "time of Horovod / bare", "", 3),
    Column("overhead_low", "time ratio, 25 %", "", 3),
    Column("overhead_high", "time ratio, 75 %", "", 3),
    Column("turns", "turns"),
)
SIDES = {"horovod": "Horovod", "bare": "bare"}


def _width(side: str, name: str) -> tuple[Column, ...]:
    return (
        Column(side, name, "GB/s", 3),
        Column(f"{side}_low", f"{name}, 25 %", "GB/s", 3),
        Column(f"{side}_high", f"{name}, 75 %", "GB/s", 3),
    )


WIDTHS = tuple(column for side in SIDES.items() for column in _width(*side))
WHOSE = (
    Column("network", "network"),
    Column("model", "name", hidden=True),
    Column("world_size", "replicas", hidden=True),
    Column("bytes", "gradients", "B"),
    Column("tensors", "tensors"),
)


@dataclass(frozen=True)
class Pair:
    """One turn of an operation with its size. horovod, bare: seconds through Horovod and bare."""

    size_bytes: int
    tensors: int
    horovod: float
    bare: float

    @property
    def overhead(self) -> float:
        return self.horovod / self.bare


def collective_of(case: Case) -> Collective:
    """Return the operation of the case; for a bound of a step, the one that exchanges gradients."""
    return case.comparison.collective or Collective.ALLREDUCE


def pairs_of(case: Case) -> list[Pair]:
    """Return the turns in which both sides have a time, by round and size."""
    found = []
    for measured in case.rounds:
        horovod, bare = (measured.of(arm).series for arm in case.comparison.arms)
        for both in paired(horovod, bare, collective_of(case)).values():
            found += [
                Pair(ours.size_bytes, ours.ranks[0].tensors, ours.seconds, theirs.seconds)
                for ours, theirs in both
                if ours.repeats
            ]
    return found


def widths(case: Case, group: Sequence[Pair]) -> dict[str, Value]:
    """Return median and quartiles of the bus bandwidth of both sides, in GB/s; None for a
    collective that moves no data. Bandwidth falls as time rises."""
    collective, n = collective_of(case), case.world_size
    return {
        key: value
        for side in SIDES
        for key, value in _spread(
            side,
            [busbw(collective, n, pair.size_bytes, getattr(pair, side)) for pair in group],
        ).items()
    }


def overheads(group: Sequence[Pair]) -> dict[str, Value]:
    return {**_spread("overhead", [pair.overhead for pair in group]), "turns": len(group)}


def _spread(key: str, values: Sequence[float]) -> dict[str, Value]:
    """Return median and quartiles; None for a value of 0, which a logarithmic axis cannot show."""
    low, middle, high = (cut if cut > 0 else None for cut in quantiles(values, QUARTILES))
    return {key: middle, f"{key}_low": low, f"{key}_high": high}


def is_of_gradients(case: Case) -> bool:
    alone = case.question is Question.COLLECTIVE_OVERHEAD and case.workload != SWEEP
    return alone or case.question is Question.OVERLAP


def whose(case: Case, labels: Labels) -> dict[str, Value]:
    model = labels[case.workload]
    return {
        "network": f"{model}, np {case.world_size}",
        "model": model,
        "world_size": case.world_size,
    }
