"""Attributes the time that a launch takes longer than another launch to terms and ranks.

Blocks divide every rank's step into the time between steps, the wait for its batch, and the rest.
Blocks of the same batch without exchange, if there are any, divide the rest into computing (with
applying) and the exchange, in which the ranks wait for each other. The ranks at fault are found by
the time that each rank spends outside of the exchange: if one rank is late, the others merely wait.
The names of terms are those of the time breakdown (hvdperf.plan.arms).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from hvdperf.explain import steps, training_runs
from hvdperf.explain.speedup import (
    FIXED,
    parts_of,
    steps_of_each,
    steps_of_run,
    training_seconds,
)
from hvdperf.explain.steps import NAMED_BY_CHANCE, Group, Growth, Rows
from hvdperf.plan.arms import START, BlockKind, Side, Term
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Attribution, Cause, fields_of
from hvdperf.records.rounds import Launch, Pair
from hvdperf.stats import hodges_lehmann

# Host of each rank; () if they are not known.
Hosts = Sequence[str]


def attribution_of(causes: Sequence[Cause]) -> Attribution:
    """Return causes as an attribution to the first of them, and then to the others."""
    if not causes:
        return Attribution()
    first, *others = causes
    return Attribution(**fields_of(first, Cause), also=tuple(others))


# Growth below this share of a step, or of a phase of a start, is not attributed.
WORTH_A_NAME = 0.02
# Ranks are at fault if their own part is at least this share of the growth of the step. The share
# is below 1 because what slows a rank's computing slows its part in the exchange, too.
OWN_SHARE = 1 / 3
# A further cause is told from this share of the growth on.
ALSO_SHARE = 1 / 5
# Without a reference, a rank is slow to start if this share of the phase is its own.
SLOW_START = 0.1
# The phases of a start in their order, and those in which the ranks wait for each other.
BEFORE = tuple(term.value for term in START)
MEETINGS = (Term.INIT.value, Term.BROADCAST.value)


def attribute_sides(
    ours: Side, theirs: Side, pairs: Sequence[Pair], hosts: Hosts = (), ideal: float = 1.0
) -> Attribution:
    """Return the attribution of the steps of one side that take longer than those of the other.
    pairs: one a round. ideal: seconds that a step should take for a second of the other side's."""
    return attribution_of(causes_of(_growth(ours, theirs, pairs, ideal), hosts))


def _growth(ours: Side, theirs: Side, pairs: Sequence[Pair], ideal: float = 1.0) -> list[Growth]:
    """Return the growth of the terms of a step by round. As in attribute_sides."""
    pairs = _with_local_blocks(pairs)
    known = steps.computing_known(ours, theirs, pairs)
    return [
        steps.grown(steps.terms_of(own, ours, known), steps.terms_of(usual, theirs, known), ideal)
        for own, usual in pairs
    ]


def _with_local_blocks(pairs: Sequence[Pair]) -> Sequence[Pair]:
    """Return the rounds whose candidate has blocks without exchange, if they are at least half of
    all rounds; else all rounds."""
    kept = [pair for pair in pairs if pair[0].of_kind(BlockKind.LOCAL)]
    return kept if 2 * len(kept) >= len(pairs) else pairs


def causes_of(rounds: Sequence[Growth], hosts: Hosts = ()) -> list[Cause]:
    """Return the causes of a growth, the larger ones first.

    The growth of a rank's computing comes before that of the exchange, which it slows, too.
    """
    # The median over rounds, because a round alone is noisy.
    longer = median(each.whole for each in rounds)
    if longer <= 0.0:
        return []
    rows = {
        term: [[rank[term] for rank in each.ranks] for each in rounds]
        for term in rounds[0].ranks[0]
    }
    *own_terms, rest = rows
    own = _of_groups({term: rows[term] for term in own_terms}, longer, hosts)
    first = [cause for cause in own if cause.share >= max(WORTH_A_NAME, OWN_SHARE * longer)]
    in_common = (_cause(term, _in_common(of_term)) for term, of_term in rows.items())
    surely = sorted(in_common, key=_size)
    least = max(WORTH_A_NAME, ALSO_SHARE * longer)
    if not first:
        # The largest one explains more than any of the ranks' own, however little it is.
        largest = [cause for cause in surely if cause.share >= WORTH_A_NAME][:1]
        others = [cause for cause in surely if cause.share >= least and cause not in largest]
        return largest + sorted([*others, *own], key=_size) if largest else []
    common = [cause for cause in surely if cause.share >= least]
    slowed = any(cause.term == Term.COMPUTE for cause in first)
    after = [cause for cause in common if slowed and cause.term == rest]
    return sorted([*own, *(cause for cause in common if cause not in after)], key=_size) + after


