"""A series of nights: lines of a figure of a case or of a throughput, by date, with their lasting
changes, and what makes the series slower than it was.

A night FAILs at once if its throughputs fall below those of the nights before it
(hvdperf.timeline.nights.speed). A change for the worse that lasts makes the series FAIL until it is
repaired or accepted. Ratios alone show neither: what slows every replica alike leaves them as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from math import log

from hvdperf.records.documents import Kind
from hvdperf.timeline.lines import Change
from hvdperf.timeline.nights.changes import (
    NAMED,
    UNCERTAIN,
    Findings,
    Standing,
    findings,
    hosts_of,
    named,
    percent,
    standings,
)
from hvdperf.timeline.nights.falls import Fall, JudgedSpeeds, judge_speeds
from hvdperf.timeline.nights.gate import Found, JudgedGates, judge_gates, without_alarms
from hvdperf.timeline.nights.night import Accepted, Night, accepted_until
from hvdperf.timeline.nights.speed import FEWEST
from hvdperf.verdict import Verdict, worst


def verdict_of(night: Night, fall: Fall | None) -> Verdict:
    """Return the verdict of a night, given its fall."""
    fell = fall is not None and not fall.disturbed
    return worst([night.verdict, Verdict.FAIL]) if fell else night.verdict


@dataclass(frozen=True)
class Series:
    """A series. measured: its nights as their documents say them, in the order of dates. accepted:
    oldest first."""

    name: str
    measured: Sequence[Night]
    accepted: Sequence[Accepted] = ()

    @cached_property
    def gates(self) -> JudgedGates:
        """Return the gates, judged over nights."""
        return judge_gates(self.measured, self.accepted)

    @property
    def nights(self) -> Sequence[Night]:
        """Return the nights with the verdicts of their gates over nights."""
        return self.gates.nights

    @property
    def last(self) -> Night | None:
        """Return the last night, in which what was accepted FAILs no more; None without one."""
        if not self.nights:
            return None
        night = self.nights[-1]
        return without_alarms(night, self._gated) if night.night <= self.until else night

    @property
    def _gated(self) -> Sequence[Found]:
        """Return the suspects and alarms of the last night's gate, the slowest first."""
        found = self.gates.found.get(len(self.nights) - 1, ())
        return sorted(found, key=lambda each: each.row.figure or 1)

    @property
    def suspects(self) -> list[Found]:
        """Return what the last night's gate suspects on this night alone."""
        return [each for each in self._gated if not each.is_alarm]

    @property
    def alarms(self) -> list[Found]:
        """Return the alarms of the last night's gate; [] if they were accepted."""
        accepted = not self.nights or self.nights[-1].night <= self.until
        return [] if accepted else [each for each in self._gated if each.is_alarm]

    @property
    def until(self) -> date:
        """Return the date up to which what became slower is accepted."""
        return accepted_until(self.accepted)

    def why(self, change: Change) -> str:
        """Return why a lasting change is accepted."""
        return next((each.why for each in self.accepted if f"{each.night}" >= change.since), "")

    @cached_property
    def found(self) -> Findings:
        return findings(self.nights)

    @cached_property
    def changes(self) -> list[tuple[Change, Standing]]:
        """Return the lasting changes, by night, and whether each makes the series FAIL."""
        found = self.found.changes
        return list(zip(found, standings(found, self.until), strict=True))

    @cached_property
    def speeds(self) -> JudgedSpeeds:
        """Return the throughputs, judged."""
        return judge_speeds(self.nights, self.accepted)

    @property
    def falls(self) -> Mapping[int, Fall]:
        """Return the falls by index of the night."""
        return self.speeds.falls

    @property
    def fall(self) -> Fall | None:
        """Return the fall that is not over, or that of a disturbed last night; None if there is
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
        return [change for change, standing in self.changes if standing is Standing.OPEN]

    @property
    def is_red(self) -> bool:
        fell = self.fall is not None and not self.fall.disturbed
        return bool(self.open) or fell or bool(self.alarms)

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
            if fall.night is not self.nights[-1]:
                yield (
                    f"last seen on the night of {fall.night.night}; open until two of three nights "
                    "are back to normal"
                )
            # What fell that night and stays is one event.
            began = self.nights.index(fall.since)
            more = [each for each in more if abs(each.at - began) > UNCERTAIN]
        if more:
            told = [
                f"{each.line.name} {percent(each.step.change)} since {each.since}"
                for each in sorted(more, key=lambda each: -abs(log(each.step.change)))
            ]
            yield f"{len(told)} change points for the worse: {named(told)}"
            since = more[0].since
            yield f"details: hvdperf regressions --series {self.name} --since {since}"
        for word, found in (("alarm", self.alarms), ("suspect", self.suspects)):
            yield from (each.told for each in found[:NAMED])
            if len(found) > NAMED:
                yield f"and {len(found) - NAMED} more {word}s of the gate"
        if self.is_red or self.missing:
            yield (f"to accept it: hvdperf nightly accept --series {self.name} --why REASON")
        if self.accepted:
            newest = self.accepted[-1]
            why = f": {newest.why}" if newest.why else ""
            yield f"accepted up to the night of {newest.night}{why}"
        on = set(hosts_of(self.last)) if self.last else set()
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
