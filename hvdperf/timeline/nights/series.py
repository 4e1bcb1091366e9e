"""A series of nights: lines of a figure of a case or of a throughput, by date, with their lasting
changes, and what makes the series slower than it was.

A night FAILs at once if its throughputs fall below those of the nights before it
(hvdperf.timeline.nights.speed). A change for the worse that lasts makes the series FAIL until it is
repaired or accepted. Ratios alone show neither: what slows every replica alike leaves them as they
are.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from functools import cached_property
from itertools import accumulate
from math import log, log1p
from statistics import median

import numpy as np

from hvdperf.records.documents import Row
from hvdperf.records.fingerprint import differences
from hvdperf.records.outcome import Measure
from hvdperf.timeline.lines import LEAST_CHANGE, Change, Line, rank_test, steps, throughput
from hvdperf.timeline.nights.gate import Found, JudgedGates, judge_gates, without_alarms
from hvdperf.timeline.nights.night import Accepted, Night, Part, Speeds, accepted_until
from hvdperf.timeline.nights.speed import (
    ALL,
    FALSE_A_YEAR,
    LEAST_FALL,
    NODE,
    Key,
    Measured,
    Speed,
    UsualSpeeds,
)
from hvdperf.verdict import Ceiling, Verdict, worst

# A change may be placed a few nights too early or too late, so it lists what else changed within so
# many nights of it.
UNCERTAIN = 3
# A node's nights are compared with those of other nodes among so many nights before and after.
NEIGHBOURS = 7
# The fewest nights of a node that is blamed, and the p below which it is: of a line, of which there
# are many, and of the throughputs together.
FEWEST_NIGHTS, SIGNIFICANT, SIGNIFICANT_OF_ALL = 2, 1e-4, 1e-3
# Verdicts whose figure is no measurement of an unbroken system.
UNSOUND = (Verdict.INVALID, Verdict.NOT_RUN)
# So many lines that change within UNCERTAIN nights confirm each other.
TOGETHER = 3
# So many nights show that a line is back where it was.
BACK = 4
# All throughputs are slower if this share of them is.
MOST = 0.75
# As date.weekday() numbers it.
SATURDAY = 5
# The number of lines that a text names.
NAMED = 5
# A line that is back is compared with so many figures before its change.
EARLIER = 10


@dataclass(frozen=True)
class BadNode:
    """A host with which a series is worse than without it, or hosts that always come together.
    nights: how many. change: median over lines of the ratio to other nights nearby. lines: of how
    many lines."""

    hosts: tuple[str, ...]
    nights: int
    change: float
    lines: int


@dataclass(frozen=True)
class Findings:
    """What is known of a series. lines: of its own sessions. marks: what changed from one measured
    night to the next, by the index of the later night. changes: lasting ones, by night, without the
    nights on bad nodes."""

    lines: Sequence[Line]
    marks: Mapping[int, tuple[str, ...]]
    changes: Sequence[Change]
    nodes: Sequence[BadNode]


def findings(nights: Sequence[Night]) -> Findings:
    """Return what is known of a series. nights: in the order of dates."""
    found, marked = lines(nights), marks(nights)
    nodes = bad_nodes(nights, found)
    bad = {node.hosts for node in nodes}
    told = [
        change for line in found for change in _changes(without(line, nights, bad), nights, marked)
    ]
    return Findings(found, marked, sorted(told, key=lambda each: each.since), nodes)


def lines(nights: Sequence[Night], gates: bool = False) -> list[Line]:
    """Return the lines of a series: the throughputs, then the figures of its cases, by name.
    nights: in the order of dates. gates: whether those against the reference stack are wanted."""
    found: dict[tuple[bool, str], list[tuple[int, float, Speeds | Row]]] = {}
    for index, night in enumerate(nights):
        part = night.part(gates)
        if part is None:
            continue
        for (model, size), launches in () if gates else night.speeds.items():
            each = Speeds(model, size, launches)
            found.setdefault((False, throughput(model, size)), []).append(
                (index, median(launches), each)
            )
        for name, rows in _sound_rows(night, gates).items():
            # Of several nodes the middle one; its verdict is the worst.
            figure = median(row.figure for row in rows if row.figure is not None)
            row = replace(rows[0], verdict=worst([row.verdict for row in rows]))
            found.setdefault((True, name), []).append((index, figure, row))
    return [_line(name, points, gates) for (_, name), points in sorted(found.items())]


def _sound_rows(night: Night, gates: bool) -> dict[str, list[Row]]:
    """Return the cases that have a figure, by name, one a node."""
    found: dict[str, list[Row]] = {}
    for part in night.parts:
        for row in part.cases if part.is_gate is gates else ():
            if row.figure is not None and row.figure > 0 and row.verdict not in UNSOUND:
                found.setdefault(row.name, []).append(row)
    return found


def _line(name: str, points: Sequence[tuple[int, float, Speeds | Row]], is_gate: bool) -> Line:
    at, figures, measured = zip(*points, strict=True)
    last = measured[-1]
    return Line(
        name,
        last.model,
        last.world_size,
        at,
        figures,
        lower_is_better=isinstance(last, Row) and last.question.spec.rule is Ceiling,
        verdicts=tuple(row.verdict for row in measured if isinstance(row, Row)),
        is_gate=is_gate,
    )


def marks(nights: Sequence[Night]) -> dict[int, tuple[str, ...]]:
    """Return what changed from one measured night to the next: machine, stack, settings and hosts,
    in words, by the index of the later night. Hosts that change from night to night are no change,
    nor is a node of several that measure themselves."""
    measured = [(index, night, _hosts(night)) for index, night in enumerate(nights) if night.part()]
    found = {}
    for at in range(1, len(measured)):
        (_, before, old), (index, night, new) = measured[at - 1 : at + 1]
        changed = _differences(before, night)
        if old != new:
            near = measured[max(0, at - NEIGHBOURS) : at], measured[at : at + NEIGHBOURS]
            if all(len({hosts for _, _, hosts in side}) == 1 for side in near):
                changed.append(f"hosts: {_names(old)} -> {_names(new)}")
        if changed:
            found[index] = tuple(changed)
    return found


def _differences(before: Night, night: Night) -> list[str]:
    """Return what differs between two nights in machine, stack and settings; of several nodes, on
    how many of those of both nights."""
    pairs = [
        (old, new)
        for new in night.parts
        if not (new.is_gate or new.again)
        and (old := before.part(node=new.node)) is not None
        and old.node == new.node
    ]
    told = Counter(
        line
        for old, new in pairs
        for line in (
            *differences(old.fingerprint, new.fingerprint),
            *differences(old.asked, new.asked),
        )
    )
    return [
        line if count == len(pairs) else f"{line} on {count} of {len(pairs)} nodes"
        for line, count in told.items()
    ]


def _names(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) or "(unknown)"


def bad_nodes(nights: Sequence[Night], found: Sequence[Line]) -> list[BadNode]:
    """Return the hosts with which a line, or the throughputs together, are worse than they are
    without them at about the same time, the worst first. A host that took over for good is none:
    its nights have no others nearby. Hosts that always come together are one."""
    groups = _groups(nights)
    if len(groups) < 2:
        return []
    values = [_values(line) for line in found]
    alike = [own for line, own in zip(found, values, strict=True) if not line.verdicts]
    named = dict.fromkeys(_worse(_together(alike), groups, SIGNIFICANT_OF_ALL))
    named |= dict.fromkeys(hosts for own in values for hosts in _worse(own, groups, SIGNIFICANT))
    told = []
    for hosts in named:
        apart = [_apart(_levels(own), groups[hosts]) for own in values]
        changes = [change for change in apart if change < -log1p(LEAST_CHANGE)]
        if changes:
            size = math.exp(median(changes))
            told.append(BadNode(hosts, len(groups[hosts]), size, len(changes)))
    return sorted(told, key=lambda node: node.change)


def _values(line: Line) -> dict[int, float]:
    """Return ln of the figures by index of the night, higher for better."""
    sign = -1 if line.lower_is_better else 1
    return {index: sign * log(value) for index, value in zip(line.at, line.figures, strict=True)}


def _together(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the median over lines of each night's distance from the line's own median."""
    nights: dict[int, list[float]] = {}
    for own in values:
        level = median(own.values())
        for index, value in own.items():
            nights.setdefault(index, []).append(value - level)
    return {index: median(nights[index]) for index in sorted(nights)}