def _size(cause: Cause) -> float:
    return -cause.share


def _of_groups(rows: Mapping[Term, Rows], longer: float, hosts: Hosts) -> list[Cause]:
    """Return the terms that grow on some ranks and not on the others. rows: by the ranks' own
    terms, one a round: a change that ranks share there is the machine's. longer: the growth of the
    whole step."""
    totals = [
        [*map(sum, zip(*of_round, strict=True))] for of_round in zip(*rows.values(), strict=True)
    ]
    least = max(WORTH_A_NAME, ALSO_SHARE * longer)
    found = []
    for term, of_term in rows.items():
        group = steps.group_apart(of_term, hosts)
        if group is None:
            continue
        share = _mean_of(of_term, group.ranks)
        # A rank that takes longer in one term, and less in another, keeps nobody waiting; and the
        # others may have become faster.
        if min(group.ahead, share, _mean_of(totals, group.ranks)) >= least:
            found.append(_cause(term, share, group))
    if found:
        return found
    group = steps.group_apart(totals, hosts)
    if group is None or not _outweighs(group.ahead, _mean_of(totals, group.ranks), longer):
        return []
    shares = {term: _mean_of(of_term, group.ranks) for term, of_term in rows.items()}
    largest = max(shares, key=shares.__getitem__)
    return [_cause(largest, shares[largest], group)]


def _mean_of(rows: Rows, ranks: Sequence[int]) -> float:
    """Return the mean of these ranks in a typical round."""
    return median(fmean(row[rank] for rank in ranks) for row in rows)


def _cause(term: str, share: float, group: Group | None = None) -> Cause:
    """Return the cause of a group of ranks, or of all ranks."""
    if group is None:
        return Cause(term, share=share)
    if len(group.ranks) == 1:
        return Cause(term, share=share, rank=group.ranks[0], host=group.host)
    return Cause(term, share=share, ranks=group.ranks, host=group.host)


def _outweighs(ahead: float, own: float, longer: float) -> bool:
    """Return whether ranks' growth exceeds the others' so far that they are at fault. ahead: the
    excess. own: their own growth; without it, the others became faster. longer: the growth of the
    whole."""
    return min(ahead, own) >= max(WORTH_A_NAME, OWN_SHARE * longer)


def _whose(term: str, rows: Rows, hosts: Hosts, longer: float = 0.0) -> list[Cause]:
    """Return the cause of a term's growth: that of some ranks which is their own, or else that
    which all ranks have in common; [] if neither is worth a name. rows: the growth by rank, one row
    a round. longer: the growth of the whole."""
    group = steps.group_apart(rows, hosts) if rows else None
    if group is not None:
        share = _mean_of(rows, group.ranks)
        if _outweighs(group.ahead, share, longer):
            return [_cause(term, share, group)]
    share = _in_common(rows)
    return [_cause(term, share)] if share >= WORTH_A_NAME else []


def _in_common(rows: Rows) -> float:
    """Return the growth that all ranks have in common; 0.0 if it may be chance."""
    if not rows or not hodges_lehmann([fmean(row) for row in rows], NAMED_BY_CHANCE).lower > 0.0:
        return 0.0
    medians: list[float] = [median(of_rank) for of_rank in zip(*rows, strict=True)]
    return min(medians)


