"""How often an A/A pair is INVALID: pairs with made-up noise, judged by the real rule.

`python -m bench.identical_groups [PAIRS]` prints the table of docs/error_rates.md. As in a session,
a pair that is not INVALID takes more than three rounds only while its estimate lies outside its
band, and no more than 12.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.simulation import IDENTICAL, LOOKS, heading, row
from hvdperf.interim import EARLY_LOOKS, judge_pair
from hvdperf.verdict import Noise, Verdict

PAIRS, SEED = 20_000, 20281
TURNS = 4
# By noise: the standard deviations of ln ratio between turns, and between launches in addition.
# That of a round is 2.6, 7.1 and 13 %.
MACHINES = {"quiet": (0.038, 0.015), "A": (0.127, 0.0), "B": (0.125, 0.108)}
# The second group of real pairs has trained longer, and is a little faster (docs/notebook.md).
BIAS = 0.993
# True ratios of the two groups.
RATIOS = (BIAS, 0.7, 1.3)


@dataclass(frozen=True)
class Found:
    """The results of many pairs. invalid_after: the number of rounds of each pair that is INVALID.
    rounds: of all pairs, together."""

    pairs: int
    invalid_after: Sequence[int]
    rounds: int

    @property
    def at_once(self) -> int:
        """Return the number of pairs that are INVALID after three rounds."""
        return sum(rounds == EARLY_LOOKS[0] for rounds in self.invalid_after)


def found(machine: str, ratio: float, pairs: int, seed: int = SEED) -> Found:
    """Judge so many pairs. machine: a name of MACHINES. ratio: the true one of the two groups. The
    noise record is empty, so the noise of launches is assumed to be 5 %."""
    generator = np.random.default_rng(seed)
    turns, launches = MACHINES[machine]
    looks = LOOKS["default"]
    shape = pairs, looks[-1]
    of_launches = launches * generator.standard_normal((*shape, 1))
    drawn = math.log(ratio) + of_launches + turns * generator.standard_normal((*shape, TURNS))
    invalid_after, taken = [], 0
    for pair in drawn.tolist():
        rounds, invalid = _judged(pair, looks)
        taken += rounds
        invalid_after += [rounds] if invalid else []
    return Found(pairs, invalid_after, taken)


def _judged(rows: Sequence[Sequence[float]], looks: Sequence[int]) -> tuple[int, bool]:
    """Return the number of rounds that a pair takes, and whether it is INVALID."""
    for count in range(EARLY_LOOKS[0], looks[-1]):
        judgement = judge_pair(rows[:count], IDENTICAL, looks, Noise())
        figure = judgement.figure
        if judgement.verdict is Verdict.FAIL:
            return count, True
        if figure is not None and IDENTICAL.low <= figure.estimate <= IDENTICAL.high:
            return count, False
    judgement = judge_pair(rows, IDENTICAL, looks, Noise(), forced=True)
    return looks[-1], judgement.verdict is Verdict.FAIL


def table(pairs: int) -> list[str]:
    """Return the table. Of pairs that differ, a tenth of the number are judged."""
    names = ("true ratio", "pairs", "INVALID after three rounds", "in the session", "rounds, mean")
    rows = heading("noise", *names)
    for machine in MACHINES:
        for ratio in RATIOS:
            count = pairs if ratio == BIAS else pairs // 10
            of = found(machine, ratio, count)
            shares = (100 * n / count for n in (of.at_once, len(of.invalid_after)))
            cells = [f"{share:.2f} %" for share in shares]
            rows.append(
                row(machine, f"{ratio:g}", f"{count:,}", *cells, f"{of.rounds / count:.2f}")
            )
    return rows


def main() -> None:
    print(*table(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS), sep="\n")


if __name__ == "__main__":
    main()
