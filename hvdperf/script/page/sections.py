"""Sections of the page of a training script: its figures, with the sentences of the terminal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import exp, floor
from statistics import fmean

from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Section, Table, Value
from hvdperf.report.fields import Field, table, value
from hvdperf.script import told
from hvdperf.script.recorded import Rank, Steps
from hvdperf.script.recorded import Row as Step
from hvdperf.script.terms import SLOW, OfRank, SlowStep, percentile, slow_steps
from hvdperf.script.training import Training
from hvdperf.worker.script.tap._hvdperf_recorder import BIN, FIRST

# Ranks that are drawn; of more, the fastest and the slowest ones.
MOST_RANKS = 16
# Slow steps with a row of their own, and slices of the run in the strip.
MOST_SLOW, SLICES = 64, 120
# Bins of the recorder that are a bar together: each some 10 % longer than the one before it.
_BAR = 10
_MS = 1000.0
_NOTHING = "Nothing was recorded."


def sections(training: Training) -> tuple[Section, ...]:
    """Return the sections of a training, what matters most first."""
    of_steps = _NOTHING
    if any(rank.steps is not None and not rank.steps.are_told_apart for rank in training.ranks):
        of_steps = "The GPU runs asynchronously, so single steps cannot be separated."
    return (
        _section(
            "terms",
            "A typical step by term",
            "Means of steps that are not slow and that all ranks recorded. Each term starts where "
            "the previous one ends.",
            _terms(training),
        ),
        _section(
            "steps",
            "Steps",
            f"All steps after the warm-up (the first {FIRST + 1}). Slow steps take more than "
            f"{SLOW:g} times the median.",
            (*_distribution(training), *_by_rank(training), *_slow(training)),
            of_steps,
        ),
        _section(
            "run",
            "Over the run",
            "Recorded steps after the warm-up.",
            _strip(training),
            of_steps,
        ),
        _section(
            "start",
            "Start-up",
            "The rank that was the last to start its second step, from the start of its process.",
            _start(training),
        ),
        _section(
            "exchange", "Allreduce", "Tensors that are allreduced per step.", _exchanged(training)
        ),
        _section("ranks", "Ranks", "After the warm-up.", _ranks(training)),
    )


def _section(
    name: str, title: str, intro: str, figures: Iterable[Figure], missing: str = _NOTHING
) -> Section:
    return Section(name, title, intro, tuple(figures), missing)


def _said(*sentences: Iterable[str]) -> str:
    """Return lines of the terminal as sentences, without the marks of names."""
    told = " ".join(f"{each[:1].upper()}{each[1:]}." for group in sentences for each in group)
    return told.replace("`", "")


def drawn(training: Training) -> list[Rank]:
    """Return the ranks that plots show."""
    return [training.ranks[place] for place in training.few(MOST_RANKS)]


def _note(training: Training) -> str:
    """Return which ranks are drawn, with a blank before it; "" if all are."""
    if len(training.ranks) <= MOST_RANKS:
        return ""
    return f" Of {len(training.ranks)} ranks the {MOST_RANKS} fastest and slowest are shown."


# Start-up --------------------------------------------------------------------------------------

_OF_A_PHASE = (Column("phase", "phase"), Column("seconds", "time", "s", 2))


def _start(training: Training) -> Iterator[Figure]:
    start = training.start
    if start is None:
        return
    rows: tuple[Row, ...] = tuple(
        {"phase": name, "seconds": seconds} for name, seconds in start.phases.items()
    )
    says = _said(told.start(training))
    yield Figure("start-up", "Start-up by phase", says, Table(_OF_A_PHASE, rows))


# Steps -----------------------------------------------------------------------------------------

_OF_A_BAR = (
    Column("from_ms", "from", "ms", 2),
    Column("to_ms", "to", "ms", 2),
    Column("steps", "steps"),
)


def _known(ranks: Iterable[Rank]) -> list[tuple[Rank, Steps]]:
    """Return the ranks with steps after the warm-up whose times mean something, one by one."""
    return [
        (rank, rank.steps)
        for rank in ranks
        if rank.steps is not None and rank.steps.summed and rank.steps.are_told_apart
    ]


def _distribution(training: Training) -> Iterator[Figure]:
    known = _known(training.ranks)
    if not known:
        return
    counts: dict[int, int] = {}
    for _, steps in known:
        for place, count in steps.bins:
            counts[floor(place / _BAR)] = counts.get(floor(place / _BAR), 0) + count
    rows: tuple[Row, ...] = tuple(
        {
            # A bin of the recorder lies half on either side of its number.
            "from_ms": _MS * exp((place * _BAR - 0.5) * BIN),
            "to_ms": _MS * exp(((place + 1) * _BAR - 0.5) * BIN),
            "steps": count,
        }
        for place, count in sorted(counts.items())
    )
    x = plots.field("from_ms", "quantitative", "ms", scale={"type": "log", "nice": False})
    # A single slow step is seen beside thousands of others.
    y = plots.field("steps", "quantitative", "steps of all ranks", scale={"type": "symlog"})
    plot = plots.layered(
        plots.layer(
            "bar",
            x=x,
            x2={"field": "to_ms"},
            y=y,
            y2={"datum": 0},
            tooltip=plots.tooltip(_OF_A_BAR),
        ),
    )
    yield Figure(
        "step-times",
        "Step times of all ranks",
        f"{_said(told.speed(training), told.bounds(training))} Both axes are logarithmic.",
        Table(_OF_A_BAR, rows),
        plot,
    )


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
    rows: tuple[Row, ...] = tuple(
        {
            "rank": rank.rank,
            **{f"q{100 * each:02.0f}_ms": _MS * percentile(steps.bins, each) for each in _SHARES},
            "max_ms": _MS * max(each.row.period for each in steps.slowest),
            "steps": steps.summed,
        }
        for rank, steps in known
    )
    scale = {"type": "log", "nice": False, "padding": 8}
    median = plots.field("q50_ms", "quantitative", "step time in ms", scale=scale)
    yield Figure(
        "steps-by-rank",
        "Step times by rank",
        "A line spans the 1st to the 99th percentile, its bar the 25th to the 75th, and its tick "
        f"is the median.{_note(training)}",
        Table(_OF_A_RANKS_STEPS, rows),
        plots.boxes(
            _OF_A_RANKS_STEPS,
            len(rows),
            plots.field("rank", "ordinal", "rank"),
            plots.layer("tick", x=median),
        ),
    )


_OF_A_SLOW_STEP: tuple[Field[SlowStep], ...] = (
    value("number", "step", lambda each: each.number),
    value("at", "after", lambda each: each.at, "s", 2),
    value("ms", "time", lambda each: _MS * each.seconds, "ms", 1),
    value("rank", "longest on rank", lambda each: each.rank),
    value("term", "mostly in", lambda each: each.term.value),
    value("retraced", "retraced", lambda each: "yes" if each.retraced else "no"),
)


def _slow(training: Training) -> Iterator[Figure]:
    parts = training.parts
    found = [] if parts is None else slow_steps(training.ranks, parts, MOST_SLOW)
    if not found:
        return
    rows = table(found, _OF_A_SLOW_STEP)
    term = plots.field("term", "nominal", legend=plots.LEGEND)
    log = {"type": "log", "nice": False, "padding": 12}
    yield Figure(
        "slow-steps",
        f"The {len(found)} slowest steps" if len(found) > 1 else "The slowest step",
        _said(told.tail(training)),
        rows,
        plots.layered(
            plots.layer(
                "point",
                x=plots.field("at", "quantitative", "seconds since the first step"),
                y=plots.field("ms", "quantitative", "ms", scale=log),
                color=term,
                shape=term,
                tooltip=plots.tooltip(rows.columns),
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
    kept = [(rank, steps, _kept(steps)) for rank, steps in _known(drawn(training))]
    kept = [each for each in kept if each[2]]
    if not kept:
        return
    # Each rank's own clock, from its first step after the warm-up on.
    length = max(own[-1].end - own[0].before for _, _, own in kept)
    count = max(1, min(SLICES, *(len(own) for _, _, own in kept)))
    edges = [length * place / count for place in range(count + 1)]
    rows = [{"rank": rank.rank, **row} for rank, _, own in kept for row in _slices(own, edges)]
    usual = _MS * percentile(kept[0][1].bins, 0.5)
    longest = max(_MS * row.period for _, _, own in kept for row in own)
    # A run without slow steps has one colour.
    domain = [usual, max(longest, 2 * SLOW * usual)]
    yield Figure(
        "strip",
        "Step time over the run",
        "Each row is a rank; each cell shows the longest recorded step in that interval. Single "
        f"dark cells are pauses, dark bands are slow phases.{_note(training)}",
        Table(_OF_A_SLICE, tuple(rows)),
        _strip_plot(domain, len(kept)),
    )


def _kept(steps: Steps) -> list[Step]:
    """Return the steps that were kept after the warm-up, in their order."""
    rows = [*steps.rows, *(each.row for each in steps.slowest)]
    found = {row.number: row for row in rows if row.number > FIRST}
    return [found[number] for number in sorted(found)]


def _slices(own: Sequence[Step], edges: Sequence[float]) -> Iterator[dict[str, Value]]:
    """Yield the longest step in each slice of the run; a step of several slices is in each. edges:
    seconds at which slices begin and end."""
    longest = [0.0] * (len(edges) - 1)
    count = [0] * len(longest)
    for row in own:
        begin, end = row.before - own[0].before, row.end - own[0].before
        first = min(bisect_right(edges, begin), len(longest)) - 1
        for place in range(first, len(longest)):
            if place > first and edges[place] >= end:
                break
            longest[place] = max(longest[place], row.period)
            count[place] += 1
    for place, period in enumerate(longest):
        if count[place]:
            yield {
                "from_s": edges[place],
                "to_s": edges[place + 1],
                "longest_ms": _MS * period,
                "steps": count[place],
            }


def _strip_plot(domain: Sequence[float], rows: int) -> Plot:
    legend = {"title": "longest step in ms", "orient": "top", "gradientThickness": 8}
    scale = {"type": "log", "domain": list(domain), "clamp": True, "nice": False}
    return plots.layered(
        plots.layer(
            {"type": "rect", "strokeWidth": 0, "height": {"band": 0.8}},
            x=plots.field("from_s", "quantitative", "seconds after the warm-up"),
            x2={"field": "to_s"},
            y=plots.field("rank", "ordinal", "rank"),
            color=plots.field("longest_ms", "quantitative", scale=scale, legend=legend),
            tooltip=plots.tooltip(_OF_A_SLICE),
        ),
        height=plots.rows_high(rows, 28),
    )


# Terms -----------------------------------------------------------------------------------------

_LEFT = "unexplained"


def _terms(training: Training) -> Iterator[Figure]:
    parts = training.parts
    if parts is None:
        return
    shown = parts.shown
    names = {f"t{digit}": term.value for digit, term in enumerate(shown, 1)}
    columns = (
        Column("rank", "rank"),
        *(Column(key, name, "ms", 2) for key, name in names.items()),
        Column("left", _LEFT, "ms", 2),
        Column("all", "all", "ms", 2),
    )

    def row(name: str, of: Sequence[OfRank]) -> dict[str, Value]:
        return {
            "rank": name,
            **{
                key: _MS * fmean(each.terms.get(term, 0.0) for each in of)
                for key, term in zip(names, shown, strict=True)
            },
            "left": _MS * fmean(each.residual for each in of),
            "all": _MS * fmean(each.period for each in of),
        }

    places = training.few(MOST_RANKS)
    rows = [row(f"rank {parts.by_rank[at].rank}", [parts.by_rank[at]]) for at in places]
    others = [each for at, each in enumerate(parts.by_rank) if at not in set(places)]
    if others:
        rows.append(row(f"mean of {len(others)} others", others))
    yield Figure(
        "terms",
        "A typical step by term and rank",
        _said(told.unexplained(training)) + _note(training),
        Table(columns, tuple(rows)),
        plots.stacked_columns(
            plots.row_names("rank", sort=[str(each["rank"]) for each in rows]),
            names,
            "ms",
            rows=len(rows),
            each=56 if len(rows) <= MOST_RANKS // 2 else 40,
            tip=columns[:1],
        ),
    )


# Exchange, and what ranks used -----------------------------------------------------------------

_OF_AN_EXCHANGE = (
    Column("name", "in"),
    Column("tensors", "tensors per step"),
    Column("sparse", "sparse"),
    Column("megabytes", "size", "MB", 2),
    Column("calls", "calls in total"),
)


def _exchanged(training: Training) -> Iterator[Figure]:
    rank = training.ranks[0]
    rows: list[Row] = [
        {"name": name, "tensors": n, "sparse": sparse, "megabytes": size / 1e6, "calls": None}
        for name, (n, size, sparse) in rank.exchanged.items()
    ]
    empty = dict.fromkeys(("tensors", "sparse", "megabytes"))
    rows += [{"name": name, **empty, "calls": count} for name, count in rank.others.items()]
    if rows:
        table = Table(_OF_AN_EXCHANGE, tuple(rows))
        says = _said(told.exchanged(training))
        yield Figure("exchanged", f"Exchanged by rank {rank.rank}", says, table)


def _ranks(training: Training) -> Iterator[Figure]:
    use = training.use
    fields: tuple[Field[Rank], ...] = (
        value("rank", "rank", lambda rank: rank.rank),
        value("host", "host", lambda rank: rank.host),
        value("steps", "steps", lambda rank: rank.steps.count if rank.steps else 0),
        value("samples", "throughput", _samples_per_second, "samples/s", 1),
        value("cores", "cores", lambda r: use[r.rank].cores if r.rank in use else None, digits=2),
        value(
            "delayed",
            "waited for a core",
            lambda rank: 100 * use[rank.rank].delayed if rank.rank in use else None,
            "% of the time",
            1,
        ),
        value("gigabytes", "memory at its peak", lambda rank: rank.peak_memory / 1e9, "GB", 2),
    )
    rows = table(training.ranks, fields)
    shown = [rank.rank for rank in drawn(training)]
    yield Figure(
        "ranks",
        "Cores and memory of ranks",
        _said(told.cores(training), told.disturbed(training), told.memory(training))
        + _note(training),
        rows,
        plots.layered(
            plots.layer(
                "bar",
                {"filter": {"field": "rank", "oneOf": shown}},
                plots.known("cores"),
                x=plots.field("cores", "quantitative", "cores"),
                y=plots.field("rank", "ordinal", "rank"),
                tooltip=plots.tooltip(rows.columns),
            ),
            height=plots.rows_high(len(shown)),
        ),
    )


def _samples_per_second(rank: Rank) -> float | None:
    return rank.steps.samples_per_second if rank.steps else None