def attribute_training(
    comparison: Comparison, pairs: Sequence[Pair], hosts: Hosts = ()
) -> Attribution:
    """Return the attribution of a training that takes longer than the reference's ideal part of it:
    to the terms of its steps, by the blocks after the run, and to its fixed cost. share: of the
    ideal time of the training. pairs: as in attribute_sides."""
    ours, theirs = comparison.sides
    length = steps_of_run(pairs[0][1])
    parts = parts_of(comparison)
    taken = steps_of_each(length, parts)
    ideal = [training_seconds(reference, length) / parts for _, reference in pairs]
    longer = median(
        training_seconds(own, taken) / usual - 1.0
        for (own, _), usual in zip(pairs, ideal, strict=True)
    )
    rounds = _growth(ours, theirs, pairs)
    of_training = taken * median(each.usual_step for each in rounds) / median(ideal)
    found = [replace(cause, share=cause.share * of_training) for cause in causes_of(rounds, hosts)]
    starts, others = (
        [launch.startup_seconds for launch in arm] for arm in zip(*pairs, strict=True)
    )
    for phase in FIXED:
        usual = [fmean(rank[phase] for rank in start) / parts for start in others]
        rows = [
            [(rank[phase] - before) / whole for rank in start]
            for start, before, whole in zip(starts, usual, ideal, strict=True)
        ]
        found += _whose(phase, rows, hosts)
    least = max(WORTH_A_NAME, ALSO_SHARE * longer)
    return attribution_of(sorted((each for each in found if each.share >= least), key=_size))


def attribute_slow_start(phase: str, launches: Sequence[Launch], hosts: Hosts = ()) -> Attribution:
    """Return the ranks whose phase of the start takes longest, of launches without a reference. If
    no ranks stand out, return all ranks with a share of 0.

    In a phase in which ranks wait for each other, those are at fault that come to it last; then the
    term is the earlier phase that takes them longest. share: the extra time / the time of the other
    ranks.
    """
    starts = [launch.startup_seconds for launch in launches]
    slowest = median(max(rank[phase] for rank in start) for start in starts)
    earlier: Sequence[str] = (phase,)
    least = SLOW_START
    if phase in MEETINGS:
        earlier, least = BEFORE[: BEFORE.index(phase)], OWN_SHARE
    earlier = [each for each in earlier if each in starts[0][0]]
    rows = [[sum(rank[each] for each in earlier) for rank in start] for start in starts]
    group = steps.group_apart(rows, hosts)
    if group is None or group.ahead < least * slowest:
        return attribution_of([_cause(phase, 0.0)])
    others = steps.without(group.ranks, len(rows[0]))

    def seconds(each: str, ranks: Sequence[int]) -> float:
        return median(fmean(start[rank][each] for rank in ranks) for start in starts)

    own, usual, late = max(
        ((seconds(each, group.ranks), seconds(each, others), each) for each in earlier),
        key=lambda found: found[0] - found[1],
    )
    return attribution_of([_cause(late, own / usual - 1.0 if usual else math.inf, group)])


def attribute_start(phase: str, pairs: Sequence[Pair], hosts: Hosts = ()) -> Attribution:
    """Return the ranks at fault for a phase of the start that takes longer. pairs, hosts: as in
    attribute_sides."""
    starts = [[launch.startup_seconds for launch in pair] for pair in pairs]
    rows = [
        [own[phase] / usual[phase] - 1 for own, usual in zip(*both, strict=True)] for both in starts
    ]
    return _of_growth(phase, rows, hosts)


def attribute_memory(launches: Sequence[Launch], hosts: Hosts = ()) -> Attribution:
    """Return the ranks whose resident set grows most, or all ranks. share: growth of its logarithm
    in 1,000 steps (training_runs.py)."""
    rows = [[training_runs.growth(rank.memory) for rank in launch.run] for launch in launches]
    return _of_growth(Term.MEMORY, rows, hosts)


def _of_growth(term: str, rows: Rows, hosts: Hosts) -> Attribution:
    """Return the ranks at fault for the growth of a term. rows: as in _whose."""
    longer = max(map(median, zip(*rows, strict=True)), default=0.0)
    return attribution_of(_whose(term, rows, hosts, longer))
