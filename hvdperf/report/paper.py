"""What a paper shows of a session: a few figures whose captions stand alone, and a table of the
main results. Every number and every word on how it was measured is of the session's documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hvdperf.errors import UserError
from hvdperf.plan.comparisons import Question
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots
from hvdperf.report.cases import asked, at_95, cells_of, number
from hvdperf.report.content import Column, Figure, Row, Table, Value
from hvdperf.report.methods import processor
from hvdperf.report.sections import scaling, wall_time
from hvdperf.report.words import (
    INTERVALS,
    plural,
    published_name,
    span,
    workload_labels,
)

# A reader of a paper looks at no more.
MOST_FIGURES = 6
_IDEAL = "The dashed line is the ideal."
_SPEEDUP = "Speedup of weak scaling: samples/s of n ranks over samples/s of one rank."
_EFFICIENCY = "Efficiency of weak scaling: samples/s of n ranks over n times samples/s of one rank."
# Figures of strong scaling, the first of which is shown that was measured.
_STRONG = (
    (
        "scaling-strong-split",
        Question.STRONG_SCALING,
        "samples/s of n ranks over samples/s of one rank, where a batch of {} is divided among the "
        "ranks",
    ),
    (
        "scaling-strong-training",
        Question.WALL_TIME_STRONG,
        "the wall time of one rank over that of n ranks, from graph tracing to the last step, "
        "where the steps, with a batch of {} on each rank, are divided among the ranks",
    ),
)


def paper_figures(first: Archive, *others: Archive) -> list[Figure]:
    """Return the figures, those first that a reader asks for first. What each says is its caption:
    it names the networks, the machine, the rounds and the confidence of intervals. others: further
    sessions, whose networks have curves of their own beside those of the first; then there are only
    curves."""
    sessions = _measured(first, *others)
    cases = [case for each in sessions for case in each.cases]
    curves = {figure.name: figure for figure in scaling.figures(*sessions)}
    # Of sessions that were put together, each is one observation.
    one = "session" if first.sessions else "round"
    found = [
        _throughput(curves.get("scaling-throughput"), cases, one),
        _weak(curves.get("scaling-weak-steady_state"), cases, one, "speedup", _SPEEDUP),
        _strong(curves, cases, one),
        *([] if others else [_parity(cases, one), _communication(cases, one), _wall_time(cases)]),
        _weak(curves.get("scaling-weak-efficiency"), cases, one, "efficiency", _EFFICIENCY),
    ]
    drawn = [each for each in found if each is not None and each.plot is not None]
    where = measured_on(first)
    return [replace(each, says=f"{each.says} {where}") for each in drawn[:MOST_FIGURES]]


def _measured(*archives: Archive) -> list[scaling.Measured]:
    """Return the sound cases of sessions. With several of them, the names of networks say how many
    replicas a node had. Raises UserError if two sessions had as many."""
    sound = [[case for case in archive.cases if case.is_sound] for archive in archives]
    if len(archives) == 1:
        together = [each.cases for each in archives[0].sessions]
        return [scaling.Measured(sound[0], published_name, together)]
    widths = [max((max(case.replicas_per_node) for case in own), default=0) for own in sound]
    for width, archive in zip(widths, archives, strict=True):
        if widths.count(width) > 1:
            raise UserError(
                f"{archive.name}: has at most {plural(width, 'rank')} a node, as another "
                "session: one figure shows each number once"
            )

    def named(width: int) -> Callable[[str], str]:
        return lambda model: f"{published_name(model)}, {width} a node"

    return [scaling.Measured(own, named(width)) for own, width in zip(sound, widths, strict=True)]


def measured_on(archive: Archive) -> str:
    """Return a sentence on the machine and the stack."""
    known, session = archive.fingerprint, archive.session
    hosts = len(session.hosts) if session is not None else 0
    of_hosts = f"{plural(hosts, 'host')}; that of rank 0 has " if hosts > 1 else ""
    parts = [processor(known)]
    if known["gpus"]:
        parts.insert(0, f"{plural(known['gpus'], 'GPU')} ({' and '.join(known['gpu_model'])})")
    versions = (f"TensorFlow {known['tensorflow']}", f"Horovod {known['horovod']}")
    stack = ", ".join(filter(None, (*versions, known["mpi_library"])))
    return f"Measured on {of_hosts}{' and '.join(parts)} with {stack}."


# Captions --------------------------------------------------------------------------------------


def _captioned(figure: Figure | None, name: str, title: str, *sentences: str) -> Figure | None:
    """Return the figure under another name with a caption of these sentences; "" is left out."""
    if figure is None:
        return None
    return replace(figure, name=name, title=title, says=" ".join(filter(None, (title, *sentences))))


def _intervals(
    rows: Iterable[Row], low: str, counts: Sequence[int], word: str, words: str = ""
) -> str:
    """Return a sentence on the bars of a plot. low: key of the lower bounds. counts: how many
    launches or rounds each point has. word, words: what these are called."""
    rows = list(rows)
    known = any(row[low] is not None for row in rows)
    many = f"{span(counts)} {word if set(counts) == {1} else words or f'{word}s'}"
    if not known:
        return f"Points are of {many}, too few for an interval."
    bare = any(row[low] is None for row in rows)
    left = " Points without a bar have too few of them." if bare else ""
    return f"Bars are 95 % intervals over {many}.{left}"


def _counts(cases: Iterable[Case], one: str) -> list[int]:
    """Return how many observations the figure of each case has. one: a session or a round."""
    if one == "session":
        return [case.figure.observations for case in cases if case.figure is not None]
    return _rounds(cases)


def _rounds(cases: Iterable[Case]) -> list[int]:
    return [case.outcome.judgement.rounds for case in cases]


def _networks(rows: Iterable[Row]) -> str:
    """Return a sentence that names the networks; their names may have commas."""
    return _named([str(row["model"]) for row in rows])


def _named(labels: Iterable[str]) -> str:
    names = list(dict.fromkeys(labels))
    return f"{'Network' if len(names) == 1 else 'Networks'}: {'; '.join(names)}."


def _batch(cases: Iterable[Case]) -> str:
    """Return the batch in words, such as `32 samples`."""
    return f"{span({case.workload.batch for case in cases})} samples"


def _throughput(figure: Figure | None, cases: Sequence[Case], one: str) -> Figure | None:
    if figure is None:
        return None
    rows = figure.table.rows
    counts = [int(number(row["launches"])) for row in rows]
    of = (one,) if one == "session" else ("launch", "launches")
    batch = span({workload.batch for workload, _ in throughputs(cases)})
    return _captioned(
        figure,
        "throughput",
        "Throughput of training with Horovod over the number of ranks.",
        f"{_networks(rows)} Every rank has a batch of {batch} samples.",
        "Thin dashed lines are the ideal, n times the throughput of one rank.",
        _intervals(rows, "samples_per_second_low", counts, *of),
    )


def _weak(
    figure: Figure | None, cases: Sequence[Case], one: str, name: str, title: str
) -> Figure | None:
    """Return a figure of weak scaling. name: also the key of its values."""
    own = _weak_cases(cases)
    if figure is None or not own:
        return None
    rows = figure.table.rows
    return _captioned(
        figure,
        name,
        title,
        f"{_networks(rows)} Every rank has a batch of {_batch(own)}.",
        _IDEAL,
        _intervals(rows, f"{name}_low", _counts(own, one), one),
    )


def _weak_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the cases of steady-state weak scaling, and else those of whole trainings, whose
    breakdown has a speed, too."""
    found = [*asked(cases, Question.WALL_TIME_WEAK), *asked(cases, Question.WEAK_SCALING)]
    return list({(case.session, case.workload, case.world_size): case for case in found}.values())


