"""Error rates and durations of verdicts: whole sessions with made-up noise and the real rule.

`python -m bench.simulation [SESSIONS]` prints the tables that docs/error_rates.md rests on. A
session has the judged cases of one network of the default profile (bench.sessions). Nothing is
measured, so the figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

import numpy as np

from bench.sessions import (
    FEWEST_TURNS,
    MACHINES,
    NOISES,
    SECONDS,
    SEED,
    Case,
    Machine,
    Session,
    Setting,
    asked,
    asked_against,
    identical,
    ordinary,
    simulated,
)
from bench.sessions import Noise as DrawnNoise
from hvdperf.interim import EARLY_LOOKS, judge_pair, judge_rounds
from hvdperf.machine.noise_record import LEAST_LAUNCH_SD
from hvdperf.plan.comparisons import Comparison
from hvdperf.verdict import (
    REGRESSION,
    UNKNOWN_LAUNCH_SD,
    Band,
    Floor,
    Noise,
    Rule,
    Verdict,
    is_precise,
)

SESSIONS = 300
# Full looks of the profiles.
LOOKS = {"smoke": (8,), "default": (8, 12), "nightly": (8, 12, 24)}
FLOOR, ON_CPUS, ON_GPUS, IDENTICAL = (
    Floor.at(1.0),
    Band(0.75, 1 / 0.75),
    Band(0.95, 1 / 0.95),
    Band(0.9, 1 / 0.9),
)
SLOWER = (0.05, 0.10, 0.15)
# For sessions that are resumed: their looks, and after how many rounds their parts end. The last
# look of `default` is at 12, so the next one is at 24.
RESUMED_LOOKS = (8, 12, 24)
PARTS: Mapping[str, tuple[int, ...]] = {
    "not resumed": (),
    "at 5 rounds": (5,),
    "at 10 rounds": (10,),
    "every three rounds": tuple(range(3, 24, 3)),
    "every round": tuple(range(3, 24)),
}
NEVER = 0
ENDS = ((3,), (4,), (5, 6), (8,), (12,), (NEVER,))
# The assumed standard deviation between launches, by the contents of the noise record: nothing, in
# a fresh clone; earlier sessions with this noise; and earlier quiet sessions of a machine that is
# no longer quiet.
KNOWN: Mapping[str, float | None] = {
    "nothing: 5 %": UNKNOWN_LAUNCH_SD,
    "20 such sessions": None,
    "20 quiet sessions: 2 %": LEAST_LAUNCH_SD,
}


@dataclass(frozen=True)
class Rates:
    """Numbers of comparisons by their verdict at the end."""

    counts: Mapping[Verdict, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def count(self, verdict: Verdict) -> int:
        return self.counts.get(verdict, 0)

    def percent(self, verdict: Verdict, digits: int = 1) -> str:
        return f"{100 * self.count(verdict) / self.total:.{digits}f}"

    @property
    def cells(self) -> list[str]:
        """Return the percentages of PASS and FAIL."""
        return [self.percent(verdict, 2) for verdict in (Verdict.PASS, Verdict.FAIL)]


def rates(
    setting: Setting, comparisons: Iterable[Comparison], rule: Rule, figure: float, sessions: int
) -> Rates:
    """Return the rates of comparisons that all have this rule and this true figure."""
    cases = [Case(comparison, rule, figure) for comparison in comparisons]
    return Rates(
        Counter(
            judgement.verdict
            for session in simulated(setting, cases, sessions)
            for judgement in session.judged.values()
        )
    )


def at_floor(setting: Setting, sessions: int, figure: float = 1.0) -> Rates:
    """Return the rates of comparisons with a floor of 1. figure: the true one, a share of it."""
    return rates(setting, asked(setting.machine.sizes), FLOOR, figure, sessions)


def of_two_stacks(setting: Setting, sessions: int, figure: float = 1.0) -> Rates:
    """Return the rates of comparisons of two stacks. figure: the speed of one over the other's."""
    return rates(setting, asked_against(setting.machine.sizes), REGRESSION, figure, sessions)


# Tables ----------------------------------------------------------------------------------------


