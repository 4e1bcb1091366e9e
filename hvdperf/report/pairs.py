"""Cases of two sessions, A and B, in pairs: B's figure over A's, as a number and a word.

The bounds are exact from four rounds of each session on. With fewer, they rest on the noise of
repetitions and on the known noise of launches, as at an early look (hvdperf.interim.early_shift).

Two cases are compared if both were measured soundly, with the same plan and with blocks and runs of
the same length and schedule. The ratio is no verdict, because it also contains all other changes
between the two sessions. A change of the stack is judged by --against, in one session.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from hvdperf.interim import early_shift
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.fingerprint import differences
from hvdperf.scatter import Row
from hvdperf.stats import Interval, NotMeasurable, shift
from hvdperf.verdict import ALPHA, Noise, as_ratio
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

    def pair_of(name: str) -> Pair:
        first, second = ours.get(name), theirs.get(name)
        asked = (first or second or theirs[name]).question
        otherwise = asked_otherwise(a, b, work_of(asked))
        return Pair(first, second, _of_cases(first, second, otherwise))

    found = [pair_of(name) for name in {**ours, **theirs}]
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
    ours, theirs = a.session.asked.texts, b.session.asked.texts
    return [
        f"{name} {ours.get(name, 'none')} in A, {theirs.get(name, 'none')} in B"
        for name in work.depends_on
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
    differ = [*_differences(a.comparison, b.comparison), *otherwise]
    if differ:
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


def _rows_and_noise(case: Case) -> tuple[list[Row], Noise]:
    """Return the ln ratios of the turns of each round that counts, and the noise of launches that
    the session knew of; [] if the arms took no turns."""
    comparison, rows = case.comparison, []
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


def _unsound(case: Case) -> str:
    if case.failed:
        return "a launch failed"
    return "no figure" if case.figure is None else case.verdict.value


def _differences(a: Comparison, b: Comparison) -> Iterator[str]:
    """Yield the differences of what two cases ask, such as `workload batch 32 in A, 64 in B`."""
    ours, theirs = _asked(a), _asked(b)
    for name, value in ours.items():
        if value != theirs[name]:
            yield f"{name} {value or 'none'} in A, {theirs[name] or 'none'} in B"


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
