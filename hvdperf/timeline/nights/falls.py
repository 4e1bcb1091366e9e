"""Nights that fell: throughputs are lower than on the nights before, or launches take more time to
start, or more memory.

Ratios show neither: what slows every replica alike leaves them as they are. Each measure is judged
by itself (hvdperf.timeline.nights.speed); what fell on one night is one fall.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from itertools import groupby
from statistics import median
from typing import Any

from hvdperf.records.documents import Kind, Row
from hvdperf.records.outcome import Measure
from hvdperf.timeline.lines import LEAST_CHANGE, percent
from hvdperf.timeline.nights import gate
from hvdperf.timeline.nights.gate import Gated
from hvdperf.timeline.nights.night import SCRIPT, Accepted, Night, accepted_until, machine_of
from hvdperf.timeline.nights.speed import ALL, GAP, Key, Measured, Scope, Speed, UsualSpeeds
from hvdperf.timeline.store import named

# All throughputs are slower if this share of them is.
MOST = 0.75
# Of the last three nights that measured what fell, so many have to be usual before it is back.
_BACK = 2


class Gate(Enum):
    """The unit of a gate's figures, in words."""

    SPEED = "speed against the reference stack"


Unit = Measure | Gate
# The units that are judged from night to night. Each has the number of falls a year that are
# expected although nothing has changed, the smallest fall of 1 / figure, in ln, and whether the
# figure is a ratio.
_JUDGED: Mapping[Unit, tuple[Any, ...]] = {
    Measure.SPEED: (),
    Measure.START: (0.05, math.log(1.05)),
    Measure.MEMORY: (0.025, math.log(1.05)),
    Measure.DEVICE_MEMORY: (0.025, math.log(1.05)),
    Gate.SPEED: (1.2, math.log1p(LEAST_CHANGE), True),
}
# The changes of a night: of all throughputs and means, of what else launches took, and of the gate.
Changes = Mapping[Unit, Mapping[Key, Speed]]
# What changed.
What = tuple[Unit, Key]
# What a command is for, and the command.
Command = tuple[str, str]


@dataclass(frozen=True)
class Fall:
    """A night that fell: throughputs became lower, or starts or memory more. since: the first such
    night. usual: the last sound night before that. changes: of all that was compared; what should
    be low counts as its inverse. excuse: why the night does not FAIL; "" if it does.
    machine: what the machine did without Horovod, by name. fell: the first night on which each
    of them had fallen."""

    night: Night
    since: Night
    usual: Night
    changes: Changes
    excuse: str
    machine: Mapping[Key, Speed] = field(default_factory=dict)
    fell: Mapping[What, Night] = field(default_factory=dict)
    higher_since: date | None = None

    @property
    def what(self) -> list[What]:
        """Return what fell: throughputs first, and of these the largest fall of a mean."""
        return _standing_for_all(self.changes, lambda speed: speed.fell > 0)

    @property
    def told(self) -> str:
        """Return what fell and by how much, in words."""
        return all_in_words(self.what, self.changes)

    @property
    def again(self) -> str:
        """Return the command that measures what fell most again."""
        if self.night.script:
            return self.night.command
        unit, key = self.what[0]
        if unit is Gate.SPEED:
            gated = [each for each in self.night.cases if each[0].kind is Kind.GATE]
            wanted = [each for each in gated if gate.key_of(*each) == key] or gated
            return self.night.repeat(*wanted[0])
        model = f" --models {key.name}" if key.scope in (Scope.NETWORK, Scope.THROUGHPUT) else ""
        sizes = f" --world-sizes {key.world_size}" if key.scope is Scope.THROUGHPUT else ""
        return f"{self.night.command}{model}{sizes}"

    def notes(self) -> Iterator[str]:
        """Yield what else is known of the fall."""
        for what in self.what:
            # What fell later than the rest, such as all nodes beside one that was slow before.
            if what in self.fell and self.fell[what].night > self.since.night:
                measure, key = what
                whose = _whose(measure, key, self.changes[measure])
                whose = whose if measure is Measure.SPEED else f"{measure.value} of {whose}"
                yield f"{whose} only since the night of {self.fell[what].night}"
        if self.excuse:
            yield f"this is no FAIL, because {self.excuse}"
        if self.higher_since is not None:
            yield f"back where it was before {self.higher_since}"
        if self.machine:
            told = [
                f"{key.name} {_change(Measure.SPEED, speed)}"
                for key, speed in self.machine.items()
                if key.scope is Scope.THROUGHPUT or (key.scope is Scope.NODE and speed.fell)
            ]
            fell = any(speed.fell for speed in self.machine.values())
            first = "; so look at the machine first" if fell else ""
            yield f"the machine without Horovod: {', '.join(told)}{first}"

    def commands(self) -> Iterator[Command]:
        """Yield the commands that look closer."""
        key = self.what[0][1]
        node = key.name if key.scope is Scope.NODE else ""
        if self.what[0][0] is not Gate.SPEED:
            yield from details(self.usual, self.night, node)
        yield f"reproduce, on {node}" if node else "reproduce", self.again


