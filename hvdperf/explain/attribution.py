"""Attributes the time that a launch takes longer than another launch to terms and ranks.

Blocks divide every rank's step into the time between steps, the wait for its batch, and the rest.
Blocks of the same batch without exchange, if there are any, divide the rest into computing (with
applying) and the exchange, in which the ranks wait for each other. The ranks at fault are found by
the time that each rank spends outside of the exchange: if one rank is late, the others merely wait.
The names of terms are those of the time breakdown (hvdperf.plan.terms).

The cause of a growth in words, and an attribution of several causes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from hvdperf.explain import training_runs
from hvdperf.explain.speedup import FIXED, divides_steps, steps_of_each, training
from hvdperf.explain.step_terms import (
    OWN,
    Computing,
    Group,
    Growth,
    computing_known,
    group_apart,
    growth,
    highest,
    host_of,
    without,
)
from hvdperf.plan.arms import BlockKind, Side
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.terms import START, Term
from hvdperf.records.outcome import Attribution, Cause, fields_of
from hvdperf.records.rounds import Launch
from hvdperf.stats import Interval, hodges_lehmann, shift


def attribution_of(causes: Sequence[Cause]) -> Attribution:
    """Return causes as an attribution to the first of them, and then to the others."""
    if not causes:
        return Attribution()
    first, *others = causes
    return Attribution(**fields_of(first), also=tuple(others))


def told(found: Attribution, reference: str) -> str:
    """Return the causes with their seconds, such as `all ranks, input wait: 344 of 369 ms per step
    (1 rank: 12.0 of 40.0)`. reference: what the figure compares with."""
    return "; ".join(_told(cause, reference) for cause in found.causes) or "not attributed"


def _told(cause: Cause, reference: str) -> str:
    if cause.seconds is None:
        return str(cause)
    of_step = cause.step_seconds is not None
    unit = 1000 if of_step else 1
    beside = []
    text = f"{cause.whose}, {cause.term}: {_number(unit * cause.seconds)}"
    if cause.step_seconds is not None:
        text += f" of {_number(unit * cause.step_seconds)} ms per step"
    else:
        text += " s"
    if cause.others_seconds is not None:
        beside.append(f"other ranks: {_number(unit * cause.others_seconds)}")
    if cause.usual_seconds is not None:
        usual = f"{reference}: {_number(unit * cause.usual_seconds)}"
        if cause.usual_step_seconds is not None:
            usual += f" of {_number(unit * cause.usual_step_seconds)}"
        beside.append(usual)
    if cause.at_fault and of_step and cause.term != Term.EXCHANGE:
        text += ", while the other ranks wait"
    return f"{text} ({'; '.join(beside)})" if beside else text


def _number(figure: float) -> str:
    """Return a figure with one digit after the point below 100, and none above."""
    return f"{figure:.0f}" if figure >= 99.95 else f"{max(0.0, figure):.1f}"


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
# Highest probability that a given rank is named by chance. That either of two ranks is named is
# twice as probable.
NAMED_BY_CHANCE = 0.025


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
    pairs = _with_local_blocks(pairs)
    known = computing_known(ours, theirs, pairs)
    rounds = [growth(ours, theirs, pair, known, ideal) for pair in pairs]
    if median(each.whole for each in rounds) <= 0.0:
        return Attribution()
    rest = Term.EXCHANGE if known is Computing.BOTH_SIDES else Term.INSIDE
    found = causes_of(rounds, rest, hosts)
    if known is Computing.OF_RANKS:
        found = [
            replace(cause, usual_seconds=None) if cause.term == Term.COMPUTE else cause
            for cause in found
        ]
    return attribution_of(found)


def _with_local_blocks(pairs: Sequence[tuple[Launch, Launch]]) -> Sequence[tuple[Launch, Launch]]:
    """Return the rounds whose candidate has blocks without exchange, if they are at least half of
    all rounds; else all rounds."""
    kept = [pair for pair in pairs if pair[0].of_kind(BlockKind.LOCAL)]
    return kept if 2 * len(kept) >= len(pairs) else pairs


def causes_of(rounds: Sequence[Growth], rest: Term, hosts: Sequence[str] = ()) -> list[Cause]:
    """Return the causes of a growth, the larger ones first. rest: name of what is left in the
    exchange.

    The growth of a rank's computing comes before that of the exchange, which it slows, too.
    """
    # The median over rounds, because a round alone is noisy.
    longer = median(each.whole for each in rounds)
    own = _of_groups(rounds, longer, hosts)
    first = [cause for cause in own if cause.share >= max(WORTH_A_NAME, OWN_SHARE * longer)]
    surely = [cause for cause in _of_all(rounds, rest) if _surely(_mean_growth(rounds, cause.term))]
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


def _surely(values: Sequence[float]) -> bool:
    return hodges_lehmann(values, NAMED_BY_CHANCE).lower > 0.0


def _of_groups(rounds: Sequence[Growth], longer: float, hosts: Sequence[str]) -> list[Cause]:
    """Return the terms that grow on some ranks and not on the others. longer: the growth of the
    whole step."""
    totals = [[sum(terms.values()) for terms in each.own] for each in rounds]
    least = max(WORTH_A_NAME, ALSO_SHARE * longer)
    found = []
    for term in rounds[0].own[0]:
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
        for term in rounds[0].own[0]
    }
    largest = max(shares, key=shares.__getitem__)
    return [_cause(rounds, largest, shares[largest], group)]


def _mean_of(rows: Sequence[Sequence[float]], ranks: Sequence[int]) -> float:
    """Return the mean of these ranks in a typical round."""
    return median(fmean(row[rank] for rank in ranks) for row in rows)


def _mean_growth(rounds: Sequence[Growth], term: str) -> list[float]:
    """Return the growth of a term of an average rank, by round."""
    if term not in OWN:
        return [each.exchange for each in rounds]
    return [fmean(terms[Term(term)] for terms in each.own) for each in rounds]


def _of_all(rounds: Sequence[Growth], rest: Term) -> list[Cause]:
    """Return every term with the growth that all ranks have in common, the largest first."""
    shares = {
        term: min(
            median(each.own[rank][term] for each in rounds) for rank in range(len(rounds[0].own))
        )
        for term in rounds[0].own[0]
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
        share=share,
        **_whose(group),
        seconds=median(each.candidate.of(term, ranks) for each in rounds),
        usual_seconds=median(each.usual.of(term, ranks) for each in rounds),
        others_seconds=median(each.candidate.of(term, others) for each in rounds)
        if others
        else None,
        step_seconds=median(each.candidate.step for each in rounds),
        usual_step_seconds=median(each.usual.step for each in rounds),
    )


def _whose(group: Group | None) -> dict[str, Any]:
    """Return the fields of a cause that name its ranks; {} for all of them."""
    if group is None:
        return {}
    one, several = (group.ranks, ()) if len(group.ranks) == 1 else ((None,), group.ranks)
    return {"rank": one[0], "ranks": several, "host": group.host}


def _outweighs(ahead: float, own: float, longer: float) -> bool:
    """Return whether ranks' growth exceeds the others' so far that they are at fault. ahead: the
    excess. own: their own growth; without it, the others became faster. longer: the growth of the
    whole."""
    return min(ahead, own) >= max(WORTH_A_NAME, OWN_SHARE * longer)


def _apart(own: Sequence[float], group: Sequence[int]) -> float:
    """Return the smallest share of these ranks minus the largest share of the others."""
    others = without(group, len(own))
    return min(own[rank] for rank in group) - max(own[rank] for rank in others)


def attribute_training(
    comparison: Comparison, pairs: Sequence[tuple[Launch, Launch]], hosts: Sequence[str] = ()
) -> Attribution:
    """Return the attribution of a training that takes longer than the reference's ideal part of it:
    to the terms of its steps, by the blocks after the run, and to its fixed cost. share: of the
    ideal time of the training. pairs: as in attribute_sides."""
    ours, theirs = comparison.sides
    times = [(training(a), training(b)) for a, b in pairs]
    steps = times[0][1].steps
    divides = divides_steps(comparison)
    parts = comparison.world_size if divides else 1
    taken = steps_of_each(steps, comparison.world_size) if divides else steps
    ideal = [reference.seconds(steps) / parts for _, reference in times]
    longer = median(
        own.seconds(taken) / usual - 1.0 for (own, _), usual in zip(times, ideal, strict=True)
    )
    found = []
    for cause in attribute_sides(ours, theirs, pairs, hosts).causes:
        of_training = taken * (cause.usual_step_seconds or 0.0) / median(ideal)
        found.append(replace(cause, share=cause.share * of_training))
    for phase in FIXED:
        rows = [
            [
                (rank[phase] - fmean(each[phase] for each in b.startup_seconds) / parts) / usual
                for rank in a.startup_seconds
            ]
            for (a, b), usual in zip(pairs, ideal, strict=True)
        ]
        found += _of_phase(
            phase, rows, [(a.startup_seconds, b.startup_seconds) for a, b in pairs], hosts
        )
    least = max(WORTH_A_NAME, ALSO_SHARE * longer)
    return attribution_of(sorted((each for each in found if each.share >= least), key=_size))


Starts = Sequence[Mapping[str, float]]


def _of_phase(
    phase: str,
    rows: Sequence[Sequence[float]],
    starts: Sequence[tuple[Starts, Starts]],
    hosts: Sequence[str],
) -> list[Cause]:
    """Return the growth of a phase of the start, as a cause of its own for some ranks or for all.
    rows: the growth by rank, one row a round. starts: seconds by phase and rank, of both sides."""
    group = group_apart(rows, hosts)
    count = len(rows[0])
    share = _mean_of(rows, group.ranks) if group is not None else 0.0
    if group is None or min(group.ahead, share) < WORTH_A_NAME:
        common = [min(row) for row in rows]
        group, share = None, median(common)
        if share < WORTH_A_NAME or not _surely(common):
            return []
    ranks = group.ranks if group is not None else tuple(range(count))
    others = without(ranks, count)
    return [
        Cause(
            phase,
            share=share,
            **_whose(group),
            seconds=_typical(phase, [ours for ours, _ in starts], ranks),
            usual_seconds=_typical(phase, [theirs for _, theirs in starts]),
            others_seconds=_typical(phase, [ours for ours, _ in starts], others)
            if others
            else None,
        )
    ]


def _typical(phase: str, starts: Sequence[Starts], ranks: Sequence[int] | None = None) -> float:
    """Return the seconds of a phase in a typical start: the mean of these ranks, or of all."""
    return median(
        fmean(start[rank][phase] for rank in (range(len(start)) if ranks is None else ranks))
        for start in starts
    )


def attribute_slow_start(
    phase: str, launches: Sequence[Launch], hosts: Sequence[str] = ()
) -> Attribution:
    """Return the ranks whose phase of the start takes longest, of launches without a reference. If
    no ranks stand out, return all ranks with a share of 0.

    In a phase in which ranks wait for each other, those are at fault that come to it last; then the
    term is the earlier phase that takes them longest. share: the extra time / the time of the other
    ranks.
    """
    starts = [launch.startup_seconds for launch in launches]
    everyone = tuple(range(len(starts[0])))
    slowest = median(max(rank[phase] for rank in start) for start in starts)
    if phase in MEETINGS:
        earlier = [each for each in BEFORE if each in starts[0][0]]
        earlier = earlier[: earlier.index(phase)] if phase in earlier else earlier
        rows = [[sum(rank[each] for each in earlier) for rank in start] for start in starts]
        group = group_apart(rows, hosts)
        if group is not None and group.ahead >= OWN_SHARE * slowest:
            others = without(group.ranks, len(everyone))
            late = {
                each: _typical(each, starts, group.ranks) - _typical(each, starts, others)
                for each in earlier
            }
            return _slow(max(late, key=late.__getitem__), starts, group)
    else:
        group = group_apart([[rank[phase] for rank in start] for start in starts], hosts)
        if group is not None and group.ahead >= SLOW_START * slowest:
            return _slow(phase, starts, group)
    return Attribution(phase, None, 0.0, seconds=_typical(phase, starts))


def _slow(phase: str, starts: Sequence[Starts], group: Group) -> Attribution:
    """Return the attribution of a start to a phase of these ranks."""
    others = _typical(phase, starts, without(group.ranks, len(starts[0])))
    seconds = _typical(phase, starts, group.ranks)
    return Attribution(
        phase,
        share=seconds / others - 1.0 if others > 0 else math.inf,
        **_whose(group),
        seconds=seconds,
        others_seconds=others,
    )


def attribute_start(
    phase: str, pairs: Sequence[tuple[Launch, Launch]], hosts: Sequence[str] = ()
) -> Attribution:
    """Return the ranks at fault for a phase of the start that takes longer. pairs, hosts: as in
    attribute_sides.

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
    group = highest([of_rank.estimate for of_rank in grown], hosts)
    if group:
        here, usual = ([_apart(own, group) for own in arm] for arm in (ours, theirs))
        ahead = shift(here, usual, alpha)
        share = fmean(shares[rank] for rank in group)
        if _outweighs(math.expm1(ahead.estimate), share, max(shares)) and ahead.lower > 0.0:
            own = Group(group, host_of(group, hosts), ahead.estimate)
            return Attribution(phase, share=share, **_whose(own))
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
            return Attribution(Term.MEMORY, share=share, **_whose(group))
    share = min(shares)
    return Attribution(Term.MEMORY, None, share) if share >= WORTH_A_NAME else Attribution()
