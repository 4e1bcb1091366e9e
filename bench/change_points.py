"""`python -m bench.change_points`: simulates how often a release is called a change in lines
without one, and how often a step is found. It prints the table of docs/changes.md.

A launch's throughput is that of its release, times a factor of its session, times a factor of the
launch. The session's factor is uniform, so that two sessions differ by no more than `shift`; the
launch's factor is log-normal.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product

from bench.nights import fingerprint
from hvdperf.timeline.lines import Change
from hvdperf.timeline.releases import raw
from hvdperf.timeline.releases.by_release import Series
from hvdperf.timeline.releases.raw import Axis, RawResult

RELEASES = ("2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1")
# The release at which a step is made, if there is one.
STEP_AT = RELEASES[3]
NOISES, SHIFTS = (0.02, 0.03, 0.04), (0.0, 0.03, 0.06, 0.10)
STEPS = (-0.05, -0.10, 0.05)
_SEED = 20181231
_BEGAN = datetime(2026, 1, 31, tzinfo=UTC)
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
    options = parser.parse_args()
    print(_HEADER)
    print("|---" * _HEADER.count(" | "), "|---|", sep="")
    for sessions, launches, noise, shift in product((1, 2), (8, 6), NOISES, SHIFTS):
        print(row(Machine(noise, shift, sessions, launches), options.lines), flush=True)


def row(machine: Machine, count: int) -> str:
    """Return a line of the table."""
    unchanged = rates(machine, 0.0, count)
    slower, much_slower, faster = (rates(machine, step, count) for step in STEPS)
    shares = (unchanged.called, slower.found, slower.called, much_slower.found, faster.found)
    conditions = (
        f"{machine.sessions} | {machine.launches} | {100 * machine.noise:g} % | "
        f"{100 * machine.shift:g} %"
    )
    return f"| {conditions} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |"


def rates(machine: Machine, step: float, count: int) -> Rates:
    """Return the rates over `count` lines. step: the relative step at STEP_AT; 0 for none."""
    steps = {STEP_AT: 1 + step} if step else {}
    reported = [
        [change for change in made.changes if change.before != change.since]
        for made in (made_series(machine, steps, _SEED + number) for number in range(count))
    ]

    def is_step(change: Change) -> bool:
        return change.since == STEP_AT and (change.step.change - 1) * step > 0

    return Rates(
        found=sum(any(map(is_step, changes)) for changes in reported) / count,
        called=sum(not all(map(is_step, changes)) for changes in reported) / count,
    )


def made_series(
    machine: Machine, steps: Mapping[str, float] | None = None, seed: int = _SEED
) -> Series:
    """Return a series of one line. steps: the factor with which each release differs from the one
    before it; 1 for those that are not named."""
    drawn = random.Random(seed)
    speed = 500.0
    results: list[RawResult] = []
    for release in RELEASES:
        speed *= (steps or {}).get(release, 1.0)
        for _ in range(machine.sessions):
            of_session = speed * (1 + drawn.uniform(-0.5, 0.5) * machine.shift)
            speeds = tuple(
                of_session * math.exp(drawn.gauss(0.0, machine.noise))
                for _ in range(machine.launches)
            )
            results.append(_session(release, speeds, len(results)))
    return Series("made-up", Axis.TENSORFLOW, "0.28.1", tuple(results))


def _session(release: str, speeds: tuple[float, ...], number: int) -> RawResult:
    known = {**fingerprint(), "tensorflow": release, "horovod": "0.28.1"}
    began = _BEGAN + timedelta(hours=number)
    replica = "synthetic, size 32, batch 32, float32, 1 core"
    made = raw.Series("vgg_16_s", replica, 2, speeds)
    session = f"{began:%Y%m%dT%H%M%SZ}-1"
    return RawResult(raw.FORMAT, session, began, "made-up", known, (made,))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
