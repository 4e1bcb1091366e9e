"""The raw results as lines: of each network, world size and machine, the throughput by release.

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
    """A launch. samples_per_second: of all replicas together. version: of the line's axis."""

    version: str
    session: str
    measured_at: datetime
    samples_per_second: float


@dataclass(frozen=True)
class Line:
    """axis: whose releases it goes along; at: the version of the other package, the same all along.
    points: by release, then in the order in which they were measured."""

    machine: str
    axis: Axis
    at: str
    model: str
    replica: str
    world_size: int
    points: tuple[Point, ...]

    @property
    def versions(self) -> tuple[str, ...]:
        """Each once, oldest first."""
        return tuple(dict.fromkeys(point.version for point in self.points))

    def samples_per_second(self, version: str) -> list[float]:
        return [point.samples_per_second for point in self.points if point.version == version]


def lines(results: Sequence[RawResult], axis: Axis) -> list[Line]:
    """Every line along that axis, by machine, network, world size, and version of the other
    package."""
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
