"""How often an interval covers the true figure if rounds go on until it is short enough.

`python -m bench.precision [CASES]` prints the table of docs/error_rates.md. Rounds are made up, and
the real rule (hvdperf.interim) gives the interval after each of them. Nothing is measured.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.sessions import NOISES, SEED, Noise
from bench.simulation import LOOKS, heading, row
from hvdperf.interim import judge_rounds
from hvdperf.verdict import Floor, is_precise
from hvdperf.verdict import Noise as Known

CASES = 1000
# How far an interval may reach, and the most rounds of a case.
PRECISION, MOST_ROUNDS = 0.02, 120
# An interval of normal values reaches 2 and more standard errors to either side.
FAR = 1.5
# By noise: the standard deviation of ln ratio between rounds, of few turns.
ROUNDS: Mapping[str, float] = {"quiet": 0.026, "asked for": 0.045, "A": 0.071}
KINDS = ("normal", "Student t5", "5 % outliers x5", "rounds AR(1) 0.5")
# Of a figure whose true value is 1; no case FAILs.
RULE = Floor.at(0.5)


@dataclass(frozen=True)
class Coverage:
    """Of many cases the share whose interval covers the true figure, and the mean of rounds."""

    covered: float
    rounds: float


def coverage(sd: float, noise: Noise, cases: int) -> Coverage:
    """Return the coverage of intervals whose rounds end at PRECISION. sd: of a round. The
    correlation of rounds is known from earlier sessions, as in a session's record."""
    generator = np.random.default_rng(SEED)
    drawn = sd * noise.of_launches(generator, cases, MOST_ROUNDS)
    known = Known(of_rounds=noise.rounds)
    covered = taken = 0
    for values in drawn.tolist():
        for count in range(LOOKS["default"][0], MOST_ROUNDS + 1):
            if count < MOST_ROUNDS and _is_far(values[:count]):
                continue
            rows = [[value] for value in values[:count]]
            figure = judge_rounds(rows, RULE, LOOKS["default"], known, forced=True).figure
            if is_precise(figure, PRECISION):
                break
        assert figure is not None
        covered += figure.lower <= 1 <= figure.upper
        taken += count
    return Coverage(covered / cases, taken / cases)


def _is_far(values: Sequence[float]) -> bool:
    """Return whether the interval is certainly still too long, which saves most of the time."""
    return FAR * float(np.std(values)) / math.sqrt(len(values)) > PRECISION


def table(cases: int) -> list[str]:
    """Return the table of coverage by the noise of a round and its kind."""
    rows = heading("a round's sd", *KINDS)
    for name, sd in ROUNDS.items():
        cells = []
        for kind in KINDS:
            found = coverage(sd, NOISES[kind], cases)
            error = math.sqrt(found.covered * (1 - found.covered) / cases)
            cells.append(
                f"{100 * found.covered:.1f} ± {100 * error:.1f} %, {found.rounds:.0f} rounds"
            )
        rows.append(row(f"{100 * sd:g} % ({name})", *cells))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    parser.add_argument("cases", type=int, nargs="?", default=CASES, metavar="CASES")
    cases = parser.parse_args().cases
    if cases < 1:
        parser.error(f"{cases} cases: must be one or more")
    for line in table(cases):
        print(line)


if __name__ == "__main__":
    main()