def details(usual: Night, own: Night, node: str = "") -> Iterator[Command]:
    """Yield the command that compares the sessions of two nights, or, for a training script, their
    directories; nothing if either night has no session. node: whose sessions, if each node has its
    own."""
    before, after = usual.part(node=node), own.part(node=node)
    if before is not None and after is not None:
        shows = f"hvdperf compare results/runs/{before.session} results/runs/{after.session}"
        if SCRIPT in after.asked:
            shows = f"results/scripts/{before.session} and results/scripts/{after.session}"
        yield "details, on the machine that measured", shows


def _of(scope: Scope, keys: Iterable[Key]) -> list[Key]:
    return [key for key in keys if key.scope is scope]


def _is_slower(speed: Speed) -> bool:
    return speed.change < 1 - LEAST_CHANGE


def _standing_for_all(changes: Changes, is_wanted: Callable[[Speed], bool]) -> list[What]:
    """Return of what is wanted only that which stands for the rest, in the order of measures: all,
    if most throughputs are slower, then networks, likewise, then throughputs, the slowest
    first."""
    found = []
    for measure, speeds in changes.items():
        throughputs = _of(Scope.THROUGHPUT, speeds)
        slower = [key for key in throughputs if _is_slower(speeds[key])]
        kept = {key for key, own in speeds.items() if is_wanted(own)}
        if ALL in kept and 0 < len(slower) < MOST * len(throughputs):
            means = {key: Key(Scope.NETWORK, key.name) for key in slower}
            kept = {mean if mean in speeds else key for key, mean in means.items()}
        for mean in _of(Scope.NETWORK, kept):
            own = {key for key in throughputs if key.name == mean.name}
            low = own.intersection(slower)
            if 0 < len(low) < MOST * len(own):
                kept = kept - {mean} | low
        networks = {key.name for key in kept if key.scope is Scope.NETWORK}
        # Nodes among the throughputs of one replica.
        places = {
            key: (key.world_size or key.scope is Scope.NODE, key != ALL, speeds[key].beyond, key)
            for key in kept
            if key.scope is not Scope.THROUGHPUT or key.name not in networks
        }
        found += [(measure, key) for key in sorted(places, key=places.__getitem__)]
    return found


def all_in_words(found: Sequence[What], changes: Changes) -> str:
    """Return what was found with its changes. found: as _standing_for_all returns it."""
    return "; ".join(
        in_words(measure, [key for _, key in own], changes[measure])
        for measure, own in groupby(found, key=lambda what: what[0])
    )


def in_words(measure: Unit, found: Sequence[Key], speeds: Mapping[Key, Speed]) -> str:
    """Return what was found with its changes. found: keys as _standing_for_all orders them."""
    told = [
        f"{_change(measure, speeds[key])} {measure.value} of {_whose(measure, key, speeds)}"
        for key in found
    ]
    if found[0] != ALL or len(found) == 1:
        return named(told)
    more = [
        f"{_whose(measure, key, speeds)} another {percent(turned(measure, speeds[key].beyond))}"
        for key in found[1:]
    ]
    return f"{told[0]}; beyond that {named(more)}"


def turned(measure: Unit, value: float) -> float:
    """Return a speed as it is, and the inverse of what should be low, so that more is better; or
    turn that back."""
    return value if measure in (Measure.SPEED, Gate.SPEED) else 1 / value


def _change(measure: Unit, speed: Speed) -> str:
    """Return a change with its interval."""
    ends = sorted(turned(measure, bound) for bound in (speed.lower, speed.upper))
    told = " to ".join(f"{100 * (end - 1):+.1f}" for end in ends)
    return f"{percent(turned(measure, speed.change))} ({told})"


