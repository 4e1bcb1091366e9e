"""Where the time of a step goes, by the stamps of all ranks.

A step of a rank lasts from the end of its call before to the end of its call. Its terms
(hvdperf.plan.arms), in their order:

- between steps: the script's own code, and apart from it
  - the garbage collector of Python,
  - other functions of TensorFlow, such as of a generator beside its discriminator, without
  - other exchanges: theirs, and those that the script asks for between steps, with waiting,
- input wait,
- compute: up to its last gradient,
- straggler wait: until the last rank has computed its last gradient,
- exposed communication: until all gradients are exchanged,
- apply: until the weights are changed and the call ends.

Every boundary is a stamp of its own, so the terms add up to the step; what does not, because stamps
of several ranks contradict each other, is the residual. Without stamps in the graph, compute and
what follows are one term, "compute or communication". A loop without tf.function computes between
its exchanges: a step lasts from one to the next, and begins with the update of the one before.

A rank that exchanges nothing does not wait for its GPU, which then works while the script goes on.
Its calls only queue, so single steps mean nothing: compute is what the other terms leave of the
mean step. How long the GPU needs is known from steps that began when it was idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import exp, inf
from statistics import correlation, fmean, median

from hvdperf.explain.time_breakdown import standing_out, straggler
from hvdperf.plan.arms import Term
from hvdperf.script.recorded import Rank, Row, Steps
from hvdperf.worker.script.tap._hvdperf_recorder import BIN, FIRST, OF_LOOP

# The terms of a step, in their order.
TERMS = (
    *(Term.BETWEEN, Term.COLLECTING, Term.OTHERS, Term.OTHER_EXCHANGE, Term.INPUT, Term.COMPUTE),
    *(Term.STRAGGLER, Term.EXCHANGE, Term.APPLY, Term.INSIDE),
)
# What a rank does by itself: if this takes longer on one rank, the others wait.
OWN = (
    *(Term.BETWEEN, Term.COLLECTING, Term.OTHERS, Term.INPUT, Term.COMPUTE),
    Term.APPLY,
)
# What it does before a call begins.
OUTSIDE = (Term.BETWEEN, Term.COLLECTING, Term.OTHERS, Term.INPUT)
# A step is slow if it takes so many times the median.
SLOW = 2.0
# A rank that waits for its input for this share of a step waits for whoever makes the batches.
_WAITS = 0.10
# The correlation of waiting and the step before below which the one makes up for the other.
_HIDDEN = -0.3
# Clocks are written to a microsecond.
_ROUNDED = 5e-6
# A share of the steps that is more than an exception.
_SOME = 0.05
# Of a step that begins with an idle GPU, the share that queuing takes if the GPU may wait for it. A
# script that is faster than its GPU waits, too, once some 1,000 operations are queued.
_QUEUING = 0.5


@dataclass(frozen=True)
class OfRank:
    """The mean seconds of a step of one rank by term, and what is left. period: of the steps that
    were kept."""

    rank: int
    terms: Mapping[Term, float]
    period: float

    @property
    def own(self) -> float:
        """Return the seconds of what it does by itself."""
        return sum(self.terms.get(term, 0.0) for term in OWN)

    @property
    def residual(self) -> float:
        return self.period - sum(self.terms.values())


@dataclass(frozen=True)
class Slower:
    """A rank that keeps the others waiting. last: the share of the steps in which it is the last.
    times: how many times as long its own time is as the median of the others'. term: in which it is
    longest. waited: seconds of a step that the other ranks wait, on average."""

    rank: int
    last: float
    times: float
    term: Term
    waited: float


@dataclass(frozen=True)
class SlowStep:
    """A slow step. number: of its call. at: seconds since the end of the rank's first call.
    seconds: on that rank. retraced: whether the function was traced in it. beyond: what took more
    than is usual, in seconds by rank and term; waiting for another rank does not count."""

    number: int
    at: float
    seconds: float
    retraced: bool
    beyond: Mapping[tuple[int, Term], float]

    @property
    def cause(self) -> tuple[int, Term]:
        """Return the rank and the term that took most."""
        return max(self.beyond, key=self.beyond.__getitem__)

    def alone(self, term: Term) -> int | None:
        """Return the rank that alone took more than usual in a term; None if others did, too."""
        # Evaluating takes time in several of these.
        alike = OUTSIDE if term in OUTSIDE else (term,)
        more = dict.fromkeys((at for at, _ in self.beyond), 0.0)
        for (at, each), seconds in self.beyond.items():
            more[at] += seconds if each in alike else 0.0
        return standing_out(more)


@dataclass(frozen=True)
class Tail:
    """Steps that take more than SLOW times the median, of the rank that lost most time in them.
    count, of: how many, and of how many steps. share: of its time, what they took beyond the
    median. retraced: whether most of that was lost in steps in which the function was traced. term:
    in which most was lost. rank: the one that did alone; None if others did, too, or there are
    none. longest: the share of the time that the slowest step alone took beyond the median. steps:
    those of which all is known, in their order."""

    count: int
    of: int
    share: float
    retraced: bool
    rank: int | None
    term: Term
    longest: float
    steps: Sequence[SlowStep]

    def __str__(self) -> str:
        many = f"{self.count} slow steps" if self.count > 1 else "one slow step"
        # A pause is not what the other slow steps are.
        is_one = self.count > 1 and 2 * self.longest > self.share
        alone = f" ({100 * self.longest:.0f} % by the longest alone)" if is_one else ""
        who = f" on rank {self.rank}" if self.rank is not None else ""
        mostly = "retracing the function" if self.retraced else f"{self.term.value}{who}"
        share = f"{100 * self.share:.0f} % of the time{alone}"
        return f"{many} of {self.of}: {share}, mostly {mostly}"


@dataclass(frozen=True)
class Stop:
    """The pauses of the rank that did not run for longest. rank: None if others were stopped for at
    least half as long. count: number of pauses. seconds: of all of them. share: of its time.
    is_starved: whether it had no core; else it was stopped."""

    rank: int | None
    count: int
    seconds: float
    share: float
    is_starved: bool


@dataclass(frozen=True)
class Gpu:
    """A step of a GPU that works while the script goes on, in seconds: queued by the script, and
    done, if the GPU is idle when it begins."""

    queued: float
    done: float

    @property
    def may_wait(self) -> bool:
        """Return whether the GPU may do what is queued at once, and wait for more."""
        return self.queued > _QUEUING * self.done


@dataclass(frozen=True)
class Parts:
    """Where the time of a training goes. by_rank: of usual steps, in the order of ranks. steps:
    number of usual steps that all ranks kept. slower: None if no rank is. tail: the other steps;
    None if there are none. stop: a rank that did not run for a while; the steps in which it did not
    are neither usual nor in the tail. rarely: whether the ranks exchange in some of the steps only,
    after several backward passes. gpu: of the slowest rank; None if each step waits for its GPU.
    is_starved: whether the producer of the batches sets the pace, so that nothing else makes steps
    shorter. others: seconds of a usual step by other function, the longest first. in_loop: whether
    the training step is not a function."""

    by_rank: Sequence[OfRank]
    steps: int
    slower: Slower | None
    tail: Tail | None
    stop: Stop | None = None
    rarely: bool = False
    gpu: Gpu | None = None
    is_starved: bool = False
    others: Mapping[str, float] = field(default_factory=dict)
    in_loop: bool = False

    @property
    def has_stamps(self) -> bool:
        return any(Term.COMPUTE in each.terms for each in self.by_rank)

    @property
    def shown(self) -> Sequence[Term]:
        """Return the terms that take any time in a usual step, to a microsecond."""
        return [
            term
            for term in TERMS
            if any(each.terms.get(term, 0.0) > _ROUNDED for each in self.by_rank)
        ]

    @property
    def period(self) -> float:
        return fmean(each.period for each in self.by_rank)

    @property
    def idle(self) -> float:
        """Return the share of the time for which a GPU has nothing to do, since what the script
        does costs no more; 1 if each step waits for its GPU."""
        return 1 - min(self.gpu.done / self.period, 1.0) if self.gpu is not None else 1.0

    def share(self, term: Term) -> float:
        """Return the share of the time that a term takes in usual steps, on average over ranks."""
        return self.share_of(fmean(each.terms.get(term, 0.0) for each in self.by_rank))

    def share_of(self, seconds: float) -> float:
        """Return the share of the time that so many seconds of each usual step are."""
        beyond = [each.share for each in (self.tail, self.stop) if each is not None]
        return max(1 - sum(beyond), 0.0) * seconds / self.period


def parts_of(ranks: Sequence[Rank]) -> Parts | None:
    """Return where the time goes; None if too few steps are known for that. A step that
    is slow on a rank belongs to the tail, since one pause of seconds would be most of a mean."""
    trained = [rank.steps for rank in ranks if rank.steps is not None and rank.steps.summed]
    # Without a step that began with an idle GPU, what costs time is not told from what does not.
    if len(trained) < len(ranks) or any(steps.alone == () for steps in trained):
        return None
    rows = [{row.number: row for row in each.rows if row.number > FIRST} for each in trained]
    paused = paused_steps(ranks)
    slow = [_slow(steps, paused) for steps in trained]
    common = [
        number
        for number in sorted(set.intersection(*map(set, rows)) - paused)
        if all(row[number].period <= each.above for row, each in zip(rows, slow, strict=True))
    ]
    if not common:
        return None
    offsets = _offsets(ranks, rows, common)
    table: list[list[Mapping[Term, float]]] = [[] for _ in ranks]
    rarely = all(_exchanges_rarely(list(row.values())) for row in rows)
    last: dict[int, Mapping[Term, float]] = {}
    by_itself = len(ranks) == ranks[0].size == 1
    for number in common:
        step = [_shifted(row[number], by) for row, by in zip(rows, offsets, strict=True)]
        is_alone = by_itself or (rarely and not any(row.done for row in step))
        for own, terms in zip(table, _terms_of(step, len(ranks)), strict=True):
            if is_alone and Term.COMPUTE not in terms:
                # Nothing was exchanged in this step.
                terms[Term.COMPUTE] = terms.pop(Term.INSIDE)
            own.append(terms)
        last[number] = min((own[-1] for own in table), key=_readiness)
    by_rank = [
        OfRank(
            rank.rank,
            {
                term: fmean(each.get(term, 0.0) for each in own)
                for term in TERMS
                if any(term in each for each in own)
            },
            fmean(row[number].period for number in common),
        )
        for rank, own, row in zip(ranks, table, rows, strict=True)
    ]
    behind = [each for each in trained if not each.are_told_apart]
    if behind:
        by_rank = [_of_mean_step(*each) for each in zip(by_rank, trained, strict=True)]
    return Parts(
        by_rank,
        len(common),
        _slower(by_rank, table),
        _tail(ranks, by_rank, slow, paused),
        stop_of(ranks),
        rarely,
        max(map(_gpu, behind), key=lambda each: each.done, default=None),
        _is_starved(last),
        _others(ranks),
        trained[0].name == OF_LOOP,
    )


def paused_steps(ranks: Sequence[Rank]) -> Set[int]:
    """Return the numbers of steps in which a rank did not run for a while."""
    return {
        row.number
        for rank in ranks
        for stop in rank.stops
        for row in (rank.steps.kept.values() if rank.steps is not None else ())
        if row.before < stop.end and stop.begin < row.end
    }


def stop_of(ranks: Sequence[Rank]) -> Stop | None:
    """Return the longest stop of a rank; None if all ran all the time."""
    stopped = {rank.rank: sum(each.seconds for each in rank.stops) for rank in ranks}
    worst = max(ranks, key=lambda rank: stopped[rank.rank], default=None)
    if worst is None or worst.steps is None or not (worst.steps.sums and stopped[worst.rank]):
        return None
    seconds = stopped[worst.rank]
    starved = sum(each.seconds for each in worst.stops if each.is_starved)
    share = min(seconds / worst.steps.sums, 1.0)
    alone = standing_out(stopped) if len(ranks) > 1 else worst.rank
    return Stop(alone, len(worst.stops), seconds, share, 2 * starved > seconds)


def _is_starved(last: Mapping[int, Mapping[Term, float]]) -> bool:
    """Return whether most steps wait for input, and wait for less of it after a longer step: the
    producer goes on meanwhile. last: by step, the terms of the rank that was ready last."""
    waits = {number: terms[Term.INPUT] for number, terms in last.items()}
    rest = {number: sum(terms.values()) - waits[number] for number, terms in last.items()}
    many = sum(waits[number] > _WAITS * (waits[number] + rest[number]) for number in last)
    pairs = [(rest[number], waits[number + 1]) for number in last if number + 1 in last]
    if 2 * many <= len(last) or any(len(set(each)) < 2 for each in zip(*pairs, strict=True)):
        return False
    return bool(pairs) and correlation(*zip(*pairs, strict=True)) < _HIDDEN


def _readiness(terms: Mapping[Term, float]) -> float:
    """Return for how long a rank has waited for the others: 0 or less for the last one."""
    return terms.get(Term.STRAGGLER, -terms[Term.INPUT])


def _others(ranks: Sequence[Rank]) -> dict[str, float]:
    """Return the seconds of a step that functions take besides the training step, by name."""
    found: dict[str, float] = {}
    for rank in ranks:
        for each in rank.series:
            calls = [row.end - row.begin for row in each.rows if row.number > FIRST]
            if rank.steps not in (None, each) and each.name != OF_LOOP and calls:
                seconds = fmean(calls) * each.count / rank.steps.count
                found[each.name] = found.get(each.name, 0.0) + seconds / len(ranks)
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _of_mean_step(usual: OfRank, steps: Steps) -> OfRank:
    """Return the terms of a rank's mean step, of which its calls take what is left."""
    assert steps.period is not None
    term = Term.COMPUTE if Term.COMPUTE in usual.terms else Term.INSIDE
    # Whatever waits for the GPU, such as reading a loss, waits for its computing.
    terms = dict(usual.terms)
    terms.pop(Term.OTHERS, None)
    terms[term] = terms[term] + max(steps.period - sum(terms.values()), -terms[term])
    return OfRank(usual.rank, terms, steps.period)