def _groups(nights: Sequence[Night]) -> dict[tuple[str, ...], frozenset[int]]:
    """Return the nights of each host, by index; hosts that always come together share theirs."""
    of_host: dict[str, set[int]] = {}
    for index, night in enumerate(nights):
        for host in _hosts(night):
            of_host.setdefault(host, set()).add(index)
    together: dict[frozenset[int], list[str]] = {}
    for host, own in sorted(of_host.items()):
        together.setdefault(frozenset(own), []).append(host)
    return {tuple(hosts): own for own, hosts in together.items()}


def _worse(
    values: Mapping[int, float], groups: Mapping[tuple[str, ...], frozenset[int]], most: float
) -> Iterator[tuple[str, ...]]:
    """Yield the hosts with which the values are significantly lower, the most significant ones
    first. The nights of each are left out before the next ones are looked for: they would make the
    other hosts of these nights look slow, too. most: the p of all hosts together."""
    while True:
        level = _levels(values)
        best, hosts = most / len(groups), None
        for name, own in groups.items():
            ours = [value for index, value in level.items() if index in own]
            theirs = [value for index, value in level.items() if index not in own]
            if len(ours) < FEWEST_NIGHTS or len(theirs) <= NEIGHBOURS:
                continue
            if _apart(level, own) < -log1p(LEAST_CHANGE):
                p = rank_test(np.array(ours), np.array(theirs))
                if p < best:
                    best, hosts = p, name
        if hosts is None:
            return
        yield hosts
        values = {index: value for index, value in values.items() if index not in groups[hosts]}


