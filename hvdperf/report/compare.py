"""A report that compares two sessions: A is named first, and B is compared with A.

Nothing is judged, so the report has no verdict. It counts B's cases. In the board, column "verdict"
has B's verdicts, and None for a case that only A has; column "verdict_a" has A's. Figures of
different fingerprints belong to different series: the report still shows them, and lists the
differences as warnings.

Two cases are compared, B's figure over A's, if both were measured soundly, with the same plan and
with blocks and runs of the same length and schedule. The bounds are exact from four rounds of each
session on. With fewer, they rest on the noise of turns and on the known noise of launches, as
at an early look (hvdperf.interim.early_shift). The ratio is no verdict, because it also contains
all other changes between the two sessions. A change of the stack is judged by --against, in one
session.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from hvdperf import interim, paths, stats, verdict
from hvdperf.errors import UserError
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.options import resuming
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.fingerprint import differences
from hvdperf.records.outcome import throughputs
from hvdperf.report import content, plots, words
from hvdperf.report.content import Column, Figure, Report, Row, Table
from hvdperf.stats import Interval
from hvdperf.work.base import Work
from hvdperf.work.blocks import Blocks
from hvdperf.work.table import work_of

# Settings that begin a new series.
_ANOTHER = ("inject", "against", *Blocks.depends_on)


class Kind(Enum):
    """The relation of B's figure to A's."""

    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"
    UNKNOWN = "too few rounds"
    NOT_COMPARABLE = "not comparable"
    ONLY_A = "only in A"
    ONLY_B = "only in B"


@dataclass(frozen=True)
class Changed:
    """The change from A to B. ratio: B's figure over A's, with bounds at a one-sided 0.025 each;
    None if there is no ratio. why: the reason why the figures cannot be compared."""

    kind: Kind
    ratio: Interval | None = None
    why: str = ""

    @property
    def word(self) -> str:
        """Return a word such as `higher`, `same within 3.2 %` or `not comparable (A: INVALID)`."""
        if self.kind is Kind.SAME and self.ratio is not None:
            apart = max(self.ratio.upper - 1, 1 - self.ratio.lower)
            return f"same within {100 * apart:.1f} %"
        return f"{self.kind.value} ({self.why})" if self.why else self.kind.value

    @property
    def cells(self) -> Row:
        return {**content.cells_of(self.ratio, "ratio", "lower", "upper"), "word": self.word}


def of_logarithms(a: Sequence[float | None], b: Sequence[float | None]) -> Changed:
    """Return the change between two series of independent rounds. a, b: the natural logarithms of
    the rounds' figures."""
    ours, theirs = ([x for x in side if x is not None and math.isfinite(x)] for side in (b, a))
    try:
        found = verdict.as_ratio(stats.shift(ours, theirs, verdict.ALPHA))
    except stats.NotMeasurable:
        return Changed(Kind.NOT_COMPARABLE, why="no round has a figure")
    return Changed(Kind.UNKNOWN, found) if math.isinf(found.upper) else _clear_or_same(found)


def _clear_or_same(found: Interval) -> Changed:
    """Return the change with a bounded ratio."""
    if found.upper < 1:
        return Changed(Kind.LOWER, found)
    return Changed(Kind.HIGHER if found.lower > 1 else Kind.SAME, found)


def _unlike(differ: Iterable[str]) -> Changed:
    """Return the change of two figures that cannot be compared, because these settings differ."""
    return Changed(Kind.NOT_COMPARABLE, why=f"settings differ: {'; '.join(differ)}")


# Differences in what was asked -----------------------------------------------------------------


def new_series(earlier: Archive, archive: Archive) -> list[str]:
    """Return the differences from an earlier session that begin a new series, one line each; [] if
    there are none."""
    then, now = (
        {name: asked[name] or "(nothing)" for name in _ANOTHER if name in asked}
        for asked in (earlier.session.asked.texts, archive.session.asked.texts)
    )
    return differences(earlier.fingerprint, archive.fingerprint) + differences(then, now)


def asked_apart(a: Archive, b: Archive, ours: Case, theirs: Case) -> list[str]:
    """Return the differences in what two cases of one name ask, such as in their batches. a, b:
    their sessions."""
    one, other = _asked(ours.comparison), _asked(theirs.comparison)
    return [*_differing(one, other, one), *_settings_apart(a, b, work_of(theirs.question))]


