"""A series of nights, and its findings: what makes it slower than it was.

A night FAILs at once if its throughputs fall below those of the nights before it
(hvdperf.timeline.nights.speed). A change for the worse that lasts makes the series FAIL until it is
repaired or accepted. Ratios alone show neither: what slows every replica alike leaves them as they
are. Falls and lasting changes that began at about the same time are one finding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from functools import cached_property
from itertools import pairwise
from math import log
from statistics import linear_regression
from typing import NamedTuple

import numpy as np

from hvdperf.records.documents import Kind
from hvdperf.records.outcome import Measure
from hvdperf.timeline import lines as axis
from hvdperf.timeline.lines import Change, Line, Standing, percent
from hvdperf.timeline.nights import changes as by_lines
from hvdperf.timeline.nights import falls as by_night
from hvdperf.timeline.nights.changes import UNCERTAIN, ByLine
from hvdperf.timeline.nights.falls import MOST, Fall, JudgedSpeeds, What
from hvdperf.timeline.nights.gate import Gated, key_of
from hvdperf.timeline.nights.night import Accepted, Night, accepted_until
from hvdperf.timeline.nights.speed import FEWEST, Scope
from hvdperf.timeline.store import named, shortened
from hvdperf.verdict import Verdict, worst

# So many findings are told whole.
MOST_TOLD = 5
# So many nights before the first sign of a drift tell the level before it.
BEFORE = 90


class FindingKind(Enum):
    """How a finding was made."""

    FALL = "fall"
    CHANGE = "change point"
    DRIFT = "drift"
    CASE = "case"
    SUSPECT = "suspect"
    MISSING = "missing"


class Amount(NamedTuple):
    """By how much something changed.

    name: "all", or that of a network, a throughput such as vgg_16-np8, a node, a line or a case.
    unit: of what changed; "" of a ratio. since: the first night. change: the ratio to what was
    usual, with lower and upper bound (95 %), which a drift has not; None of what is no longer
    measured.
    """

    name: str
    unit: str
    since: str
    change: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class Finding:
    """A fall, a lasting change, several that began at about the same time, a drift, a case of the
    last night that FAILs, a suspect of its gate, or what is no longer measured.

    at: index of its first night; since: the date of that. standing: that of what matters most.
    amounts: what changed, the largest first. told: the same in words. notes: what else is known.
    commands: what for, and the command. changes: the lasting ones, the largest first.
    """

    kind: FindingKind
    at: int
    since: str
    standing: Standing
    amounts: Sequence[Amount]
    told: str
    notes: list[str] = field(default_factory=list)
    commands: list[by_night.Command] = field(default_factory=list)
    changes: Sequence[Change] = ()

    @property
    def size(self) -> float:
        """Return the size of the largest change, in ln, 0 or more."""
        return max((abs(log(each.change)) for each in self.amounts if each.change), default=0.0)

    @property
    def is_open(self) -> bool:
        """Return whether it makes its series FAIL."""
        return self.standing is Standing.OPEN

    def lines(self) -> Iterator[str]:
        yield f"since the night of {self.since}: {self.told}"
        yield from self.notes
        yield from (f"{purpose}: {command}" for purpose, command in self.commands)


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
        return by_night.judge_speeds(self.measured, self.accepted)

    @property
    def nights(self) -> Sequence[Night]:
        """Return the nights with the verdicts of their gates over nights."""
        return self.speeds.nights

    @property
    def last(self) -> Night | None:
        return self.nights[-1] if self.nights else None

    @property
    def gated(self) -> Sequence[Gated]:
        """Return the suspects and alarms of the last night's gate."""
        return self.speeds.gated.get(len(self.nights) - 1, ())

    @property
    def until(self) -> date:
        """Return the date up to which what became slower is accepted."""
        return accepted_until(self.accepted)

    def why(self, since: str) -> str:
        """Return why what began on a date is accepted."""
        return next((each.why for each in self.accepted if f"{each.night}" >= since), "")

    @cached_property
    def found(self) -> ByLine:
        return by_lines.by_line(self.nights, self.until)

    @property
    def changes(self) -> Sequence[Change]:
        """Return the lasting changes, by night."""
        return self.found.changes

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

    @cached_property
    def findings(self) -> list[Finding]:
        """Return everything that was found: what makes the series FAIL first, then the newest."""
        return sorted(_findings(self), key=lambda each: (not each.is_open, -each.at, -each.size))

    @property
    def current(self) -> list[Finding]:
        """Return the findings that need somebody, or may: those that make the series FAIL or NOT
        RUN, and those of its last night alone."""
        wanted = (Standing.OPEN, Standing.MISSING, Standing.SUSPECT)
        return [each for each in self.findings if each.standing in wanted]

    @property
    def suspects(self) -> list[Finding]:
        """Return the suspects of the last night's gate."""
        return [each for each in self.findings if each.kind is FindingKind.SUSPECT]

    @property
    def open(self) -> list[Change]:
        """Return the lasting changes that make the series FAIL, by night."""
        return [change for change in self.changes if change.standing is Standing.OPEN]

    @property
    def is_red(self) -> bool:
        return any(each.is_open for each in self.findings)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the last night, but FAIL if the series is slower than it was, and
        NOT RUN if something is no longer measured."""
        own = [self.last.verdict if self.last else Verdict.INFO]
        return worst(own + [Verdict.FAIL] * self.is_red + [Verdict.NOT_RUN] * bool(self.missing))

    def slower(self) -> Iterator[str]:
        """Yield what people read of the series: its current findings, each with what to do next,
        what was accepted, and what is not judged."""
        current = self.current
        for each in current[:MOST_TOLD]:
            yield from each.lines()
        if (more := len(current) - MOST_TOLD) > 0:
            yield f"and {more} more findings, which are on the page of the series"
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
        if self.speeds.is_too_wild:
            yield (
                "the noise of these nights is outside of the range for which error rates are known "
                "(tails like Student's t3, or nights that are alike for weeks)"
            )
        if self.speeds.waits:
            yield self.speeds.waits


def _findings(series: Series) -> Iterator[Finding]:
    """Yield the findings of a series, in no particular order."""
    left = [*series.changes]
    began: dict[int, list[Fall]] = {}
    for fall in series.falls.values():
        began.setdefault(series.measured.index(fall.since), []).append(fall)
    found = []
    drifting = _drifting(series)
    if drifting is not None:
        left = [each for each in left if each not in drifting.changes]
        falls = began.pop(drifting.fell, ())
        found.append(_of_drift(series, drifting, falls))
    for at, falls in began.items():
        own = [each for each in left if each.is_worse and abs(each.at - at) <= UNCERTAIN]
        left = [each for each in left if each not in own]
        found.append(_of_falls(series, at, falls, own))
    for is_worse in (True, False):
        alike = [each for each in left if each.is_worse is is_worse]
        found += [_of_changes(series, own) for own in _together(alike)]
    found += _of_cases(series)
    found += [_of_missing(series, first) for first in {*series.missing.values()}]
    for each in found:
        can_accept = each.kind is not FindingKind.CASE
        if can_accept and each.standing in (Standing.OPEN, Standing.MISSING):
            accept = f"hvdperf nightly accept --series {series.name} --why REASON"
            each.commands.append(("to accept it", accept))
        if each.standing is Standing.ACCEPTED:
            each.notes.append(f"accepted: {series.why(each.since) or 'nobody said why'}")
        yield each


def _together(found: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield the changes that began within UNCERTAIN nights of the first of them."""
    left = sorted(found, key=lambda change: change.at)
    while left:
        own = [each for each in left if each.at <= left[0].at + UNCERTAIN]
        left = left[len(own) :]
        yield own


