"""Attributes the time that a launch takes longer than another launch to terms and ranks.

Blocks divide every rank's step into the time between steps, the wait for its batch, and the rest.
Blocks of the same batch without exchange, if there are any, divide the rest into computing (with
applying) and the exchange, in which the ranks wait for each other. The ranks at fault are found by
the time that each rank spends outside of the exchange: if one rank is late, the others merely wait.
The names of terms are those of the time breakdown (hvdperf.plan.terms).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from hvdperf.json_records import Figures, Number
from hvdperf.judge import training_runs
from hvdperf.judge.ranks_apart import Group, group_apart, without
from hvdperf.judge.step_terms import OWN, Computing, Growth, computing_known, growth
from hvdperf.measure.records import Launch, Round
from hvdperf.plan.arms import BlockKind, Side
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.question import LaunchMode
from hvdperf.plan.terms import Term
from hvdperf.stats import Interval, hodges_lehmann, shift

# Growth below this share of a step, or of a phase of a start, is not attributed.
WORTH_A_NAME = 0.02
# Ranks are at fault if their own part is at least this share of the growth of the step. The share
# is below 1 because what slows a rank's computing slows its part in the exchange, too.
OWN_SHARE = 1 / 3
# A further cause is told from this share of the growth on.
ALSO_SHARE = 1 / 5
# Highest probability that a given rank is named by chance. That either of two ranks is named is
# twice as probable.
NAMED_BY_CHANCE = 0.025


@dataclass(frozen=True)
class Cause(Figures):
    """A term that takes longer, and whose it is.

    term: "" if it is not known. rank: the only rank at fault. ranks: several ranks at fault, but
    not all. Without either, all ranks take longer alike. host: the host whose ranks they all are;
    "" if they are not. share: the extra time / the time of the step, or of that phase of the start;
    for memory, the growth of ln(resident set). seconds: of the term, on these ranks; usual_seconds:
    on the reference; others_seconds: on the other ranks. step_seconds, usual_step_seconds: of the
    whole step (of wall time: of the whole training) on both sides. None where they are not known.
    """

    term: str = ""
    rank: int | None = None
    share: Number = 0.0
    ranks: tuple[int, ...] = ()
    host: str = ""
    seconds: float | None = None
    usual_seconds: float | None = None
    others_seconds: float | None = None
    step_seconds: float | None = None
    usual_step_seconds: float | None = None

    @property
    def at_fault(self) -> tuple[int, ...]:
        """The ranks at fault; () if all ranks take longer alike."""
        return self.ranks if self.rank is None else (self.rank,)

    @property
    def whose(self) -> str:
        """The ranks at fault, in words."""
        if not self.at_fault:
            return "all ranks"
        if self.host:
            return f"host {self.host} ({_listed(self.at_fault)})"
        return _listed(self.at_fault)

    def __str__(self) -> str:
        return f"{self.term} of {self.whose} (+{100 * self.share:.0f} %)"


@dataclass(frozen=True)
class Attribution(Cause):
    """The cause of a growth, the largest one if there are several. also: the other causes, the
    larger ones first."""

    also: tuple[Cause, ...] = ()

    def __str__(self) -> str:
        if not self.term:
            return "not attributed"
        return f"attributed to {'; also to '.join(map(str, self.causes))}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """All causes, the first of which is this one; () if none is known."""
        return (Cause(**_fields(self)), *self.also) if self.term else ()


def _fields(cause: Cause) -> dict[str, Any]:
    return {name: getattr(cause, name) for name in Cause.__dataclass_fields__}


def _listed(ranks: Sequence[int]) -> str:
    """Return ranks in words, such as `ranks 0, 2-3`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank{'s' * (len(ranks) > 1)} {words}"


def attribution_of(causes: Sequence[Cause]) -> Attribution:
    """Return causes as an attribution to the first of them, and then to the others."""
    if not causes:
        return Attribution()
    first, *others = causes
    return Attribution(**_fields(first), also=tuple(others))


def attributed(
    comparison: Comparison, rounds: Sequence[Round], hosts: Sequence[str] = ()
) -> Attribution:
    """Return the terms and ranks that make the candidate slower than the reference, another launch
    of the same arm; for memory, the ranks that grow most. hosts: of the ranks, if they are
    known."""
    pairs = [
        (measured.of(comparison.candidate.arm), measured.of(comparison.reference.arm))
        for measured in rounds
    ]
    if comparison.question.mode is LaunchMode.STARTUP:
        return attribute_start(comparison.question.spec.phase, pairs)
    if comparison.question.mode is LaunchMode.ENDURANCE:
        return attribute_memory([faulty for faulty, _ in pairs], hosts)
    return attribute_steps(pairs, comparison.candidate.kind, hosts)


