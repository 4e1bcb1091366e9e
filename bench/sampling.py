"""How to spend a workload's minutes: on launches, on turns within a launch, or on longer blocks.

`python -m bench.sampling [SESSIONS]` prints, for every way that fits, how wide the interval of the
verdict is and how often it misses the truth: the tables of docs/measurement.md. A launch costs what
it takes to start its arms, whatever it is used for; a turn costs one block of every arm. Nothing is
measured here: what things cost and how much they differ was, and stands below.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np

from bench.noise import NOISES, Array, Noise, of_launches
from harness.stats import hodges_lehmann
from harness.verdict import REGRESSION, Verdict

SESSIONS = 2000
SEED = 20282
# Of the default profile's workloads on two cores, replicas 1 and 2: seconds of a launch apart from
# its turns, and how many blocks a turn has.
LAUNCH_SECONDS, BLOCKS_OF_A_TURN = 13.0, 5
# As that profile takes them, and half and twice as long. On that machine pairs of blocks differed
# by as much whatever the block's length: quarters by 4.6 %, halves by 4.2 %, whole ones by 4.4 %.
BLOCK_SECONDS, BLOCKS_SECONDS = 0.35, (0.175, 0.35, 0.7)
# ln ratio of a pair of turns, the median of 195 comparisons; a tenth of them has twice as much.
# With it, what launches differ by lies between these.
PAIR_SPREAD = 0.04
LAUNCH_SPREADS = (0.01, 0.02, 0.03)
LAUNCHES = (6, 8, 12, 16, 24)
FEWEST_TURNS = 2
MINUTES = (2.0, 3.0, 5.0, 10.0)
ALPHA = REGRESSION.alpha
# One pair in seven was more than three of its spreads away.
KIND = NOISES["5 % outliers x5"]


@dataclass(frozen=True)
class Way:
    """So many launches of so many turns. seconds: what it takes."""

    launches: int
    turns: int
    block_seconds: float = BLOCK_SECONDS

    @property
    def seconds(self) -> float:
        turn_seconds = BLOCKS_OF_A_TURN * self.block_seconds
        return self.launches * (LAUNCH_SECONDS + self.turns * turn_seconds)


@dataclass(frozen=True)
class Yield:
    """half_width: of the interval of 1 - 2 alpha, as a ratio, in the median session. missed: the
    share of sessions whose interval leaves out the truth. failed: shares of sessions that FAIL the
    regression rule when nothing has changed, and 5 % and 10 % slower."""

    half_width: float
    missed: float
    failed: tuple[float, float, float]


def ways(minutes: float, block_seconds: float = BLOCK_SECONDS) -> list[Way]:
    """For each number of launches the most turns that fit; those with too few left out."""
    found = []
    for launches in LAUNCHES:
        for_turns = 60 * minutes / launches - LAUNCH_SECONDS
        turns = math.floor(for_turns / (BLOCKS_OF_A_TURN * block_seconds))
        if turns >= FEWEST_TURNS:
            found.append(Way(launches, turns, block_seconds))
    return found


def yield_of(
    way: Way,
    launch_spread: float,
    pair_spread: float = PAIR_SPREAD,
    kind: Noise = KIND,
    sessions: int = SESSIONS,
) -> Yield:
    """One look, after the last launch."""
    noise = of_launches(kind, way.turns, pair_spread)
    generator = np.random.default_rng(SEED)
    drawn: Array = noise.draw(generator, sessions, way.launches, launch_spread)
    intervals = [hodges_lehmann(session, ALPHA) for session in drawn.tolist()]
    failed = []
    for truth in (1.0, 0.95, 0.9):
        verdicts = [
            REGRESSION.decide(truth * math.exp(found.lower), truth * math.exp(found.upper))
            for found in intervals
        ]
        failed.append(verdicts.count(Verdict.FAIL) / sessions)
    return Yield(
        half_width=math.expm1(median((found.upper - found.lower) / 2 for found in intervals)),
        missed=sum(found.lower > 0 or found.upper < 0 for found in intervals) / sessions,
        failed=(failed[0], failed[1], failed[2]),
    )


def table(found: Iterable[Way], sessions: int) -> list[str]:
    spreads = (f"launches {100 * spread:.0f} %" for spread in LAUNCH_SPREADS)
    rows = [
        f"| minutes | launches x turns | block | {' | '.join(spreads)} |",
        "|---" * (3 + len(LAUNCH_SPREADS)) + "|",
    ]
    for way in found:
        cells = [_cell(yield_of(way, spread, sessions=sessions)) for spread in LAUNCH_SPREADS]
        rows.append(
            f"| {way.seconds / 60:.1f} | {way.launches} x {way.turns} | {way.block_seconds:g} s | "
            f"{' | '.join(cells)} |"
        )
    return rows


def _cell(found: Yield) -> str:
    unchanged, _, slower = (100 * share for share in found.failed)
    return (
        f"±{100 * found.half_width:.1f} %, misses {100 * found.missed:.1f}, "
        f"FAILs {unchanged:.1f} / {slower:.1f}"
    )


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    print(
        f"pairs of {100 * PAIR_SPREAD:.0f} %, {KIND.name}; half the width of the 95 % interval, "
        "per cent of sessions whose interval misses the truth, and that FAIL unchanged / 10 % "
        "slower\n"
    )
    print(*table((way for minutes in MINUTES for way in ways(minutes)), sessions), sep="\n")
    print("\nlonger and shorter blocks, three minutes\n")
    print(*table((way for block in BLOCKS_SECONDS for way in ways(3.0, block)), sessions), sep="\n")


if __name__ == "__main__":
    main()