def _of_falls(series: Series, at: int, falls: Sequence[Fall], changes: Sequence[Change]) -> Finding:
    on = series.fall
    last = on if on is not None and on.since is falls[-1].since else falls[-1]
    notes, since = [*last.notes()], f"{last.since.night}"
    if last is on:
        standing = Standing.SUSPECT if last.excuse else Standing.OPEN
        if any(unit is by_night.Gate.SPEED for unit, _ in last.what):
            alarms = (each.row for each in series.gated if each.is_alarm)
            notes += shortened([f"{row.name}: {row.reason}" for row in alarms], "alarms")
        if last.night is not series.measured[-1]:
            notes.append(
                f"last seen on the night of {last.night.night}; open until two of three nights are "
                "back to normal"
            )
    else:
        is_accepted = last.night.night <= series.until
        over = Standing.ACCEPTED if is_accepted else Standing.REPAIRED
        standing = _most_urgent([change.standing for change in changes] or [over])
        count, until = len(falls), last.night.night
        notes.insert(0, f"seen at once on {count} night{'s' * (count > 1)}, the last on {until}")
    amounts = [_amount(last, what) for what in last.what]
    kind, commands, changes = FindingKind.FALL, [*last.commands()], _by_size(changes)
    notes += _changed(series, last.usual, last.since, last.again)
    if last.higher_since is None and changes:
        notes += _returns(series, changes[0])
    return Finding(kind, at, since, standing, amounts, last.told, notes, commands, changes)


