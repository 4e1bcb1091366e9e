"""What limits a training, in a sentence, and what to try first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from hvdperf.plan.terms import Term
from hvdperf.script.checks import Problem
from hvdperf.script.cores import Group, Stop
from hvdperf.script.terms import Gpu, Parts, Tail

# A term that takes a smaller share of the time is not worth a change.
LEAST_SHARE = 0.10
# Of more ranks only the number is told.
_NAMED = 4


@dataclass(frozen=True)
class Limit:
    """What limits. told: in a sentence. mend: what to try first; "" if nothing is known. faster:
    how many times as fast the training is then, from and to; None if that cannot be said."""

    told: str
    mend: str = ""
    faster: tuple[float, float] | None = None


def limit_of(parts: Parts | None, wrong: Sequence[Problem], *, trains: bool) -> Limit:
    """Return what limits a training. A check that failed comes first: the speed of a training that
    does not do what it should means nothing. trains: whether a training step was seen."""
    if wrong:
        return Limit(wrong[0].what, wrong[0].mend)
    if not trains:
        return Limit("no training step was seen")
    if parts is None:
        return Limit("too few steps to say what limits it", "let it run for longer")
    if parts.gpu is not None and parts.stop is None:
        return _of_gpu(parts, parts.gpu)
    own = [*_tail(parts), *_slower(parts), *_terms(parts)]
    others = [*_stop(parts.stop), *_cores(parts)]
    share, limit = max([*others, *own], key=lambda each: each[0])
    term = max((Term.COMPUTE, Term.INSIDE), key=parts.share)
    computing = parts.share(term)
    if share >= computing:
        if not any(limit is each for _, each in others):
            return limit
        # What the training does by itself remains to be told.
        tail = [] if _may_lack_a_core(parts.tail) else _tail(parts)
        most, besides = max([*tail, *_slower(parts), *_terms(parts)], key=lambda each: each[0])
        if most < LEAST_SHARE:
            return limit
        return Limit(f"{limit.told}. Besides, {besides.told}", limit.mend, limit.faster)
    name = "computation" if term is Term.COMPUTE else term.value
    # A function may read its input by itself.
    name += "" if parts.share(Term.INPUT) else ", with input, if any"
    told = f"{name}: {_percent(computing)} of the time"
    if share >= LEAST_SHARE:
        return Limit(f"{told}. Besides, {limit.told}", limit.mend, limit.faster)
    return Limit(told, "a faster device, mixed precision, or larger batches")


def _of_gpu(parts: Parts, gpu: Gpu) -> Limit:
    """Return what limits a training whose GPU works while the script goes on: what the script does
    costs no more than the time in which the GPU has nothing to do."""
    works = min(gpu.done / parts.period, 1.0)
    told = f"computation: the GPU works for {_percent(works)} of the time"
    mend = "a faster device, mixed precision, or larger batches"
    if gpu.may_wait:
        queuing = min(gpu.queued / parts.period, 1.0)
        told = (
            f"the script takes {_percent(queuing)} of the time to start the operations of a step, "
            "one by one, and the GPU may wait for them"
        )
        mend = (
            "larger batches; if a step then takes no longer, the GPU did wait, and "
            "tf.function(jit_compile=True) helps, too"
        )
    share, limit = max(_terms(parts), key=lambda each: each[0])
    share = min(share, 1 - works)
    if share < LEAST_SHARE:
        return Limit(told, mend)
    faster = _faster(0.0, share)
    if share >= works:
        return Limit(limit.told, limit.mend, faster)
    return Limit(f"{told}. Besides, {limit.told}", limit.mend, faster)


# A share of the time, and what limits if it does.
_Found = tuple[float, Limit]


def stop_told(stop: Stop) -> str:
    """Return for how long a rank did not run, and why."""
    times = f", {stop.count} times" if stop.count > 1 else ""
    why = "it had no core" if stop.is_starved else "it was stopped, or its machine was"
    return f"rank {stop.rank} did not run for {stop.seconds:.1f} s{times}: {why}"


def _stop(stop: Stop | None) -> Iterator[_Found]:
    if stop is None:
        return
    told = f"{stop_told(stop)}; that is {_percent(stop.share)} of the time"
    mend = (
        "look for what stops it: a signal (SIGSTOP, Ctrl-Z), a scheduler that suspends jobs, a "
        "frozen container, or a virtual machine that is paused"
    )
    if stop.is_starved:
        mend = "end the programs on its cores, or give it cores of its own"
    # It may have stopped in what takes its time anyway.
    yield stop.share, Limit(told, mend, _faster(0.9 * stop.share, stop.share))


def cores_told(groups: Sequence[Group]) -> Iterator[str]:
    """Yield what else uses the cores of ranks, and which ranks have fewer cores than they are."""
    for group in groups:
        cores = f"{group.cores} cores" if group.cores > 1 else "single core"
        ranks = _ranks(group.ranks)
        if len(group.ranks) > group.cores:
            yield f"{ranks} share the same {cores}"
        if group.others:
            yield f"other processes use {_percent(group.others)} of the {cores} of {ranks}"


def _ranks(numbers: Sequence[int]) -> str:
    if len(numbers) > _NAMED:
        return f"{len(numbers)} ranks"
    return f"{'ranks' if len(numbers) > 1 else 'rank'} {' and '.join(map(str, numbers))}"


def _may_lack_a_core(tail: Tail | None) -> bool:
    """Return whether slow steps may be those in which a rank waits for a core."""
    own = (Term.BETWEEN, Term.INPUT)
    return tail is not None and tail.term not in own and not tail.retraced


def _cores(parts: Parts) -> Iterator[_Found]:
    worst = max(parts.groups, key=lambda each: each.missing, default=None)
    if worst is None or not worst.missing:
        return
    # Ranks that take turns on a core wait for each other, and one of their steps is slow.
    waits = parts.share(Term.EXCHANGE)
    if parts.slower is None:
        waits += parts.share(Term.STRAGGLER)
    if parts.tail is not None and _may_lack_a_core(parts.tail):
        waits += parts.tail.share
    most = 1 - (1 - worst.missing) * (1 - min(waits, 1.0))
    told = "; ".join(cores_told([worst]))
    mends = []
    if worst.others:
        mends.append("end other programs (loaders of the script count as such), or use other cores")
    if len(worst.ranks) > worst.cores:
        mends.append(
            "give each rank a core of its own, by another binding (mpirun --bind-to, srun "
            "--cpus-per-task) or fewer ranks on the host"
        )
    mend = "; and ".join(mends)
    # More is not lost than its threads had to wait, and not less than the main one had to.
    share = max(min(waits, worst.waited), worst.delayed)
    yield share, Limit(told, mend, _faster(0.0, most))


def _tail(parts: Parts) -> Iterator[_Found]:
    tail = parts.tail
    if tail is None:
        return
    many = f"{tail.count} slow steps" if tail.count > 1 else "one slow step"
    told = f"{many} of {tail.of}: {share_told(tail)}, mostly {tail.term.value} on rank {tail.rank}"
    mends = {
        Term.BETWEEN: "what it does there, such as saving, evaluating or logging, can be done less "
        "often or in the background",
        Term.INPUT: "cache the data set, read ahead, and keep the begin of an epoch short",
    }
    if parts.has_stamps:
        mends[Term.INSIDE] = "what other functions do there, such as evaluating, can be rarer"
    mend = mends.get(tail.term, f"look at what rank {tail.rank} or its node does then")
    if tail.retraced:
        told = f"{many} of {tail.of}, in which the function is traced again: {share_told(tail)}"
        mend = (
            "give it tensors instead of Python numbers and batches of one shape, and drop a last "
            "batch that is smaller"
        )
    yield tail.share, Limit(told, mend, _faster(tail.share / 2, tail.share))


def share_told(tail: Tail) -> str:
    """Return the share of the time that slow steps take, and that of the longest if it is most of
    it: a pause is not what the other slow steps are."""
    is_one = tail.count > 1 and 2 * tail.longest > tail.share
    alone = f" ({_percent(tail.longest)} by the longest alone)" if is_one else ""
    return f"{_percent(tail.share)} of the time{alone}"


def _faster(low: float, high: float) -> tuple[float, float]:
    """Return how many times as fast a training is without these shares of its time."""
    low, high = (1 / (1 - min(max(share, 0.0), 0.99)) for share in sorted((low, high)))
    return low, high


def _slower(parts: Parts) -> Iterator[_Found]:
    slower = parts.slower
    if slower is None:
        return
    share = parts.share_of(slower.waited)
    told = (
        f"rank {slower.rank} takes {slower.times:.2f} times as long as the others for its own part "
        f"of a step, mostly in {slower.term.value}; they wait for it for {_percent(share)} of "
        "the time"
    )
    mends = {
        Term.COMPUTE: "look at its node and its share of the batch: hvdperf vet compares nodes",
        Term.INPUT: "look at its files and its storage, and give every rank as many samples; "
        "others may read as slowly, while they wait for it",
        Term.BETWEEN: "look at what only this rank does, such as saving or logging",
    }
    own = next(each.own for each in parts.by_rank if each.rank == slower.rank)
    # Its excess may be gone, or be the others' part afterwards. Then the others still wait as ranks
    # do that are alike, or not even for an exchange that begins with ranks asleep.
    least = parts.share_of(own - fmean(each.own for each in parts.by_rank))
    if slower.term is Term.INPUT:
        least = 0.0
    most = share + parts.share(Term.EXCHANGE)
    yield share, Limit(told, mends[slower.term], _faster(min(least, share), most))


def _terms(parts: Parts) -> Iterator[_Found]:
    # Ranks also wait for each other because of what each of them does now and then.
    waits = 0.0 if parts.slower is not None else parts.share(Term.STRAGGLER)
    share = parts.share(Term.INPUT)
    mend = (
        "read with several threads: map with num_parallel_calls (tf.data has as many threads as "
        "the rank has cores, or private_threadpool_size), interleave, prefetch; cache, or smaller "
        "files"
    )
    told = f"ranks wait for input for {_percent(share)} of the time"
    # tf.data reads ahead by itself, so without more threads or cores nothing is gained.
    yield share, Limit(told, mend, _faster(0.0, share + waits))

    if parts.slower is None:
        share = parts.share(Term.STRAGGLER)
        told = (
            f"ranks wait for each other for {_percent(share)} of the time, now one and now another"
        )
        mend = "batches of equal work, such as samples of equal length; and end other programs"
        yield share, Limit(told, mend, _faster(0.0, share))

    share = parts.share(Term.EXCHANGE)
    mend = (
        "larger batches or backward_passes_per_step; hvd.Compression.fp16; and a faster link "
        "between hosts"
    )
    told = f"the exchange of gradients takes {_percent(share)} of the time beyond the computation"
    yield share, Limit(told, mend, _faster(0.0, share))

    share = parts.share(Term.BETWEEN)
    mend = "do less between steps: no .numpy() and no logging in each, several steps in a call"
    told = f"the script itself takes {_percent(share)} of the time, between the calls"
    if not parts.share(Term.INPUT):
        # It may make its batches by itself.
        mend = f"read input ahead by tf.data; and {mend}"
    yield share, Limit(told, mend, _faster(0.0, share + waits))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