def _whose(measure: Unit, key: Key, speeds: Mapping[Key, Speed]) -> str:
    if key != ALL:
        return f"{key}"
    nodes = _of(Scope.NODE, speeds)
    slower = sum(_is_slower(speeds[node]) for node in nodes)
    of_nodes = f" on {slower} of {len(nodes)} nodes" if slower else ""
    alike = "throughputs" if measure is Measure.SPEED else "networks and world sizes"
    alike = "cases" if measure is Gate.SPEED else alike
    return f"all {len(_of(Scope.THROUGHPUT, speeds))} {alike}{of_nodes}"


@dataclass(frozen=True)
class JudgedSpeeds:
    """The throughputs of a series, what else launches took, and its gates, judged. nights: with the
    verdicts of their gates over nights. gated: suspects and alarms of gates, by index of the night.
    falls: by index of their nights. last: the changes of the last night, {} if it has none or they
    are not judged yet. reach: of throughputs, as UsualSpeeds.reach, at that night. waits: why they
    are not judged, or "". on: the newest fall that is not over, None if all are. is_too_wild: as
    UsualSpeeds.is_too_wild."""

    nights: Sequence[Night]
    gated: Mapping[int, Sequence[Gated]]
    falls: Mapping[int, Fall]
    last: Changes
    reach: Mapping[Key, float]
    waits: str
    on: Fall | None = None
    is_too_wild: bool = False

    @property
    def suspects(self) -> list[What]:
        """Return what is worth a second measurement on the last night, the slowest first."""
        return _standing_for_all(self.last, lambda speed: speed.suspect)

    @property
    def told(self) -> str:
        """Return the suspects with their changes, in words."""
        return all_in_words(self.suspects, self.last)

    def lines(self) -> Iterator[str]:
        """Yield how the last night compares, and how small a fall would be found at once."""
        for measure, speeds in self.last.items():
            # All, or the one or two throughputs that there are.
            for key in [ALL] if ALL in speeds else list(speeds):
                yield f"{in_words(measure, [key], speeds)} against the sound nights before"
        reach = {key: f"{100 * (1 - ratio):.0f} %" for key, ratio in self.reach.items()}
        least = [f"all by {reach[ALL]}"] if ALL in reach else []
        for what, scope in (("node", Scope.NODE), ("throughput", Scope.THROUGHPUT)):
            if alike := _of(scope, reach):
                least.append(f"any one {what} by {reach[min(alike, key=self.reach.__getitem__)]}")
        if least:
            yield f"found on its first night in 95 %: a fall of {', or of '.join(least)}"


@dataclass
class _Open:
    """A throughput or mean that has fallen and is not back. since, last: the first and the last
    night that fell. speed: of the last one. back: whether each of the last nights that measured it
    was usual."""

    since: Night
    last: Night
    speed: Speed
    back: deque[bool] = field(default_factory=lambda: deque(maxlen=3))