def _amount(fall: Fall, what: What) -> Amount:
    unit, key = what
    speed = fall.changes[unit][key]
    change, *ends = (
        by_night.turned(unit, each) for each in (speed.change, speed.lower, speed.upper)
    )
    since = fall.fell.get(what, fall.since).night
    return Amount(f"{key}", unit.value, f"{since}", change, min(ends), max(ends))


def _of_changes(series: Series, changes: Sequence[Change]) -> Finding:
    largest, *others = changes = _by_size(changes)
    told = f"{largest.size} {largest.line.name}"
    if others:
        models = named(sorted({change.line.model for change in changes}))
        told += f", and {len(others)} more line{'s' * (len(others) > 1)} of {models}"
    first = min(changes, key=lambda change: change.at)
    nights, step = series.nights, largest.step
    usual, own = (nights[largest.line.at[place]] for place in (step.at - 1, step.at))
    commands = [*by_night.details(usual, own)]
    again = by_lines.repeat(own, largest.line)
    if again:
        commands.append(("measure the largest again", again))
    notes = [*_changed(series, usual, own, again), *_returns(series, largest)]
    amounts = []
    for each in changes:
        unit = each.line.measure.value if each.line.measure else ""
        sizes = each.step.change, each.step.lower, each.step.upper
        amounts.append(Amount(each.line.name, unit, each.since, *sizes))
    standing = _most_urgent(change.standing for change in changes)
    kind, since = FindingKind.CHANGE, first.since
    return Finding(kind, first.at, since, standing, amounts, told, notes, commands, changes)


def _changed(series: Series, usual: Night, since: Night, again: str) -> Iterator[str]:
    """Yield what else changed from one night to another, or near them, because a change may be
    placed a few nights too early or too late, and how to isolate it. again: the command that
    measures once more."""
    dates = [night.night for night in series.nights]
    first, last = dates.index(usual.night), dates.index(since.night)
    found = []
    for at, texts in series.found.marks.items():
        if first + 1 - UNCERTAIN < at < last + UNCERTAIN:
            when = "" if first < at <= last else f" ({dates[at]})"
            found += [f"{text}{when}" for text in texts]
    yield f"changed since {usual.night}: {'; '.join(found) or 'nothing that is recorded'}"
    if found and again:
        script = since.script
        with_stack = f"{'hvdperf run' if script else again} --against PYTHON"
        with_stack += f" -- {script}" if script else ""
        yield (
            "to isolate one of these, measure with its old value; for a package of the stack: "
            f"{with_stack} (see make stack)"
        )


class _Drifting(NamedTuple):
    """A drift. first, last: index of its first and its last night. lines: that drift. changes: of
    these lines in that time. fell: index of the first night of the fall that is a part of it, or
    -1."""

    ramp: axis.Ramp
    first: int
    last: int
    lines: Sequence[Line]
    changes: Sequence[Change]
    fell: int


def _drifting(series: Series) -> _Drifting | None:
    """Return the drift that explains what makes the series slower better than steps do; None
    without one. It is looked for in the median of the throughputs that became slower."""
    every = [line for line in series.found.lines if line.measure is Measure.SPEED]
    unsettled = Standing.OPEN, Standing.UNCONFIRMED
    changes = [c for c in series.changes if c.line.measure and c.standing in unsettled]
    changed, fallen = {change.line.name for change in changes}, set[str]()
    starts, fell = [change.at for change in changes], -1
    if series.fall is not None and not series.fall.excuse:
        fell = series.measured.index(series.fall.since)
        starts.append(fell)
        keys = [key for unit, key in series.fall.what if unit is Measure.SPEED]
        fallen = {line.name for line in every if any(key.covers(line) for key in keys)}
    slower = [line for line in every if line.name in changed | fallen]
    if not slower:
        return None
    begin = max(0, min(starts) - BEFORE)
    values = {line.name: by_lines.values_of(line, begin) for line in every}
    common = by_lines.without_weekends(
        by_lines.together([values[line.name] for line in slower]), series.nights
    )
    ramp = axis.drift(np.array([*common.values()]))
    if ramp is None:
        return None
    nights = [*common]
    shape = dict(zip(nights, ramp.shape(np.arange(len(nights))).tolist(), strict=True))
    lines = [line for line in every if _follows(values[line.name], shape, ramp.rate)]
    names = {line.name for line in lines}
    first, last = nights[ramp.first + 1], nights[ramp.last]
    near = range(first - UNCERTAIN, last + UNCERTAIN + 1)
    own = [each for each in changes if each.at in near and each.line.name in names]
    if fell not in near or len(fallen & names) <= MOST * len(fallen):
        fell = -1
    return _Drifting(ramp, first, last, lines, own, fell) if own or fell >= 0 else None


