"""What limits a training, in a sentence, and what to try first; and whether ranks had the cores and
the memory that they needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

from hvdperf.explain.time_breakdown import standing_out
from hvdperf.plan.arms import Term
from hvdperf.plan.settings import Touches, settings_in
from hvdperf.records.outcome import listed
from hvdperf.script.checks import Limit
from hvdperf.script.recorded import Rank
from hvdperf.script.terms import OUTSIDE, OWN, Gpu, Parts, Stop, Tail

# A term that takes a smaller share of the time is not worth a change.
LEAST_SHARE = 0.10
# Other programs come first if they take so many times as much as the script's own fault.
_FAR = 2.0
# Terms that grow if ranks lack cores.
_EXCHANGES = (Term.EXCHANGE, Term.OTHER_EXCHANGE)
_WAITS = (Term.STRAGGLER, *_EXCHANGES)
# What is said of a term, with its share of the time, and what to do about it.
_KNOWN = {
    Term.INPUT: (
        "ranks wait for input for {}",
        "parallelize the input pipeline: map with num_parallel_calls (tf.data has as many threads "
        "as the rank has cores, or private_threadpool_size), interleave, prefetch; or cache, or "
        "use smaller files",
    ),
    Term.STRAGGLER: (
        "ranks wait for each other for {}, not always for the same one",
        "batches of equal work, such as samples of equal length; and stop other programs",
    ),
    Term.EXCHANGE: (
        "gradient allreduce that computation does not hide takes {}",
        "larger batches or backward_passes_per_step; hvd.Compression.fp16; and a faster link "
        "between hosts",
    ),
    Term.OTHER_EXCHANGE: (
        "collectives other than the gradient allreduce take {}",
        "broadcast before the first step only, and average metrics once per epoch",
    ),
    Term.OTHERS: (
        "functions other than the training step take {}",
        "call them less often if they evaluate; if they accumulate gradients over several batches, "
        "they are computation",
    ),
    Term.APPLY: (
        "the optimizer update takes {}",
        "larger batches; for a wide embedding, an optimizer that changes only rows with gradients, "
        "or fewer rows",
    ),
    Term.COLLECTING: (
        "Python's garbage collector takes {}",
        "call gc.freeze() before the first step, and gc.collect() less often",
    ),
    Term.BETWEEN: (
        "the script itself takes {}, between calls of the training step",
        "do less between steps: no .numpy() and no logging in every step, saving and evaluating "
        "less often or in the background, several steps per call, and input prefetched by tf.data",
    ),
}
# How to find out what is gained without a term.
_TRIALS = {
    Term.INPUT: "train on a single batch: dataset.take(1).cache().repeat()",
    **dict.fromkeys(_EXCHANGES, "run one rank, which has no allreduce"),
}
# Of what is not the script's.
_AGAIN = "remove that, and run the script again"
# Other programs disturb if they take so much of the cores, which are busy for so much of the time,
# and a rank waits for a core for so much of it: there may be room for all, or a rank may be waiting
# for something else.
LEAST_OTHERS, BUSY, LEAST_DELAY = 0.10, 0.85, 0.05
# A quota that stops ranks for a smaller share of the time does not matter.
_LEAST_WITHHELD = 0.01
# Pages that a rank waits for in a second, if its memory does not suffice.
_FAULTS = 50.0
# Settings that a training may need.
_NEEDED = {"TF_USE_LEGACY_KERAS", "KERAS_BACKEND", "HOROVOD_DYNAMIC_PROCESS_SETS"}


_share = attrgetter("share")


def limit_of(parts: Parts | None, wrong: Sequence[Limit], ranks: Sequence[Rank]) -> Limit:
    """Return what limits a training. A check that failed comes first: the speed of a training that
    does not do what it should means nothing."""
    if wrong:
        return wrong[0]
    if all(rank.steps is None for rank in ranks):
        return Limit("no training step was seen")
    if parts is None:
        return Limit("too few steps to tell", "run it for longer")
    found = [*_tail(parts, ranks), *_slower(parts), *_terms(parts, ranks)]
    groups = groups_of(ranks)
    others = [*_stop(parts.stop), *_cores(parts, groups)]
    others = [each for each in others if each.share >= LEAST_SHARE]
    disturbed = max(others, key=_share, default=None)
    if disturbed is not None:
        # What others do not cause is the script's own.
        sure = [each for each in found if not each.may_be_others]
        found = sure if max(map(_share, sure)) >= LEAST_SHARE else found
    own, computing = max(found, key=_share), _computing(parts, ranks)
    told = [computing] if computing.share > own.share or own.share < LEAST_SHARE else []
    told += [own] if own.share >= LEAST_SHARE else []
    if disturbed is not None:
        # The kernel has counted what a quota withholds.
        is_sure = any(group.withheld for group in groups) and disturbed.share > own.share
        if disturbed.share > max((1.0 if is_sure else _FAR) * own.share, computing.share):
            told = [disturbed, told[0 if parts.in_loop else -1]]
        else:
            is_before = own in told and (own.may_be_others or is_sure)
            told.insert(told.index(own) if is_before else 2, disturbed)
    # Computing is made faster by tf.function; else nothing else is as hard.
    tried = [each for each in told if each is not computing or parts.in_loop] or told
    first, *more = (each.told for each in told)
    also = "; and ".join(more)
    return replace(tried[0], told=f"{first}. Also, {also}" if also else first)


def _computing(parts: Parts, ranks: Sequence[Rank]) -> Limit:
    if parts.gpu is not None:
        return _on_gpu(parts, parts.gpu)
    term = max((Term.COMPUTE, Term.INSIDE), key=parts.share)
    name = "computation" if term is Term.COMPUTE else term.value
    # A function may read its input by itself.
    name += "" if parts.share(Term.INPUT) else ", including input, if any"
    told = f"{name}: {_percent(parts.share(term))} of the time"
    mend = "a faster device, mixed precision, or larger batches"
    if parts.in_loop:
        told += ", one operation at a time, because the step is not a tf.function"
        mend = "put the step into a tf.function"
    return Limit(told, _unset(ranks, Touches.ALL) + mend, share=parts.share(term))


def _unset(ranks: Sequence[Rank], touches: Touches) -> str:
    """Return the advice to unset what is set, if that touches computing (ALL) or the exchange."""
    found = [
        str(each)
        for each in settings_in(ranks[0].settings)
        if each.row.touches is touches
        and each.row.changes
        and each.name not in _NEEDED
        # What a launch of the suite overrides is where a rank runs, or its threads.
        and (touches is Touches.ALL or not each.row.overridden)
    ]
    return f"unset {' and '.join(found)}, unless it is needed; then " if found else ""


def _on_gpu(parts: Parts, gpu: Gpu) -> Limit:
    """Return the computing of a GPU that works while the script goes on."""
    if not gpu.may_wait:
        told = f"computation: the GPU is busy {_percent(1 - parts.idle)} of the time"
        mend = "a faster device, mixed precision, or larger batches"
    else:
        told = (
            f"the script takes {_percent(min(gpu.queued / parts.period, 1.0))} of the time to "
            "launch the operations of a step, one at a time, and the GPU may wait for them"
        )
        mend = (
            "larger batches; if a step then takes no longer, the GPU was waiting, and "
            "tf.function(jit_compile=True) helps, too"
        )
    return Limit(told, mend, share=1 - parts.idle)


def stop_told(stop: Stop) -> str:
    """Return for how long ranks did not run, and why."""
    whose, it = ("ranks", "they") if stop.rank is None else (f"rank {stop.rank}", "it")
    times = f", {stop.count} times" if stop.count > 1 else ""
    why = f"{it} had no core" if stop.is_starved else "the process or its machine was stopped"
    return f"{whose} did not run for {stop.seconds:.1f} s{times}: {why}"


def _stop(stop: Stop | None) -> Iterator[Limit]:
    if stop is None:
        return
    told = f"{stop_told(stop)} ({_percent(stop.share)} of the time)"
    mend = (
        "look for what stops it: a signal (SIGSTOP, Ctrl-Z), a scheduler that suspends jobs, a "
        "frozen container, or a virtual machine that is paused"
    )
    if stop.is_starved:
        mend = "stop the programs on its cores, or give it exclusive cores"
    # It may have stopped in what takes its time anyway.
    faster = _faster(0.9 * stop.share, stop.share)
    yield Limit(told, mend, faster, stop.share, _AGAIN)


def cores_told(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield what else uses the cores of ranks, and which ranks have fewer cores than they are."""
    return (told for group in groups_of(ranks) for told, _ in _lacks(group))