def _apart(level: Mapping[int, float], own: frozenset[int]) -> float:
    """Return the distance of the median of some nights from that of the others; 0 without one."""
    ours = [value for index, value in level.items() if index in own]
    theirs = [value for index, value in level.items() if index not in own]
    return median(ours) - median(theirs) if ours and theirs else 0.0


def _levels(values: Mapping[int, float]) -> dict[int, float]:
    """Return the distance of each night from the median of the nights nearby, itself left out."""
    at = list(values)
    found = {}
    for i, index in enumerate(at):
        near = [*at[max(0, i - NEIGHBOURS) : i], *at[i + 1 : i + NEIGHBOURS + 1]]
        if near:
            found[index] = values[index] - median(values[each] for each in near)
    return found


def _hosts(night: Night) -> tuple[str, ...]:
    """Return the hosts of the night's session; () if each node measured itself."""
    part = night.part()
    return part.hosts if part is not None and not part.node else ()


def without(line: Line, nights: Sequence[Night], hosts: set[tuple[str, ...]]) -> Line:
    """Return the line without the nights on these hosts."""
    if not hosts:
        return line
    kept = [
        i
        for i, index in enumerate(line.at)
        if not any(set(each) <= set(_hosts(nights[index])) for each in hosts)
    ]
    verdicts = tuple(line.verdicts[i] for i in kept) if line.verdicts else ()
    return replace(
        line,
        at=tuple(line.at[i] for i in kept),
        figures=tuple(line.figures[i] for i in kept),
        verdicts=verdicts,
    )


def _changes(
    line: Line, nights: Sequence[Night], marked: Mapping[int, tuple[str, ...]]
) -> Iterator[Change]:
    for step in steps(line.figures):
        first = line.at[step.at]
        near = line.at[max(0, step.at - UNCERTAIN) : step.at + UNCERTAIN]
        found = []
        for at in range(near[0] + 1, near[-1] + 1):
            when = "" if at == first else f" ({nights[at].night})"
            found += [f"{text}{when}" for text in marked.get(at, ())]
        before, since = (f"{nights[at].night}" for at in (line.at[step.at - 1], first))
        yield Change(line, step, before, since, tuple(found))


