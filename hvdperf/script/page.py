"""The report of a training script that was measured: its figures, with the sentences of the
terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median

from hvdperf.report import plots
from hvdperf.report.content import Column, Field, Figure, Report, Section, Table, Value, value
from hvdperf.report.words import plural
from hvdperf.script import training as told
from hvdperf.script.recorded import Rank, Row, Steps
from hvdperf.script.terms import SLOW, SlowStep
from hvdperf.script.training import Training
from hvdperf.verdict import Verdict
from hvdperf.worker.script.tap._hvdperf_recorder import FIRST

# Ranks that are drawn; of more, the fastest and the slowest ones.
MOST_RANKS = 16
# Slices of the run in the strip.
SLICES = 120
_MS = 1000.0


def report_of(training: Training, name: str) -> Report:
    """Return the report of a run. name: of the run."""
    wrong, limit = training.wrong, training.limit
    exchanged = _said(*told.exchanged(training))
    lead = [f"{_said(each.told)} Try first: {each.mend}." for each in wrong]
    # A check that fails is what limits, too.
    if limit not in wrong:
        lead += [f"{told.LIMITS}: {limit.told}." if wrong else _said(limit.told)]
        lead += told.first(training)
    return Report(
        title=f"hvdperf run: {name}",
        verdict=Verdict.INVALID if wrong else Verdict.INFO,
        counts={},
        facts={
            **told.facts(training),
            **({"allreduce": exchanged} if exchanged else {}),
            "command": training.command,
        },
        warnings=tuple(map(_said, told.unseen(training))),
        sections=sections(training),
        headline=f"{plural(len(wrong), 'check')} failed" if wrong else told.LIMITS,
        lead=tuple(lead),
    )


def sections(training: Training) -> tuple[Section, ...]:
    """Return the sections of a training of which anything is known, what matters most first."""
    found = (
        Section(
            "terms",
            "A typical step by term",
            "Means of steps that are not slow and that all ranks recorded. Each term starts where "
            "the previous one ends.",
            tuple(_terms(training)),
        ),
        Section(
            "ranks",
            "Ranks and their steps",
            f"After the warm-up (the first {FIRST + 1} steps). Slow steps take more than {SLOW:g} "
            "times the median.",
            (_ranks(training), *_slow(training)),
        ),
        Section(
            "run", "Over the run", "Recorded steps after the warm-up.", tuple(_strip(training))
        ),
    )
    return tuple(each for each in found if each.figures)


def _said(*sentences: str) -> str:
    """Return lines of the terminal as sentences, without the marks of names."""
    return " ".join(f"{each[:1].upper()}{each[1:]}." for each in sentences).replace("`", "")


def _note(training: Training) -> str:
    """Return which ranks are drawn, with a blank before it; "" if all are."""
    if len(training.ranks) <= MOST_RANKS:
        return ""
    return f" Of {len(training.ranks)} ranks the {MOST_RANKS} fastest and slowest are shown."


# Steps -----------------------------------------------------------------------------------------


_OF_A_SLOW_STEP: tuple[Field[SlowStep], ...] = (
    value("number", "step", lambda each: each.number),
    value("at", "after", lambda each: each.at, "s", 2),
    value("ms", "time", lambda each: _MS * each.seconds, "ms", 1),
    value("rank", "longest on rank", lambda each: each.cause[0]),
    value("term", "mostly in", lambda each: each.cause[1].value),
    value("retraced", "retraced", lambda each: "yes" if each.retraced else "no"),
)


def _slow(training: Training) -> Iterator[Figure]:
    tail = training.parts.tail if training.parts is not None else None
    if tail is not None:
        rows = Table.of(tail.steps, *_OF_A_SLOW_STEP)
        yield Figure("slow-steps", "The slowest steps", _said(*told.tail(training)), rows)


_OF_A_SLICE = (
    Column("rank", "rank"),
    Column("from_s", "from", "s", 2),
    Column("to_s", "to", "s", 2),
    Column("longest_ms", "longest step", "ms", 2),
    Column("steps", "recorded steps"),
)


def _strip(training: Training) -> Iterator[Figure]:
    ranks = [training.ranks[place] for place in training.few(MOST_RANKS)]
    known = [
        (rank, [*rank.steps.kept.values()])
        for rank in ranks
        if rank.steps is not None and rank.steps.kept and rank.steps.are_told_apart
    ]
    if not known:
        return
    # Each rank's own clock, from its first step after the warm-up on.
    length = max(own[-1].end - own[0].before for _, own in known)
    count = min(SLICES, *(len(own) for _, own in known))
    edges = [length * place / count for place in range(count + 1)]
    rows = [(rank.rank, *row) for rank, own in known for row in _slices(own, edges)]
    # A run without slow steps has one colour.
    usual = _MS * median(row.period for row in known[0][1])
    domain = [usual, max(*(row[3] for row in rows), 2 * SLOW * usual)]
    scale = {"type": "log", "domain": domain, "clamp": True, "nice": False}
    legend = {"title": "longest step in ms", "orient": "top", "gradientThickness": 8}
    colour = plots.field("longest_ms", scale=scale, legend=legend)
    table = Table.filled(_OF_A_SLICE, rows)
    yield Figure(
        "strip",
        "Step time over the run",
        "Each row is a rank; each cell shows the longest recorded step in that interval. Single "
        f"dark cells are pauses, dark bands are slow phases.{_note(training)}",
        table,
        plots.strip(table, "rank", "from_s", "to_s", colour, "seconds after the warm-up"),
    )


def _slices(own: Sequence[Row], edges: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Yield for each slice of the run with a step its ends, the longest step in ms and the number
    of steps; a step of several slices is in each. edges: seconds at which slices begin and end."""
    start = own[0].before
    for begin, end in pairwise(edges):
        within = [row for row in own if row.before - start < end and begin < row.end - start]
        if within:
            yield begin, end, _MS * max(row.period for row in within), len(within)


