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

from hvdperf import scatter
from hvdperf.interim import early_shift
from hvdperf.paths import shown as path_shown
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.options import resuming
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.fingerprint import differences
from hvdperf.records.outcome import throughputs
from hvdperf.report import plots
from hvdperf.report.cases import cells_of
from hvdperf.report.content import (
    CaseNote,
    Column,
    Figure,
    Plot,
    Report,
    Row,
    Section,
    Table,
    Value,
)
from hvdperf.report.words import NAMES, names_of, plural, question_of, shown, workload_labels
from hvdperf.session.results_writer import with_cases
from hvdperf.stats import Interval, NotMeasurable, shift
from hvdperf.verdict import ALPHA, Noise, Verdict, as_ratio, counted
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


@dataclass(frozen=True)
class Pair:
    """A case of one or both sessions. a, b: the case in A and in B; None if it is not there."""

    a: Case | None
    b: Case | None
    changed: Changed

    @property
    def case(self) -> Case:
        """Return B's case, or A's if B has none: for facts that both share."""
        found = self.b or self.a
        assert found is not None
        return found


def pairs(a: Archive, b: Archive) -> list[Pair]:
    """Return a pair for every case of either session, by question, model, world size and name."""
    ours, theirs = ({case.name: case for case in each.cases} for each in (a, b))

    found = []
    for name in {**ours, **theirs}:
        first, second = ours.get(name), theirs.get(name)
        otherwise = asked_otherwise(a, b, work_of((second or ours[name]).question))
        found.append(Pair(first, second, _of_cases(first, second, otherwise)))
    questions = list(Question)

    def place(pair: Pair) -> tuple[int, str, int, str]:
        case = pair.case
        return questions.index(case.question), case.workload.model, case.world_size, case.name

    return sorted(found, key=place)


def new_series(earlier: Archive, archive: Archive) -> list[str]:
    """Return the differences from an earlier session that begin a new series, one line each; [] if
    there are none."""
    then, now = (
        {name: asked[name] or "(nothing)" for name in _ANOTHER if name in asked}
        for asked in map(_asked_of, (earlier, archive))
    )
    return differences(earlier.fingerprint, archive.fingerprint) + differences(then, now)


def _asked_of(archive: Archive) -> Mapping[str, str]:
    return archive.session.asked.texts if archive.session is not None else {}


def asked_otherwise(a: Archive, b: Archive, work: type[Work]) -> list[str]:
    """Return the differences of two sessions' settings that make figures of this work
    incomparable; [] if the settings of a session are not known."""
    if a.session is None or b.session is None:
        return []
    return _differing(a.session.asked.texts, b.session.asked.texts, work.depends_on)