def repeat(night: Night, line: Line) -> str:
    """Return the command that measures a line's figure of a night again: its case or, for a
    throughput, one of the same network and world size, or of another one; "" if there is none."""
    alike = [
        (part, row)
        for part, row in night.cases
        if part.is_gate == line.is_gate and row.model == line.model
    ]
    alike.sort(key=lambda pair: (pair[1].name != line.name, pair[1].world_size != line.world_size))
    return night.repeat(*alike[0]) if alike else ""


# What is judged from night to night, each by its own. Nights say how often each of them falls a
# year although nothing has changed, and which fall of 1 / figure is the smallest, in ln.
_JUDGED = {
    Measure.SPEED: (FALSE_A_YEAR, LEAST_FALL),
    Measure.START: (0.05, math.log(1.05)),
    Measure.MEMORY: (0.025, math.log(1.05)),
    Measure.DEVICE_MEMORY: (0.025, math.log(1.05)),
}
# The changes of a night: of all throughputs and means, and of what else launches took.
Changes = Mapping[Measure, Mapping[Key, Speed]]
# What changed.
What = tuple[Measure, Key]


@dataclass(frozen=True)
class Fall:
    """A night that fell: throughputs became lower, or starts or memory more. since: the first such
    night. usual: the last sound night before that. changes: of all that was compared; what should
    be low counts as its inverse. disturbed: by what, in words; the night FAILs if it is "".
    machine: what the machine did without Horovod, by name. fell: the first night on which each
    of them had fallen."""

    night: Night
    since: Night
    usual: Night
    changes: Changes
    disturbed: str
    machine: Mapping[Key, Speed] = field(default_factory=dict)
    fell: Mapping[What, Night] = field(default_factory=dict)

    @property
    def what(self) -> list[What]:
        """Return what fell: throughputs first, and of these the largest fall of a mean."""
        return _standing_for_all(self.changes, lambda speed: speed.fell > 0)

    @property
    def told(self) -> str:
        """Return what fell and by how much, in words."""
        return all_in_words(self.what, self.changes)

    @property
    def changed(self) -> tuple[str, ...]:
        """Return what else changed from the last usual night to the first that fell."""
        return marks([self.usual, self.since]).get(1, ())

    @property
    def again(self) -> str:
        """Return the command that measures what fell most again."""
        _, (name, size) = self.what[0]
        model = f" --models {name}" if name and size != NODE else ""
        sizes = f" --world-sizes {size}" if size > 0 else ""
        return f"{self.night.command}{model}{sizes}"

    def lines(self) -> Iterator[str]:
        """Yield what fell, by how much and since when, and the commands that look closer."""
        yield f"since the night of {self.since.night}: {self.told}"
        for what in self.what:
            # What fell later than the rest, such as all nodes beside one that was slow before.
            if what in self.fell and self.fell[what].night > self.since.night:
                measure, key = what
                whose = _whose(measure, key, self.changes[measure])
                whose = whose if measure is Measure.SPEED else f"{measure.value} of {whose}"
                yield f"{whose} only since the night of {self.fell[what].night}"
        if self.disturbed:
            yield f"this is no FAIL, because the night was disturbed: {self.disturbed}"
        if self.machine:
            told = [
                f"{name} {_change(Measure.SPEED, speed)}"
                for (name, kind), speed in self.machine.items()
                if kind > 0 or (kind == NODE and speed.fell)
            ]
            fell = any(speed.fell for speed in self.machine.values())
            first = "; so look at the machine first" if fell else ""
            yield f"the machine without Horovod: {', '.join(told)}{first}"
        if self.changed:
            yield f"changed since {self.usual.night}: {'; '.join(self.changed)}"
            yield from separating(self.changed, self.again)
        _, (name, kind) = self.what[0]
        usual, own = (
            night.part(node=name if kind == NODE else "") for night in (self.usual, self.night)
        )
        if usual is not None and own is not None:
            yield (
                "look closer, where it was measured: hvdperf compare "
                f"results/runs/{usual.session} results/runs/{own.session}"
            )
        on = f", on {name}" if kind == NODE else ""
        yield f"measure it again{on}: {self.again}"


