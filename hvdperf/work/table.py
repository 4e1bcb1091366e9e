"""The kinds of work by name, and what a round says of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hvdperf.plan.arms import Arm, BlockKind, Transfer
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Round
from hvdperf.work import blocks, collectives, training
from hvdperf.work.base import Work

# Every class of these modules that has a name.
WORKS: Mapping[str, type[Work]] = {
    work.name: work
    for module in (blocks, collectives, training)
    for work in vars(module).values()
    if isinstance(work, type) and issubclass(work, Work) and hasattr(work, "name")
}


def work_of(question: Question) -> type[Work]:
    """Return the work that answers a question."""
    return WORKS[question.spec.work]


def cause_of(
    comparison: Comparison, rounds: Sequence[Round], hosts: Sequence[str] = ()
) -> Attribution | None:
    """Return what makes the candidate slower, as Work.cause does; None if no cause can be told."""
    pairs = [
        (measured.of(comparison.candidate.arm), measured.of(comparison.reference.arm))
        for measured in rounds
    ]
    return work_of(comparison.question).cause(comparison, pairs, hosts) if pairs else None


def attributed(
    comparison: Comparison, rounds: Sequence[Round], hosts: Sequence[str] = ()
) -> Attribution:
    """Return the cause of a slower candidate, which is empty if none can be told."""
    return cause_of(comparison, rounds, hosts) or Attribution()


def kinds_of(
    comparisons: Iterable[Comparison], judged: Callable[[Comparison], bool]
) -> dict[Arm, set[BlockKind]]:
    """Return the kinds of blocks that a round of these comparisons takes of each arm. judged:
    whether a comparison is compared with a threshold."""
    kinds: dict[Arm, set[BlockKind]] = {}
    for comparison in comparisons:
        wanted = work_of(comparison.question).kinds(comparison, judged(comparison))
        for arm, own in wanted.items():
            kinds.setdefault(arm, set()).update(own)
    return kinds


def transfers_of(comparisons: Iterable[Comparison]) -> dict[Arm, list[Transfer]]:
    """Return the transfers of each arm in a turn, each once."""
    wanted: dict[Arm, dict[Transfer, None]] = {}
    for comparison in comparisons:
        transfers = dict.fromkeys(work_of(comparison.question).transfers(comparison))
        for arm in comparison.arms if transfers else ():
            wanted.setdefault(arm, {}).update(transfers)
    return {arm: list(transfers) for arm, transfers in wanted.items()}