@dataclass
class _Known:
    """What is known of a unit on one kind of machine. speeds: what is usual. usual: the last
    night before the fall that is still on, or the last sound one. kept: the last sound night.
    fallen: the undisturbed nights of the fall, each with its figures. fell: what has fallen and is
    not back. sound: the last sound nights. rose: the first night of the level to which all rose.
    excuse: why the last night does not FAIL; "" if it does, should it have fallen."""

    unit: Unit
    speeds: UsualSpeeds
    usual: Night | None = None
    kept: Night | None = None
    fallen: list[tuple[Night, Measured]] = field(default_factory=list)
    fell: dict[Key, _Open] = field(default_factory=dict)
    sound: deque[Night] = field(default_factory=lambda: deque(maxlen=GAP + 1))
    rose: Night | None = None
    excuse: str = ""
    # The cases of a gate that FAILed on each of the last nights.
    failed: deque[set[Key]] = field(default_factory=lambda: deque(maxlen=GAP))

    def judge(self, night: Night, rows: Mapping[Key, Row]) -> Mapping[Key, Speed]:
        """Return the changes of a night, {} if it is not judged yet or measured nothing; let later
        nights be compared with it if it was sound and nothing has fallen. What fell stays open
        until two nights of three are back, so also while it is not measured. rows: the cases of its
        gate."""
        measured: Measured = {"": {key: gate.bounds(row)[0] for key, row in rows.items()}}
        if self.unit is not Gate.SPEED:
            measured = _medians(night, self.unit)
        if not any(measured.values()):
            return {}
        if self.unit is Gate.SPEED:
            speeds = self.speeds.compare(measured, known=gate.variances(rows))
            speeds = speeds or self._first_nights(rows)
        else:
            speeds = self.speeds.compare(measured, night.is_weekend, night.hosts)
        disturbed = gate.disturbed(night) if self.unit is Gate.SPEED else night.disturbed
        self.excuse = f"the night was disturbed: {disturbed}" if disturbed else ""
        new = self.speeds.new_hosts
        if new and not self.excuse and ALL in speeds and speeds[ALL].fell:
            self.excuse = f"there are too few nights on {named(new)} to know what is usual there"
            self.speeds.keep_hosts()
        if self.excuse:
            return speeds
        low = set()
        for key, speed in speeds.items():
            if speed.fell:
                fell = self.fell.setdefault(key, _Open(night, night, speed))
                fell.last, fell.speed = night, speed
            if key in self.fell:
                fell = self.fell[key]
                # Half of the way is nearer to what was usual.
                is_back = not speed.fell and speed.beyond**2 > fell.speed.beyond
                if not is_back:
                    low.add(key)
                fell.back.append(is_back)
                if sum(fell.back) >= _BACK:
                    del self.fell[key]
        slow = {key.name for key in _of(Scope.NODE, low)}
        if len(slow) == len(low):
            # A bad node is no reason to learn nothing of the others.
            self.sound.append(night)
            if self.speeds.keep(without=slow):
                self.rose = self.sound[0]
        if low:
            self.fallen.append((night, measured))
        else:
            self.kept = night
        if not self.fell:
            self.fallen.clear()
            self.usual = night
        return speeds

    def _first_nights(self, rows: Mapping[Key, Row]) -> dict[Key, Speed]:
        """Return the changes of a gate before enough nights are known: what has lost much falls,
        and what FAILs as on one of the last nights."""
        usual = self.speeds.usual_ratio
        failed = {key for key, row in rows.items() if gate.fails(row, usual(key))}
        fell = failed.intersection(set[Key]().union(*self.failed))
        fell |= {key for key in failed if gate.bounds(rows[key])[-1] < gate.LARGE * usual(key)}
        self.failed.append(failed)
        return {
            key: Speed(*gate.bounds(row), row.figure or 1.0, key in fell, suspect=False)
            for key, row in rows.items()
        }

    def accept(self) -> None:
        """Take the fall that is still on as what is usual, unless only what is gone had fallen."""
        last, _ = self.fallen[-1] if self.fallen else (None, {})
        if last is not None and (self.kept is None or self.kept.night < last.night):
            self.speeds.restart(
                (measured, night.is_weekend, night.hosts) for night, measured in self.fallen
            )
            self.usual = self.kept = last
        self.fallen.clear()
        self.fell.clear()
        self.failed.clear()


class _Machine:
    """What is known of one kind of machine. known: by unit. probes: what the machine does without
    Horovod. on: the fall that is not over. against: the reference stack of the gate."""

    def __init__(self) -> None:
        self.known = {each: _Known(each, UsualSpeeds(*how)) for each, how in _JUDGED.items()}
        self.probes = UsualSpeeds()
        self.on: Fall | None = None
        self.against = ""

    def accept(self) -> None:
        """Take the fall that is still on as what is usual."""
        # Of a machine that is slower, the probes are, too.
        if fallen := self.known[Measure.SPEED].fallen:
            self.probes.restart((_probed(night), False, ()) for night, _ in fallen)
        for each in self.known.values():
            each.accept()
        self.on = None

    def judge(self, night: Night, rows: Mapping[Key, Row]) -> tuple[Changes, Fall | None]:
        """Return the changes of a night, and its fall if there is one. rows: the cases of its
        gate."""
        if night.against not in ("", self.against):
            self.against = night.against
            self.known[Gate.SPEED] = _Known(Gate.SPEED, UsualSpeeds(*_JUDGED[Gate.SPEED]))
        judged = {unit: each.judge(night, rows) for unit, each in self.known.items()}
        changes = {measure: speeds for measure, speeds in judged.items() if speeds}
        probed = self.probes.compare(_probed(night))
        fell = [m for m, speeds in changes.items() if any(speed.fell for speed in speeds.values())]
        if not night.disturbed and Measure.SPEED not in fell:
            self.probes.keep()
        left = {(m, key): each for m, own in self.known.items() for key, each in own.fell.items()}
        self.on = None
        if not left and not fell:
            return changes, None
        # Without any of it, the night has an excuse.
        order = sorted(left, key=lambda what: left[what].since.night) or [(fell[0], ALL)]
        last = max((each.last for each in left.values()), key=lambda it: it.night, default=night)
        first = self.known[order[0][0]]
        fall = Fall(
            night if fell else last,
            left[order[0]].since if left else night,
            first.usual or night,
            {
                m: {**judged[m], **{key: each.speed for key, each in own.fell.items()}}
                for m, own in self.known.items()
            },
            next((self.known[m].excuse for m in fell), ""),
            probed,
            {what: each.since for what, each in left.items()},
            first.rose.night if first.rose is not None and first.speeds.is_back else None,
        )
        if left:
            self.on = replace(fall, excuse="")
        return changes, fall if fell else None