# Fields of a fingerprint: the parts of a stack, of which another one can be installed beside it,
# and what belongs to a node, whatever is installed and set. All others are settings.
_OF_STACK = {
    *("python", "tensorflow", "tensorflow_git", "keras", "numpy", "cuda", "cudnn", "horovod"),
    *("horovod_built_with", "nccl", "mpirun", "mpi_library", "packages_sha256"),
}
_OF_NODE = {
    *("cpu_model", "microcode", "governor", "smt", "numa_nodes", "cores", "cpu_quota_cores"),
    *("memory_gib", "kernel", "container", "gpus", "gpu_model", "gpu_driver", "gpu_memory_mib"),
    *("gpu_power_limit_w", "gpu_max_sm_clock_mhz", "gpu_max_memory_clock_mhz", "rank_cores"),
    "hosts",
}


def separating(changed: Sequence[str], command: str) -> Iterator[str]:
    """Yield how what changed can be told apart, if it can. changed: as `marks` returns it. command:
    measures again."""
    names = list(dict.fromkeys(text.partition(":")[0] for text in changed))
    of_stack = [name for name in names if name in _OF_STACK]
    of_node = [name for name in names if name in _OF_NODE]
    settings = [name for name in names if name not in _OF_STACK | _OF_NODE]
    if of_stack:
        yield (
            f"what {named(of_stack)} did: {command} --against PYTHON, the interpreter of an "
            "environment with the old packages (make stack)"
        )
    if settings:
        yield f"what {named(settings)} did: the same command with the value of before"
    if of_node:
        yield f"what {named(of_node)} did: measure a node where it is as before; no option tells"


def standing_for(found: Sequence[Key], speeds: Mapping[Key, Speed]) -> list[Key]:
    """Return of what was found only that which stands for the rest: all, if most throughputs are
    slower, then networks, then throughputs, the slowest first. found: throughputs and means."""
    slower = [key for key, speed in speeds.items() if key[1] > 0 and _is_slower(speed)]
    kept = set(found)
    if ALL in kept and len(slower) < MOST * _count(speeds):
        kept = {(model, 0) if (model, 0) in speeds else (model, size) for model, size in slower}
    networks = {model for model, size in kept if model and not size}
    kept = {key for key in kept if not key[1] or key[0] not in networks}
    return sorted(kept, key=lambda key: (abs(key[1]), key[0] != "", speeds[key].beyond, key))


def _is_node(key: Key) -> bool:
    return key[1] == NODE


def _is_throughput(key: Key) -> bool:
    return key[1] > 0


def _is_slower(speed: Speed) -> bool:
    return speed.change < 1 - LEAST_CHANGE


def _standing_for_all(changes: Changes, is_wanted: Callable[[Speed], bool]) -> list[What]:
    """Return of what is wanted only that which stands for the rest, in the order of measures."""
    return [
        (measure, key)
        for measure, speeds in changes.items()
        for key in standing_for([key for key, own in speeds.items() if is_wanted(own)], speeds)
    ]


def all_in_words(found: Sequence[What], changes: Changes) -> str:
    """Return what was found with its changes. found: as _standing_for_all returns it."""
    by_measure: dict[Measure, list[Key]] = {}
    for measure, key in found:
        by_measure.setdefault(measure, []).append(key)
    return "; ".join(
        in_words(measure, keys, changes[measure]) for measure, keys in by_measure.items()
    )


def in_words(measure: Measure, found: Sequence[Key], speeds: Mapping[Key, Speed]) -> str:
    """Return what was found with its changes. found: as standing_for returns it."""
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


def turned(measure: Measure, value: float) -> float:
    """Return a speed as it is, and the inverse of what should be low, so that more is better; or
    turn that back."""
    return value if measure is Measure.SPEED else 1 / value


