"""The axis of releases: lines of throughput by release, a launch a point, and the releases that
changed them.

docs/bisect.md says how often the changes err. A machine that differs between sessions looks like a
change, too; `hvdperf bisect` separates the two. Pure: raw results in, series and text out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

from hvdperf.columns import Columns, wrapped
from hvdperf.timeline.lines import Change, Line, steps, throughput
from hvdperf.timeline.releases.raw import Axis, RawResult, order

# The p that a change needs. A line is asked once, and not every night.
SIGNIFICANT = 0.001
# A change this close to the beginning of a session belongs to it.
NEAR_LAUNCHES = 3
NAMES = {Axis.HOROVOD: "Horovod", Axis.TENSORFLOW: "TensorFlow"}
_TABLE = Columns(
    ("  model", -15), ("np", 2), ("since", -7), ("before", -7), ("size (95 %)", -24), ("what", 0)
)


@dataclass(frozen=True)
class Series:
    """The sessions of one machine with one version of a package. axis: the other package, whose
    releases the series follows. at: the version. results: by release, then by time."""

    machine: str
    axis: Axis
    at: str
    results: tuple[RawResult, ...]

    @property
    def heading(self) -> str:
        other = f"{NAMES[self.axis.other]} {self.at}"
        return f"{self.machine}: releases of {NAMES[self.axis]}, with {other}"

    def version(self, line: Line, place: int) -> str:
        """Return the release of a figure of a line, such as 0.28.1; 0.28.1+3fa9c1 if it is another
        build than the one that was measured first."""
        result = self.results[line.at[place]]
        return "+".join(filter(None, (result.version(self.axis), result.build(self.results))))

    @cached_property
    def lines(self) -> list[Line]:
        """Return a line for each network, replica and world size."""
        found: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
        for index, result in enumerate(self.results):
            for each in result.results:
                points = found.setdefault(each.key, [])
                points += [(index, speed) for speed in each.values]
        made = []
        for (model, replica, size), points in sorted(found.items()):
            at, speeds = zip(*points, strict=True)
            name = throughput(model, size)
            made.append(Line(name, model, size, at, speeds, replica=replica))
        return made

    @cached_property
    def changes(self) -> list[Change]:
        return [change for line in self.lines for change in self._changes(line)]

    def _changes(self, line: Line) -> Iterator[Change]:
        """Yield the changes of a line of two releases or more.

        Noise may shift a change point by NEAR_LAUNCHES: within this distance it belongs to the
        nearest beginning of a session, and else to the machine, within a session of one release."""
        if not self.can_change(line):
            return
        begins = [i for i in range(1, len(line.at)) if line.at[i] != line.at[i - 1]]
        for step in steps(line.figures, SIGNIFICANT, SIGNIFICANT):

            def distance(place: int, at: int = step.at) -> tuple[int, bool]:
                is_within = self.version(line, place) == self.version(line, place - 1)
                return abs(place - at), is_within

            place = min(begins, key=distance)
            if abs(place - step.at) > NEAR_LAUNCHES:
                before, place = step.at, step.at
            else:
                before = place - 1
            yield Change(line, step, self.version(line, before), self.version(line, place))

    def can_change(self, line: Line) -> bool:
        """Return whether a line has two releases or more to change between."""
        return self.version(line, 0) != self.version(line, -1)


def series_of(results: Sequence[RawResult]) -> list[Series]:
    """Return the series along both axes, by machine, axis, and release of the other package."""
    found: dict[tuple[str, str, int], list[RawResult]] = {}
    for result in sorted(results, key=lambda each: (each.written_at, each.session)):
        for axis in Axis:
            key = (result.machine, axis.value, order(axis.other)[result.version(axis.other)])
            found.setdefault(key, []).append(result)
    made = []
    for (machine, value, _), own in sorted(found.items()):
        axis = Axis(value)
        place = order(axis)
        by_release = sorted(own, key=lambda each: place[each.version(axis)])
        made.append(Series(machine, axis, own[0].version(axis.other), tuple(by_release)))
    return made


def word(change: Change) -> str:
    """Return what a change is."""
    if change.before == change.since:
        return "the machine"
    return "slower: regression" if change.is_worse else "faster: explain it"


def bisect_command(series: Series, change: Change) -> str:
    """Return the command that compares the releases of a change side by side; "" if they are builds
    of one release."""
    first, last = (each.partition("+")[0] for each in (change.before, change.since))
    if first == last:
        return ""
    return (
        f"hvdperf bisect --along {series.axis.value} --at {series.at} --from {first} --to {last} "
        f"--model {change.line.model} --np {change.line.world_size}"
    )


def report(found: Sequence[Series]) -> Iterator[str]:
    """Yield the changes of all series for people. Both directions are reported: a slow-down is a
    regression, and a speed-up that nobody can explain is suspicious."""
    changes = [(series, change) for series in found for change in series.changes]
    for series in found:
        for replica in sorted({each.line.replica for each in series.changes}):
            yield from (*wrapped(f"{series.heading}; {replica}"), _TABLE.header)
            for each in (each for each in series.changes if each.line.replica == replica):
                cells = (each.line.world_size, each.since, each.before, each.size, word(each))
                yield _TABLE.row(f"  {each.line.model}", *cells)
            yield ""
    lines = sum(series.can_change(line) for series in found for line in series.lines)
    of_releases = [(series, each) for series, each in changes if each.before != each.since]
    slower = sum(change.is_worse for _, change in of_releases)
    said = f"{lines} lines of two releases or more: {slower} changes to slower, "
    said += f"{len(of_releases) - slower} to faster"
    within = len(changes) - len(of_releases)
    yield from wrapped(f"{said}; {within} by the machine" if within else said)
    comparable = [each for each in of_releases if bisect_command(*each)]
    if comparable:
        yield from wrapped(
            "A change of the machine between two sessions looks the same. To be sure, compare "
            "the releases side by side, for example:"
        )
        largest = max(comparable, key=lambda each: abs(log(each[1].step.change)))
        first, last = bisect_command(*largest).split(" --from ")
        yield from (f"  {first} \\", f"    --from {last}")