def judge_speeds(nights: Sequence[Night], accepted: Sequence[Accepted] = ()) -> JudgedSpeeds:
    """Judge the throughputs of a series, and what else launches took, night by night. A night that
    fell is none that later ones are compared with, unless its fall was accepted while it was on:
    then these nights are the usual ones from the next night on."""
    machines = defaultdict[object, _Machine](_Machine)
    judged, gated, found = list[Night](), dict[int, Sequence[Gated]](), dict[int, Fall]()
    changes: Changes = {}
    usual: UsualSpeeds | None = None
    waits, before = "", date.min
    # Whether the last night could be judged by the nights before it.
    is_ready = False
    for index, night in enumerate(nights):
        changes, usual, waits = {}, None, ""
        own, rows = night.by_node(Measure.SPEED), gate.measured(night)
        if not own and night.disturbed:
            waits = f"no throughput is judged, because the night was disturbed: {night.disturbed}"
        if not own and not rows:
            judged.append(night)
            continue
        if any(before <= each.night < night.night for each in accepted):
            for each in machines.values():
                each.accept()
        before = night.night
        machine = machines[machine_of(night.parts[0])]
        if own:
            usual = machine.known[Measure.SPEED].speeds
            is_ready = not usual.waits
        changes, fall = machine.judge(night, rows)
        if fall is not None:
            found[index] = fall
        of_gate, ratios = machine.known[Gate.SPEED], changes.get(Gate.SPEED, {})
        fell = [key for key, speed in ratios.items() if speed.fell and not of_gate.excuse]
        is_accepted = index == len(nights) - 1 and night.night <= accepted_until(accepted)
        usual_ratio = of_gate.speeds.usual_ratio
        night, suspects = gate.over_nights(night, rows, fell, usual_ratio, is_accepted)
        judged.append(night)
        if suspects:
            gated[index] = suspects
    if usual is not None and Measure.SPEED not in changes:
        waits = "throughputs are judged from the next night on"
        if missing := usual.waits:
            waits = f"throughputs are not judged yet: valid nights still needed: {missing}"
        elif is_ready:
            waits = (
                "no throughput is judged, because too few were measured to compare them with each "
                "other"
            )
    on = (each.on for each in machines.values() if each.on is not None)
    newest = max(on, key=lambda fall: fall.night.night, default=None)
    reach = usual.reach() if usual is not None else {}
    is_too_wild = usual is not None and usual.is_too_wild
    return JudgedSpeeds(judged, gated, found, changes, reach, waits, newest, is_too_wild)


def _medians(night: Night, measure: Measure) -> Measured:
    """Return the median figure of each node, network and world size; of what should be low, its
    inverse."""
    # A node that was disturbed says nothing beside others.
    disturbed = {part.node for part in night.parts if part.disturbed} if night.nodes else set()
    left = set(night.nodes) - disturbed or set(night.nodes)
    return {
        node: {
            Key(Scope.THROUGHPUT, *key): turned(measure, median(launches))
            for key, launches in figures.items()
        }
        for node, figures in night.by_node(measure).items()
        if not left or node in left
    }


def _probed(night: Night) -> Measured:
    found: dict[str, dict[Key, float]] = {}
    for name, speed in night.probe.items():
        node, _, what = name.rpartition(": ")
        found.setdefault(node, {})[Key(Scope.THROUGHPUT, what, 1)] = speed
    return found
