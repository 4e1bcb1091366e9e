"""A series of nights: lines of a figure of a case or of a throughput, by date, with their lasting
changes, and what makes the series slower than it was.

A night FAILs at once if its throughputs fall below those of the nights before it
(hvdperf.timeline.nights.speed). A change for the worse that lasts makes the series FAIL until it is
repaired or accepted. Ratios alone show neither: what slows every replica alike leaves them as they
are. Falls and lasting changes that began at about the same time are one event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from math import log

from hvdperf.records.documents import Kind
from hvdperf.timeline.lines import Change, Standing, percent
from hvdperf.timeline.nights.changes import UNCERTAIN, Findings, findings, repeat, standing_of
from hvdperf.timeline.nights.falls import Command, Fall, JudgedSpeeds, details, judge_speeds
from hvdperf.timeline.nights.gate import Gated, without_alarms
from hvdperf.timeline.nights.night import Accepted, Night, accepted_until
from hvdperf.timeline.nights.speed import FEWEST
from hvdperf.timeline.store import named, shortened
from hvdperf.verdict import Verdict, worst


@dataclass(frozen=True)
class Series:
    """A series. measured: its nights as their documents say them, in the order of dates. accepted:
    oldest first."""

    name: str
    measured: Sequence[Night]
    accepted: Sequence[Accepted] = ()

    @cached_property
    def speeds(self) -> JudgedSpeeds:
        """Return the throughputs, what else launches took, and the gates, judged."""
        return judge_speeds(self.measured, self.accepted)

    @property
    def nights(self) -> Sequence[Night]:
        """Return the nights with the verdicts of their gates over nights."""
        return self.speeds.nights

    @property
    def last(self) -> Night | None:
        """Return the last night, in which what was accepted FAILs no more; None without one."""
        if not self.nights:
            return None
        night = self.nights[-1]
        return without_alarms(night, self._gated) if night.night <= self.until else night

    @property
    def _gated(self) -> Sequence[Gated]:
        return self.speeds.gated.get(len(self.nights) - 1, ())

    @property
    def gated(self) -> list[Gated]:
        """Return the suspects of the last night's gate, and the alarms that were not accepted, the
        slowest first."""
        is_accepted = bool(self.nights) and self.nights[-1].night <= self.until
        found = (each for each in self._gated if not (is_accepted and each.is_alarm))
        return sorted(found, key=lambda each: each.row.figure or 1)

    @property
    def suspects(self) -> list[Gated]:
        """Return what the last night's gate suspects on this night alone."""
        return [each for each in self.gated if not each.is_alarm]

    @property
    def until(self) -> date:
        """Return the date up to which what became slower is accepted."""
        return accepted_until(self.accepted)

    def why(self, since: str) -> str:
        """Return why what began on a date is accepted."""
        return next((each.why for each in self.accepted if f"{each.night}" >= since), "")

    @cached_property
    def found(self) -> Findings:
        return findings(self.nights)

    @cached_property
    def changes(self) -> list[Change]:
        """Return the lasting changes, by night, each with whether it makes the series FAIL."""
        found = self.found.changes
        return [replace(each, standing=standing_of(each, found, self.until)) for each in found]

    @property
    def falls(self) -> Mapping[int, Fall]:
        """Return the falls by index of the night."""
        return self.speeds.falls

    def verdict_of(self, index: int) -> Verdict:
        """Return the verdict of a night, which FAILs if it fell."""
        fall = self.falls.get(index)
        fell = fall is not None and not fall.excuse
        return worst([self.nights[index].verdict, *[Verdict.FAIL] * fell])

    @property
    def fall(self) -> Fall | None:
        """Return the fall that is not over, or an excused one of the last night; None if there is
        none, or if it was accepted."""
        fall = self.speeds.on or self.falls.get(len(self.nights) - 1)
        return fall if fall is not None and fall.night.night > self.until else None

    @cached_property
    def missing(self) -> dict[str, date]:
        """Return the nodes, networks and throughputs that are no longer measured, with the first
        night that lacks them: for more than twice as many nights as ever before."""
        nights = [night for night in self.measured if night.is_whole and night.speeds]
        seen: dict[str, list[int]] = {}
        for at, night in enumerate(nights):
            models = {model for model, _ in night.speeds}
            sizes = {f"{model}-np{size}" for model, size in night.speeds}
            for name in {*night.nodes, *models, *sizes}:
                seen.setdefault(name, []).append(at)
        found = {}
        for name, own in seen.items():
            longest = max((after - at - 1 for at, after in pairwise(own)), default=0)
            is_usual = len(own) >= FEWEST and len(nights) - 1 - own[-1] > 2 * longest
            if is_usual and (first := nights[own[-1] + 1].night) > self.until:
                found[name] = first
        return {name: at for name, at in found.items() if name.rpartition("-np")[0] not in found}

    @property
    def open(self) -> list[Change]:
        """Return the lasting changes that make the series FAIL, by night."""
        return [change for change in self.changes if change.standing is Standing.OPEN]

    @property
    def is_red(self) -> bool:
        fell = self.fall is not None and not self.fall.excuse
        return bool(self.open) or fell

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the last night, but FAIL if the series is slower than it was, and
        NOT RUN if something is no longer measured."""
        own = [self.last.verdict if self.last else Verdict.INFO]
        return worst(own + [Verdict.FAIL] * self.is_red + [Verdict.NOT_RUN] * bool(self.missing))

    def slower(self) -> Iterator[str]:
        """Yield what has become slower, by how much and since when, and what to do next."""
        fall, more = self.fall, self.open
        if fall is not None:
            yield from fall.lines()
            if fall.night is not self.measured[-1]:
                yield (
                    f"last seen on the night of {fall.night.night}; open until two of three nights "
                    "are back to normal"
                )
            # What fell that night and stays is one event.
            began = self.measured.index(fall.since)
            more = [each for each in more if abs(each.at - began) > UNCERTAIN]
        if more:
            told = [
                f"{each.line.name} {percent(each.step.change)} since {each.since}"
                for each in sorted(more, key=lambda each: -abs(log(each.step.change)))
            ]
            yield f"{len(told)} change points for the worse: {named(told)}"
            since = more[0].since
            yield f"details: hvdperf regressions --series {self.name} --since {since}"
        yield from shortened([each.told for each in self.suspects], "suspects of the gate")
        if self.is_red or self.missing:
            yield (f"to accept it: hvdperf nightly accept --series {self.name} --why REASON")
        if self.accepted:
            newest = self.accepted[-1]
            why = f": {newest.why}" if newest.why else ""
            yield f"accepted up to the night of {newest.night}{why}"
        on = set(self.last.hosts) if self.last else set()
        for node in self.found.nodes:
            if on and on.issuperset(node.hosts):
                yield (
                    f"{named(node.hosts)} is slower than other hosts: {percent(node.change)} on "
                    f"{node.nights} nights"
                )
        for part in self.last.parts if self.last else ():
            if part.node and part.disturbed and part.kind is Kind.OWN:
                yield f"{part.node} is not judged, because it was disturbed: {part.disturbed}"
        for night in sorted({*self.missing.values()}):
            gone = sorted(name for name, first in self.missing.items() if first == night)
            yield f"no longer measured since the night of {night}: {named(gone)}"
        if self.speeds.waits:
            yield self.speeds.waits


# What happened -----------------------------------------------------------------------------------


@dataclass
class Event:
    """A fall, a lasting change, or several that began at about the same time.

    at: index of its first night; since: the date of that. standing: that of what matters most.
    told: what changed, and by how much. size: of the largest, in ln, 0 or more. notes: what else is
    known of it. commands: what for, and the command. changes: the lasting ones, the largest first.
    """

    at: int
    since: str
    standing: Standing
    told: str
    size: float
    notes: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    changes: Sequence[Change] = ()

    @property
    def is_open(self) -> bool:
        """Return whether it makes its series FAIL."""
        return self.standing is Standing.OPEN


def events(series: Series) -> list[Event]:
    """Return the events of a series: those that make it FAIL first, then the newest."""
    left = list(series.changes)
    began: dict[int, list[Fall]] = {}
    for fall in series.falls.values():
        began.setdefault(series.measured.index(fall.since), []).append(fall)
    found = []
    for at, falls in began.items():
        own = [each for each in left if each.is_worse and abs(each.at - at) <= UNCERTAIN]
        left = [each for each in left if each not in own]
        found.append(_of_falls(series, at, falls, own))
    for is_worse in (True, False):
        alike = [each for each in left if each.is_worse is is_worse]
        found += [_of_changes(series, own) for own in _together(alike)]
    for event in found:
        if event.is_open:
            accept = f"hvdperf nightly accept --series {series.name} --why REASON"
            event.commands.append(("to accept the series", accept))
        if event.standing is Standing.ACCEPTED:
            event.notes.append(f"accepted: {series.why(event.since) or 'nobody said why'}")
    return sorted(found, key=lambda each: (not each.is_open, -each.at, -each.size))


def _together(found: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield the changes that began within UNCERTAIN nights of the first of them."""
    left = sorted(found, key=lambda change: change.at)
    while left:
        own = [each for each in left if each.at <= left[0].at + UNCERTAIN]
        left = left[len(own) :]
        yield own