def _change(measure: Measure, speed: Speed) -> str:
    """Return a change with its interval."""
    ends = sorted(turned(measure, bound) for bound in (speed.lower, speed.upper))
    told = " to ".join(f"{100 * (end - 1):+.1f}" for end in ends)
    return f"{percent(turned(measure, speed.change))} ({told})"


def _whose(measure: Measure, key: Key, speeds: Mapping[Key, Speed]) -> str:
    name, size = key
    if size == NODE:
        return name
    nodes = [speed for (_, kind), speed in speeds.items() if kind == NODE]
    slower = sum(map(_is_slower, nodes))
    of_nodes = f" on {slower} of {len(nodes)} nodes" if slower else ""
    alike = "throughputs" if measure is Measure.SPEED else "networks and world sizes"
    return f"{name}-np{size}" if size else name or f"all {_count(speeds)} {alike}{of_nodes}"


def _count(speeds: Mapping[Key, Speed]) -> int:
    """Return the number of throughputs, without means."""
    return sum(size > 0 for _, size in speeds)


def verdict_of(night: Night, fall: Fall | None) -> Verdict:
    """Return the verdict of a night, given its fall."""
    fell = fall is not None and not fall.disturbed
    return worst([night.verdict, Verdict.FAIL]) if fell else night.verdict


class Standing(Enum):
    """Whether a lasting change makes its series FAIL, and why not."""

    OPEN = "worse"
    BETTER = "better"
    REPAIRED = "worse, repaired"
    ACCEPTED = "worse, accepted"
    FASTER = "worse, as its network became faster"
    UNCONFIRMED = "worse, not confirmed yet"


@dataclass(frozen=True)
class JudgedSpeeds:
    """The throughputs of a series, and what else launches took, judged. falls: by index of their
    nights. last: the changes of the last night, {} if it has none or they are not judged yet.
    reach: of throughputs, as UsualSpeeds.reach, at that night. waits: why they are not judged, or
    ""."""

    falls: Mapping[int, Fall]
    last: Changes
    reach: Mapping[Key, float]
    waits: str

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
        for what, is_one in (("node", _is_node), ("throughput", _is_throughput)):
            if alike := [key for key in reach if is_one(key)]:
                least.append(f"any one {what} by {reach[min(alike, key=self.reach.__getitem__)]}")
        if least:
            yield f"found on its first night in 95 %: a fall of {', or of '.join(least)}"


@dataclass
class _Known:
    """What is known of a measure on one kind of machine. speeds: what is usual. usual: the last
    sound night. fallen: the undisturbed nights of the fall that is still on. fell: the first night
    of each throughput and mean that has fallen since."""

    measure: Measure
    speeds: UsualSpeeds
    usual: Night | None = None
    fallen: list[Night] = field(default_factory=list)
    fell: dict[Key, Night] = field(default_factory=dict)

    def judge(self, night: Night) -> Mapping[Key, Speed]:
        """Return the changes of a night, {} if it is not judged yet; let later nights be compared
        with it if it was sound and did not fall."""
        speeds = self.speeds.compare(_medians(night, self.measure), _is_weekend(night))
        fell = [key for key, speed in speeds.items() if speed.fell]
        if not fell:
            if speeds:
                self.recovered()
            if not night.disturbed:
                self.speeds.keep()
                self.usual = night
        elif not night.disturbed:
            self.fallen.append(night)
            self.fell = {key: self.fell.get(key, night) for key in fell}
            slow = {name for name, size in fell if size == NODE}
            if len(slow) == len(fell):
                # A bad node is no reason to learn nothing of the others.
                self.speeds.keep(without=slow)
        return speeds

    def accept(self) -> None:
        """Take the fall that is still on as what is usual."""
        if self.fallen:
            fallen = self.fallen
            self.speeds.restart(
                (_medians(each, self.measure), _is_weekend(each)) for each in fallen
            )
            self.usual = fallen[-1]
            self.recovered()

    def recovered(self) -> None:
        """Forget the fall."""
        self.fallen.clear()
        self.fell.clear()