def _gpu(steps: Steps) -> Gpu:
    assert steps.alone is not None
    queued, done = zip(*steps.alone, strict=True)
    return Gpu(median(queued), median(done))


def _offsets(
    ranks: Sequence[Rank], rows: Sequence[Mapping[int, Row]], common: Sequence[int]
) -> list[float]:
    """Return how far each rank's clock is ahead of the first rank's, in seconds. An exchange ends
    on all ranks at nearly the same time; hosts that are the first rank's have its clock."""

    def offset(rank: Rank, own: Mapping[int, Row]) -> float:
        both = ((own[number].done, rows[0][number].done) for number in common)
        apart = [end - first for end, first in both if end and first]
        return median(apart) if apart and rank.host != ranks[0].host else 0.0

    return [offset(*each) for each in zip(ranks, rows, strict=True)]


def _shifted(row: Row, by: float) -> Row:
    """Return a step by a clock that is so many seconds ahead."""
    if not by:  # the usual case: all ranks on one host
        return row
    moments = {name: getattr(row, name) for name in ("before", "begin", "end", "ready", "done")}
    return row._replace(**{name: at and at - by for name, at in moments.items()})


def _terms_of(step: Sequence[Row], ranks: int) -> list[dict[Term, float]]:
    """Return the seconds of a step by term, of each rank that kept it. ranks: how many there
    are."""
    # When the last rank had its last gradient; 0 if that is unknown.
    is_known = len(step) == ranks and all(row.done for row in step)
    ready = max(row.ready for row in step) if is_known else 0.0
    earlier = min(row.earlier for row in step)
    return [_terms(row, ready, earlier) for row in step]