def _of_falls(series: Series, at: int, falls: Sequence[Fall], changes: list[Change]) -> Event:
    last = falls[-1]
    changes.sort(key=_size, reverse=True)
    notes = [*last.notes()]
    if series.fall is not None and series.fall.since is last.since:
        standing = Standing.UNCONFIRMED if last.excuse else Standing.OPEN
    else:
        is_accepted = last.night.night <= series.until
        over = Standing.ACCEPTED if is_accepted else Standing.REPAIRED
        standing = _most_urgent([change.standing for change in changes] or [over])
        count, until = len(falls), last.night.night
        notes.insert(0, f"seen at once on {count} night{'s' * (count > 1)}, the last on {until}")
    size = max(abs(log(last.changes[measure][key].change)) for measure, key in last.what)
    since, commands = f"{last.since.night}", [*last.commands()]
    return Event(at, since, standing, last.told, size, notes, commands, changes)


def _of_changes(series: Series, changes: list[Change]) -> Event:
    changes.sort(key=_size, reverse=True)
    largest, others = changes[0], len(changes) - 1
    told = f"{largest.size} {largest.line.name}"
    if others:
        models = named(sorted({change.line.model for change in changes}))
        told += f", and {others} more line{'s' * (others > 1)} of {models}"
    first = min(changes, key=lambda change: change.at)
    marks = list(dict.fromkeys(mark for change in changes for mark in change.marks))
    notes = [f"changed since {first.before}: {'; '.join(marks) or 'nothing that is recorded'}"]
    nights, step = series.nights, largest.step
    usual, own = (nights[largest.line.at[place]] for place in (step.at - 1, step.at))
    commands = [*details(usual, own)]
    if again := repeat(nights[largest.at], largest.line):
        commands.append(("measure the largest again", again))
    standing = _most_urgent(change.standing for change in changes)
    return Event(first.at, first.since, standing, told, _size(largest), notes, commands, changes)


def _most_urgent(standings: Iterable[Standing]) -> Standing:
    """Return the standing that needs somebody most."""
    return min(standings, key=list(Standing).index)


def _size(change: Change) -> float:
    return abs(log(change.step.change))