def judge_speeds(nights: Sequence[Night], accepted: Sequence[Accepted] = ()) -> JudgedSpeeds:
    """Judge the throughputs of a series, and what else launches took, night by night. A night that
    fell is none that later ones are compared with, unless its fall was accepted while it was on:
    then these nights are the usual ones from the next night on."""
    known: dict[tuple[object, Measure], _Known] = {}
    probes: dict[object, UsualSpeeds] = defaultdict(UsualSpeeds)
    dates = sorted((each.night for each in accepted), reverse=True)
    found: dict[int, Fall] = {}
    changes: dict[Measure, Mapping[Key, Speed]] = {}
    last: UsualSpeeds | None = None
    waits = ""
    for index, night in enumerate(nights):
        changes, last, waits = {}, None, ""
        part, disturbed = night.part(), night.disturbed
        if part is None or not night.speeds:
            if disturbed:
                waits = f"no throughput is judged, because the night was disturbed: {disturbed}"
            continue
        kind = part.machine
        while dates and night.night > dates[-1]:
            dates.pop()
            for (its_kind, measure), each in known.items():
                if measure is Measure.SPEED:
                    # Of a machine that is slower, the probes are, too.
                    fallen = [(_probed(before), False) for before in each.fallen]
                    if fallen:
                        probes[its_kind].restart(fallen)
                each.accept()
        for measure, how in _JUDGED.items():
            before = known.setdefault((kind, measure), _Known(measure, UsualSpeeds(*how)))
            if measure is Measure.SPEED:
                last = before.speeds
            if night.by_node(measure) and (speeds := before.judge(night)):
                changes[measure] = speeds
        probed = probes[kind].compare(_probed(night))
        fell = [m for m, speeds in changes.items() if any(speed.fell for speed in speeds.values())]
        if not disturbed and Measure.SPEED not in fell:
            probes[kind].keep()
        if fell:
            of_each = [known[kind, measure] for measure in fell]
            first = min(of_each, key=lambda each: (each.fallen or [night])[0].night)
            assert first.usual is not None
            found[index] = Fall(
                night,
                (first.fallen or [night])[0],
                first.usual,
                changes,
                disturbed,
                probed,
                {
                    (each.measure, key): since
                    for each in of_each
                    for key, since in each.fell.items()
                },
            )
    if last is not None and Measure.SPEED not in changes:
        waits = "throughputs are judged from the next night on"
        if missing := last.waits:
            waits = f"throughputs are judged after more sound nights of this machine: {missing}"
    return JudgedSpeeds(found, changes, last.reach() if last is not None else {}, waits)


def _medians(night: Night, measure: Measure) -> Measured:
    """Return the median figure of each node, network and world size; of what should be low, its
    inverse."""
    # A node that was disturbed says nothing beside others.
    disturbed = {part.node for part in night.parts if part.disturbed} if night.nodes else set()
    left = set(night.nodes) - disturbed or set(night.nodes)
    return {
        node: {key: turned(measure, median(launches)) for key, launches in figures.items()}
        for node, figures in night.by_node(measure).items()
        if not left or node in left
    }


def _probed(night: Night) -> Measured:
    found: dict[str, dict[Key, float]] = {}
    for name, speed in night.probe.items():
        node, _, what = name.rpartition(": ")
        found.setdefault(node, {})[what, 1] = speed
    return found


def _is_weekend(night: Night) -> bool:
    return night.night.weekday() >= SATURDAY


def standings(changes: Sequence[Change], accepted: date = date.min) -> list[Standing]:
    """Return for each lasting change of a series whether it makes the series FAIL."""
    return [_standing(change, changes, accepted) for change in changes]


