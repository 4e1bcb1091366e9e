"""What happened to a series: falls, lasting changes and alarms of the gate, each event once,
however many lines show it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import TypeVar

from hvdperf.timeline.lines import Change
from hvdperf.timeline.nights.changes import NAMED, UNCERTAIN, Standing, named, repeat
from hvdperf.timeline.nights.falls import Fall
from hvdperf.timeline.nights.gate import Alarm
from hvdperf.timeline.nights.night import look_closer
from hvdperf.timeline.nights.series import Series

# The standings of an event, the one that needs somebody first.
_URGENT = (
    Standing.OPEN,
    Standing.UNCONFIRMED,
    Standing.ACCEPTED,
    Standing.FASTER,
    Standing.REPAIRED,
    Standing.BETTER,
)
# What began on a night: a lasting change, or an alarm.
Began = TypeVar("Began")
_COMMAND = re.compile(r"((?:details|reproduce).*?): (.*)")


@dataclass(frozen=True)
class Changed:
    """A line that is part of an event. size: with its interval. count: how many nights have it."""

    name: str
    size: str
    since: str
    count: int
    standing: Standing


@dataclass(frozen=True)
class Event:
    """A fall, a lasting change, an alarm of the gate, or several that began at about the same time.

    at: index of its first night; since: the date of that. standing: that of what matters most.
    told: what changed, and by how much. notes: what else is known of it. commands: what for, and
    the command. changes: the lasting ones, the largest first. size: of the largest, in ln, 0 or
    more.
    """

    at: int
    since: str
    standing: Standing
    told: str
    notes: Sequence[str]
    commands: Sequence[tuple[str, str]]
    changes: Sequence[Changed]
    size: float

    @property
    def is_open(self) -> bool:
        """Return whether it makes its series FAIL."""
        return self.standing is Standing.OPEN


def events(series: Series) -> list[Event]:
    """Return the events of a series: those that make it FAIL first, then the newest."""
    left = list(series.changes)
    found = []
    for began, falls in _falls(series):
        own = [each for each in left if each[0].is_worse and abs(each[0].at - began) <= UNCERTAIN]
        left = [each for each in left if each not in own]
        found.append(_of_falls(series, began, falls, own))
    for is_worse in (True, False):
        alike = [each for each in left if each[0].is_worse is is_worse]
        found += [_of_changes(series, own) for own in _together(alike, lambda each: each[0].at)]
    for alarms in _together(series.gates.alarms, lambda each: each.first):
        alarms.sort(key=_loss, reverse=True)
        near = [each for each in found if _is_near(each, alarms[0])]
        if near:
            found[found.index(near[0])] = _with_alarms(series, near[0], alarms)
        else:
            found.append(_of_alarms(series, alarms))
    return sorted(found, key=lambda each: (not each.is_open, -each.at, -each.size))


def _falls(series: Series) -> Iterator[tuple[int, list[Fall]]]:
    """Yield the falls that began on the same night, with its index."""
    places = {night.night: index for index, night in enumerate(series.nights)}
    found: dict[int, list[Fall]] = {}
    for fall in series.falls.values():
        found.setdefault(places[fall.since.night], []).append(fall)
    yield from found.items()


def _is_near(event: Event, alarm: Alarm) -> bool:
    is_better = event.standing is Standing.BETTER
    return not is_better and abs(event.at - alarm.first) <= UNCERTAIN


def _together(found: Iterable[Began], at: Callable[[Began], int]) -> Iterator[list[Began]]:
    """Yield what began within UNCERTAIN nights of the first of it. at: returns the index of the
    first night."""
    left = sorted(found, key=at)
    while left:
        own = [each for each in left if at(each) <= at(left[0]) + UNCERTAIN]
        left = left[len(own) :]
        yield own


def _of_falls(
    series: Series, began: int, falls: Sequence[Fall], changes: Sequence[tuple[Change, Standing]]
) -> Event:
    last = falls[-1]
    is_on = series.fall is not None and series.fall.since is last.since
    standing = _most_urgent(changes)
    if is_on:
        standing = Standing.UNCONFIRMED if last.disturbed else Standing.OPEN
    elif standing is None:
        is_accepted = last.night.night <= series.until
        standing = Standing.ACCEPTED if is_accepted else Standing.REPAIRED
    notes, commands = [], []
    # The first line is what it told of itself.
    for line in list(last.lines())[1:]:
        command = _COMMAND.fullmatch(line)
        if command is None:
            notes.append(line)
        else:
            commands.append((command[1], command[2]))
    if not is_on:
        count = len(falls)
        until = f"{last.night.night}"
        notes.insert(0, f"seen at once on {count} night{'s' * (count > 1)}, the last on {until}")
    size = max(abs(log(last.changes[measure][key].change)) for measure, key in last.what)
    return _event(series, began, standing, last.told, notes, commands, changes, size)


def _of_changes(series: Series, changes: Sequence[tuple[Change, Standing]]) -> Event:
    standing = _most_urgent(changes)
    assert standing is not None
    ordered = sorted((change for change, _ in changes), key=_size, reverse=True)
    largest, others = ordered[0], len(ordered) - 1
    told = f"{largest.size} {largest.line.name}"
    if others:
        models = named(sorted({change.line.model for change in ordered}))
        told += f", and {others} more line{'s' * (others > 1)} of {models}"
    first = min(changes, key=lambda each: each[0].at)[0]
    marks = list(dict.fromkeys(mark for change in ordered for mark in change.marks))
    notes = [f"changed since {first.before}: {'; '.join(marks) or 'nothing that is recorded'}"]
    commands = []
    nights, step = series.nights, largest.step
    usual, own = (nights[largest.line.at[place]].part() for place in (step.at - 1, step.at))
    if usual is not None and own is not None:
        commands.append(("details, on the machine that measured", look_closer(usual, own)))
    if again := repeat(nights[largest.at], largest.line):
        commands.append(("measure the largest again", again))
    return _event(series, first.at, standing, told, notes, commands, changes, _size(largest))


def _of_alarms(series: Series, alarms: Sequence[Alarm]) -> Event:
    largest, more = alarms[0], len(alarms) - 1
    told = largest.found.told
    if more:
        told += f", and {more} more case{'s' * (more > 1)} of the gate"
    at = min(each.first for each in alarms)
    standing, again = _standing(series, alarms), _again(series, largest)
    return _event(series, at, standing, told, [], [again], (), _loss(largest))


def _with_alarms(series: Series, event: Event, alarms: Sequence[Alarm]) -> Event:
    """Return an event of the night's own sessions with the alarms that began with it."""
    told = [f"the gate: {each.found.told}" for each in alarms[:NAMED]]
    if len(alarms) > NAMED:
        told.append(f"and {len(alarms) - NAMED} more cases of the gate")
    standing = min(event.standing, _standing(series, alarms), key=_URGENT.index)
    accept = [_accept(series)] * (standing is Standing.OPEN and not event.is_open)
    commands = [*event.commands, _again(series, alarms[0]), *accept]
    return replace(event, standing=standing, notes=[*event.notes, *told], commands=commands)