def _follows(values: Mapping[int, float], shape: Mapping[int, float], rate: float) -> bool:
    """Return whether a line drifts by half the rate to twice the rate. shape: of the drift."""
    at = [index for index in values if index in shape]
    if len({shape[index] for index in at}) < 2:
        return False
    slope = linear_regression([shape[index] for index in at], [values[index] for index in at]).slope
    return 0.5 < slope / rate < 2


def _of_drift(series: Series, found: _Drifting, falls: Sequence[Fall]) -> Finding:
    """Return the finding of a drift, with what is known of the falls and changes in it."""
    if falls:
        base = _of_falls(series, found.first, falls, found.changes)
    else:
        base = _of_changes(series, found.changes)
    nights, ramp = series.nights, found.ramp
    since, rate = f"{nights[found.first].night}", 100 * -math.expm1(ramp.rate)
    throughputs = [line for line in series.found.lines if line.measure is Measure.SPEED]
    if len(found.lines) > MOST * len(throughputs):
        name, whose = "all", f"all {len(throughputs)} throughputs"
    else:
        name = whose = named([f"{line.model}-np{line.world_size}" for line in found.lines])
    told = f"{Measure.SPEED.value} of {whose} drift by -{rate:.2f} % a night"
    if found.last < len(nights) - 1:
        told += f" until {nights[found.last].night} ({percent(ramp.change)})"
    else:
        told += f" ({percent(ramp.change)} so far)"
    amounts = [Amount(name, Measure.SPEED.value, since, ramp.change)]
    fall = series.fall
    if falls and fall is not None:
        # What fell with it and does not drift, such as a gate or a node.
        others = [
            what
            for what in fall.what
            if what[0] is not Measure.SPEED or what[1].scope is Scope.NODE
        ]
        told = "; ".join(filter(None, (told, by_night.all_in_words(others, fall.changes))))
        amounts += [_amount(fall, what) for what in others]
    kind = FindingKind.DRIFT
    return replace(base, kind=kind, at=found.first, since=since, amounts=amounts, told=told)


def _returns(series: Series, change: Change) -> Iterator[str]:
    """Yield the note that a line only lost again what it had gained, if so."""
    earlier = [c for c in series.changes if c.line.name == change.line.name and c.at < change.at]
    if not earlier or earlier[-1].is_worse or not change.is_worse:
        return
    if abs(log(earlier[-1].step.change * change.step.change)) < math.log1p(axis.LEAST_CHANGE):
        yield f"back where it was before {earlier[-1].since}"


def _of_cases(series: Series) -> Iterator[Finding]:
    """Yield a finding for each case of the last night that FAILs, or is a suspect of its gate. An
    alarm of a gate is a fall."""
    if not series.nights:
        return
    at, night, gated = len(series.nights) - 1, series.nights[-1], [*series.gated]
    alarms = [each.row for each in gated if each.is_alarm]
    failed = [
        (FindingKind.CASE, Standing.OPEN, part, row)
        for part, row in night.cases
        if row.verdict is Verdict.FAIL and row not in alarms
    ]
    suspects = [
        (FindingKind.SUSPECT, Standing.SUSPECT, each.part, each.row)
        for each in gated
        if not each.is_alarm
    ]
    for kind, standing, part, row in (*failed, *suspects):
        name, since = key_of(part, row).name, f"{night.night}"
        amount = Amount(name, "", since)
        if part.kind.is_gate:
            bounds = row.figure, row.lower, row.upper
            amount = Amount(name, by_night.Gate.SPEED.value, since, *bounds)
        figure = f"{row.figure_text} on {named(part.hosts)}" * (kind is FindingKind.CASE)
        told = f"{name}: {'; '.join(filter(None, (figure, row.reason)))}"
        again = [("reproduce", night.repeat(part, row))]
        yield Finding(kind, at, since, standing, [amount], told, commands=again)


def _of_missing(series: Series, first: date) -> Finding:
    names = sorted(name for name, night in series.missing.items() if night == first)
    at = next(at for at, night in enumerate(series.measured) if night.night == first)
    amounts = [Amount(name, "", f"{first}") for name in names]
    told = f"no longer measured: {named(names)}"
    return Finding(FindingKind.MISSING, at, f"{first}", Standing.MISSING, amounts, told)


def _most_urgent(standings: Iterable[Standing]) -> Standing:
    """Return the standing that needs somebody most."""
    return min(standings, key=list(Standing).index)


def _by_size(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: -abs(log(change.step.change)))