def _standing(change: Change, changes: Sequence[Change], accepted: date) -> Standing:
    if not change.is_worse:
        return Standing.BETTER
    if change.since <= f"{accepted}":
        return Standing.ACCEPTED
    later = [each for each in changes if each.line is change.line and each.at >= change.at]
    sign = -1 if change.line.lower_is_better else 1
    reached = accumulate(sign * log(each.step.change) for each in later)
    if any(level >= -log1p(LEAST_CHANGE) for level in reached) or _is_back(change):
        return Standing.REPAIRED
    together = [each for each in changes if abs(each.at - change.at) <= UNCERTAIN]
    # An efficiency falls, too, when one replica becomes faster.
    is_ratio = bool(change.line.verdicts) and not change.line.lower_is_better
    if is_ratio and any(
        not each.is_worse and not each.line.verdicts and each.line.model == change.line.model
        for each in together
    ):
        return Standing.FASTER
    worse = sum(each.is_worse for each in together)
    is_confirmed = change.step.is_confirmed or worse >= TOGETHER
    return Standing.OPEN if is_confirmed else Standing.UNCONFIRMED


def _is_back(change: Change) -> bool:
    """Return whether the last nights are all better than three quarters of the others since the
    change, and no worse than those before it. To find a change back takes many more nights."""
    line, step = change.line, change.step
    sign = -1 if line.lower_is_better else 1
    levels = [sign * log(figure) for figure in line.figures]
    since, last = levels[step.at : -BACK], levels[-BACK:]
    if step.until < len(levels) or len(since) < BACK:
        return False
    before = median(levels[max(0, step.at - EARLIER) : step.at])
    # The change may be placed a night too early, so not all of the others need to be worse.
    most = sorted(since)[3 * len(since) // 4 - 1]
    return min(last) > most and median(last) >= before - log1p(LEAST_CHANGE)


def named(told: Sequence[str]) -> str:
    more = len(told) - NAMED
    return ", ".join(told[:NAMED]) + (f", and {more} more" if more > 0 else "")


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


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
        """Return the fall of the last night; None if there is none, or if it was accepted."""
        fall = self.falls.get(len(self.nights) - 1)
        return fall if fall is not None and fall.night.night > self.until else None

    @property
    def absent(self) -> list[str]:
        """Return the nodes that have measured themselves lately, but not in the last night."""
        lately = {node for night in self.nights[-NEIGHBOURS:] for node in night.nodes}
        return sorted(lately - set(self.last.nodes)) if self.last else []

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
        """Return the verdict of the last night, or FAIL if the series is slower than it was."""
        own = self.last.verdict if self.last else Verdict.NOT_JUDGED
        return worst([own, Verdict.FAIL]) if self.is_red else own

    def slower(self) -> Iterator[str]:
        """Yield what has become slower, by how much and since when, and what to do next."""
        fall, more = self.fall, self.open
        if fall is not None:
            yield from fall.lines()
            # What fell that night and stays is one event.
            began = self.nights.index(fall.since)
            more = [each for each in more if abs(each.at - began) > UNCERTAIN]
        if more:
            told = [
                f"{each.line.name} {percent(each.step.change)} since {each.since}"
                for each in sorted(more, key=lambda each: -abs(log(each.step.change)))
            ]
            yield f"{len(told)} lasting changes for the worse: {named(told)}"
            since = more[0].since
            yield f"look closer: hvdperf regressions --series {self.name} --since {since}"
        for word, found in (("alarm", self.alarms), ("suspect", self.suspects)):
            yield from (each.told for each in found[:NAMED])
            if len(found) > NAMED:
                yield f"and {len(found) - NAMED} more {word}s of the gate"
        if self.is_red:
            yield (
                f"if it has to stay like this: hvdperf nightly accept --series {self.name} "
                "--why REASON"
            )
        if self.accepted:
            newest = self.accepted[-1]
            why = f": {newest.why}" if newest.why else ""
            yield f"accepted up to the night of {newest.night}{why}"
        on = set(_hosts(self.last)) if self.last else set()
        for node in self.found.nodes:
            if on and on.issuperset(node.hosts):
                yield (
                    f"{named(node.hosts)} is slower than other hosts: {percent(node.change)} on "
                    f"{node.nights} nights"
                )
        if self.absent:
            yield f"no night of {named(self.absent)}, which measured lately"
        if self.speeds.waits:
            yield self.speeds.waits
