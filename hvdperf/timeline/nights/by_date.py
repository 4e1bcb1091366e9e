"""The axis of dates: lines of a figure of a case, or of a throughput, over the nights of a series,
and their lasting changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from scipy.stats import mannwhitneyu

from hvdperf.records.documents import Row
from hvdperf.records.fingerprint import differences
from hvdperf.timeline.lines import Change, Line, throughput
from hvdperf.timeline.nights.night import Night, Part, Speeds
from hvdperf.timeline.steps import LEAST_CHANGE, steps
from hvdperf.verdict import Ceiling, Verdict

# A change may be placed a few nights too early or too late, so it lists what else changed within so
# many nights of it.
UNCERTAIN = 3
# A node's nights are compared with those of other nodes among so many nights before and after.
NEIGHBOURS = 7
# The fewest nights of a node that is blamed, and the p below which it is.
FEWEST_NIGHTS, SIGNIFICANT = 2, 1e-4
# Verdicts whose figure is no measurement of an unbroken system.
UNSOUND = (Verdict.INVALID, Verdict.NOT_RUN)


@dataclass(frozen=True)
class BadNode:
    """Hosts on which a series is lower or higher than on others. hosts: of the sessions. nights:
    how many. change: median over lines of the ratio to other hosts' nights nearby. lines: of how
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
        for each in part.speeds:
            key = (False, throughput(each.model, each.world_size))
            found.setdefault(key, []).append((index, median(each.samples_per_second), each))
        for row in part.cases:
            if row.figure is not None and row.figure > 0 and row.verdict not in UNSOUND:
                found.setdefault((True, row.name), []).append((index, row.figure, row))
    return [_line(name, points, gates) for (_, name), points in sorted(found.items())]


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
    in words, by the index of the later night."""
    found = {}
    before: Part | None = None
    for index, night in enumerate(nights):
        part = night.part()
        if part is None:
            continue
        if before is not None:
            changed = differences(before.fingerprint, part.fingerprint)
            changed += differences(before.asked, part.asked)
            if before.hosts != part.hosts:
                changed.append(f"hosts: {_names(before)} -> {_names(part)}")
            if changed:
                found[index] = tuple(changed)
        before = part
    return found


def _names(part: Part) -> str:
    return ", ".join(part.hosts) or "(unknown)"


def bad_nodes(nights: Sequence[Night], found: Sequence[Line]) -> list[BadNode]:
    """Return the hosts on which a line or more differ from the same lines on other hosts at about
    the same time. A host that took over for good is none: its nights have no others nearby."""
    blamed: dict[tuple[str, ...], list[float]] = {}
    for line in found:
        for hosts, change in _differing(nights, line).items():
            blamed.setdefault(hosts, []).append(change)
    count = Counter(part.hosts for night in nights if (part := night.part()) is not None)
    return [
        BadNode(hosts, count[hosts], median(changes), len(changes))
        for hosts, changes in blamed.items()
    ]


def _differing(nights: Sequence[Night], line: Line) -> dict[tuple[str, ...], float]:
    """Return the ratio of a line on some hosts to that on others, where it is significant."""
    hosts = [_hosts(nights[index]) for index in line.at]
    values = np.log(np.asarray(line.figures))
    if len(set(hosts)) < 2:
        return {}

    def apart(i: int, same: bool, fewest: int) -> list[float]:
        """Return the distance of night i from the nights nearby, on the same hosts or on others; []
        if there are too few."""
        near = range(max(0, i - NEIGHBOURS), min(len(hosts), i + NEIGHBOURS + 1))
        found = [values[j] for j in near if j != i and (hosts[j] == hosts[i]) is same]
        return [float(values[i] - median(found))] if len(found) >= fewest else []

    # The nights of the commonest hosts among themselves, and those of each other host from others.
    common, _ = Counter(hosts).most_common(1)[0]
    usual: list[float] = []
    others: dict[tuple[str, ...], list[float]] = {}
    for i, name in enumerate(hosts):
        if name == common:
            usual += apart(i, same=True, fewest=1)
        else:
            others.setdefault(name, []).extend(apart(i, same=False, fewest=NEIGHBOURS))
    return {
        name: math.exp(median(own))
        for name, own in others.items()
        if len(own) >= FEWEST_NIGHTS
        and abs(median(own)) >= math.log1p(LEAST_CHANGE)
        and len(usual) > NEIGHBOURS
        and mannwhitneyu(own, usual).pvalue < SIGNIFICANT
    }


def _hosts(night: Night) -> tuple[str, ...]:
    part = night.part()
    return part.hosts if part is not None else ()


def without(line: Line, nights: Sequence[Night], hosts: set[tuple[str, ...]]) -> Line:
    """Return the line without the nights on these hosts."""
    kept = [i for i, index in enumerate(line.at) if _hosts(nights[index]) not in hosts]
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