def _standing(series: Series, alarms: Sequence[Alarm]) -> Standing:
    if any(each.found in series.alarms for each in alarms):
        return Standing.OPEN
    last = max(each.last for each in alarms)
    if series.nights[last].night <= series.until:
        return Standing.ACCEPTED
    return Standing.REPAIRED if all(each.is_over for each in alarms) else Standing.UNCONFIRMED


def _again(series: Series, alarm: Alarm) -> tuple[str, str]:
    """Return what a command is for, and the command, which measures an alarm again."""
    night, found = series.nights[alarm.last], alarm.found
    return "measure the gate's case again", night.repeat(found.part, found.row)


def _accept(series: Series) -> tuple[str, str]:
    """Return what a command is for, and the command, which makes what fell the reference."""
    command = f"hvdperf nightly accept --series {series.name} --why REASON"
    return "to accept the series", command


def _loss(alarm: Alarm) -> float:
    """Return what an alarm lost, in ln."""
    return -log(alarm.found.row.figure or 1)


def _event(
    series: Series,
    at: int,
    standing: Standing,
    told: str,
    notes: list[str],
    commands: list[tuple[str, str]],
    changes: Sequence[tuple[Change, Standing]],
    size: float,
) -> Event:
    """Return an event, with what is said and asked of all of them."""
    since = f"{series.nights[at].night}"
    if standing is Standing.OPEN:
        commands = [*commands, _accept(series)]
    if standing is Standing.ACCEPTED:
        why = next((each.why for each in series.accepted if f"{each.night}" >= since), "")
        notes = [*notes, f"accepted: {why or 'nobody said why'}"]
    ordered = [
        Changed(change.line.name, change.size, change.since, change.count, own)
        for change, own in sorted(changes, key=lambda each: _size(each[0]), reverse=True)
    ]
    return Event(at, since, standing, told, notes, commands, ordered, size)


def _most_urgent(changes: Sequence[tuple[Change, Standing]]) -> Standing | None:
    """Return the standing that needs somebody most; None without changes."""
    return min((standing for _, standing in changes), key=_URGENT.index, default=None)


def _size(change: Change) -> float:
    return abs(log(change.step.change))