def _terms(row: Row, ready: float, earlier: float) -> dict[Term, float]:
    """Return the seconds of a step of a rank by term. ready: when the last rank had its last
    gradient; 0 if that is unknown. earlier: the least seconds of a rank for the exchanges before
    the last one; who takes longer has waited."""
    outside = row.input_outside + row.elsewhere + row.applied + row.collected
    found = {Term.BETWEEN: row.begin - row.before - outside, Term.INPUT: row.input}
    apart = {
        Term.COLLECTING: row.collected,
        Term.OTHERS: row.elsewhere - row.exchanged,
        Term.OTHER_EXCHANGE: row.exchanged,
        Term.APPLY: row.applied,
    }
    found |= {term: seconds for term, seconds in apart.items() if abs(seconds) > _ROUNDED}
    if not ready:
        found[Term.INSIDE] = row.end - row.begin - row.input_within
        return found
    found[Term.COMPUTE] = row.ready - row.begin - row.input_within - row.earlier
    # A rank that has all gradients of the others before the last one's stamp has not waited.
    met = min(ready, row.done)
    found[Term.STRAGGLER] = met - row.ready + row.earlier - earlier
    found[Term.EXCHANGE] = row.done - met + earlier
    found[Term.APPLY] = row.end - row.done + row.applied
    return found