def attribute_steps(
    pairs: Sequence[tuple[Launch, Launch]],
    kind: BlockKind = BlockKind.FULL,
    hosts: Sequence[str] = (),
) -> Attribution:
    """Return the attribution of steps in blocks of that kind. pairs: the slow launch and a usual
    one of the same arm, one pair per round."""
    if not pairs:
        return Attribution()
    ours, theirs = (Side(launch.arm, kind) for launch in pairs[0])
    return attribute_sides(ours, theirs, pairs, hosts)


def attribute_sides(
    ours: Side,
    theirs: Side,
    pairs: Sequence[tuple[Launch, Launch]],
    hosts: Sequence[str] = (),
    ideal: float = 1.0,
) -> Attribution:
    """Return the attribution of the steps of one side that take longer than those of the other.
    pairs: launches of both sides, one pair per round. ideal: seconds that a step should take for a
    second of the other side's."""
    known = computing_known(ours, theirs, pairs)
    rounds = [growth(ours, theirs, pair, known, ideal) for pair in pairs]
    rest = Term.EXCHANGE if known is Computing.BOTH_SIDES else Term.INSIDE
    found = causes_of(rounds, rest, hosts)
    if known is Computing.OF_RANKS:
        found = [
            replace(cause, usual_seconds=None) if cause.term == Term.COMPUTE else cause
            for cause in found
        ]
    return attribution_of(found)


def causes_of(rounds: Sequence[Growth], rest: Term, hosts: Sequence[str] = ()) -> list[Cause]:
    """Return the causes of a growth, the larger ones first. rest: name of what is left in the
    exchange.

    The growth of a rank's computing comes before that of the exchange, which it slows, too.
    """
    # The median over rounds, because a round alone is noisy.
    longer = median(each.whole for each in rounds)
    own = _of_groups(rounds, longer, hosts)
    first = [cause for cause in own if cause.share >= max(WORTH_A_NAME, OWN_SHARE * longer)]
    common = _of_all(rounds, rest)
    surely = [
        cause
        for cause in common
        if cause.share >= max(WORTH_A_NAME, ALSO_SHARE * longer)
        and _surely(_in_common(rounds, cause.term))
    ]
    if not first:
        largest = [cause for cause in common if cause.share >= WORTH_A_NAME][:1]
        others = [cause for cause in surely if cause not in largest]
        return largest + sorted([*others, *own], key=_size) if largest else []
    slowed = any(cause.term == Term.COMPUTE for cause in first)
    after = [cause for cause in surely if slowed and cause.term == rest]
    return sorted([*own, *(cause for cause in surely if cause not in after)], key=_size) + after


def _size(cause: Cause) -> float:
    return -cause.share


def _surely(values: Sequence[float]) -> bool:
    return hodges_lehmann(values, NAMED_BY_CHANCE).lower > 0.0


def _of_groups(rounds: Sequence[Growth], longer: float, hosts: Sequence[str]) -> list[Cause]:
    """Return the terms that grow on some ranks and not on the others. longer: the growth of the
    whole step."""
    totals = [[sum(terms.values()) for terms in each.own] for each in rounds]
    least = max(WORTH_A_NAME, ALSO_SHARE * longer)
    found = []
    for term in OWN:
        # Compare ranks within each round, because a change that they share there is the machine's.
        rows = [[terms[term] for terms in each.own] for each in rounds]
        group = group_apart(rows, hosts)
        if group is None:
            continue
        share = _mean_of(rows, group.ranks)
        # A rank that takes longer in one term, and less in another, keeps nobody waiting; and the
        # others may have become faster.
        if min(group.ahead, share, _mean_of(totals, group.ranks)) >= least:
            found.append(_cause(rounds, term, share, group))
    if found:
        return found
    group = group_apart(totals, hosts)
    least = max(WORTH_A_NAME, OWN_SHARE * longer)
    if group is None or min(group.ahead, _mean_of(totals, group.ranks)) < least:
        return []
    shares = {
        term: _mean_of([[terms[term] for terms in each.own] for each in rounds], group.ranks)
        for term in OWN
    }
    largest = max(shares, key=shares.__getitem__)
    return [_cause(rounds, largest, shares[largest], group)]


def _mean_of(rows: Sequence[Sequence[float]], ranks: Sequence[int]) -> float:
    """Return the mean of these ranks in a typical round."""
    return median(fmean(row[rank] for rank in ranks) for row in rows)


def _in_common(rounds: Sequence[Growth], term: str) -> list[float]:
    """Return the growth of a term that all ranks have in common, by round."""
    if term not in OWN:
        return [each.exchange for each in rounds]
    return [min(terms[Term(term)] for terms in each.own) for each in rounds]


