"""Watches the nights of all series from elsewhere: the last verdict of each, or MISSING."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hvdperf.files import write_whole
from hvdperf.session.ending import NOTHING_MEASURED
from hvdperf.timeline.nights.night import OVERDUE_H
from hvdperf.timeline.nights.series import Series
from hvdperf.verdict import EXIT_STATUS, Verdict

# The word of a series whose last night is too long ago, and its exit status.
MISSING = "MISSING"
MISSING_STATUS = 11
# Nights in a row that PASS after which an issue is closed.
CLEAN_NIGHTS = 2


@dataclass(frozen=True)
class Watched:
    """A series as it is watched. now: with its zone. overdue_h: hours after the end of its last
    night from which on it is missing."""

    series: Series
    now: datetime
    overdue_h: float = OVERDUE_H

    @property
    def is_missing(self) -> bool:
        """Return whether the next night is overdue."""
        ended = [night.ended_at or night.began_at for night in self.series.nights]
        return not ended or self.now - max(ended) > timedelta(hours=self.overdue_h)

    @property
    def status(self) -> int:
        """Return the exit status for this series: that of a session with this verdict."""
        if self.is_missing:
            return MISSING_STATUS
        return EXIT_STATUS.get(self.series.verdict, NOTHING_MEASURED)

    def line(self) -> str:
        """Return the state in one line."""
        name, last = self.series.name, self.series.last
        whole = next((night for night in reversed(self.series.nights) if night.is_whole), None)
        since = (
            "no complete session yet"
            if whole is None
            else f"last complete session: night of {whole.night} ({whole.told})"
        )
        if last is None or self.is_missing:
            return f"{name}: {MISSING}: {since}"
        text = f"{name}: {self.series.verdict.value}: night of {last.night}, {last.told}"
        return text if last is whole else f"{text}; {since}"

    @property
    def is_clean(self) -> bool:
        """Return whether the last nights that decided PASS, and nothing is slower. A night that is
        INCONCLUSIVE shows neither that a fault is gone nor that it is there, unless its gate has a
        suspect."""
        decided = [
            index
            for index, night in enumerate(self.series.nights)
            if night.verdict is not Verdict.INCONCLUSIVE or index in self.series.speeds.gated
        ]
        last = decided[-CLEAN_NIGHTS:]
        return (
            len(last) == CLEAN_NIGHTS
            and all(self.series.nights[index].verdict is Verdict.PASS for index in last)
            and not any(index in self.series.falls for index in last)
            and not (self.series.is_red or self.series.missing)
        )


def state_of(found: Watched) -> dict[str, Any]:
    """Return the state of a series for programs.

    verdict: or MISSING.
    night: the last one.
    lines: what people read of it.
    findings: what makes it FAIL or NOT RUN, and what was found on its last night alone: kind,
    standing, first night (since), amounts, notes and commands, as Finding has them.
    """
    series = found.series
    return {
        "series": series.name,
        "verdict": MISSING if found.is_missing else series.verdict.value,
        "night": series.last.night if series.last else None,
        "lines": [found.line(), *series.slower()],
        "findings": [
            {
                "kind": each.kind.value,
                "standing": each.standing.value,
                "since": each.since,
                "told": each.told,
                "amounts": [amount._asdict() for amount in each.amounts],
                "notes": each.notes,
                "commands": dict(each.commands),
            }
            for each in series.current
        ],
    }


def write_issues(found: Sequence[Watched], directory: Path) -> None:
    """Write DIR/open/SERIES.md for each series that FAILs, the text of its issue, and
    DIR/close/SERIES.md for each whose last nights were clean. Raises OSError."""
    for each in (each for each in found if not each.is_missing):
        has_failed = each.series.verdict is Verdict.FAIL
        for kind, wanted in (("open", has_failed), ("close", each.is_clean)):
            if wanted:
                path = directory / kind / f"{each.series.name}.md"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, "\n".join(_issue(each.series)) + "\n")


def _issue(found: Series) -> Iterator[str]:
    night = found.last
    assert night is not None
    yield from (f"Night of {night.night}: {found.verdict.value} ({night.told}).", "")
    yield from (*(f"- {line}" for line in found.slower()), "")
    if night.unfit:
        yield "The machine was not ready to measure:"
        yield from (*(f"- {line}" for line in night.unfit), "")
    yield f"The whole night again: `{night.command}`"


def badness(status: int) -> int:
    """Return the rank of a series' exit status, the worst one the highest."""
    bad = [each for each in EXIT_STATUS.values() if each]
    return -[MISSING_STATUS, *bad, NOTHING_MEASURED, 0].index(status)
