"""The overview: the throughput of Horovod for every network and world size, beside its ratios."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.records.documents import Case
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots
from hvdperf.report.content import Column, Figure, Plot, Row, Table, Value
from hvdperf.report.numbers import cells_of, number
from hvdperf.report.words import plural, several, workload_labels
from hvdperf.verdict import worst

# The ratios beside the throughput, by the key of their columns.
_RATIOS = {
    "weak": Question.WEAK_SCALING,
    "strong": Question.STRONG_SCALING,
    "parity": Question.PARITY,
}
_SPEEDS = (
    Column("model", "network", brief="model"),
    Column("world_size", "replicas", brief="np"),
    Column("samples_per_second", "throughput", "samples/s", digits=0, brief="samples/s"),
    Column("slowest", "slowest round", "samples/s", digits=0, hidden=True),
    Column("fastest", "fastest round", "samples/s", digits=0, hidden=True),
    Column("rounds", "rounds", hidden=True),
)


def overview(cases: Sequence[Case]) -> Figure | None:
    """Return a row per network and world size of which the throughput of Horovod with its defaults
    or one of the ratios was asked; None if there is no throughput."""
    speeds = throughputs(cases)
    if not speeds:
        return None
    held = [case for case in cases if case.judged_as is JudgedAs.THRESHOLD]
    asked = [(c.workload, c.world_size) for c in held if c.question in _RATIOS.values()]
    labels = workload_labels(workload for workload, _ in (*speeds, *asked))
    keys = sorted({*speeds, *asked}, key=lambda key: (labels[key[0]], key[1]))
    rows = tuple(_row(key, labels[key[0]], speeds.get(key, ()), cases) for key in keys)
    last = {str(row["model"]): row for row in rows if row["rounds"]}
    said = several(
        [
            f"{label} {number(row['samples_per_second']):,.0f} samples/s on "
            f"{plural(int(number(row['world_size'])), 'replica')}"
            for label, row in last.items()
        ]
    )
    return Figure(
        "throughput",
        "Horovod with its defaults, all replicas together",
        f"Medians over the rounds: {said}. Lines reach from the slowest to the fastest round. The "
        "ratios beside the throughput have intervals in the table of verdicts.",
        Table(_columns(rows), rows),
        _plot(len(last), len({row["world_size"] for row in rows})),
    )


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns, without those of ratios that were not measured."""
    ratios = (
        column
        for key, question in _RATIOS.items()
        if any(row[key] is not None for row in rows)
        for column in (
            Column(key, question.label, digits=2, brief=question.label),
            Column(f"{key}_low", "lower", digits=2, hidden=True),
            Column(f"{key}_high", "upper", digits=2, hidden=True),
        )
    )
    return (*_SPEEDS, *ratios, Column("verdict", "worst verdict", brief="verdict"))


def _row(
    key: tuple[Workload, int], label: str, speeds: Sequence[float], cases: Sequence[Case]
) -> Row:
    workload, world_size = key
    # Some cases of a network train a variant of its workload.
    own = [c for c in cases if (c.workload.model, c.world_size) == (workload.model, world_size)]
    held = {
        case.question: case.figure
        for case in own
        if case.workload == workload and case.judged_as is JudgedAs.THRESHOLD
    }
    ratios: dict[str, Value] = {}
    for name, question in _RATIOS.items():
        ratios |= cells_of(held.get(question), name, f"{name}_low", f"{name}_high")
    return {
        "model": label,
        "world_size": world_size,
        "samples_per_second": median(speeds) if speeds else None,
        "slowest": min(speeds, default=None),
        "fastest": max(speeds, default=None),
        "rounds": len(speeds),
        **ratios,
        "verdict": worst([case.verdict for case in own]).value if own else None,
    }


def _plot(networks: int, sizes: int) -> Plot:
    """Return a plot with a bar per network and world size."""
    at = {
        "y": plots.row_names("model", sort=None),
        "yOffset": {"field": "world_size", "type": "ordinal"},
    }
    return plots.layered(
        plots.layer(
            "bar",
            **at,
            x=plots.field("samples_per_second", "quantitative", "samples/s"),
            color=plots.field("world_size", "ordinal", "replicas"),
            tooltip=plots.tooltip(_SPEEDS),
        ),
        plots.interval("slowest", "fastest", "x", **at),
        height=plots.rows_high(networks, max(26, 15 * sizes)),
    )
