"""The lines of a series: lasting changes, what else changed that night, and bad hosts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from itertools import accumulate
from math import log, log1p
from statistics import fmean, median

import numpy as np

from hvdperf.records.documents import Kind, Row
from hvdperf.records.fingerprint import differences
from hvdperf.records.outcome import Measure
from hvdperf.timeline.lines import LEAST_CHANGE, Change, Line, Standing, rank_test, steps
from hvdperf.timeline.nights.night import Night, Throughput
from hvdperf.verdict import Ceiling, Verdict, worst

# A change may be placed a few nights too early or too late, so it lists what else changed within so
# many nights of it.
UNCERTAIN = 3
# A node's nights are compared with those of other nodes among so many nights before and after.
NEIGHBOURS = 7
# The fewest nights of a node that is blamed, and the p below which one of all nodes is.
FEWEST_NIGHTS, SIGNIFICANT = 2, 1e-3
# Verdicts whose figure is no measurement of an unbroken system.
UNSOUND = (Verdict.INVALID, Verdict.NOT_RUN)
# So many lines that change within UNCERTAIN nights confirm each other.
TOGETHER = 3
# So many nights show that a line is back where it was.
BACK = 4
# Of what launches are judged by: the name of a line, and the unit in which it is drawn, with how
# many of the recorded ones that is.
OF_LAUNCHES = {
    Measure.SPEED: ("throughput", "samples/s", 1.0),
    Measure.START: ("start", "s", 1.0),
    Measure.MEMORY: ("memory", "GB", 1e9),
    Measure.DEVICE_MEMORY: ("gpu_memory", "GB", 1e9),
}
# A line that is back is compared with so many figures before its change.
EARLIER = 10


@dataclass(frozen=True)
class BadNode:
    """A host with which a series is worse than without it, or hosts that always come together.
    nights: how many. change: ratio of the throughputs to those of other nights nearby."""

    hosts: tuple[str, ...]
    nights: int
    change: float


@dataclass(frozen=True)
class ByLine:
    """The lines of a series. lines: of its own sessions. marks: what changed from one measured
    night to the next, by the index of the later night. changes: lasting ones, by night, without the
    nights on bad nodes."""

    lines: Sequence[Line]
    marks: Mapping[int, tuple[str, ...]]
    changes: Sequence[Change]
    nodes: Sequence[BadNode]


def by_line(nights: Sequence[Night], accepted: date = date.min) -> ByLine:
    """Return what the lines of a series show. nights: in the order of dates. accepted: up to which
    night changes for the worse are."""
    found = lines(nights)
    nodes = bad_nodes(nights, found)
    bad = {
        index
        for index, night in enumerate(nights)
        if any(set(node.hosts) <= set(night.hosts) for node in nodes)
    }
    changes = [change for line in found for change in _changes(without(line, bad), nights)]
    changes.sort(key=lambda each: each.since)
    judged = [replace(each, standing=standing_of(each, changes, accepted)) for each in changes]
    return ByLine(found, marks(nights), judged, nodes)


def lines(nights: Sequence[Night], gates: bool = False) -> list[Line]:
    """Return the lines of a series: the throughputs, then the figures of its cases, by name.
    nights: in the order of dates. gates: whether those against the reference stack are wanted."""
    # By name, then by index of the night: the rows of its nodes.
    found: dict[str, dict[int, list[Row]]] = {}
    for index, night in enumerate(nights):
        for part, row in night.cases:
            is_sound = row.figure is not None and row.figure > 0 and row.verdict not in UNSOUND
            if is_sound and part.kind.is_gate is gates:
                found.setdefault(row.name, {}).setdefault(index, []).append(row)
    made = [] if gates else lines_of(nights, Measure.SPEED)
    for name, by_night in sorted(found.items()):
        of_nights = list(by_night.values())
        last = of_nights[-1][0]
        # Of several nodes the middle one; its verdict is the worst.
        figures = (median(row.figure or 0 for row in rows) for rows in of_nights)
        made.append(
            Line(
                name,
                last.model,
                last.world_size,
                tuple(by_night),
                tuple(figures),
                lower_is_better=last.question.spec.rule is Ceiling,
                verdicts=tuple(worst([row.verdict for row in rows]) for rows in of_nights),
                is_gate=gates,
            )
        )
    return made


def lines_of(nights: Sequence[Night], measure: Measure) -> list[Line]:
    """Return the lines of what launches by themselves are judged by, by name: of each network and
    world size the median of a night's launches, in the unit of OF_LAUNCHES."""
    found: dict[Throughput, dict[int, float]] = {}
    what, _, scale = OF_LAUNCHES[measure]
    for index, night in enumerate(nights):
        for key, launches in night.figures(measure).items() if night.part() else ():
            found.setdefault(key, {})[index] = median(launches) / scale
    made = (
        Line(
            f"{what}[{model}-np{size}]",
            model,
            size,
            tuple(points),
            tuple(points.values()),
            lower_is_better=measure is not Measure.SPEED,
            measure=measure,
        )
        for (model, size), points in found.items()
    )
    return sorted(made, key=lambda line: line.name)