def floor_table(sessions: int) -> list[str]:
    """Return the table of a figure exactly at its floor, and 10 % below it, by what is known."""
    rows = heading("noise", "PASS", "FAIL", "10 % below: PASS")
    for machine in MACHINES:
        told = []
        for known in KNOWN.values():
            setting = Setting(machine, known=known)
            found, below = at_floor(setting, sessions), at_floor(setting, sessions, 0.9)
            told.append([*found.cells, below.percent(Verdict.PASS, 2)])
        rows.append(row(machine.name, *map(" / ".join, zip(*told, strict=True))))
    return rows


def looks_table(sessions: int) -> list[str]:
    """Return the table of a figure at its floor, and of another stack as fast or slower, by
    looks."""
    slower = (f"{100 * loss:.0f} % slower: FAIL" for loss in SLOWER)
    rows = heading("noise", "looks", "at the floor: PASS", "FAIL", "as fast: PASS", "FAIL", *slower)
    for machine in MACHINES:
        for looks in LOOKS.values():
            setting = Setting(machine, looks=looks)
            found, same = at_floor(setting, sessions), of_two_stacks(setting, sessions)
            cells = [*found.cells, same.percent(Verdict.PASS), same.percent(Verdict.FAIL, 2)]
            for loss in SLOWER:
                cells.append(of_two_stacks(setting, sessions, 1 - loss).percent(Verdict.FAIL))
            rows.append(row(machine.name, ", ".join(map(str, looks)), *cells))
    return rows


def noise_table(sessions: int) -> list[str]:
    """Return the table of every kind of noise, with the least assumed difference of launches."""
    settings = {
        name: [change(Setting(machine, known=LEAST_LAUNCH_SD)) for machine in MACHINES]
        for name, change in kinds().items()
    }
    return machines_table("noise", "at the floor: PASS", settings, sessions)


def parts_table(sessions: int) -> list[str]:
    """Return the table of sessions with looks at 8, 12 and 24 that the clock ended on the way, and
    that were resumed."""
    settings = {
        name: [Setting(machine, looks=RESUMED_LOOKS, parts=parts) for machine in MACHINES]
        for name, parts in PARTS.items()
    }
    return machines_table("resumed", "PASS", settings, sessions)


def machines_table(
    what: str, passing: str, settings: Mapping[str, Sequence[Setting]], sessions: int
) -> list[str]:
    """Return a table of figures at their floor, and of another stack as fast. what: heading of the
    first column. passing: heading of the first figure. settings: by name, one for each machine."""
    figures = (passing, "FAIL", "as fast: FAIL")
    rows = heading(what, *(f"{machine.name}, {each}" for machine in MACHINES for each in figures))
    for name, of_machines in settings.items():
        cells = []
        for setting in of_machines:
            same = of_two_stacks(setting, sessions)
            cells += [*at_floor(setting, sessions).cells, same.percent(Verdict.FAIL, 2)]
        rows.append(row(name, *cells))
    return rows


def kinds() -> dict[str, Callable[[Setting], Setting]]:
    """Return every kind of noise, and the clock, by name as changes of a setting."""
    found: dict[str, Callable[[Setting], Setting]] = {
        name: lambda setting, noise=noise: replace(setting, noise=noise)  # type: ignore[misc]
        for name, noise in NOISES.items()
    }
    return found | {"ended by the clock": lambda setting: replace(setting, by_clock=True)}


def band_table(sessions: int) -> list[str]:
    """Return the table of arms that are alike, and of arms exactly at the edge of their band."""
    bands = ("alike, in 0.75: PASS", "at 0.75: PASS", "alike, in 0.95: PASS")
    rows = heading("noise", *(figure for band in bands for figure in (band, "FAIL")), "A/A INVALID")
    for machine in MACHINES:
        setting = Setting(machine)
        cells: list[str] = []
        for band, figure in ((ON_CPUS, 1.0), (ON_CPUS, 0.75), (ON_GPUS, 1.0)):
            cells += rates(setting, asked(machine.sizes), band, figure, sessions).cells
        found = rates(setting, [identical()], IDENTICAL, 1.0, 4 * sessions)
        rows.append(row(machine.name, *cells, found.percent(Verdict.FAIL, 2)))
    return rows