def _of_all(rounds: Sequence[Growth], rest: Term) -> list[Cause]:
    """Return every term with the growth that all ranks have in common, the largest first."""
    shares = {
        term: min(
            median(each.own[rank][term] for each in rounds) for rank in range(len(rounds[0].own))
        )
        for term in OWN
    }
    shares[rest] = median(each.exchange for each in rounds)
    found = [_cause(rounds, term, share, None) for term, share in shares.items()]
    return sorted(found, key=_size)


def _cause(rounds: Sequence[Growth], term: Term, share: float, group: Group | None) -> Cause:
    """Return the growth of a term on a group of ranks, or on all of them, with its seconds in a
    typical round."""
    count = len(rounds[0].own)
    ranks = group.ranks if group is not None else tuple(range(count))
    others = without(ranks, count)
    return Cause(
        term,
        ranks[0] if group is not None and len(ranks) == 1 else None,
        share,
        ranks if group is not None and len(ranks) > 1 else (),
        group.host if group is not None else "",
        seconds=median(each.candidate.of(term, ranks) for each in rounds),
        usual_seconds=median(each.usual.of(term, ranks) for each in rounds),
        others_seconds=median(each.candidate.of(term, others) for each in rounds)
        if others
        else None,
        step_seconds=median(each.candidate.step for each in rounds),
        usual_step_seconds=median(each.usual.step for each in rounds),
    )


def _outweighs(ahead: float, own: float, longer: float) -> bool:
    """Return whether ranks' growth exceeds the others' so far that they are at fault. ahead: the
    excess. own: their own growth; without it, the others became faster. longer: the growth of the
    whole."""
    return min(ahead, own) >= max(WORTH_A_NAME, OWN_SHARE * longer)


def _apart(own: Sequence[float]) -> list[float]:
    """Return each rank's share minus the largest share of the other ranks."""
    return [
        share - max((other for at, other in enumerate(own) if at != rank), default=0.0)
        for rank, share in enumerate(own)
    ]


def attribute_start(phase: str, pairs: Sequence[tuple[Launch, Launch]]) -> Attribution:
    """Return the rank at fault for a phase of the start that takes longer. pairs: as in
    attribute_steps.

    A start has the machine to itself. Two starts of one round are thus as independent as any two,
    so the starts of each arm are a sample of their own. All ranks are named only if each takes
    longer with 97.5 % confidence.
    """
    if not pairs:
        return Attribution()
    ours, theirs = (
        [[math.log(rank[phase]) for rank in launch.startup_seconds] for launch in arm]
        for arm in zip(*pairs, strict=True)
    )
    grown = _shifts(ours, theirs, NAMED_BY_CHANCE)
    shares = [math.expm1(of_rank.estimate) for of_rank in grown]
    # Several ranks share the error rate of two (Bonferroni).
    alpha = NAMED_BY_CHANCE * 2 / max(2, len(shares))
    ahead = _shifts([_apart(own) for own in ours], [_apart(own) for own in theirs], alpha)
    rank = max(range(len(ahead)), key=lambda rank: ahead[rank].estimate)
    far = _outweighs(math.expm1(ahead[rank].estimate), shares[rank], max(shares))
    if len(shares) > 1 and far and ahead[rank].lower > 0.0:
        return Attribution(phase, rank, shares[rank])
    all_grown = all(of_rank.lower > 0.0 for of_rank in grown) and min(shares) >= WORTH_A_NAME
    return Attribution(phase, None, min(shares)) if all_grown else Attribution()


def _shifts(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], alpha: float
) -> list[Interval]:
    """Return the shift of each rank's values from the other arm's. ours, theirs: one row per
    launch."""
    columns = zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True)
    return [shift(own, usual, alpha) for own, usual in columns]


def attribute_memory(launches: Sequence[Launch], hosts: Sequence[str] = ()) -> Attribution:
    """Return the ranks whose resident set grows most, or all ranks. share: growth of its logarithm
    in 1,000 steps (training_runs.py)."""
    if not launches:
        return Attribution()
    rounds = [[training_runs.growth(rank.memory) for rank in launch.run] for launch in launches]
    # The median over rounds, because a round alone is noisy.
    shares = [median(of_rank) for of_rank in zip(*rounds, strict=True)]
    group = group_apart(rounds, hosts)
    if group is not None:
        share = fmean(shares[rank] for rank in group.ranks)
        if _outweighs(group.ahead, share, max(shares)) and share >= WORTH_A_NAME:
            alone = group.ranks[0] if len(group.ranks) == 1 else None
            several = group.ranks if alone is None else ()
            return Attribution(Term.MEMORY, alone, share, several, group.host)
    share = min(shares)
    return Attribution(Term.MEMORY, None, share) if share >= WORTH_A_NAME else Attribution()