def marks(nights: Sequence[Night]) -> dict[int, tuple[str, ...]]:
    """Return what changed from one measured night to the next: machine, stack, settings and hosts,
    in words, by the index of the later night. Hosts that change from night to night are no change,
    nor is a node of several that measure themselves."""
    measured = [(index, night, night.hosts) for index, night in enumerate(nights) if night.part()]
    found = {}
    for at in range(1, len(measured)):
        (_, before, old), (index, night, new) = measured[at - 1 : at + 1]
        changed = _differences(before, night)
        if old != new:
            near = measured[max(0, at - NEIGHBOURS) : at], measured[at : at + NEIGHBOURS]
            if all(len({hosts for _, _, hosts in side}) == 1 for side in near):
                names = (", ".join(hosts) or "(unknown)" for hosts in (old, new))
                changed.append(f"hosts: {' -> '.join(names)}")
        if changed:
            found[index] = tuple(changed)
    return found


def _differences(before: Night, night: Night) -> list[str]:
    """Return what differs between two nights in machine, stack and settings; of several nodes, on
    how many of those of both nights."""
    pairs = [
        (old, new)
        for new in night.parts
        if new.kind is Kind.OWN
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


def bad_nodes(nights: Sequence[Night], found: Sequence[Line]) -> list[BadNode]:
    """Return the hosts with which the throughputs together are significantly worse than without
    them at about the same time, the most significant first. A host that took over for good is none:
    its nights have no others nearby. Hosts that always come together are one. The nights of each
    are left out before the next is looked for: they make the other hosts of these nights look slow,
    too."""
    groups = _groups(nights)
    values = together([values_of(line) for line in found if not line.verdicts])
    bad = list[BadNode]()
    while True:
        level, best, least = _levels(values), None, SIGNIFICANT / max(len(groups), 1)
        for hosts, own in groups.items():
            ours, theirs = (
                np.array([value for index, value in level.items() if (index in own) is is_own])
                for is_own in (True, False)
            )
            if len(ours) < FEWEST_NIGHTS or len(theirs) <= NEIGHBOURS:
                continue
            change = float(np.median(ours) - np.median(theirs))
            if change < -log1p(LEAST_CHANGE) and (p := rank_test(ours, theirs)) < least:
                best, least = BadNode(hosts, len(own), math.exp(change)), p
        if best is None:
            return bad
        bad.append(best)
        left_out = groups.pop(best.hosts)
        values = {index: value for index, value in values.items() if index not in left_out}


def values_of(line: Line, begin: int = 0) -> dict[int, float]:
    """Return ln of the figures by index of the night, higher for better. begin: the first night."""
    sign, pairs = -1 if line.lower_is_better else 1, zip(line.at, line.figures, strict=True)
    return {index: sign * log(value) for index, value in pairs if index >= begin}


def together(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the median over lines of each night's distance from the line's own median."""
    nights: dict[int, list[float]] = {}
    for own in filter(None, values):
        level = median(own.values())
        for index, value in own.items():
            nights.setdefault(index, []).append(value - level)
    return {index: median(nights[index]) for index in sorted(nights)}


def without_weekends(values: Mapping[int, float], nights: Sequence[Night]) -> dict[int, float]:
    """Return the values by night without what weekends usually differ by."""
    parts: dict[bool, list[float]] = {True: [0.0], False: [0.0]}
    for index, level in _levels(values).items():
        parts[nights[index].is_weekend].append(level)
    usual = fmean(parts[True]) - fmean(parts[False])
    return {at: value - usual * nights[at].is_weekend for at, value in values.items()}


def _groups(nights: Sequence[Night]) -> dict[tuple[str, ...], frozenset[int]]:
    """Return the nights of each host, by index; hosts that always come together share theirs."""
    of_host: dict[str, set[int]] = {}
    for index, night in enumerate(nights):
        for host in night.hosts:
            of_host.setdefault(host, set()).add(index)
    together: dict[frozenset[int], list[str]] = {}
    for host, own in sorted(of_host.items()):
        together.setdefault(frozenset(own), []).append(host)
    return {tuple(hosts): own for own, hosts in together.items()}


def _levels(values: Mapping[int, float]) -> dict[int, float]:
    """Return the distance of each night from the median of the nights nearby, itself left out."""
    figures, found = list(values.values()), {}
    for i, (index, figure) in enumerate(values.items()):
        near = figures[max(0, i - NEIGHBOURS) : i] + figures[i + 1 : i + NEIGHBOURS + 1]
        if near:
            found[index] = figure - median(near)
    return found


def without(line: Line, left_out: Set[int]) -> Line:
    """Return the line without these nights. left_out: by index."""
    if not left_out:
        return line
    kept = [i for i, index in enumerate(line.at) if index not in left_out]
    return replace(
        line,
        at=tuple(line.at[i] for i in kept),
        figures=tuple(line.figures[i] for i in kept),
        verdicts=tuple(line.verdicts[i] for i in kept if line.verdicts),
    )


def _changes(line: Line, nights: Sequence[Night]) -> Iterator[Change]:
    for step in steps(line.figures):
        yield Change(line, step, f"{nights[line.at[step.at]].night}")


def repeat(night: Night, line: Line) -> str:
    """Return the command that measures a line's figure of a night again: its case or, for a
    throughput, one of the same network and world size, or of another one; "" if there is none."""
    alike = [
        (part, row)
        for part, row in night.cases
        if part.kind.is_gate == line.is_gate and row.model == line.model
    ]
    alike.sort(key=lambda pair: (pair[1].name != line.name, pair[1].world_size != line.world_size))
    return night.repeat(*alike[0]) if alike else ""


def standing_of(change: Change, changes: Sequence[Change], accepted: date = date.min) -> Standing:
    """Return whether a lasting change makes its series FAIL. changes: all of the series. accepted:
    up to which night."""
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
