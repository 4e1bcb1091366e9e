"""What a training did, in sentences, and these as lines for the terminal: what limits it first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from statistics import fmean

from hvdperf.columns import Columns, wrapped
from hvdperf.plan.settings import settings_in
from hvdperf.script.checks import remarks
from hvdperf.script.cores import LEAST_DELAY, faults_of
from hvdperf.script.limits import LEAST_SHARE, cause_told, cores_told, share_told, stop_told
from hvdperf.script.terms import SLOW, percentile
from hvdperf.script.training import Training

LIMITS = "What limits this training"
PERCENTILES = {"median": 0.5, "90th percentile": 0.9, "99th": 0.99}
# Ranks that have a row of their own; of more, the fastest and the slowest have one.
MOST_ROWS = 8
_MS = 1000.0
# Other functions that are named, and seconds after the last step that are worth telling.
_NAMED, _LEAST_AFTER_S = 4, 1.0


def lines(training: Training) -> Iterator[str]:
    """Yield what a training did."""
    yield from _wrapped([f"{LIMITS}: {training.limit.told}.", *first(training)])
    for number, each in enumerate(training.wrong):
        # The first one has its mend above.
        yield from wrapped(f"CHECK FAILED: {each.what}{f'; {each.mend}' if number else ''}.")
    yield ""
    yield from _wrapped([*speed(training), *bounds(training), *tail(training)])
    yield from _table(training)
    yield from _wrapped(unexplained(training))
    started = list(start(training))
    if started:
        yield ""
    yield from _wrapped([*started, *exchanged(training), *memory(training), *cores(training)])
    yield from _wrapped([*disturbed(training), *unseen(training)])
    yield from _wrapped(f"{name}: {fact}" for name, fact in facts(training).items())


def _wrapped(sentences: Iterable[str]) -> Iterator[str]:
    for each in sentences:
        yield from wrapped(each)


def first(training: Training) -> Iterator[str]:
    """Yield what to try first, and what that gains."""
    if training.limit.mend:
        yield f"Try first: {training.limit.mend}."
    if training.limit.gain:
        yield training.limit.gain


def speed(training: Training) -> Iterator[str]:
    """Yield how many steps there were, and samples a second."""
    steps = training.longest.steps
    if steps is None:
        return
    if not steps.summed:
        count = max((each.steps.count if each.steps else 0) for each in training.ranks)
        yield f"steps: {count}, all of them in the warm-up"
        return
    samples = training.samples_per_second
    told = f"; {samples:.1f} samples/s on {len(training.ranks)} ranks" if samples else ""
    yield f"steps: {steps.count} calls of `{steps.name}`{told}"


def bounds(training: Training) -> Iterator[str]:
    """Yield how long steps take."""
    rank = training.longest
    steps = rank.steps
    if steps is None or not steps.summed:
        return
    if not steps.are_told_apart:
        mean = _ms(steps.sums / steps.summed)
        yield f"step time: {mean} on average; the GPU runs asynchronously"
        return
    told = ", ".join(
        f"{name} {_ms(percentile(steps.bins, share))}" for name, share in PERCENTILES.items()
    )
    slowest = max(each.row.period for each in steps.slowest)
    yield f"step time: {told}, longest {_ms(slowest)} (rank {rank.rank})"


def tail(training: Training) -> Iterator[str]:
    """Yield what slow steps there were."""
    found = training.parts.tail if training.parts is not None else None
    if found is not None:
        yield (
            f"slow steps, over {SLOW:g} times the typical time: {found.count} of {found.of}, "
            f"{share_told(found)}, mostly {cause_told(found)}"
            f"{' (retracing)' if found.retraced else ''}"
        )


def _table(training: Training) -> Iterator[str]:
    parts = training.parts
    if parts is None:
        return
    few = [parts.by_rank[place] for place in training.few(MOST_ROWS)]
    table = Columns(
        ("typical step, ms", -34),
        *((f"rank {each.rank}", 9) for each in few),
        ("share", 7),
    )
    yield ""
    yield table.header
    for term in parts.shown:
        cells = (f"{_MS * each.terms.get(term, 0.0):z.2f}" for each in few)
        yield table.row(term.value, *cells, f"{100 * parts.share(term):z.0f} %")
    yield table.row("total", *(f"{_MS * each.period:.2f}" for each in few), "")
    if parts.tail is not None:
        blank = [""] * len(few)
        yield table.row("slow steps", *blank, f"{100 * parts.tail.share:.0f} %")
    if parts.stop is not None:
        blank = [""] * len(few)
        yield table.row("not running", *blank, f"{100 * parts.stop.share:.0f} %")


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
    if parts.gpu is not None:
        yield (
            f"a step that starts on an idle GPU is queued after {_ms(parts.gpu.queued)} and "
            f"finished after {_ms(parts.gpu.done)}"
        )
    if not parts.has_stamps:
        yield "the allreduce was not seen, so communication cannot be separated from computation"
    if parts.others:
        named = list(parts.others.items())[:_NAMED]
        others = ", ".join(f"`{name}` {_ms(seconds)}" for name, seconds in named)
        yield f"other functions, on average per step: {others}"
    if not training.has_batches:
        samples = training.samples_per_second
        yield (
            "batches were not seen, because they do not come from a loop over tf.data: waiting for "
            "input is included in the terms above, and samples/s "
            f"{'come from the shapes of the graph' if samples else 'are unknown'}"
        )


def start(training: Training) -> Iterator[str]:
    """Yield the phases of the start-up."""
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
        told = ", ".join(f"{name} ({count})" for name, count in rank.others.items())
        yield f"collectives called by the script: {told}"
    if rank.local:
        yield f"rank-local variables: {rank.local} of {rank.updated}"


def memory(training: Training) -> Iterator[str]:
    """Yield the memory of ranks."""
    peaks = [rank.peak_memory / 1e9 for rank in training.ranks]
    yield f"peak memory per rank: {min(peaks):.2f} to {max(peaks):.2f} GB"
    for rank in training.ranks:
        steps = rank.steps
        cores = steps.cores if steps is not None else None
        if steps and steps.period and cores and cores.grown > LEAST_SHARE * rank.peak_memory:
            grown = cores.grown / cores.seconds * steps.period / 1e6
            yield (
                f"the memory of rank {rank.rank} grows by {grown:.2f} MB a step, "
                f"{cores.grown / 1e9:.2f} GB in {cores.seconds:.0f} s"
            )


def facts(training: Training) -> Mapping[str, str]:
    """Return facts about the run in a few words each, by name; the command last."""
    ranks, first = training.ranks, training.ranks[0]
    moment = datetime.fromtimestamp(min(rank.marks["process"] for rank in ranks), UTC)
    hosts = sorted({rank.host for rank in ranks})
    found = {
        "started": f"{moment:%A}, {moment.day} {moment:%B %Y, %H:%M} UTC",
        "took": f"{training.seconds:.0f} s",
        "ranks": f"{len(ranks)} on {', '.join(hosts[:4])}{' and others' * (len(hosts) > 4)}",
        "versions": ", ".join(f"{name} {each}" for name, each in first.versions.items()),
        "settings": ", ".join(
            [
                *map(str, settings_in(first.settings)),
                *(f"{k}={v}" for k, v in first.settings.items() if k.islower() and v != "0"),
            ]
        ),
        "command": shlex.join(training.launch.command or first.arguments),
    }
    return {name: fact for name, fact in found.items() if fact}


def cores(training: Training) -> Iterator[str]:
    """Yield how many cores ranks use."""
    used = [each.cores for each in training.use.values()]
    if used:
        mean = fmean(used)
        yield f"cores used per rank: {min(used):.2f} to {max(used):.2f}, mean {mean:.2f}"


def disturbed(training: Training) -> Iterator[str]:
    """Yield whether ranks waited for cores or for their memory, or did not run for a while."""
    parts = training.parts
    if parts is not None and parts.stop is not None:
        yield stop_told(parts.stop)
    told = list(cores_told(parts.groups)) if parts is not None else []
    if training.delayed > LEAST_DELAY:
        why = "; ".join(told) or "more threads than cores, or a CPU limit of its container"
        yield (
            f"noisy: a rank's main thread waited for a core for {100 * training.delayed:.0f} % "
            f"of the time: {why}"
        )
    elif told:
        yield f"noisy: {'; '.join(told)}"
    for rank, pages in faults_of(training.ranks).items():
        yield (
            f"rank {rank} read {pages:.0f} memory pages per second from disk: memory is short, or "
            "files are mapped"
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


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{_MS * seconds:.1f} ms"
