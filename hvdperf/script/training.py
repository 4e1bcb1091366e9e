"""What is known of a training: the content of its report, and this in sentences, which the terminal
and the page show: what limits it first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from hvdperf.columns import Columns, wrapped
from hvdperf.plan.settings import settings_in
from hvdperf.script import limits
from hvdperf.script.checks import Limit, problems, remarks, stall_of
from hvdperf.script.recorded import NOT_KEPT, Launch, Rank
from hvdperf.script.terms import SLOW, Parts, parts_of

LIMITS = "What limits this training"
PERCENTILES = {"median": 0.5, "90th percentile": 0.9, "99th": 0.99}
# A phase of the start-up that takes less, in seconds, belongs to the script itself.
_LEAST_PHASE = 0.05
# Ranks that have a row of their own; of more, the fastest and the slowest have one.
MOST_ROWS = 8
_MS = 1000.0
# Other functions that are named, and seconds after the last step that are worth telling.
_NAMED, _LEAST_AFTER_S = 4, 1.0


@dataclass(frozen=True)
class Start:
    """The start-up of a rank, from its process to the end of its first step. seconds: of all.
    phases: their seconds, in their order."""

    rank: int
    seconds: float
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Training:
    """What is known of a training. ranks: of the job that ended last. jobs: how many there were.
    launch: of its command."""

    ranks: Sequence[Rank]
    jobs: int
    wrong: Sequence[Limit]
    parts: Parts | None
    limit: Limit
    launch: Launch = NOT_KEPT

    @property
    def command(self) -> str:
        return shlex.join(self.launch.command or self.ranks[0].arguments)

    @property
    def samples_per_second(self) -> float | None:
        """Return the samples of all ranks a second, after the warm-up; None if they are unknown."""
        of_ranks = [rank.steps.samples_per_second if rank.steps else None for rank in self.ranks]
        return None if None in of_ranks or not of_ranks else sum(filter(None, of_ranks))

    @property
    def longest(self) -> Rank:
        """Return the rank whose steps took most time together."""
        return max(self.ranks, key=lambda each: each.steps.sums if each.steps else 0.0)

    @cached_property
    def start(self) -> Start | None:
        """Return the start of the rank that was slowest to its second step; None without steps."""
        rank = max(self.ranks, key=lambda each: each.steps.begun if each.steps else 0.0)
        return start_of(rank)

    @property
    def seconds(self) -> float:
        """Return the seconds from the first process of a rank to the end of the last one."""
        began = min(rank.marks["process"] for rank in self.ranks)
        return max(rank.written_at for rank in self.ranks) - began

    @property
    def after(self) -> tuple[Rank, float]:
        """Return the rank that went on for longest after its last step, and for how many seconds;
        0 if that is unknown."""

        def seconds(rank: Rank) -> float:
            ended = rank.steps.ended if rank.is_over and rank.steps else 0.0
            return rank.written_at - ended if ended else 0.0

        longest = max(self.ranks, key=seconds)
        return longest, seconds(longest)

    @property
    def residual(self) -> float:
        """Return the largest share of a usual step that its terms do not explain; 0 without."""
        by_rank = self.parts.by_rank if self.parts is not None else ()
        return max((abs(each.residual) / each.period for each in by_rank), default=0.0)

    def few(self, most: int) -> Sequence[int]:
        """Return the places of at most so many ranks, in the order of `ranks`, or if that leaves
        some out, from the fastest half of them to the slowest half by what a rank does by
        itself."""
        places = range(len(self.ranks))
        if len(places) <= most or self.parts is None:
            return places[:most]
        by_rank = self.parts.by_rank
        ordered = sorted(places, key=lambda place: by_rank[place].own)
        return [*ordered[: most // 2], *ordered[-(most - most // 2) :]]


def training_of(ranks: Sequence[Rank], jobs: int, launch: Launch = NOT_KEPT) -> Training:
    """Return what is known of a training. ranks: of one job, at least one."""
    wrong, parts = problems(ranks), parts_of(ranks)
    limit = limits.limit_of(parts, wrong, ranks)
    if not wrong and launch.status and parts is None:
        has_steps = any(rank.count for rank in ranks)
        after = "after too few steps to tell" if has_steps else "before its first step was done"
        limit = Limit(
            f"the command ended with status {launch.status} {after}",
            "see its own messages above the report",
        )
    stall = stall_of(ranks)
    if stall:
        limit = Limit(f"a stall: {stall}", "call each exchange on all ranks, in the same order")
    return Training(ranks, jobs, wrong, parts, limit, launch)


def start_of(rank: Rank) -> Start | None:
    """Return the start-up of a rank; None without steps."""
    if rank.steps is None:
        return None
    began = rank.marks["process"]
    phases = {"interpreter": rank.marks["python"] - began}
    seen = 0.0
    for name, begin, end in rank.events:
        if begin > rank.steps.begun:
            break
        own = end - max(begin, seen)
        if own > _LEAST_PHASE:
            phases[name] = phases.get(name, 0.0) + own
        seen = max(seen, end)
    seconds = rank.steps.begun - began
    phases["the script"] = max(0.0, seconds - sum(phases.values()))
    first = rank.steps.rows[0] if rank.steps.rows else None
    if first is not None and not first.number:
        phases["first step"] = first.end - first.begin
        seconds += first.end - first.begin
    return Start(rank.rank, seconds, phases)


# In sentences ------------------------------------------------------------------------------------


def lines(training: Training) -> Iterator[str]:
    """Yield what a training did, as lines for the terminal."""
    yield from _wrapped([f"{LIMITS}: {training.limit.told}.", *first(training)])
    for number, each in enumerate(training.wrong):
        # The first one has its mend above.
        yield from wrapped(f"CHECK FAILED: {each.told}{f'; {each.mend}' if number else ''}.")
    yield ""
    yield from _wrapped([*steps(training), *tail(training)])
    yield from _table(training)
    yield from _wrapped(unexplained(training))
    started = list(start(training))
    if started:
        yield ""
    yield from _wrapped([*started, *exchanged(training), *resources(training), *unseen(training)])
    known = {**facts(training), "command": training.command}
    yield from _wrapped(f"{name}: {fact}" for name, fact in known.items())


def _wrapped(sentences: Iterable[str]) -> Iterator[str]:
    for each in sentences:
        yield from wrapped(each)


def first(training: Training) -> Iterator[str]:
    """Yield what to try first, and what that gains."""
    if training.limit.mend:
        yield f"Try first: {training.limit.mend}."
    if training.limit.gain:
        yield training.limit.gain


def steps(training: Training) -> Iterator[str]:
    """Yield how many steps there were, with samples a second, and how long they take."""
    rank = training.longest
    own = rank.steps
    if own is None:
        return
    if not own.summed:
        count = max(each.count for each in training.ranks)
        yield f"steps: {count}, all of them in the warm-up"
        return
    samples = training.samples_per_second
    told = f"; {samples:.1f} samples/s on {len(training.ranks)} ranks" if samples else ""
    yield f"steps: {own.count} calls of `{own.name}`{told}"
    if not own.are_told_apart:
        mean = _ms(own.sums / own.summed)
        yield f"step time: {mean} on average; the GPU runs asynchronously"
        return
    told = ", ".join(f"{name} {_ms(own.percentile(at))}" for name, at in PERCENTILES.items())
    yield f"step time: {told}, longest {_ms(own.longest)} (rank {rank.rank})"


def tail(training: Training) -> Iterator[str]:
    """Yield what slow steps there were."""
    if training.parts is not None and training.parts.tail is not None:
        yield f"{training.parts.tail} (over {SLOW:g} times the typical time)"


def _table(training: Training) -> Iterator[str]:
    parts = training.parts
    if parts is None:
        return
    few = [parts.by_rank[place] for place in training.few(MOST_ROWS)]
    columns = (f"rank {each.rank}" for each in few)
    table = Columns(("typical step, ms", -34), *((name, 9) for name in columns), ("share", 7))
    yield ""
    yield table.header
    for term in parts.shown:
        cells = (f"{_MS * each.terms.get(term, 0.0):z.2f}" for each in few)
        yield table.row(term.value, *cells, f"{100 * parts.share(term):z.0f} %")
    yield table.row("total", *(f"{_MS * each.period:.2f}" for each in few), "")
    for name, beyond in (("slow steps", parts.tail), ("not running", parts.stop)):
        if beyond is not None:
            yield table.row(name, *[""] * len(few), f"{100 * beyond.share:.0f} %")


def unexplained(training: Training) -> Iterator[str]:
    """Yield what the terms of a step do not explain, and which rank is the last."""
    parts = training.parts
    if parts is None:
        return
    left = 100 * training.residual
    yield f"unexplained: at most {left:.1f} % of a step ({parts.steps} steps compared)"
    if parts.slower is not None:
        slower = parts.slower
        yield f"rank {slower.rank} finishes last in {100 * slower.last:.0f} % of the steps"
    if parts.rarely:
        yield "gradients are allreduced in some of the steps only"
    if not parts.has_stamps:
        yield "the allreduce was not seen, so communication cannot be separated from computation"
    if parts.others:
        named = list(parts.others.items())[:_NAMED]
        others = ", ".join(f"`{name}` {_ms(seconds)}" for name, seconds in named)
        yield f"other functions, on average per step: {others}"
    if not any(rank.steps is not None and rank.steps.samples for rank in training.ranks):
        samples = training.samples_per_second
        yield (
            "batches were not seen, because they do not come from a loop over tf.data: waiting for "
            "input is included in the terms above, and samples/s "
            f"{'come from the shapes of the graph' if samples else 'are unknown'}"
        )


def start(training: Training) -> Iterator[str]:
    """Yield the phases of the start-up, and what followed the last step."""
    found = training.start
    if found is not None:
        told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.phases.items())
        yield f"start-up: {found.seconds:.1f} s on rank {found.rank}: {told}"
    rank, after = training.after
    if after > _LEAST_AFTER_S:
        places = rank.places_after
        where = f", most often at {max(places, key=places.__getitem__)}" if places else ""
        yield (
            f"after the last step: rank {rank.rank} ran for another {after:.1f} s (of "
            f"{training.seconds:.1f} s in total){where}"
        )


def exchanged(training: Training) -> Iterator[str]:
    """Yield what is allreduced, and what is not because it is local to a rank."""
    rank = training.ranks[0]
    for name, (tensors, size, sparse) in rank.exchanged.items():
        more = f", {sparse} of them sparse" if sparse else ""
        yield f"allreduced in `{name}`: {tensors} tensors{more}, {size / 1e6:.2f} MB"
    if rank.others:
        # Nothing counts how often a branch is taken.
        told = ", ".join(
            f"{name} ({'up to ' * ('branches' in name)}{count})"
            for name, count in rank.others.items()
        )
        yield f"collectives called by the script: {told}"
    if rank.local:
        yield f"rank-local variables: {rank.local} of {rank.updated}"


def resources(training: Training) -> Iterator[str]:
    """Yield the memory and the cores of ranks, and whether they waited for either, or did not run
    for a while."""
    peaks = [rank.peak_memory / 1e9 for rank in training.ranks]
    yield f"peak memory per rank: {min(peaks):.2f} to {max(peaks):.2f} GB"
    for rank in training.ranks:
        steps, cores = rank.steps, rank.cores
        if steps and steps.period and cores and cores.grown > limits.LEAST_SHARE * rank.peak_memory:
            grown = cores.grown / cores.seconds * steps.period / 1e6
            yield (
                f"the memory of rank {rank.rank} grows by {grown:.2f} MB a step, "
                f"{cores.grown / 1e9:.2f} GB in {cores.seconds:.0f} s"
            )
    used = [rank.cpu for rank in training.ranks if rank.cpu is not None]
    told = "; ".join(limits.cores_told(training.ranks))
    if training.parts is not None and training.parts.stop is not None:
        yield limits.stop_told(training.parts.stop)
    delayed = max((each.delayed for each in used), default=0.0)
    if delayed > limits.LEAST_DELAY:
        told = told or "more threads than cores, or a CPU limit of its container"
        told = (
            f"a rank's main thread waited for a core for {100 * delayed:.0f} % of the time: {told}"
        )
    if told:
        yield f"noisy: {told}"
    for number, pages in limits.faults_of(training.ranks).items():
        yield (
            f"rank {number} read {pages:.0f} memory pages per second from disk: memory is short, "
            "or files are mapped"
        )


def unseen(training: Training) -> Iterator[str]:
    """Yield remarks on the data, and what was not seen."""
    yield from (f"note: {each}" for each in remarks(training.ranks))
    for text in sorted({text for rank in training.ranks for text in rank.missing}):
        yield f"not seen: {text}"
    if training.jobs > 1:
        yield f"the command ran {training.jobs} Horovod jobs in sequence; this is the last one"
    missing = training.ranks[0].size - len(training.ranks)
    if missing > 0:
        yield f"{missing} of {training.ranks[0].size} ranks left no recording"
    if not all(rank.is_over for rank in training.ranks):
        yield (
            "a rank did not exit normally, so its weights, and its last seconds if it was killed, "
            "are unknown"
        )


def facts(training: Training) -> Mapping[str, str]:
    """Return facts about the run in a few words each, by name."""
    ranks, first = training.ranks, training.ranks[0]
    moment = datetime.fromtimestamp(min(rank.marks["process"] for rank in ranks), UTC)
    hosts = sorted({rank.host for rank in ranks})
    settings = [
        *map(str, settings_in(first.settings)),
        *(f"{k}={v}" for k, v in first.settings.items() if k.islower() and v != "0"),
    ]
    found = {
        "started": f"{moment:%A}, {moment.day} {moment:%B %Y, %H:%M} UTC",
        "took": f"{training.seconds:.0f} s",
        "ranks": f"{len(ranks)} on {', '.join(hosts[:4])}{' and others' * (len(hosts) > 4)}",
        "versions": ", ".join(f"{name} {each}" for name, each in first.versions.items()),
        "settings": ", ".join(settings),
    }
    return {name: fact for name, fact in found.items() if fact}


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{_MS * seconds:.1f} ms"