# Terms, and what ranks used --------------------------------------------------------


def _terms(training: Training) -> Iterator[Figure]:
    parts = training.parts
    if parts is None:
        return
    names = {f"t{digit}": term.value for digit, term in enumerate(parts.shown, 1)}
    columns = (
        Column("rank", "rank"),
        *(Column(key, name, "ms", 2) for key, name in names.items()),
        Column("left", "unexplained", "ms", 2),
        Column("all", "all", "ms", 2),
    )

    rows: list[tuple[Value, ...]] = []
    for each in (parts.by_rank[place] for place in training.few(MOST_RANKS)):
        terms = (each.terms.get(term, 0.0) for term in parts.shown)
        seconds = (*terms, each.residual, each.period)
        rows.append((f"rank {each.rank}", *(_MS * part for part in seconds)))
    table = Table.filled(columns, rows)
    yield Figure(
        "terms",
        "A typical step by term and rank",
        _said(*told.unexplained(training)) + _note(training),
        table,
        plots.stacked(table, "rank", *names, unit="ms"),
    )


def _of_steps(
    key: str, title: str, get: Callable[[Steps], float | None], unit: str, digits: int
) -> Field[Rank]:
    """Return a column of what is known of a rank's steps."""
    return value(key, title, lambda rank: get(rank.steps) if rank.steps else None, unit, digits)


def _ms(key: str, title: str, get: Callable[[Steps], float]) -> Field[Rank]:
    """Return a column of single steps' times."""

    def ms(steps: Steps) -> float | None:
        return _MS * get(steps) if steps.summed and steps.are_told_apart else None

    return _of_steps(key, title, ms, "ms", 2)


_OF_A_RANK: tuple[Field[Rank], ...] = (
    value("rank", "rank", lambda rank: rank.rank),
    value("host", "host", lambda rank: rank.host),
    value("steps", "steps", lambda rank: rank.count),
    *(
        _ms(f"p{100 * share:.0f}_ms", name, partial(Steps.percentile, share=share))
        for name, share in told.PERCENTILES.items()
    ),
    _ms("max_ms", "longest", lambda steps: steps.longest),
    _of_steps("samples", "throughput", lambda steps: steps.samples_per_second, "samples/s", 1),
    value("cores", "cores", lambda rank: rank.cpu.cores if rank.cpu else None, digits=2),
    value(
        "delayed",
        "waited for a core",
        lambda rank: 100 * rank.cpu.delayed if rank.cpu else None,
        "% of the time",
        1,
    ),
    value("gigabytes", "memory at its peak", lambda rank: rank.peak_memory / 1e9, "GB", 2),
)


def _ranks(training: Training) -> Figure:
    says = _said(*told.steps(training), *told.start(training), *told.resources(training))
    rows = Table.of(training.ranks, *_OF_A_RANK)
    return Figure("ranks", "Step times, cores and memory by rank", says, rows)