def _lacks(group: Group) -> Iterator[tuple[str, str]]:
    """Yield why ranks lack cores, each with what to do about it."""
    cores = f"{group.cores} cores" if group.cores > 1 else "single core"
    ranks = listed(group.ranks)
    if len(group.ranks) > group.cores:
        yield (
            f"{ranks} share the same {cores}",
            "give each rank its own core, by another binding (mpirun --bind-to, srun "
            "--cpus-per-task) or with fewer ranks on the host",
        )
    if group.others:
        yield (
            f"other processes use {_percent(group.others)} of the {cores} of {ranks}",
            "stop other programs (including data loaders of the script), or use other cores",
        )
    if group.withheld:
        yield (
            f"a CPU quota of {group.allowed:g} cores stopped {ranks} for "
            f"{group.withheld * group.seconds:.1f} of {group.seconds:.1f} s",
            "raise the CPU quota of the container or cgroup, or use fewer threads",
        )


def _may_lack_a_core(tail: Tail) -> bool:
    """Return whether slow steps may be those in which a rank waits for a core."""
    return tail.term not in OUTSIDE and not tail.retraced


def _cores(parts: Parts, groups: Sequence[Group]) -> Iterator[Limit]:
    worst = max(groups, key=lambda each: each.missing, default=None)
    if worst is None or not worst.missing:
        return
    # Ranks that take turns on a core wait for each other, and one of their steps is slow.
    waits = parts.share(Term.EXCHANGE)
    if parts.slower is None:
        waits += parts.share(Term.STRAGGLER)
    if parts.tail is not None and _may_lack_a_core(parts.tail):
        waits += parts.tail.share
    most = 1 - (1 - worst.missing) * (1 - min(waits, 1.0))
    told, mends = zip(*_lacks(worst), strict=True)
    # More is not lost than its threads had to wait, and not less than the main one had to.
    share = max(min(waits, worst.waited), worst.delayed)
    yield Limit("; ".join(told), "; and ".join(mends), _faster(0.0, most), share, _AGAIN)