def minutes_table(sessions: int) -> list[str]:
    """Return the table of sessions of the default profile that end when all is decided, by what is
    known."""
    after = ["cases decided after 3", *(f"{' or '.join(map(str, n))}" for n in ENDS[1:-1]), "never"]
    rows = heading("noise", "minutes: median", "90 %", *after)
    for machine in MACHINES:
        told = []
        for known in KNOWN.values():
            found = ordinary_sessions(machine, known, sessions)
            minutes = [session.seconds / 60 for session in found]
            ninth = quantiles(minutes, n=10)[-1]
            shares = [f"{100 * share:.1f}" for share in decided_after(found)]
            told.append([f"{median(minutes):.1f}", f"{ninth:.1f}", *shares])
        rows.append(row(machine.name, *map(" / ".join, zip(*told, strict=True))))
    return rows


def ordinary_sessions(machine: Machine, known: float | None, sessions: int) -> list[Session]:
    """Return sessions of at most two slots: of more, the default profile judges only communication,
    and only of one network."""
    sizes = [size for size in machine.sizes if size <= 2]
    cases = [ordinary(comparison) for comparison in asked(sizes, tuple(SECONDS))]
    return list(simulated(Setting(machine, known=known), cases, sessions))


def decided_after(sessions: Sequence[Session]) -> list[float]:
    """Return the shares of cases that were decided after the numbers of rounds in ENDS."""
    judged = [found for session in sessions for found in session.judged.values()]
    ended = Counter(
        found.rounds if found.verdict is not Verdict.INCONCLUSIVE else NEVER for found in judged
    )
    return [sum(ended[rounds] for rounds in group) / len(judged) for group in ENDS]


def heading(*names: str) -> list[str]:
    """Return the heading of a table in Markdown."""
    return [row(*names), "|---" * len(names) + "|"]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


# Two identical groups --------------------------------------------------------------------------

# Pairs for each session of a cell of the other tables.
PAIRS_A_SESSION = 50
# By noise: the standard deviations of ln ratio between turns, and between launches in addition.
# That of a round is 2.6, 7.1 and 13 %.
PAIR_NOISES = {"quiet": (0.038, 0.015), "A": (0.127, 0.0), "B": (0.125, 0.108)}
# The second group of real pairs has trained longer, and is a little faster (docs/notebook.md).
BIAS = 0.993
# True ratios of the two groups.
PAIR_RATIOS = (BIAS, 0.7, 1.3)


@dataclass(frozen=True)
class Pairs:
    """The results of many pairs. invalid_after: the number of rounds of each pair that is INVALID.
    rounds: of all pairs, together."""

    count: int
    invalid_after: Sequence[int]
    rounds: int

    @property
    def at_once(self) -> int:
        """Return the number of pairs that are INVALID after three rounds."""
        return sum(rounds == EARLY_LOOKS[0] for rounds in self.invalid_after)


def of_pairs(machine: str, ratio: float, pairs: int) -> Pairs:
    """Judge so many pairs. machine: of PAIR_NOISES. ratio: the true one of the two groups. The
    noise record is empty, so the noise of launches is assumed to be 5 %."""
    generator = np.random.default_rng(SEED)
    turns, launches = PAIR_NOISES[machine]
    looks = LOOKS["default"]
    shape = pairs, looks[-1]
    of_launches = launches * generator.standard_normal((*shape, 1))
    drawn = (
        math.log(ratio) + of_launches + turns * generator.standard_normal((*shape, FEWEST_TURNS))
    )
    invalid_after, taken = [], 0
    for pair in drawn.tolist():
        rounds, invalid = _judged(pair, looks)
        taken += rounds
        invalid_after += [rounds] if invalid else []
    return Pairs(pairs, invalid_after, taken)


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


