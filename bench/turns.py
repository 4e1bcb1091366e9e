"""How often verdicts err where a launch takes as many turns as the noise so far asks for.

`python -m bench.turns [SESSIONS]` prints a table of docs/measurement.md: whole sessions with
made-up noise, judged at the looks of the default profile, once with the usual number of turns and
once with what harness.turns asks for, as harness.session does. How restless the machine is differs
from round to round, so that a wild round is followed by more turns.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from harness.turns import most_turns

from bench.noise import NOISES, Array, Noise
from bench.simulation import SEED, SLOWER, Looks, heading, percent, rates, row
from harness.plan import Sampling
from harness.verdict import REGRESSION, Verdict

SESSIONS = 2000
KINDS = tuple(NOISES[name] for name in ("normal", "Student t3", "5 % outliers x5"))
# Of pairs of turns, in the typical round: a quiet machine, and disturbed ones; and how far rounds
# differ in it, a standard deviation of its logarithm.
PAIR_SPREADS = (0.04, 0.08, 0.12)
RESTLESSNESS = 0.5
LAUNCH_SPREAD = 0.015
SAMPLING = Sampling(turns_min=2, turns_max=5)
# What a budget allows: four times the usual.
AFFORDABLE = 20


@dataclass(frozen=True)
class Drawn:
    """observations: ln ratio, [sessions, rounds]. turns: how many the mean launch took."""

    observations: Array
    turns: float


def drawn(
    kind: Noise, pair_spread: float, looks: Looks, sessions: int, as_asked: bool = True
) -> Drawn:
    """Sessions of an unchanged build; with the usual number of turns or with what is asked for."""
    generator = np.random.default_rng(SEED)
    shape = (sessions, looks.value[-1])
    observations = kind.draw(generator, *shape, LAUNCH_SPREAD)
    spreads = pair_spread * np.exp(RESTLESSNESS * generator.standard_normal(shape))
    pairs = kind.within(generator, math.prod(shape), AFFORDABLE, 1.0).reshape(*shape, AFFORDABLE)
    pairs *= spreads[:, :, None]
    turns = np.empty(shape)
    for session in range(sessions):
        rounds: list[list[float]] = []
        for number in range(shape[1]):
            taken = _turns(rounds, as_asked)
            turns[session, number] = taken
            rounds.append(pairs[session, number, :taken].tolist())
            observations[session, number] += median(rounds[-1])
    return Drawn(observations, float(turns.mean()))


def _turns(rounds: Sequence[Sequence[float]], as_asked: bool) -> int:
    """As harness.session has it, of a single comparison."""
    if not rounds:
        return SAMPLING.turns_min
    if not as_asked:
        return SAMPLING.turns_max
    return min(most_turns(SAMPLING.turns_max, SAMPLING.turn_spread, rounds), AFFORDABLE)


def table(sessions: int, looks: Looks) -> list[str]:
    head = ("turns", "false FAIL", "PASS", *(f"{100 * loss:.0f} % slower FAILs" for loss in SLOWER))
    rows = heading("noise", "pairs differ by", "turns are", *head)
    for kind in KINDS:
        for pair_spread in PAIR_SPREADS:
            for as_asked, way in ((False, "the usual"), (True, "as asked for")):
                found = drawn(kind, pair_spread, looks, sessions, as_asked)
                cells = (kind.name, f"{100 * pair_spread:.0f} %", way, f"{found.turns:.1f}")
                rows.append(row(*cells, *_shares(found.observations, looks)))
    return rows


def _shares(observations: Array, looks: Looks) -> list[str]:
    same = rates(observations, looks, REGRESSION)
    cells = [percent(same, Verdict.FAIL, 2), percent(same, Verdict.PASS)]
    for loss in SLOWER:
        # The same noise, and so the same turns.
        slower = rates(observations + math.log1p(-loss), looks, REGRESSION)
        cells.append(percent(slower, Verdict.FAIL))
    return cells


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    looks = Looks.DEFAULT
    print(f"per cent of {sessions} sessions a cell; looks after {list(looks.value)} rounds")
    print(*table(sessions, looks), sep="\n")


if __name__ == "__main__":
    main()