def _strong(curves: Mapping[str, Figure], cases: Sequence[Case], one: str) -> Figure | None:
    for name, question, what in _STRONG:
        own = asked(cases, question)
        if name in curves and own:
            rows = curves[name].table.rows
            return _captioned(
                curves[name],
                "speedup-strong",
                f"Speedup of strong scaling: {what.format(_batch(own))}.",
                _networks(rows),
                _IDEAL,
                _intervals(rows, "speedup_low", _counts(own, one), one),
            )
    return None


# Ratios by network -----------------------------------------------------------------------------

_COLUMNS = (
    Column("model", "network"),
    Column("world_size", "ranks"),
    Column("layout", "nodes x ranks"),
)
_RATIO = (
    *_COLUMNS,
    Column("ratio", "ratio of speeds", digits=3),
    Column("ratio_low", "lower", digits=3),
    Column("ratio_high", "upper", digits=3),
)
_SHARE = (
    *_COLUMNS,
    Column("share", "exposed communication", "% of a step", digits=1),
    Column("share_low", "lower", "% of a step", digits=1),
    Column("share_high", "upper", "% of a step", digits=1),
)


def _rows(cases: Sequence[Case], *keys: str) -> list[Row]:
    """Return a row per case that has a figure, ordered by network and size. keys: of the figure and
    its bounds."""
    labels = workload_labels((case.workload for case in cases), published_name)
    ordered = sorted(cases, key=lambda case: (labels[case.workload], case.world_size))
    return [
        {
            "model": labels[case.workload],
            "world_size": case.world_size,
            "layout": scaling.layout(case.replicas_per_node),
            **cells_of(at_95(case), *keys),
        }
        for case in ordered
    ]


def _parity(cases: Sequence[Case], one: str) -> Figure | None:
    own = [case for case in asked(cases, Question.PARITY) if case.figure is not None]
    if not own:
        return None
    keys = ("ratio", "ratio_low", "ratio_high")
    rows = _rows(own, *keys)
    what = "speed of Horovod / speed of MirroredStrategy"
    title = "Speed of Horovod over that of MirroredStrategy on the same devices."
    plot = plots.by_network(
        plots.field("ratio", "quantitative", what, scale={"zero": False}),
        keys[1:],
        rows,
        plots.line("ideal", x={"datum": 1}),
        tip=plots.tooltip(_RATIO),
    )
    return Figure(
        "parity",
        title,
        f"{title} {_networks(rows)} Every rank has a batch of {_batch(own)}. Right "
        "of the dashed line Horovod is faster. "
        f"{_intervals(rows, 'ratio_low', _counts(own, one), one)}",
        Table(_RATIO, tuple(rows)),
        plot,
    )


