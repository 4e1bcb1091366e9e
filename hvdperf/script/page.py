"""The report of a training script that was measured: its figures, with the sentences of the
terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from hvdperf.report import plots
from hvdperf.report.content import Column, Field, Figure, Report, Section, Table, Value, value
from hvdperf.report.words import plural
from hvdperf.script import training as told
from hvdperf.script.recorded import Rank, Row, Steps
from hvdperf.script.terms import SLOW, OfRank, SlowStep
from hvdperf.script.training import Training
from hvdperf.verdict import Verdict
from hvdperf.worker.script.tap._hvdperf_recorder import FIRST

# Ranks that are drawn; of more, the fastest and the slowest ones.
MOST_RANKS = 16
# Slices of the run in the strip.
SLICES = 120
_MS = 1000.0
_NOTHING = "Nothing was recorded."


def report_of(training: Training, name: str) -> Report:
    """Return the report of a run. name: of the run."""
    wrong, limit = training.wrong, training.limit
    steps, samples = training.longest.steps, training.samples_per_second
    exchanged = _said(*told.exchanged(training))
    lead = [f"{_said(each.what)} Try first: {each.mend}." for each in wrong]
    # A check that fails is what limits, too.
    if limit.told not in {each.what for each in wrong}:
        lead += [f"{told.LIMITS}: {limit.told}." if wrong else _said(limit.told)]
        lead += told.first(training)
    return Report(
        title=f"hvdperf run: {name}",
        verdict=Verdict.INVALID if wrong else Verdict.INFO,
        counts={},
        facts={
            **told.facts(training),
            **({"steps": f"{steps.count} of {steps.name}"} if steps is not None else {}),
            **({"speed": f"{samples:.1f} samples/s of all ranks"} if samples else {}),
            **({"allreduce": exchanged} if exchanged else {}),
            "command": training.command,
        },
        warnings=tuple(map(_said, told.unseen(training))),
        sections=sections(training),
        headline=f"{plural(len(wrong), 'check')} failed" if wrong else told.LIMITS,
        lead=tuple(lead),
    )


def sections(training: Training) -> tuple[Section, ...]:
    """Return the sections of a training, what matters most first."""
    missing = {}
    if any(rank.steps is not None and not rank.steps.are_told_apart for rank in training.ranks):
        gpu = "The GPU runs asynchronously, so single steps cannot be separated."
        missing = {"steps": gpu, "run": gpu}
    of_steps = (*_by_rank(training), *_slow(training))
    rows: tuple[tuple[str, str, str, Iterable[Figure]], ...] = (
        (
            "terms",
            "A typical step by term",
            "Means of steps that are not slow and that all ranks recorded. Each term starts where "
            "the previous one ends.",
            _terms(training),
        ),
        (
            "steps",
            "Steps",
            f"All steps after the warm-up (the first {FIRST + 1}). Slow steps take more than "
            f"{SLOW:g} times the median.",
            of_steps,
        ),
        ("run", "Over the run", "Recorded steps after the warm-up.", _strip(training)),
        (
            "start",
            "Start-up",
            "The rank that was the last to start its second step, from the start of its process.",
            _start(training),
        ),
        ("ranks", "Ranks", "After the warm-up.", [_ranks(training)]),
    )
    return tuple(
        Section(name, title, intro, tuple(figures), missing.get(name, _NOTHING))
        for name, title, intro, figures in rows
    )


def _said(*sentences: str) -> str:
    """Return lines of the terminal as sentences, without the marks of names."""
    return " ".join(f"{each[:1].upper()}{each[1:]}." for each in sentences).replace("`", "")


def drawn(training: Training) -> list[Rank]:
    """Return the ranks that plots show."""
    return [training.ranks[place] for place in training.few(MOST_RANKS)]


def _note(training: Training) -> str:
    """Return which ranks are drawn, with a blank before it; "" if all are."""
    if len(training.ranks) <= MOST_RANKS:
        return ""
    return f" Of {len(training.ranks)} ranks the {MOST_RANKS} fastest and slowest are shown."


def _start(training: Training) -> Iterator[Figure]:
    if training.start is not None:
        columns = (Column("phase", "phase"), Column("seconds", "time", "s", 2))
        rows = Table.filled(columns, training.start.phases.items())
        yield Figure("start-up", "Start-up by phase", _said(*told.start(training)), rows)


# Steps -----------------------------------------------------------------------------------------


def _known(ranks: Iterable[Rank]) -> list[tuple[Rank, Steps]]:
    """Return the ranks with steps after the warm-up whose times mean something, one by one."""
    return [
        (rank, rank.steps)
        for rank in ranks
        if rank.steps is not None and rank.steps.summed and rank.steps.are_told_apart
    ]


_SHARES = (0.01, 0.25, 0.5, 0.75, 0.9, 0.99)
_OF_A_RANKS_STEPS = (
    Column("rank", "rank"),
    *(Column(f"q{100 * share:02.0f}_ms", f"{100 * share:.0f} %", "ms", 2) for share in _SHARES),
    Column("max_ms", "longest", "ms", 2),
    Column("steps", "steps"),
)


def _by_rank(training: Training) -> Iterator[Figure]:
    known = _known(drawn(training))
    if not known:
        return
    rows = []
    for rank, steps in known:
        shares = (_MS * steps.percentile(share) for share in _SHARES)
        rows.append((rank.rank, *shares, _MS * steps.longest, steps.summed))
    table = Table.filled(_OF_A_RANKS_STEPS, rows)
    yield Figure(
        "steps-by-rank",
        "Step times by rank",
        f"{_said(*told.steps(training))} A line spans the 1st to the 99th percentile, its bar the "
        f"25th to the 75th, and its tick is the median.{_note(training)}",
        table,
        plots.boxes(table, "rank", log=True),
    )


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
    if tail is None:
        return
    found = tail.steps
    rows = Table.of(found, *_OF_A_SLOW_STEP)
    term = plots.field("term", "nominal", legend=plots.LEGEND)
    log = {"type": "log", "nice": False, "padding": 12}
    yield Figure(
        "slow-steps",
        f"The {len(found)} slowest steps" if len(found) > 1 else "The slowest step",
        _said(*told.tail(training)),
        rows,
        plots.layered(
            plots.layer(
                "point",
                x=plots.field("at", "quantitative", "seconds since the first step"),
                y=plots.field("ms", "quantitative", "ms", scale=log),
                color=term,
                shape=term,
                tooltip=plots.tooltip(rows.seen),
            )
        ),
    )


_OF_A_SLICE = (
    Column("rank", "rank"),
    Column("from_s", "from", "s", 2),
    Column("to_s", "to", "s", 2),
    Column("longest_ms", "longest step", "ms", 2),
    Column("steps", "recorded steps"),
)


def _strip(training: Training) -> Iterator[Figure]:
    known = [(rank, steps) for rank, steps in _known(drawn(training)) if steps.kept]
    if not known:
        return
    kept = [[*steps.kept.values()] for _, steps in known]
    # Each rank's own clock, from its first step after the warm-up on.
    length = max(own[-1].end - own[0].before for own in kept)
    count = min(SLICES, *map(len, kept))
    edges = [length * place / count for place in range(count + 1)]
    rows = (
        (rank.rank, *row)
        for (rank, _), own in zip(known, kept, strict=True)
        for row in _slices(own, edges)
    )
    usual = _MS * known[0][1].percentile(0.5)
    longest = max(_MS * row.period for own in kept for row in own)
    # A run without slow steps has one colour.
    domain = [usual, max(longest, 2 * SLOW * usual)]
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

    def row(name: str, of: Sequence[OfRank]) -> tuple[Value, ...]:
        terms = (fmean(each.terms.get(term, 0.0) for each in of) for term in parts.shown)
        rest = (fmean(each.residual for each in of), fmean(each.period for each in of))
        return name, *(_MS * seconds for seconds in (*terms, *rest))

    places = training.few(MOST_RANKS)
    rows = [row(f"rank {parts.by_rank[at].rank}", [parts.by_rank[at]]) for at in places]
    others = [each for at, each in enumerate(parts.by_rank) if at not in set(places)]
    if others:
        rows.append(row(f"mean of {len(others)} others", others))
    table = Table.filled(columns, rows)
    yield Figure(
        "terms",
        "A typical step by term and rank",
        _said(*told.unexplained(training)) + _note(training),
        table,
        plots.stacked(table, "rank", *names, unit="ms"),
    )


def _ranks(training: Training) -> Figure:
    fields: tuple[Field[Rank], ...] = (
        value("rank", "rank", lambda rank: rank.rank),
        value("host", "host", lambda rank: rank.host),
        value("steps", "steps", lambda rank: rank.count),
        value(
            "samples",
            "throughput",
            lambda rank: rank.steps.samples_per_second if rank.steps else None,
            "samples/s",
            1,
        ),
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
    says = _said(*told.resources(training))
    return Figure("ranks", "Cores and memory of ranks", says, Table.of(training.ranks, *fields))