def _slower(
    by_rank: Sequence[OfRank], table: Sequence[Sequence[Mapping[Term, float]]]
) -> Slower | None:
    """Return the rank that keeps the others waiting, by the rule for the runs of a session; None if
    there is none, or if there are no stamps. table: of each rank, the terms of each step."""
    steps = [step for step in zip(*table, strict=True) if Term.STRAGGLER in step[0]]
    if not steps:
        return None
    waited = [[step[at][Term.STRAGGLER] for step in steps] for at in range(len(table))]
    found = straggler(waited, fmean(each.period for each in by_rank))
    if found is None:
        return None
    slow = by_rank[found.rank]
    others = [each for each in by_rank if each is not slow]

    def excess(term: Term) -> float:
        return slow.terms.get(term, 0.0) - median(each.terms.get(term, 0.0) for each in others)

    return Slower(
        slow.rank,
        found.share,
        slow.own / median(each.own for each in others),
        max(OWN, key=excess),
        fmean(each.terms[Term.STRAGGLER] for each in others),
    )


@dataclass(frozen=True)
class _Slow:
    """The slow steps of a rank. above: seconds. count: how many. share: of the rank's time, what
    they took beyond the median."""

    above: float
    count: int
    share: float


def _exchanges_rarely(rows: Sequence[Row]) -> bool:
    """Return whether gradients are exchanged in some of the steps only, time and again."""
    with_exchange = sum(1 for row in rows if row.done)
    return min(with_exchange, len(rows) - with_exchange) > _SOME * len(rows)


