"""`python -m bench.change_points`: simulates how often Apache Otava reports a change in lines
without one, and how often it finds a step. It prints the table of docs/changes.md.

A launch's throughput is that of its release, times a factor of its session, times a factor of the
launch. The session's factor is uniform, so that two sessions differ by no more than `shift`; the
launch's factor is log-normal.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

from hvdperf.errors import UserError
from hvdperf.history.changes import Change, change_of
from hvdperf.history.lines import Line, Point
from hvdperf.history.otava import Settings, change_points
from hvdperf.history.releases import Axis

RELEASES = ("2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1")
# The release at which a step is made, if there is one.
STEP_AT = RELEASES[3]
NOISES, SHIFTS = (0.02, 0.03, 0.04), (0.0, 0.03, 0.06, 0.10)
STEPS = (-0.05, -0.10, 0.05)
_SEED = 20181231
_WHEN = datetime(2026, 1, 31, tzinfo=UTC)
_HEADER = (
    "| sessions a release | launches | noise | shift | unchanged, called changed | "
    "5 % slower, found | and another called | 10 % slower, found | 5 % faster, found |"
)


@dataclass(frozen=True)
class Machine:
    """A made-up machine. noise: standard deviation of launches, relative. shift: the largest
    difference between two sessions, relative. sessions: of each release. launches: of each
    session."""

    noise: float
    shift: float = 0.0
    sessions: int = 1
    launches: int = 8


@dataclass(frozen=True)
class Rates:
    """Shares of lines. found: share in which the step is reported, with its release and direction.
    called: share in which another change of a release is reported."""

    found: float
    called: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.change_points", description=__doc__)
    parser.add_argument("--lines", type=int, default=400, help="of each cell (400)")
    parser.add_argument("--largest-p", type=float, default=Settings().largest_p)
    parser.add_argument("--smallest-size", type=float, default=Settings().smallest_size)
    options = parser.parse_args()
    settings = Settings(options.largest_p, options.smallest_size)
    print(_HEADER)
    print("|---" * _HEADER.count(" | "), "|---|", sep="")
    try:
        for sessions, launches, noise, shift in product((1, 2), (8, 6), NOISES, SHIFTS):
            print(
                row(Machine(noise, shift, sessions, launches), settings, options.lines), flush=True
            )
    except UserError as error:
        sys.exit(f"bench.change_points: {error}")


def row(machine: Machine, settings: Settings, count: int) -> str:
    """Return a line of the table."""
    unchanged = rates(machine, 0.0, settings, count)
    slower, much_slower, faster = (rates(machine, step, settings, count) for step in STEPS)
    shares = (unchanged.called, slower.found, slower.called, much_slower.found, faster.found)
    conditions = (
        f"{machine.sessions} | {machine.launches} | {100 * machine.noise:g} % | "
        f"{100 * machine.shift:g} %"
    )
    return f"| {conditions} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |"


def rates(machine: Machine, step: float, settings: Settings, count: int) -> Rates:
    """Return the rates over `count` lines. step: the relative step at STEP_AT; 0 for none."""
    steps = {STEP_AT: 1 + step} if step else {}
    lines = [made_line(machine, steps, _SEED + number) for number in range(count)]
    reported = [
        [change for change in (change_of(line, point) for point in points) if change.is_of_release]
        for line, points in zip(lines, change_points(lines, settings), strict=True)
    ]

    def is_step(change: Change) -> bool:
        return change.since == STEP_AT and change.size * step > 0

    return Rates(
        found=sum(any(map(is_step, changes)) for changes in reported) / count,
        called=sum(not all(map(is_step, changes)) for changes in reported) / count,
    )


def made_line(
    machine: Machine,
    steps: Mapping[str, float] = {},
    seed: int = _SEED,
    releases: Sequence[str] = RELEASES,
) -> Line:
    """Return a line of made-up launches. steps: the factor by which throughput changes, by
    release."""
    drawn = random.Random(seed)
    speed, points = 500.0, []
    for release in releases:
        speed *= steps.get(release, 1.0)
        for number in range(machine.sessions):
            in_session = speed * (1 + machine.shift * (drawn.random() - 0.5))
            points += [
                Point(
                    release,
                    f"{release}-{number}",
                    _WHEN,
                    in_session * math.exp(drawn.gauss(0.0, machine.noise)),
                )
                for _ in range(machine.launches)
            ]
    replica = "synthetic, size 32, batch 32, float32, 1 core"
    return Line("made-up", Axis.TENSORFLOW, "0.28.1", "vgg_16_s", replica, 2, tuple(points))


if __name__ == "__main__":
    main()