def _tail(parts: Parts, ranks: Sequence[Rank]) -> Iterator[Limit]:
    tail = parts.tail
    if tail is None:
        return
    who = "the ranks do" if tail.rank is None else f"rank {tail.rank} or its node does"
    told, mend = f"{tail}", f"find out what {who} then"
    if tail.retraced:
        mend = (
            "pass tensors instead of Python numbers and batches of one shape, and drop a smaller "
            "last batch"
        )
    else:
        told += _where(tail.term, parts, ranks)
        mend = _KNOWN[tail.term][1] if tail.term in OUTSIDE else mend
    faster = _faster(tail.share / 2, tail.share)
    yield Limit(told, mend, faster, tail.share, may_be_others=_may_lack_a_core(tail))


def _where(term: Term, parts: Parts, ranks: Sequence[Rank]) -> str:
    """Return at which line of the script, in which function or in which operation of Horovod most
    of a term is spent; "" if that is unknown."""
    if term is Term.BETWEEN:
        places = Counter[str]()
        for rank in ranks:
            places.update(rank.places)
        return f", most often at {places.most_common(1)[0][0]}" if places else ""
    if term not in (Term.OTHERS, Term.OTHER_EXCHANGE):
        return ""
    of_horovod = term is Term.OTHER_EXCHANGE
    names = sorted(parts.others, key=lambda name: name.startswith("hvd.") is not of_horovod)
    return f", mostly `{names[0]}`" if names else ""


def _faster(low: float, high: float) -> tuple[float, float]:
    """Return how many times as fast a training is without these shares of its time."""
    low, high = (1 / (1 - min(max(share, 0.0), 0.99)) for share in sorted((low, high)))
    return low, high


def _slower(parts: Parts) -> Iterator[Limit]:
    slower = parts.slower
    if slower is None:
        return
    share = parts.share_of(slower.waited)
    others = [each.rank for each in parts.by_rank if each.rank != slower.rank]
    who, wait = ("the others", "wait") if others[1:] else (f"rank {others[0]}", "waits")
    told = (
        f"rank {slower.rank} takes {slower.times:.2f} times as long per step as {who}, excluding "
        f"waits (mostly {slower.term.value}); {who} {wait} {1000 * slower.waited:.2f} of "
        f"{1000 * parts.period:.2f} ms"
    )
    advice = {
        Term.COMPUTE: "check its node (hvdperf vet compares nodes) and its share of the batch",
        Term.INPUT: "check its files and its storage, and give all ranks the same number of "
        "samples; the others may read as slowly, hidden behind its input",
    }
    own_work = "look for work that only this rank does, such as saving checkpoints or logging"
    mend = advice.get(slower.term, own_work)
    own = next(each.own for each in parts.by_rank if each.rank == slower.rank)
    # Its excess may be gone, or be the others' part afterwards. Then the others still wait as ranks
    # do that are alike, or not even for an exchange that begins with ranks asleep.
    least = parts.share_of(own - fmean(each.own for each in parts.by_rank))
    if slower.term is Term.INPUT:
        least = 0.0
    most = share + parts.share(Term.EXCHANGE)
    share = parts.share_of(parts.period) if _is_one_starved(parts) else share
    yield Limit(told, mend, _faster(min(least, share), most), share)