def _slow(steps: Steps, paused: Set[int]) -> _Slow:
    """Return the slow steps of a rank, without those in which a rank did not run. A step that
    exchanges what several have computed may take longer than these."""
    if not steps.are_told_apart:
        return _Slow(inf, 0, 0.0)
    usual = steps.percentile(0.5)
    if _exchanges_rarely(steps.rows):
        usual = max(usual, median(row.period for row in steps.rows if row.done))
    above = SLOW * usual
    seconds = [(exp(place * BIN), count) for place, count in steps.bins]
    beyond = [(each - usual, count) for each, count in seconds if each > above]
    apart = [each.row.period for each in steps.slowest if each.row.number in paused]
    beyond += [(usual - period, -1) for period in apart if period > above]
    count = max(sum(number for _, number in beyond), 0)
    lost = sum(each * abs(number) for each, number in beyond) if count else 0.0
    return _Slow(above, count, max(lost, 0.0) / steps.sums)


def _tail(
    ranks: Sequence[Rank], by_rank: Sequence[OfRank], slow: Sequence[_Slow], paused: Set[int]
) -> Tail | None:
    """Return the slow steps of the rank that lost most time in them; None if there are none."""
    rank, worst = max(zip(ranks, slow, strict=True), key=lambda each: each[1].share)
    assert rank.steps is not None
    slowest = sorted(rank.steps.slowest, key=lambda each: each.row.number)
    steps = [
        SlowStep(
            each.row.number,
            each.row.before - rank.steps.rows[0].end,
            each.row.period,
            each.retraced,
            _beyond(each.row.number, ranks, by_rank),
        )
        for each in slowest
        if each.row.period > worst.above and each.row.number not in paused
    ]
    if not worst.count or not steps:
        return None
    usual = worst.above / SLOW
    all_beyond = Counter[tuple[int, Term]]()
    for step in steps:
        all_beyond.update(step.beyond)
    at, term = max(all_beyond, key=all_beyond.__getitem__)
    by_itself = sum(step.alone(term) == at for step in steps)
    return Tail(
        worst.count,
        rank.steps.summed,
        worst.share,
        sum((step.seconds - usual) * (1 if step.retraced else -1) for step in steps) > 0,
        at if 2 * by_itself > len(steps) else None,
        term,
        (max(step.seconds for step in steps) - usual) / rank.steps.sums,
        steps,
    )


def _beyond(
    number: int, ranks: Sequence[Rank], by_rank: Sequence[OfRank]
) -> dict[tuple[int, Term], float]:
    """Return by rank and term the seconds beyond what is usual in a step, of ranks that kept it."""
    kept = {
        at: rank.steps.kept[number]
        for at, rank in enumerate(ranks)
        if rank.steps is not None and number in rank.steps.kept
    }
    return {
        (ranks[at].rank, term): seconds - by_rank[at].terms.get(term, 0.0)
        for at, terms in zip(kept, _terms_of([*kept.values()], len(ranks)), strict=True)
        for term, seconds in terms.items()
        if term is not Term.STRAGGLER
    }
