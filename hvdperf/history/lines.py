"""Arranges raw results as lines: throughput by release, of each network, world size and machine.

Pure: raw results in, lines out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hvdperf.history.raw import RawResult
from hvdperf.history.releases import Axis, order


@dataclass(frozen=True)
class Point:
    """One launch of a line. version: of the package of the line's axis. session, measured_at: of
    the raw result. samples_per_second: of all replicas together."""

    version: str
    session: str
    measured_at: datetime
    samples_per_second: float


@dataclass(frozen=True)
class Line:
    """The launches of one network at one world size on one machine.

    axis: the package whose releases the line follows. at: the version of the other package, which
    is the same in all points. replica: what each replica trains on. points: by release, then in the
    order in which they were measured.
    """

    machine: str
    axis: Axis
    at: str
    model: str
    replica: str
    world_size: int
    points: tuple[Point, ...]

    @property
    def parameters(self) -> tuple[str, str, int]:
        """Return what distinguishes the lines of one machine and version."""
        return self.model, self.replica, self.world_size

    @property
    def versions(self) -> tuple[str, ...]:
        """Return each version once, oldest first."""
        return tuple(dict.fromkeys(point.version for point in self.points))

    def samples_per_second(self, version: str) -> list[float]:
        return [point.samples_per_second for point in self.points if point.version == version]


def lines(results: Sequence[RawResult], axis: Axis) -> list[Line]:
    """Return every line along an axis, by machine, network, replica, world size, and version of the
    other package."""
    places, others = order(axis), order(axis.other)
    found: dict[tuple[str, str, str, int, str], list[Point]] = {}
    for result in sorted(results, key=lambda each: (each.measured_at, each.session)):
        version, at = result.version(axis), result.version(axis.other)
        for series in result.series:
            points = found.setdefault((result.machine, *series.key, at), [])
            points += [
                Point(version, result.session, result.measured_at, speed)
                for speed in series.samples_per_second
            ]
    ordered = sorted(found.items(), key=lambda item: (*item[0][:4], others[item[0][4]]))
    return [
        Line(
            machine,
            axis,
            at,
            model,
            replica,
            world_size,
            tuple(sorted(points, key=lambda point: places[point.version])),
        )
        for (machine, model, replica, world_size, at), points in ordered
    ]
