"""A series of nights, and how it stands: whether it is slower than it was, and what became so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from math import log

from hvdperf.timeline.lines import Change
from hvdperf.timeline.nights.by_date import Findings, findings
from hvdperf.timeline.nights.night import Night
from hvdperf.timeline.nights.slower import Fall, Standing, falls, named, percent, standings
from hvdperf.verdict import Verdict, worst


@dataclass(frozen=True)
class Series:
    """A series. nights: in the order of dates. accepted: the date up to which what has become
    slower is accepted."""

    name: str
    nights: Sequence[Night]
    accepted: date = date.min

    @property
    def last(self) -> Night | None:
        return self.nights[-1] if self.nights else None

    @cached_property
    def found(self) -> Findings:
        return findings(self.nights)

    @cached_property
    def changes(self) -> list[tuple[Change, Standing]]:
        """Return the lasting changes, by night, and whether each makes the series FAIL."""
        found = self.found.changes
        return list(zip(found, standings(found, self.accepted), strict=True))

    @cached_property
    def _fallen(self) -> tuple[Mapping[int, Fall], str]:
        return falls(self.nights, self.accepted)

    @property
    def falls(self) -> Mapping[int, Fall]:
        """Return the falls by index of the night."""
        return self._fallen[0]

    @property
    def fall(self) -> Fall | None:
        """Return the fall of the last night; None if there is none, or if it was accepted."""
        fall = self.falls.get(len(self.nights) - 1)
        return fall if fall is not None and fall.night.night > self.accepted else None

    @property
    def open(self) -> list[Change]:
        """Return the lasting changes that make the series FAIL, by night."""
        return [change for change, standing in self.changes if standing is Standing.OPEN]

    @property
    def is_red(self) -> bool:
        return bool(self.open) or (self.fall is not None and not self.fall.disturbed)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the last night, or FAIL if the series is slower than it was."""
        own = self.last.verdict if self.last else Verdict.NOT_JUDGED
        return worst([own, Verdict.FAIL]) if self.is_red else own

    def slower(self) -> Iterator[str]:
        """Yield what has become slower, by how much and since when, and what to do next."""
        if self.fall is not None:
            yield from self.fall.lines()
        if self.open:
            told = [
                f"{each.line.name} {percent(each.step.change)} since {each.since}"
                for each in sorted(self.open, key=lambda each: -abs(log(each.step.change)))
            ]
            yield f"{len(told)} lasting changes for the worse: {named(told)}"
            since = self.open[0].since
            yield f"look closer: hvdperf regressions --series {self.name} --since {since}"
        if self.is_red:
            yield f"if it has to stay like this: hvdperf nightly accept --series {self.name}"
        if waits := self._fallen[1]:
            yield waits