def _is_one_starved(parts: Parts) -> bool:
    """Return whether the input of one rank sets the pace of all."""
    slower = parts.slower
    return parts.is_starved and slower is not None and slower.term is Term.INPUT


def _terms(parts: Parts, ranks: Sequence[Rank]) -> Iterator[Limit]:
    # Ranks also wait for each other because of what each of them does by itself.
    waits = parts.share(Term.STRAGGLER)
    exchange = _unset(ranks, Touches.EXCHANGE)
    for term, (told, mend) in _KNOWN.items():
        if term is Term.STRAGGLER and parts.slower is not None:
            continue
        share = parts.share(term)
        most = share + waits * (term in OWN)
        told = told.format(f"{_percent(share)} of the time") + _where(term, parts, ranks)
        told += _whose(parts, term)
        mend = exchange * (term in _EXCHANGES) + mend
        if term is Term.INPUT and parts.is_starved and not _is_one_starved(parts):
            # Everything else is hidden behind it.
            told += "; the producer sets the pace, so nothing else shortens a step"
            share = parts.share_of(parts.period)
        # Whoever set what slows the exchange is the cause of it.
        may_be_others = term in _WAITS and not exchange
        # While a GPU works, whatever the script does costs nothing.
        share, most = min(share, parts.idle), min(most, parts.idle)
        yield Limit(told, mend, _faster(0.0, most), share, _TRIALS.get(term, ""), may_be_others)


def _whose(parts: Parts, term: Term) -> str:
    """Return which rank alone does something by itself; "" if others do it, too."""
    rank = standing_out({each.rank: each.terms.get(term, 0.0) for each in parts.by_rank})
    return f", most of it on rank {rank}" if term in OWN and rank is not None else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# Cores and memory --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Ranks of a host that may use the same cores. busy: cores that were not idle, on average. own:
    those of them that the ranks used. delayed: the largest share of the time for which the main
    thread of one of them waited for a core. waited: the largest number of threads of one of them
    that waited for a core, on average. allowed: the cores of their CPU quota; 0 without one.
    withheld: the share of the time for which that quota stopped them. seconds: that this is of."""

    ranks: Sequence[int]
    cores: int
    busy: float
    own: float
    delayed: float
    waited: float
    allowed: float = 0.0
    withheld: float = 0.0
    seconds: float = 0.0

    @property
    def others(self) -> float:
        """Return the share of the cores that other processes use; 0 if that disturbs no rank."""
        share = (self.busy - self.own) / self.cores
        is_full = self.busy > BUSY * self.cores and self.delayed > LEAST_DELAY
        return share if is_full and share > LEAST_OTHERS else 0.0

    @property
    def missing(self) -> float:
        """Return the share of a core that a rank lacks, because of other processes, a quota, or
        other ranks."""
        left = (1 - self.others) * (1 - self.withheld)
        return 1 - left * min(self.cores / len(self.ranks), 1.0)


def groups_of(ranks: Sequence[Rank]) -> list[Group]:
    """Return the ranks by the cores that they may use; without those of which that is unknown."""
    found: dict[tuple[str, tuple[int, ...]], list[Rank]] = {}
    for rank in ranks:
        if rank.cores is not None:
            found.setdefault((rank.host, rank.cores.cores), []).append(rank)
    return [_group(cores, own) for (_, cores), own in found.items()]


def _group(cores: Sequence[int], ranks: Sequence[Rank]) -> Group:
    used = [rank.cores for rank in ranks if rank.cores is not None]
    busy = fmean(each.busy / each.seconds for each in used)
    own = sum(each.own / each.seconds for each in used)
    delayed = max((rank.cpu.delayed for rank in ranks if rank.cpu is not None), default=0.0)
    waited = max(each.waited / each.seconds for each in used)
    most = max(used, key=lambda each: each.withheld / each.seconds)
    # The kernel adds up the cores that it withholds, which are more than a rank may need at once.
    withheld = min(most.withheld / most.seconds, delayed)
    withheld = withheld if withheld > _LEAST_WITHHELD else 0.0
    quota = most.allowed, withheld, most.seconds
    return Group([rank.rank for rank in ranks], len(cores), busy, own, delayed, waited, *quota)


def faults_of(ranks: Sequence[Rank]) -> Mapping[int, float]:
    """Return the pages a second for which ranks waited, of those where that is worth telling."""
    known = {rank.rank: rank.cores for rank in ranks if rank.cores is not None}
    faults = {rank: cores.faults / cores.seconds for rank, cores in known.items()}
    return {rank: pages for rank, pages in faults.items() if pages > _FAULTS}
