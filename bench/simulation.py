"""How often the rules of a verdict err: whole sessions with made-up noise and the real rule.

`python -m bench.simulation [SESSIONS]` prints the tables of docs/measurement.md. Every session is
judged by harness.verdict.judge after the rounds that a profile looks at, as harness.session does;
its budget allows all of them. Nothing is measured, so the figures do not depend on the machine.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from bench.noise import NOISES, Array, Noise, of_launches
from harness.plan import Question
from harness.proposal import proposed_rule
from harness.verdict import REGRESSION, Band, Rule, Verdict, judge

SESSIONS = 10_000
SEED = 20281
PARITY_GPU, PARITY_CPU = Band(0.95, 1 / 0.95), Band(0.75, 1 / 0.75)
EFFICIENCY = 0.9
SLOWER = (0.05, 0.10, 0.15)


class Looks(Enum):
    """After how many rounds the profiles look."""

    SMOKE = (6,)
    DEFAULT = (8, 12)
    NIGHTLY = (8, 12, 24)


SHOWN = (Looks.DEFAULT, Looks.NIGHTLY)


@dataclass(frozen=True)
class Machine:
    """How much rounds differ: spread of ln ratio, and where a round is the median of pairs of
    turns, their number and spread."""

    name: str
    spread: float
    pairs: int = 0
    pair_spread: float = 0.0

    def noise(self, kind: Noise) -> Noise:
        return of_launches(kind, self.pairs, self.pair_spread) if self.pairs else kind


# The paired spreads that the rule was designed for, and launches as measured on two cores.
QUIET, BUSY = Machine("2.9 %", 0.029), Machine("7.5 %", 0.075)
ALTERNATE = Machine("8 pairs of 6 %, launches 2 %", 0.02, pairs=8, pair_spread=0.06)
MACHINES = (QUIET, BUSY, ALTERNATE)


@dataclass(frozen=True)
class Rates:
    """How many of so many sessions ended with each verdict."""

    counts: Mapping[Verdict, int]

    @property
    def sessions(self) -> int:
        return sum(self.counts.values())

    def count(self, verdict: Verdict) -> int:
        return self.counts.get(verdict, 0)

    def share(self, verdict: Verdict) -> float:
        return self.count(verdict) / self.sessions


def session_verdict(observations: Sequence[float], looks: Sequence[int], rule: Rule) -> Verdict:
    """What a session ends with whose rounds observe these: the first look that settles it."""
    verdict = Verdict.INCONCLUSIVE
    for look in looks:
        verdict = judge(observations[:look], rule).verdict
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return verdict


def rates(observations: Array, looks: Looks, rules: Rule | Iterable[Rule]) -> Rates:
    """Of sessions, [sessions, rounds], under one rule or each under its own."""
    sessions = observations.tolist()
    each = [rules] * len(sessions) if isinstance(rules, Rule) else rules
    return Rates(
        Counter(
            session_verdict(session, looks.value, rule)
            for session, rule in zip(sessions, each, strict=True)
        )
    )


def drawn(
    machine: Machine, kind: Noise, looks: Looks, sessions: int, truth: float = 1.0, seed: int = SEED
) -> Array:
    """Sessions that are as long as the last look, of a build whose true figure is truth."""
    generator = np.random.default_rng(seed)
    noise = machine.noise(kind).draw(generator, sessions, looks.value[-1], machine.spread)
    return math.log(truth) + noise


def floors(
    machine: Machine, kind: Noise, looks: Looks, sessions: int, truth: float, earlier: int = 1
) -> list[Rule]:
    """For each session the floor that so many earlier ones, of unchanged builds, have proposed."""
    rounds = looks.value[-1]
    calibration = drawn(machine, kind, looks, sessions * earlier, truth, seed=SEED + 1)
    return [
        proposed_rule(Question.WEAK_SCALING, observations, rounds)
        for observations in calibration.reshape(sessions, earlier * rounds).tolist()
    ]


# Tables ----------------------------------------------------------------------------------------


def regression_table(sessions: int) -> list[str]:
    """Against a reference, per cent of sessions: unchanged builds, and slower ones that FAIL."""
    head = ("false FAIL", "PASS", *(f"{100 * loss:.0f} % slower FAILs" for loss in SLOWER))
    rows = heading(
        "noise", "spread", *(f"{name}, to {looks.value[-1]}" for looks in SHOWN for name in head)
    )
    for kind in NOISES.values():
        for machine in MACHINES:
            cells = []
            for looks in SHOWN:
                same = rates(drawn(machine, kind, looks, sessions), looks, REGRESSION)
                cells += [percent(same, Verdict.FAIL, 2), percent(same, Verdict.PASS)]
                for loss in SLOWER:
                    slower = drawn(machine, kind, looks, sessions, 1 - loss)
                    cells.append(percent(rates(slower, looks, REGRESSION), Verdict.FAIL))
            rows.append(row(kind.name, machine.name, *cells))
    return rows


def efficiency_table(sessions: int) -> list[str]:
    """Against floors that one earlier session, or four, have proposed, per cent of sessions."""
    head = ("false FAIL", "PASS", "10 % slower FAILs")
    ways = [(looks, earlier) for looks in SHOWN for earlier in (1, 4)]
    rows = heading(
        "noise",
        "spread",
        *(
            f"{name}, to {looks.value[-1]}, of {earlier}"
            for looks, earlier in ways
            for name in head
        ),
    )
    for kind in NOISES.values():
        for machine in MACHINES:
            cells = []
            for looks, earlier in ways:
                rules = floors(machine, kind, looks, sessions, EFFICIENCY, earlier)
                same, slower = (
                    rates(drawn(machine, kind, looks, sessions, truth), looks, rules)
                    for truth in (EFFICIENCY, 0.9 * EFFICIENCY)
                )
                cells += [
                    percent(same, Verdict.FAIL, 2),
                    percent(same, Verdict.PASS),
                    percent(slower, Verdict.FAIL),
                ]
            rows.append(row(kind.name, machine.name, *cells))
    return rows


def parity_table(sessions: int) -> list[str]:
    """Of strategies that are alike, and 10 % apart, per cent of sessions."""
    head = (
        "false FAIL",
        "EQUIVALENT",
        "10 % apart FAILs",
        "false FAIL in 0.75",
        "EQUIVALENT in 0.75",
    )
    rows = heading(
        "noise", "spread", *(f"{name}, to {looks.value[-1]}" for looks in SHOWN for name in head)
    )
    for kind in NOISES.values():
        for machine in MACHINES:
            cells = []
            for looks in SHOWN:
                level = drawn(machine, kind, looks, sessions)
                narrow, wide = (rates(level, looks, band) for band in (PARITY_GPU, PARITY_CPU))
                apart = rates(drawn(machine, kind, looks, sessions, 0.9), looks, PARITY_GPU)
                cells += [
                    percent(narrow, Verdict.FAIL, 2),
                    percent(narrow, Verdict.PASS),
                    percent(apart, Verdict.FAIL),
                    percent(wide, Verdict.FAIL, 2),
                    percent(wide, Verdict.PASS),
                ]
            rows.append(row(kind.name, machine.name, *cells))
    return rows


def heading(*names: str) -> list[str]:
    """Of a table in Markdown."""
    return [row(*names), "|---" * len(names) + "|"]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def percent(found: Rates, verdict: Verdict, digits: int = 1) -> str:
    return f"{100 * found.share(verdict):.{digits}f}"


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    looks = " and ".join(f"{shown.name.lower()} {list(shown.value)}" for shown in SHOWN)
    print(f"per cent of {sessions} sessions a cell; looks of {looks}")
    for title, table in (
        ("against a reference", regression_table),
        (f"an efficiency of {EFFICIENCY} against a proposed floor", efficiency_table),
        ("parity", parity_table),
    ):
        print(f"\n{title}\n", *table(sessions), sep="\n", flush=True)


if __name__ == "__main__":
    main()
