"""Watches the nights of all series from elsewhere: the last verdict of each, or MISSING."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from hvdperf.files import write_whole
from hvdperf.records.documents import Row
from hvdperf.session.terminal.cases import EXIT_STATUS, NOTHING_MEASURED
from hvdperf.timeline.nights.night import OVERDUE_H, Night, Part
from hvdperf.timeline.nights.slower import Slower, slower
from hvdperf.verdict import Verdict

# The word of a series whose last night is too long ago, and its exit status.
MISSING = "MISSING"
MISSING_STATUS = 11
# Nights without a FAIL after which an issue is closed.
CLEAN_NIGHTS = 2


@dataclass(frozen=True)
class Watched:
    """The state of a series. nights: in the order of dates. is_missing: whether the next night is
    overdue. slower: whether it is slower than it was."""

    series: str
    nights: Sequence[Night]
    is_missing: bool
    slower: Slower

    @property
    def last(self) -> Night | None:
        return self.nights[-1] if self.nights else None

    @property
    def last_whole(self) -> Night | None:
        """Return the last night whose sessions ended; None if there is none."""
        return next((night for night in reversed(self.nights) if night.is_whole), None)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the last night, or FAIL if the series is slower than it was."""
        return self.slower.verdict(self.last.verdict if self.last else Verdict.NOT_JUDGED)

    @property
    def word(self) -> str:
        return MISSING if self.is_missing or self.last is None else self.verdict.value

    @property
    def status(self) -> int:
        """Return the exit status for this series: that of a session with this verdict."""
        if self.is_missing or self.last is None:
            return MISSING_STATUS
        return EXIT_STATUS.get(self.verdict, NOTHING_MEASURED)

    def line(self) -> str:
        """Return the state in one line."""
        whole = self.last_whole
        since = (
            "there has never been a whole session"
            if whole is None
            else f"the last whole session was in the night of {whole.night} ({whole.told})"
        )
        if self.last is None or self.is_missing:
            return f"{self.series}: {MISSING}: {since}"
        text = f"{self.series}: {self.word}: night of {self.last.night}, {self.last.told}"
        return text if self.last is whole else f"{text}; {since}"

    @property
    def has_failed(self) -> bool:
        return self.last is not None and self.verdict is Verdict.FAIL

    @property
    def is_clean(self) -> bool:
        """Return whether the last nights measured, none of them failed, and nothing is slower."""
        last = [night.verdict for night in self.nights[-CLEAN_NIGHTS:]]
        sound = (Verdict.PASS, Verdict.INCONCLUSIVE)
        count = len(self.nights)
        fell = any(index in self.slower.falls for index in range(count - CLEAN_NIGHTS, count))
        is_sound = len(last) == CLEAN_NIGHTS and all(verdict in sound for verdict in last)
        return is_sound and not self.slower.is_red and not fell


def watched(
    series: str,
    nights: Sequence[Night],
    now: datetime,
    overdue_h: float = OVERDUE_H,
    accepted: str = "",
) -> Watched:
    """Return the state of a series. now: with its zone. accepted: the date up to which what became
    slower is accepted, or ""."""
    ended = [night.ended_at or night.began_at for night in nights]
    is_missing = not ended or now - max(ended) > timedelta(hours=overdue_h)
    return Watched(series, nights, is_missing, slower(series, nights, accepted))


def write_issues(found: Sequence[Watched], directory: Path) -> None:
    """Write DIR/open/SERIES.md for each series that FAILs, the text of its issue, and
    DIR/close/SERIES.md for each whose last nights were clean. Raises OSError."""
    for each in found:
        for kind, wanted in (("open", each.has_failed), ("close", each.is_clean)):
            if wanted and not each.is_missing:
                path = directory / kind / f"{each.series}.md"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, "\n".join(_issue(each)) + "\n")


def _issue(found: Watched) -> Iterator[str]:
    night = found.last
    assert night is not None
    yield f"Night of {night.night}: {found.verdict.value} ({night.told})."
    yield ""
    if found.slower.is_red:
        yield "Slower than before:"
        yield from (f"- {line}" for line in found.slower.lines())
        yield ""
    for part, row in night.cases:
        if row.verdict is Verdict.FAIL:
            yield from _failed(night, part, row)
    if night.unfit:
        yield "The machine was not fit to measure:"
        yield from (f"- {line}" for line in night.unfit)
        yield ""
    if night.pair:
        yield f"{night.pair}."
        yield ""
    yield f"The whole night again: `{night.command}`"


def _failed(night: Night, part: Part, row: Row) -> Iterator[str]:
    name = f"{row.name} against the reference stack" if part.is_gate else row.name
    yield f"- **{name}**: {_figure(row)} on {', '.join(part.hosts) or 'an unknown host'}, "
    yield f"  session {part.session}. {row.reason}".rstrip()
    yield f"  Again: `{night.repeat(part, row)}`"
    yield ""


def badness(status: int) -> int:
    """Return the rank of a series' exit status, the worst one the highest."""
    bad = [each for each in EXIT_STATUS.values() if each]
    return -[MISSING_STATUS, *bad, NOTHING_MEASURED, 0].index(status)


def _figure(row: Row) -> str:
    if row.figure is None:
        return "no figure"
    bounds = "" if row.lower is None else f" [{row.lower:.3f}, {row.upper:.3f}]"
    limit = ""
    if row.limit is not None:
        ends = (("at least", row.limit.at_least), ("at most", row.limit.at_most))
        told = " and ".join(f"{word} {value:.3g}" for word, value in ends if value is not None)
        limit = f", limit {told}"
    return f"{row.figure:.3f}{bounds}{limit}"