def _communication(cases: Sequence[Case], one: str) -> Figure | None:
    """Return the figure of the share of a step that is spent on waiting for communication: 1 - the
    ratio of the speeds with and without it."""
    own = [case for case in asked(cases, Question.COMMUNICATION) if case.figure is not None]
    if not own:
        return None
    rows: list[Row] = []
    for row in _rows(own, "ratio", "high", "low"):
        # A high ratio is a small share.
        shares = {key: _lost(row[key]) for key in ("ratio", "low", "high")}
        named = {"share": "ratio", "share_low": "low", "share_high": "high"}
        rows.append({**row, **{key: shares[of] for key, of in named.items()}})
    title = "Share of a training step that communication takes and computation does not hide."
    plot = plots.by_network(
        plots.field("share", "quantitative", "exposed communication, % of a step"),
        ("share_low", "share_high"),
        rows,
        tip=plots.tooltip(_SHARE),
    )
    return Figure(
        "communication",
        title,
        f"{title} It is 1 - the speed with the exchange of gradients / the speed without it. "
        f"{_networks(rows)} Every rank has a batch of {_batch(own)}. "
        f"{_intervals(rows, 'share_low', _counts(own, one), one)}",
        Table(_SHARE, tuple(rows)),
        plot,
    )


def _lost(ratio: Value) -> float | None:
    return None if ratio is None else 100 * (1 - number(ratio))


def _wall_time(cases: Sequence[Case]) -> Figure | None:
    own = [
        case for case in asked(cases, Question.WALL_TIME_WEAK) if case.outcome.breakdown is not None
    ]
    if not own:
        return None
    labels = workload_labels((case.workload for case in own), published_name)
    figure = wall_time.shares(own, labels)
    rounds = _rounds(own)
    many = f"{span(rounds)} {'round' if set(rounds) == {1} else 'rounds'}"
    steps = span({wall_time.breakdown_of(case).candidate.steps for case in own})
    return _captioned(
        figure,
        "wall-time",
        "Where the wall time of a training goes, from the launch of its processes to their end.",
        f"{_named(labels[case.workload] for case in own)} Every "
        f"rank trains for {steps} steps with a batch of {_batch(own)}. Means over the ranks and "
        f"{many}.",
    )


# Tables ----------------------------------------------------------------------------------------


def paper_tables(first: Archive, *others: Archive) -> list[Figure]:
    """Return the tables of the main results, of weak and of strong scaling, without plots. others:
    further sessions."""
    sessions = _measured(first, *others)
    curves = {figure.name: figure for figure in scaling.figures(*sessions)}
    speeds = {}
    if "scaling-throughput" in curves:
        rows = curves["scaling-throughput"].table.rows
        speeds = {(row["model"], row["world_size"]): row for row in rows}
    weak = curves.get("scaling-weak-steady_state")
    strong = next((curves[name] for name, *_ in _STRONG if name in curves), None)
    where = measured_on(first)
    return [
        _results(figure, f"results-{name}", title, own, where)
        for name, title, figure, own in (
            ("weak", "Weak scaling: throughput, speedup and efficiency", weak, speeds),
            # The ratios are not those of the throughputs, which are of whole batches.
            ("strong", "Strong scaling: speedup and efficiency", strong, {}),
        )
        if figure is not None
    ]


def _results(
    figure: Figure, name: str, title: str, speeds: Mapping[tuple[Value, Value], Row], where: str
) -> Figure:
    """Return the table of a figure of speedups. speeds: rows of throughputs with their intervals,
    by network and world size."""
    rows = tuple(
        {
            **dict.fromkeys(column.key for column in scaling.SPEED),
            **row,
            **speeds.get((row["model"], row["world_size"]), {}),
            # The ratios of one replica to itself have no interval.
            **(dict.fromkeys(_BOUNDS) if row["world_size"] == 1 else {}),
        }
        for row in figure.table.rows
    )
    several_nodes = any(not str(row["layout"]).startswith("1 x ") for row in rows)
    keys = ("model", "world_size", *(["layout"] if several_nodes else []))
    columns = {column.key: column for column in (*figure.table.columns, *scaling.SPEED)}
    results = ("samples_per_second", *_RATIOS) if speeds else _RATIOS
    shown = (*keys, *(f"{key}{end}" for key in results for end in ("", "_low", "_high")))
    return Figure(
        name,
        title,
        f"Speedup is S_n / S_1, the throughput of n ranks over that of one rank; efficiency is "
        f"speedup / n.{INTERVALS} {where}",
        Table(tuple(columns[key] for key in shown), rows),
    )


_RATIOS = ("speedup", "efficiency")
_BOUNDS = tuple(f"{key}{end}" for key in _RATIOS for end in ("_low", "_high"))