def pairs_table(sessions: int) -> list[str]:
    """Return the table of A/A pairs by themselves. Of pairs that differ, a tenth of the number are
    judged."""
    names = ("true ratio", "pairs", "INVALID after three rounds", "in the session", "rounds, mean")
    rows = heading("noise", *names)
    for machine in PAIR_NOISES:
        for ratio in PAIR_RATIOS:
            count = PAIRS_A_SESSION * sessions // (1 if ratio == BIAS else 10)
            of = of_pairs(machine, ratio, count)
            shares = (100 * n / count for n in (of.at_once, len(of.invalid_after)))
            cells = [f"{share:.2f} %" for share in shares]
            rows.append(
                row(machine, f"{ratio:g}", f"{count:,}", *cells, f"{of.rounds / count:.2f}")
            )
    return rows


# Intervals of a given length ---------------------------------------------------------------------

# How far an interval may reach, and the most rounds of a case.
PRECISION, MOST_PRECISE = 0.02, 120
# An interval of normal values reaches 2 and more standard errors to either side.
FAR = 1.5
# By noise: the standard deviation of ln ratio between rounds, of few turns.
OF_ROUNDS: Mapping[str, float] = {"quiet": 0.026, "asked for": 0.045, "A": 0.071}
PRECISE_KINDS = ("normal", "Student t5", "5 % outliers x5", "rounds AR(1) 0.5")
# Of a figure whose true value is 1; no case FAILs.
FLOOR_HALF = Floor.at(0.5)


@dataclass(frozen=True)
class Coverage:
    """Of many cases the share whose interval covers the true figure, and the mean of rounds."""

    covered: float
    rounds: float


def coverage(sd: float, noise: DrawnNoise, cases: int) -> Coverage:
    """Return the coverage of intervals whose rounds end at PRECISION. sd: of a round. The
    correlation of rounds is known from earlier sessions, as in a session's record."""
    generator = np.random.default_rng(SEED)
    drawn = sd * noise.of_launches(generator, cases, MOST_PRECISE)
    known = Noise(of_rounds=noise.rounds)
    covered = taken = 0
    for values in drawn.tolist():
        for count in range(LOOKS["default"][0], MOST_PRECISE + 1):
            if count < MOST_PRECISE and _is_far(values[:count]):
                continue
            rows = [[value] for value in values[:count]]
            figure = judge_rounds(rows, FLOOR_HALF, LOOKS["default"], known, forced=True).figure
            if is_precise(figure, PRECISION):
                break
        assert figure is not None
        covered += figure.lower <= 1 <= figure.upper
        taken += count
    return Coverage(covered / cases, taken / cases)


def _is_far(values: Sequence[float]) -> bool:
    """Return whether the interval is certainly still too long, which saves most of the time."""
    return FAR * float(np.std(values)) / math.sqrt(len(values)) > PRECISION


def precision_table(sessions: int) -> list[str]:
    """Return the table of coverage by the noise of a round and its kind."""
    rows = heading("a round's sd", *PRECISE_KINDS)
    for name, sd in OF_ROUNDS.items():
        cells = []
        for kind in PRECISE_KINDS:
            found = coverage(sd, NOISES[kind], sessions)
            error = math.sqrt(found.covered * (1 - found.covered) / sessions)
            cells.append(
                f"{100 * found.covered:.1f} ± {100 * error:.1f} %, {found.rounds:.0f} rounds"
            )
        rows.append(row(f"{100 * sd:g} % ({name})", *cells))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    parser.add_argument(
        "sessions",
        type=int,
        nargs="?",
        default=SESSIONS,
        metavar="SESSIONS",
        help="of a cell (300)",
    )
    sessions = parser.parse_args().sessions
    if sessions < 2:
        parser.error(f"{sessions} sessions: must be two or more")
    print(f"per cent of the comparisons of {sessions} sessions a cell; of launches is known,")
    print(f"where there are three figures: {' / '.join(KNOWN)}")
    for title, table in (
        ("minutes until all is decided", minutes_table),
        ("at a floor", floor_table),
        ("by looks", looks_table),
        ("in a band", band_table),
        ("two identical groups", pairs_table),
        ("of other noise", noise_table),
        ("of sessions that are resumed", parts_table),
        ("intervals of a given length", precision_table),
    ):
        print(f"\n{title}\n", *table(sessions), sep="\n", flush=True)


if __name__ == "__main__":
    main()