def _settings_apart(a: Archive, b: Archive, work: type[Work]) -> list[str]:
    """Return the differences of two sessions' settings that make figures of this work
    incomparable."""
    return _differing(a.session.asked.texts, b.session.asked.texts, work.depends_on)


def _asked(comparison: Comparison) -> dict[str, object]:
    """Return the settings of a comparison, by names for people."""
    asked: dict[str, object] = {
        f"workload {name}".replace("_", " "): value
        for name, value in vars(comparison.workload).items()
    }
    asked["collective"] = comparison.collective and comparison.collective.value
    for name in ("candidate", "reference"):
        side = getattr(comparison, name)
        asked[name] = f"{side.arm.label}, {side.kind.value} blocks"
    return {**asked, "ideal ratio": comparison.ideal_ratio}


def _differing(
    ours: Mapping[str, object], theirs: Mapping[str, object], names: Iterable[str]
) -> list[str]:
    """Return the differences of these settings, such as `workload batch 32 in A, 64 in B`."""
    return [
        f"{name} {ours.get(name) or 'none'} in A, {theirs.get(name) or 'none'} in B"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


# Pairs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A case of one or both sessions. a, b: the case in A and in B; None if it is not there. case:
    B's, or A's if B has none, for facts that both share."""

    a: Case | None
    b: Case | None
    case: Case
    changed: Changed


def pairs(a: Archive, b: Archive) -> list[Pair]:
    """Return a pair for every case of either session, by question, model, world size and name."""
    ours, theirs = ({case.name: case for case in each.cases} for each in (a, b))
    found = []
    for name, case in {**ours, **theirs}.items():
        first, second = ours.get(name), theirs.get(name)
        if first is None or second is None:
            changed = Changed(Kind.ONLY_B if first is None else Kind.ONLY_A)
        elif differ := asked_apart(a, b, first, second):
            changed = _unlike(differ)
        else:
            changed = _of_cases(first, second)
        found.append(Pair(first, second, case, changed))

    def place(pair: Pair) -> tuple[int, str, int, str]:
        case = pair.case
        return case.question.place, case.workload.model, case.world_size, case.name

    return sorted(found, key=place)


def _of_cases(a: Case, b: Case) -> Changed:
    """Return the change of a case that both sessions ask alike."""
    unsound = {name: _unsound(case) for name, case in (("A", a), ("B", b)) if not case.is_sound}
    if unsound:
        alike = len(unsound) == 2 and unsound["A"] == unsound["B"]
        reasons = {"both": unsound["A"]} if alike else unsound
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return Changed(Kind.NOT_COMPARABLE, why=why)
    changed = of_logarithms(a.outcome.observations, b.outcome.observations)
    if changed.kind is not Kind.UNKNOWN:
        return changed
    found = interim.early_shift(_rows_and_noise(b), _rows_and_noise(a), verdict.ALPHA)
    return changed if found is None else _clear_or_same(found)


def _unsound(case: Case) -> str:
    if case.failed:
        return "a launch failed"
    return "no figure" if case.figure is None else case.verdict.value


def _rows_and_noise(case: Case) -> tuple[list[stats.Row], verdict.Noise]:
    """Return the ln ratios of the turns of each round that counts, and the noise of launches that
    the session knew of; [] if the arms took no turns."""
    comparison = case.comparison
    rows: list[stats.Row] = []
    work = work_of(comparison.question)
    for measured in case.outcome.rounds:
        if work.takes_turns(comparison, measured.schedule) and work.measures(comparison, measured):
            with suppress(KeyError, ValueError, ZeroDivisionError):
                rows.append(work.observe(comparison, measured))
    return [row for row in rows if row], case.outcome.judgement.early or verdict.Noise()


# The report ------------------------------------------------------------------------------------

_RATIO = (
    Column("ratio", "B / A", digits=3, brief="B / A"),
    Column("lower", "lower", digits=3, brief="lower"),
    Column("upper", "upper", digits=3, brief="upper"),
    Column("word", "B's figure is", brief="B's figure is"),
)
_TRAININGS = (
    Column("label", "training", hidden=True),
    Column("model", "network", brief="model"),
    Column("world_size", "ranks", brief="ranks"),
    Column("batch", "batch", "samples"),
    Column("speed_a", "throughput A", "samples/s", 1, brief="A, samples/s"),
    Column("speed_b", "throughput B", "samples/s", 1, brief="B"),
    *_RATIO,
    Column("rounds_a", "rounds A"),
    Column("rounds_b", "rounds B"),
)
# Rounds of each session from which the exact bounds of a ratio are finite.
FEWEST_ROUNDS = 4
_CHANCE = (
    "Intervals have a confidence of 95 %: of 20 results that did not change, one is expected to "
    "look changed."
)


def comparison(a: Archive, b: Archive) -> Report:
    """Return the report. a: the session named first. Raises UserError if a session has no case."""
    for archive in (a, b):
        if not archive.cases:
            why = f": {archive.left_out[0]}" if archive.left_out else ""
            raise UserError(f"{paths.shown(archive.directory)}: there is no case in it{why}")
    found = pairs(a, b)
    trainings = _trainings(a, b)
    changed = differences(a.fingerprint, b.fingerprint)
    return Report(
        title=f"{a.name} (A) and {b.name} (B)",
        verdict=verdict.Verdict.INFO,
        counts=Counter(case.verdict for case in b.cases),
        headline=f"{words.plural(len(found), 'case')}, shown side by side",
        facts={"A": _session(a), "B": _session(b)},
        warnings=(*_warnings(a, b, changed), *_too_few(found, trainings)),
        board=Figure("board", "All cases", _says_cases(found), _table(found), brief=True),
        left_out=(*a.left_out, *b.left_out),
        overview=_throughputs(trainings) if trainings else None,
    )


def _figure_of(side: str) -> content.Field[Pair]:
    """Return the field of the figure of a session. side: a or b."""
    keys = [f"{key}_{side}" for key in ("figure", "lower", "upper")]
    letter = side.upper()

    def cells(pair: Pair) -> Row:
        case: Case | None = getattr(pair, side)
        return content.cells_of(case.figure if case else None, *keys)

    first, *bounds = (Column(key, f"{key[:-2]} {letter}", digits=3) for key in keys)
    hidden = (replace(each, hidden=True) for each in bounds)
    return content.Field((replace(first, brief=letter), *hidden), cells)


def _word(case: Case | None) -> str | None:
    return case.verdict.value if case else None


def _table(found: Sequence[Pair]) -> Table:
    """Return the table of all pairs: their verdicts, their figures, and the name of the case."""
    labels = words.workload_labels(pair.case.workload for pair in found)
    case, *parts = words.NAMES
    return Table.of(
        found,
        content.value("verdict_a", "verdict A", lambda pair: _word(pair.a)),
        content.value("verdict", "verdict B", lambda pair: _word(pair.b)),
        content.Field(tuple(parts), lambda pair: words.names_of(pair.case)),
        content.value("question", "question", lambda pair: words.question_of(pair.case)),
        content.value("model", "network", lambda pair: labels[pair.case.workload]),
        content.value("world_size", "ranks", lambda pair: pair.case.world_size),
        _figure_of("a"),
        _figure_of("b"),
        content.Field(_RATIO, lambda pair: pair.changed.cells),
        content.Field((case,), lambda pair: words.names_of(pair.case)),
    )


def _session(archive: Archive) -> str:
    """Return a line such as `20260131T235959Z-4711: profile smoke, AMD EPYC, 2 cores, ...: 3
    PASS`."""
    known = archive.fingerprint
    where = f"profile {archive.session.profile}, {words.machine(known)}, {words.stack(known)}"
    verdicts = verdict.counted(Counter(case.verdict for case in archive.cases))
    return f"{archive.name}: {where}: {verdicts}"


def _warnings(a: Archive, b: Archive, changed: Sequence[str]) -> Iterator[str]:
    if changed:
        yield (
            "A and B belong to different series, so a ratio may have other causes than the "
            "change of interest. Differences from A to B:"
        )
        yield from changed
    if a.name == b.name:
        yield "A and B are the same session"
    for name, archive in (("A", a), ("B", b)):
        if archive.session.asked.inject:
            yield f"{name} has an injected fault: {archive.session.asked.inject}"
        if archive.unfinished:
            yield f"{name}: {archive.unfinished}"


def _too_few(found: Sequence[Pair], trainings: Mapping[str, Training]) -> Iterator[str]:
    """Yield lines on figures without an interval, with the commands that measure enough."""
    few = [pair.case.name for pair in found if pair.changed.kind is Kind.UNKNOWN]
    short = [changed for changed, _ in trainings.values() if changed.kind is Kind.UNKNOWN]
    needs = f"without an interval: each session needs {FEWEST_ROUNDS} rounds"
    if few:
        yield (
            f"{words.plural(len(few), 'case')} {needs}, such as {few[0]}; pytest perf/ "
            f"{' '.join(resuming('SESSION', 10))} goes on with what is undecided"
        )
    if short:
        yield (
            f"{words.plural(len(short), 'throughput')} {needs}, and a case that is clear has "
            "three; pytest perf/ --profile history measures eight"
        )


def _says_cases(found: Sequence[Pair]) -> str:
    return _says("case", {pair.case.name: pair.changed for pair in found})


def _says(compared: str, changes: Mapping[str, Changed]) -> str:
    """Return a sentence with the number of changes of each kind, and the largest change to a higher
    or lower figure. compared: what is compared, in the singular. changes: by name."""
    kinds = Counter(changed.kind for changed in changes.values())
    numbers = ", ".join(f"{kinds[kind]} {kind.value}" for kind in Kind if kinds[kind])
    summary = f"Of {words.plural(len(changes), compared)}, B's figure is: {numbers or 'none'}."
    clear = {
        name: changed.ratio
        for name, changed in changes.items()
        if changed.kind in (Kind.HIGHER, Kind.LOWER) and changed.ratio is not None
    }
    if not clear:
        return summary
    name, most = max(clear.items(), key=lambda item: abs(math.log(item[1].estimate)))
    return f"{summary} The largest change is that of {name}: B / A = {words.shown(most)}."


# A training's throughput: its change, and the cells of its row.
Training = tuple[Changed, Sequence[content.Value]]


def _trainings(a: Archive, b: Archive) -> dict[str, Training]:
    """Return the throughputs of Horovod at its defaults, by a label of workload and world size."""
    ours, theirs = throughputs(a.cases), throughputs(b.cases)
    labels = words.workload_labels(workload for workload, _ in {**ours, **theirs})
    differ = _settings_apart(a, b, Blocks)
    found: dict[str, Training] = {}
    for key in sorted({**ours, **theirs}, key=str):
        workload, world_size = key
        speeds_a, speeds_b = ours.get(key, ()), theirs.get(key, ())
        if not speeds_a or not speeds_b:
            changed = Changed(Kind.ONLY_B if speeds_b else Kind.ONLY_A)
        elif differ:
            changed = _unlike(differ)
        else:
            changed = of_logarithms(*([math.log(x) for x in side] for side in (speeds_a, speeds_b)))
        label = f"{labels[workload]}, {words.plural(world_size, 'rank')}"
        speeds = (median(own) if own else None for own in (speeds_a, speeds_b))
        cells = (*speeds, *changed.cells.values(), len(speeds_a), len(speeds_b))
        row = label, labels[workload], world_size, workload.batch, *cells
        found[label] = changed, row
    return found


def _throughputs(trainings: Mapping[str, Training]) -> Figure:
    """Return the figure of the throughputs' ratios, with a line at 1, where nothing changes."""
    says = _says("training", {label: changed for label, (changed, _) in trainings.items()})
    table = Table.filled(_TRAININGS, (row for _, row in trainings.values()))
    x = plots.axis(table, "ratio", "throughput of B / throughput of A", scale={"zero": False})
    return Figure(
        "throughput",
        "B's throughput / A's",
        f"{says} Samples/s of all ranks together, for Horovod with default settings: medians over "
        f"the rounds of valid cases, and their ratio over all pairs of rounds. {_CHANCE}",
        table,
        plots.interval(table, "label", x, "", plots.line("ideal", x={"datum": 1})),
        lead=says,
    )
