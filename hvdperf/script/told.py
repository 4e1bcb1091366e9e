"""What a training did, in lines for the terminal: what limits it first, then why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from hvdperf.columns import Columns, wrapped
from hvdperf.plan.terms import Term
from hvdperf.script.checks import Problem, problems
from hvdperf.script.limits import Limit, limit_of
from hvdperf.script.recorded import Rank
from hvdperf.script.terms import SLOW, TERMS, OfRank, Parts, parts_of, percentile

PERCENTILES = (0.5, 0.9, 0.99)
# Ranks that have a row of their own; of more, the fastest and the slowest have one.
MOST_ROWS = 8
# A rank that waits for a core for a larger share of the time is disturbed.
LEAST_DELAY = 0.05
_MS = 1000.0


@dataclass(frozen=True)
class Training:
    """What is known of a training. ranks: of the job that ended last. jobs: how many there were."""

    ranks: Sequence[Rank]
    jobs: int
    wrong: Sequence[Problem]
    parts: Parts | None
    limit: Limit

    @property
    def samples_per_second(self) -> float | None:
        """Return the samples of all ranks a second, after the warm-up; None if they are unknown."""
        of_ranks = [rank.steps.samples_per_second if rank.steps else None for rank in self.ranks]
        return None if None in of_ranks or not of_ranks else sum(filter(None, of_ranks))

    @property
    def has_batches(self) -> bool:
        """Return whether a batch of a training step was seen."""
        return any(rank.steps is not None and rank.steps.samples for rank in self.ranks)


def training_of(ranks: Sequence[Rank], jobs: int) -> Training:
    """Return what is known of a training. ranks: of one job, at least one."""
    wrong, parts = problems(ranks), parts_of(ranks)
    trains = any(rank.steps is not None for rank in ranks)
    return Training(ranks, jobs, wrong, parts, limit_of(parts, wrong, trains=trains))


def lines(training: Training) -> Iterator[str]:
    """Yield what a training did."""
    yield from wrapped(f"What limits this training: {training.limit.told}.")
    if training.limit.mend:
        yield from wrapped(f"Try first: {training.limit.mend}.")
    if training.limit.faster:
        low, high = training.limit.faster
        yield f"If that removes it, the training is {low:.2f} to {high:.2f} times as fast."
    for number, each in enumerate(training.wrong):
        # The first one has its mend above.
        yield from wrapped(f"CHECK FAILED: {each.what}{f'; {each.mend}' if number else ''}.")
    yield ""
    yield from _speed(training)
    yield from _terms(training)
    yield from _start(training)
    yield from _exchanged(training)
    yield from _rest(training)


def _speed(training: Training) -> Iterator[str]:
    rank = max(training.ranks, key=lambda each: each.steps.sums if each.steps else 0.0)
    steps = rank.steps
    if steps is None:
        return
    if not steps.summed:
        count = max((each.steps.count if each.steps else 0) for each in training.ranks)
        yield f"steps: {count}, all of them in the warm-up"
        return
    speed = training.samples_per_second
    told = f"; {speed:.1f} samples/s of all {len(training.ranks)} ranks" if speed else ""
    yield f"steps: {steps.count} of `{steps.name}`{told}"
    bounds = ", ".join(
        f"{100 * share:.0f} % in {_ms(percentile(steps.bins, share))}" for share in PERCENTILES
    )
    slowest = max(each.row.period for each in steps.slowest)
    yield f"a step: {bounds}; the slowest {_ms(slowest)} (rank {rank.rank})"
    tail = training.parts.tail if training.parts is not None else None
    if tail is not None:
        yield from wrapped(
            f"more than {SLOW:g} times the usual: {tail.count} of {tail.of} steps, "
            f"{100 * tail.share:.0f} % of the time, mostly {tail.term.value} on rank "
            f"{tail.rank}{', while it is traced again' if tail.retraced else ''}"
        )


def _terms(training: Training) -> Iterator[str]:
    parts = training.parts
    if parts is None:
        return
    shown = [term for term in TERMS if any(term in each.terms for each in parts.by_rank)]
    if not training.has_batches:
        shown.remove(Term.INPUT)
    table = Columns(
        ("ms of a usual step", -34),
        *((f"rank {each.rank}", 9) for each in _few(parts)),
        ("share", 7),
    )
    yield ""
    yield table.header
    for term in shown:
        cells = (f"{_MS * each.terms.get(term, 0.0):.2f}" for each in _few(parts))
        yield table.row(term.value, *cells, f"{100 * parts.share(term):.0f} %")
    yield table.row("all", *(f"{_MS * each.period:.2f}" for each in _few(parts)), "")
    if parts.tail is not None:
        blank = [""] * len(_few(parts))
        yield table.row("slow steps", *blank, f"{100 * parts.tail.share:.0f} %")
    residual = max(abs(each.residual) / each.period for each in parts.by_rank)
    yield f"not explained: at most {100 * residual:.1f} % of a step; {parts.steps} steps compared"
    if parts.slower is not None:
        slower = parts.slower
        yield f"rank {slower.rank} is last in {100 * slower.last:.0f} % of the steps"
    if not parts.has_stamps:
        yield "the exchange was not seen, so communication is not told from computing"
    if not training.has_batches:
        yield from wrapped(
            "batches were not seen, since they do not come from a loop over tf.data: so samples/s "
            "are not known, and input is part of what stands above"
        )


def _few(parts: Parts) -> Sequence[OfRank]:
    if len(parts.by_rank) <= MOST_ROWS:
        return parts.by_rank
    ordered = sorted(parts.by_rank, key=lambda each: each.own)
    return ordered[: MOST_ROWS // 2] + ordered[-MOST_ROWS // 2 :]


def _start(training: Training) -> Iterator[str]:
    """Yield the start of the rank that was slowest to its second step."""
    rank = max(training.ranks, key=lambda each: each.steps.begun if each.steps else 0.0)
    began = rank.marks["process"]
    told = [f"interpreter {rank.marks['python'] - began:.1f}"]
    known = rank.marks["python"] - began
    seen = 0.0
    for name, begin, end in rank.events:
        if rank.steps is not None and begin > rank.steps.begun:
            break
        own = end - max(begin, seen)
        if own > 0.05:
            told.append(f"{name} {own:.1f}")
            known += own
        seen = max(seen, end)
    if rank.steps is not None:
        first = rank.steps.rows[0] if rank.steps.rows else None
        total = rank.steps.begun - began
        told.append(f"the script {max(0.0, total - known):.1f}")
        if first is not None and not first.number:
            told.append(f"first step {first.end - first.begin:.1f}")
            total += first.end - first.begin
        yield ""
        yield from wrapped(f"start-up: {total:.1f} s on rank {rank.rank}: {', '.join(told)}")


def _exchanged(training: Training) -> Iterator[str]:
    rank = training.ranks[0]
    for name, (tensors, size, sparse) in rank.exchanged.items():
        more = f", {sparse} of them sparse" if sparse else ""
        yield f"exchanged in `{name}`: {tensors} tensors{more}, {size / 1e6:.2f} MB"
    if rank.others:
        told = ", ".join(f"{name}: {count}" for name, count in rank.others.items())
        yield from wrapped(f"exchanges that the script asks for itself: {told}")
    if rank.local:
        yield f"variables that are local to a rank: {rank.local} of {rank.updated}"


def _rest(training: Training) -> Iterator[str]:
    memory = [rank.peak_memory for rank in training.ranks]
    yield f"memory of a rank: {min(memory) / 1e9:.2f} to {max(memory) / 1e9:.2f} GB"
    known = [rank.steps.cpu for rank in training.ranks if rank.steps is not None and rank.steps.cpu]
    known = [each for each in known if each[0] > 0]
    if known:
        used = [cpu / seconds for seconds, cpu, _ in known]
        yield f"cores that a rank uses: {min(used):.2f} to {max(used):.2f}, mean {fmean(used):.2f}"
        waited = max(delayed / seconds for seconds, _, delayed in known)
        if waited > LEAST_DELAY:
            yield from wrapped(
                f"disturbed: a rank's main thread waited for a core for {100 * waited:.0f} % of "
                "the time, because of other programs or of more busy threads than cores"
            )
    for text in sorted({text for rank in training.ranks for text in rank.missing}):
        yield from wrapped(f"not seen: {text}")
    if training.jobs > 1:
        yield f"the command ran {training.jobs} Horovod jobs one after the other; this is the last"
    missing = training.ranks[0].size - len(training.ranks)
    if missing > 0:
        yield f"{missing} of {training.ranks[0].size} ranks wrote nothing"
    if not all(rank.is_over for rank in training.ranks):
        yield "a rank did not end as Python does, so its last seconds and its weights are unknown"


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{_MS * seconds:.1f} ms"