def _differing(
    ours: Mapping[str, object], theirs: Mapping[str, object], names: Iterable[str]
) -> list[str]:
    """Return the differences of these settings, such as `workload batch 32 in A, 64 in B`."""
    return [
        f"{name} {ours.get(name) or 'none'} in A, {theirs.get(name) or 'none'} in B"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def not_alike(otherwise: Sequence[str]) -> Changed:
    """Return the change of two figures that cannot be compared. otherwise: settings that differ."""
    return Changed(Kind.NOT_COMPARABLE, why=f"settings differ: {'; '.join(otherwise)}")


def _of_cases(a: Case | None, b: Case | None, otherwise: Sequence[str]) -> Changed:
    """Return the change of one case between two sessions. a, b: None if the session lacks it.
    otherwise: the sessions' settings that differ."""
    if a is None or b is None:
        return Changed(Kind.ONLY_B if a is None else Kind.ONLY_A)
    if differ := [*asked_apart(a, b), *otherwise]:
        return not_alike(differ)
    unsound = {name: _unsound(case) for name, case in (("A", a), ("B", b)) if not case.is_sound}
    if unsound:
        alike = len(unsound) == 2 and unsound["A"] == unsound["B"]
        reasons = {"both": unsound["A"]} if alike else unsound
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return Changed(Kind.NOT_COMPARABLE, why=why)
    changed = of_logarithms(a.outcome.observations, b.outcome.observations)
    if changed.kind is not Kind.UNKNOWN:
        return changed
    found = early_shift(_rows_and_noise(b), _rows_and_noise(a), ALPHA)
    return changed if found is None else _clear_or_same(found)


def asked_apart(a: Case, b: Case) -> list[str]:
    """Return the differences of what two cases of one name ask, such as their batches."""
    ours, theirs = _asked(a.comparison), _asked(b.comparison)
    return _differing(ours, theirs, ours)


def _unsound(case: Case) -> str:
    if case.failed:
        return "a launch failed"
    return "no figure" if case.figure is None else case.verdict.value


def _rows_and_noise(case: Case) -> tuple[list[scatter.Row], Noise]:
    """Return the ln ratios of the turns of each round that counts, and the noise of launches that
    the session knew of; [] if the arms took no turns."""
    comparison = case.comparison
    rows: list[scatter.Row] = []
    work = work_of(comparison.question)
    for measured in case.outcome.rounds:
        if work.takes_turns(comparison, measured.schedule) and work.measures(comparison, measured):
            with suppress(KeyError, ValueError, ZeroDivisionError):
                rows.append(work.observe(comparison, measured))
    return [row for row in rows if row], case.outcome.judgement.early or Noise()


def of_logarithms(a: Sequence[float | None], b: Sequence[float | None]) -> Changed:
    """Return the change between two series of independent rounds. a, b: the natural logarithms of
    the rounds' figures."""
    ours, theirs = ([x for x in side if x is not None and math.isfinite(x)] for side in (b, a))
    try:
        found = as_ratio(shift(ours, theirs, ALPHA))
    except NotMeasurable:
        return Changed(Kind.NOT_COMPARABLE, why="no round has a figure")
    if math.isinf(found.upper):
        return Changed(Kind.UNKNOWN, found)
    return _clear_or_same(found)


def _clear_or_same(found: Interval) -> Changed:
    """Return the change with a bounded ratio."""
    if found.upper < 1:
        return Changed(Kind.LOWER, found)
    return Changed(Kind.HIGHER if found.lower > 1 else Kind.SAME, found)


def _asked(comparison: Comparison) -> dict[str, object]:
    """Return what a comparison asks, by names for people."""
    collective = comparison.collective
    sides = {"candidate": comparison.candidate, "reference": comparison.reference}
    return {
        **{
            f"workload {name}".replace("_", " "): value
            for name, value in vars(comparison.workload).items()
        },
        "collective": None if collective is None else collective.value,
        **{name: f"{side.arm.label}, {side.kind.value} blocks" for name, side in sides.items()},
        "ideal ratio": comparison.ideal_ratio,
    }


# The report ------------------------------------------------------------------------------------

_RATIO = (
    Column("ratio", "B / A", digits=3, brief="B / A"),
    Column("lower", "lower", digits=3, brief="lower"),
    Column("upper", "upper", digits=3, brief="upper"),
    Column("word", "B's figure is", brief="B's figure is"),
)
_CASE = (
    *NAMES,
    Column("question", "question"),
    Column("model", "network"),
    Column("world_size", "ranks"),
)
# Rounds of each session from which the exact bounds of a ratio are finite.
FEWEST_ROUNDS = 4
_CHANCE = (
    "Each interval has a confidence of 95 %: of 20 figures that did not change, one is "
    "expected to look changed. Any other difference of the machine between the two sessions "
    "affects the ratio, too. With three rounds a session, the interval of a case rests on the "
    "known noise of launches."
)


def comparison(a: Archive, b: Archive) -> Report:
    """Return the report. a: the session named first. Raises UserError if a session has no case."""
    for archive in (a, b):
        with_cases(archive)
    found = pairs(a, b)
    rows = _rows(found)
    throughput = _throughputs(a, b)
    changed = differences(a.fingerprint, b.fingerprint)
    return Report(
        title=f"{a.name} (A) and {b.name} (B)",
        verdict=Verdict.INFO,
        counts=Counter(case.verdict for case in b.cases),
        facts=_facts(a, b, found, changed),
        warnings=(*_warnings(a, b, changed), *_too_few(found, throughput)),
        board=_board(found, rows),
        notes=tuple(_notes(found)),
        sections=(_ratios(found, rows), throughput),
        left_out=(*a.left_out, *b.left_out),
    )


def beside(report: Report, a: Archive, b: Archive) -> Report:
    """Return the report of session b with a section of its figures beside those of an earlier
    session a; if that is of another series, with a warning that at most throughputs are compared
    (Question.BASELINE)."""
    name = path_shown(a.directory)
    if changed := new_series(a, b):
        judged = any(case.question is Question.BASELINE for case in b.cases)
        what = "Only throughputs are" if judged else "Not"
        why = f"{what} compared with {name}: a new series begins, because these differ:"
        return replace(report, warnings=(*report.warnings, why, *changed))
    found = pairs(a, b)
    section = _ratios(found, _rows(found))
    if not section.figures:
        told = f"Compared with {name}: no case has a figure in both sessions."
        return replace(report, warnings=(*report.warnings, told))
    title = f"This session (B) compared with {name} (A), of the same machine and stack"
    figures = tuple(replace(figure, title=title) for figure in section.figures)
    return replace(report, sections=(*report.sections, replace(section, figures=figures)))


def _facts(a: Archive, b: Archive, found: Sequence[Pair], changed: Sequence[str]) -> dict[str, str]:
    kinds = Counter(pair.changed.kind for pair in found)
    both = len(found) - kinds[Kind.ONLY_A] - kinds[Kind.ONLY_B]
    return {
        "A": _session(a),
        "B": _session(b),
        "cases": f"{both} in both, {kinds[Kind.ONLY_A]} only in A, {kinds[Kind.ONLY_B]} only in B",
        "series": "two; the warnings list the differences" if changed else "one",
    }


def _session(archive: Archive) -> str:
    """Return a line such as `20260131T235959Z-4711: profile smoke, AMD EPYC, 2 cores, ...: 3
    PASS`."""
    known, profile = archive.fingerprint, ""
    if archive.session is not None:
        profile = f"profile {archive.session.profile}, "
    gpus = f", {plural(known['gpus'], 'GPU')}" if known["gpus"] else ""
    verdicts = counted(Counter(case.verdict for case in archive.cases))
    return (
        f"{archive.name}: {profile}{known['cpu_model']}, {plural(known['cores'], 'core')}{gpus}, "
        f"TensorFlow {known['tensorflow']}, Horovod {known['horovod']}: {verdicts}"
    )


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
        if archive.session is None:
            yield f"session.json of {name} cannot be read"
        elif archive.session.asked.inject:
            yield f"{name} has an injected fault: {archive.session.asked.inject}"
        if archive.unfinished:
            yield f"{name}: {archive.unfinished}"
    ours, theirs = _against(a), _against(b)
    if ours != theirs:
        yield f"A is compared with {ours}, B with {theirs}"


def _too_few(found: Sequence[Pair], throughput: Section) -> Iterator[str]:
    """Yield lines on figures without an interval, with the commands that measure enough."""
    few = [pair for pair in found if pair.changed.kind is Kind.UNKNOWN]
    if few:
        yield (
            f"{plural(len(few), 'case')} without an interval, such as {few[0].case.name}: each "
            f"session needs {FEWEST_ROUNDS} rounds; pytest perf/ "
            f"{' '.join(resuming('SESSION', 10))} goes on with what is undecided"
        )
    speeds = [row for figure in throughput.figures for row in figure.table.rows]
    short = [row for row in speeds if row["word"] == Kind.UNKNOWN.value]
    if short:
        yield (
            f"{plural(len(short), 'throughput')} without an interval: each session needs "
            f"{FEWEST_ROUNDS} rounds, and a case that is clear has three; pytest perf/ --profile "
            "history measures eight"
        )


def _against(archive: Archive) -> str:
    """Return the stack of --against and its differences from the session's own stack."""
    session = archive.session
    if session is None or session.against is None:
        return "no other stack"
    differs = "; ".join(session.changed) or "nothing differs"
    return f"{session.against} ({differs})"


def _rows(found: Sequence[Pair]) -> tuple[Row, ...]:
    """Return a row for each pair, for the board and for the ratios."""
    labels = workload_labels(pair.case.workload for pair in found)
    return tuple(
        {
            "verdict": pair.b.verdict.value if pair.b else None,
            "verdict_a": pair.a.verdict.value if pair.a else None,
            "question": question_of(pair.case),
            "model": labels[pair.case.workload],
            "world_size": pair.case.world_size,
            **cells_of(pair.a.figure if pair.a else None, "figure_a", "lower_a", "upper_a"),
            **cells_of(pair.b.figure if pair.b else None, "figure_b", "lower_b", "upper_b"),
            **_changed_cells(pair.changed),
            **names_of(pair.case),
        }
        for pair in found
    )


def _board(found: Sequence[Pair], rows: tuple[Row, ...]) -> Figure:
    columns = (
        Column("verdict_a", "verdict A"),
        Column("verdict", "verdict B"),
        *_CASE[1:],
        *_figure_columns("a"),
        *_figure_columns("b"),
        *_RATIO,
        _CASE[0],
    )
    # A terminal shows the ratios instead.
    table = Table(tuple(replace(column, brief="") for column in columns), rows)
    return Figure("board", "All cases", _says_cases(found), table, brief=True)


def _figure_columns(side: str) -> tuple[Column, ...]:
    return (
        Column(f"figure_{side}", f"figure {side.upper()}", digits=3, brief=side.upper()),
        Column(f"lower_{side}", f"lower {side.upper()}", digits=3, hidden=True),
        Column(f"upper_{side}", f"upper {side.upper()}", digits=3, hidden=True),
    )


def _says_cases(found: Sequence[Pair]) -> str:
    return _says("case", {pair.case.name: pair.changed for pair in found})


def _says(what: str, changes: Mapping[str, Changed]) -> str:
    """Return a sentence with the number of changes of each kind, and the largest change to a higher
    or lower figure. what: the singular of the compared things. changes: by name."""
    kinds = Counter(changed.kind for changed in changes.values())
    numbers = ", ".join(f"{kinds[kind]} {kind.value}" for kind in Kind if kinds[kind])
    summary = f"Of {plural(len(changes), what)}, B's figure is: {numbers or 'none'}."
    clear = {
        name: changed.ratio
        for name, changed in changes.items()
        if changed.kind in (Kind.HIGHER, Kind.LOWER) and changed.ratio is not None
    }
    if not clear:
        return summary
    name, most = max(clear.items(), key=lambda item: abs(math.log(item[1].estimate)))
    return f"{summary} The largest change is that of {name}: B / A = {shown(most)}."


def _notes(found: Sequence[Pair]) -> Iterator[CaseNote]:
    """Yield notes on the cases of B: why a pair cannot be compared, the reasons for its verdicts,
    and the output of B's failure."""
    for pair in found:
        if pair.b is None:
            continue
        paragraphs = [f"{pair.changed.word}."] if pair.changed.why else []
        for name, case in (("A", pair.a), ("B", pair.b)):
            if case is not None and case.reason:
                paragraphs.append(f"{name}, {case.verdict.value}: {case.reason}")
        output = () if pair.b.outcome.failure is None else pair.b.outcome.failure.tail
        if paragraphs or output:
            yield CaseNote(pair.b.name, pair.b.verdict, tuple(paragraphs), tuple(output))


def _ratios(found: Sequence[Pair], rows: Sequence[Row]) -> Section:
    """Return the section of all cases with a ratio of both sessions' figures. rows: as in
    `_rows`."""
    compared = [pair for pair in found if pair.changed.ratio is not None]
    figure = Figure(
        "ratios",
        "B's figures / A's",
        _says_cases(compared),
        Table(
            (*_CASE, *_figure_columns("a"), *_figure_columns("b"), *_RATIO),
            tuple(row for row in rows if row["ratio"] is not None),
        ),
        _forest("case", "figure of B / figure of A", len(compared)),
    )
    return Section(
        "ratios",
        "Figures",
        "A ratio is B's figure / A's. A ratio above 1 is better for an efficiency and worse "
        f"for a time. {_CHANCE}",
        (figure,) if compared else (),
        "No case has a figure in both sessions.",
    )


def _throughputs(a: Archive, b: Archive) -> Section:
    """Return the section of Horovod's throughput at its defaults, by workload and world size."""
    ours, theirs = throughputs(a.cases), throughputs(b.cases)
    labels = workload_labels(workload for workload, _ in {**ours, **theirs})
    otherwise = asked_otherwise(a, b, Blocks)
    rows: list[Row] = []
    changes: dict[str, Changed] = {}
    for workload, world_size in sorted({**ours, **theirs}, key=str):
        speeds_a = ours.get((workload, world_size), ())
        speeds_b = theirs.get((workload, world_size), ())
        label = f"{labels[workload]}, {plural(world_size, 'rank')}"
        changes[label] = changed = _of_speeds(speeds_a, speeds_b, otherwise)
        rows.append(
            {
                "label": label,
                "model": labels[workload],
                "world_size": world_size,
                "batch": workload.batch,
                "speed_a": median(speeds_a) if speeds_a else None,
                "speed_b": median(speeds_b) if speeds_b else None,
                **_changed_cells(changed),
                "rounds_a": len(speeds_a),
                "rounds_b": len(speeds_b),
            }
        )
    columns = (
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
    compared = sum(row["ratio"] is not None for row in rows)
    figure = Figure(
        "throughput",
        "B's throughput / A's",
        _says("training", changes),
        Table(columns, tuple(rows)),
        _forest("label", "throughput of B / throughput of A", compared) if compared else None,
    )
    return Section(
        "throughput",
        "Throughput",
        "Samples/s of all ranks together, for Horovod with default settings: the "
        "median over the rounds of valid cases. The ratio is estimated over all pairs of "
        f"rounds. {_CHANCE}",
        (figure,) if rows else (),
        "Neither session timed Horovod with its defaults.",
    )


def _of_speeds(a: Sequence[float], b: Sequence[float], otherwise: Sequence[str]) -> Changed:
    if not a or not b:
        return Changed(Kind.ONLY_B if b else Kind.ONLY_A)
    if otherwise:
        return not_alike(otherwise)
    return of_logarithms([math.log(speed) for speed in a], [math.log(speed) for speed in b])


def _changed_cells(changed: Changed) -> dict[str, Value]:
    return {**cells_of(changed.ratio, "ratio", "lower", "upper"), "word": changed.word}


def _forest(label: str, title: str, rows: int) -> Plot:
    """Return a plot with a row per figure: the ratio, its interval, and a line at 1, where nothing
    changes."""
    tip = (Column(label, label), Column("ratio", title, digits=3), _RATIO[-1])
    return plots.estimates(
        {"y": plots.row_names(label, 320, sort=None)},
        plots.field("ratio", "quantitative", title, scale={"zero": False}),
        ("lower", "upper"),
        plots.line("ideal", x={"datum": 1}),
        rows=rows,
        point={"tooltip": plots.tooltip(tip)},
        transform=[plots.known("ratio")],
    )
