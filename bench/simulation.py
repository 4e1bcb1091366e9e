"""Error rates and durations of verdicts: whole sessions with made-up noise and the real rule.

`python -m bench.rates simulation` prints the tables that docs/error_rates.md rests on. A session
has the judged cases of one network of the default profile (bench.sessions). Nothing is measured, so
the figures do not depend on the machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, quantiles

import numpy as np

from bench import sessions
from bench.noise import SEED, Part, drawn
from bench.pages import heading, row
from bench.sessions import MACHINES, NOISES, Case, Machine, Session, Setting, ordinary
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

# Full looks of the profiles.
LOOKS = {"smoke": (8,), "default": (8, 12), "nightly": (8, 12, 24)}
FLOOR, ON_CPUS, ON_GPUS, IDENTICAL = (
    Floor.at(1.0),
    Band(0.75, 1 / 0.75),
    Band(0.95, 1 / 0.95),
    Band(0.9, 1 / 0.9),
)
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


# Comparisons whose true figure is known ----------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Numbers of comparisons by their verdict at the end."""

    counts: Mapping[Verdict, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def count(self, verdict: Verdict) -> int:
        return self.counts.get(verdict, 0)

    def __str__(self) -> str:
        """Return the percentages of PASS and FAIL."""
        both = (100 * self.count(verdict) / self.total for verdict in (Verdict.PASS, Verdict.FAIL))
        return " / ".join(f"{percent:.2f}" for percent in both)


@dataclass(frozen=True)
class Compared:
    """Comparisons that all have the same rule and the same true figure. asked: by world sizes."""

    asked: Callable[[Sequence[int]], Iterable[Comparison]]
    rule: Rule
    figure: float = 1.0

    def rates(self, setting: Setting, count: int) -> Rates:
        """Return the rates of these comparisons in so many sessions."""
        asked = self.asked(setting.machine.sizes)
        cases = [Case(comparison, self.rule, self.figure) for comparison in asked]
        judged = (each.judged.values() for each in sessions.simulated(setting, cases, count))
        return Rates(Counter(judgement.verdict for of_one in judged for judgement in of_one))


# At a floor of 1, and of one stack against another.
AT_FLOOR, AS_FAST = Compared(sessions.asked, FLOOR), Compared(sessions.asked_against, REGRESSION)
BELOW_FLOOR = replace(AT_FLOOR, figure=0.9)
# Two identical groups.
PAIR = Compared(lambda _: [sessions.identical()], IDENTICAL)
BOTH = {"at the floor": AT_FLOOR, "as fast": AS_FAST}
SLOWER = {f"{n} % slower": replace(AS_FAST, figure=1 - n / 100) for n in (5, 10, 15)}
BANDS = {
    "alike, in 0.75": Compared(sessions.asked, ON_CPUS),
    "at 0.75": Compared(sessions.asked, ON_CPUS, 0.75),
    "alike, in 0.95": Compared(sessions.asked, ON_GPUS),
    "A/A": PAIR,
}


Rows = Mapping[str, Setting]


def settings(of: Mapping[str, Mapping[str, object]]) -> Rows:
    """Return the settings with these fields on each machine, by name."""
    return {
        f"{machine.name}; {name}" if name else machine.name: Setting(machine, **fields)  # type: ignore[arg-type]
        for machine in MACHINES
        for name, fields in of.items()
    }


OTHER_NOISE: Mapping[str, Mapping[str, object]] = {
    name: {"noise": noise, "known": LEAST_LAUNCH_SD} for name, noise in NOISES.items()
}
TABLES: Mapping[str, tuple[Rows, Mapping[str, Compared]]] = {
    "at a floor": (
        settings({f"of launches is known {name}": {"known": sd} for name, sd in KNOWN.items()}),
        {"at the floor": AT_FLOOR, "10 % below": BELOW_FLOOR},
    ),
    "by looks": (
        settings({f"looks at {of[-1]} at last": {"looks": of} for of in LOOKS.values()}),
        BOTH | SLOWER,
    ),
    "in a band": (settings({"": {}}), BANDS),
    "of other noise": (
        settings({**OTHER_NOISE, "ended by the clock": {"by_clock": True}}),
        BOTH,
    ),
    "of sessions that are resumed": (
        settings({name: {"looks": RESUMED_LOOKS, "parts": parts} for name, parts in PARTS.items()}),
        BOTH,
    ),
}


def table(name: str, count: int) -> Iterator[str]:
    """Yield the rows of a table, of so many sessions a cell."""
    rows, columns = TABLES[name]
    yield from heading("noise", *(f"{each}: PASS / FAIL, %" for each in columns))
    for each, setting in rows.items():
        yield row(each, *(f"{of.rates(setting, count)}" for of in columns.values()))


# How long it takes ------------------------------------------------------------------------------


def minutes_table(count: int) -> Iterator[str]:
    """Yield the table of sessions of the default profile that end when all is decided."""
    after = ["decided after 3 rounds, %", *(" or ".join(map(str, n)) for n in ENDS[1:-1]), "never"]
    yield from heading("noise", "of launches is known", "minutes: median", "90 %", *after)
    for machine in MACHINES:
        for name, known in KNOWN.items():
            found = ordinary_sessions(machine, known, count)
            minutes = [session.seconds / 60 for session in found]
            cells = [median(minutes), quantiles(minutes, n=10)[-1]]
            cells += [100 * share for share in decided_after(found)]
            yield row(machine.name, name, *(f"{cell:.1f}" for cell in cells))


def ordinary_sessions(machine: Machine, known: float | None, count: int) -> list[Session]:
    """Return sessions of at most two slots: of more, the default profile judges only communication,
    and only of one network."""
    sizes = [size for size in machine.sizes if size <= 2]
    cases = [ordinary(each) for each in sessions.asked(sizes, tuple(sessions.SECONDS))]
    return list(sessions.simulated(Setting(machine, known=known), cases, count))


def decided_after(found: Sequence[Session]) -> list[float]:
    """Return the shares of cases that were decided after the numbers of rounds in ENDS."""
    judged = [each for session in found for each in session.judged.values()]
    ended = Counter(
        each.rounds if each.verdict is not Verdict.INCONCLUSIVE else NEVER for each in judged
    )
    return [sum(ended[rounds] for rounds in group) / len(judged) for group in ENDS]


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
# What of_pairs returns of a pair that is INVALID as soon as possible.
AT_ONCE = (EARLY_LOOKS[0], True)


def of_pairs(machine: str, ratio: float, pairs: int) -> list[tuple[int, bool]]:
    """Judge so many pairs: return the number of rounds that each takes, and whether it is INVALID.
    machine: of PAIR_NOISES. ratio: the true one of the two groups. The noise record is empty, so
    the noise of launches is assumed to be 5 %."""
    turns, launches = PAIR_NOISES[machine]
    looks = LOOKS["default"]
    axes = {"pair": pairs, "round": looks[-1], "turn": sessions.FEWEST_TURNS}
    parts = Part(launches, ("pair", "round")), Part(turns, tuple(axes))
    values = math.log(ratio) + drawn(np.random.default_rng(SEED), axes, *parts)
    return [_judged(pair, looks) for pair in values.tolist()]


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


def pairs_table(count: int) -> Iterator[str]:
    """Yield the table of A/A pairs by themselves. Of pairs that differ, a tenth of the number are
    judged."""
    names = ("true ratio", "pairs", "INVALID after three rounds", "in the session", "rounds, mean")
    yield from heading("noise", *names)
    for machine in PAIR_NOISES:
        for ratio in PAIR_RATIOS:
            pairs = PAIRS_A_SESSION * count // (1 if ratio == BIAS else 10)
            judged = of_pairs(machine, ratio, pairs)
            invalid = sum(invalid for _, invalid in judged)
            shares = (f"{100 * n / pairs:.2f} %" for n in (judged.count(AT_ONCE), invalid))
            rounds = fmean(rounds for rounds, _ in judged)
            yield row(machine, f"{ratio:g}", f"{pairs:,}", *shares, f"{rounds:.2f}")


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


def coverage(sd: float, noise: sessions.Noise, cases: int) -> tuple[float, float]:
    """Return the share of cases whose interval covers the true figure, if rounds end at PRECISION,
    and the mean number of rounds. sd: of a round. The correlation of rounds is known from earlier
    sessions, as in a session's record."""
    axes = {"case": cases, "round": MOST_PRECISE}
    values = drawn(np.random.default_rng(SEED), axes, noise.part(sd, *axes))
    known = Noise(of_rounds=noise.rounds)
    covered = taken = 0
    for of_case in values.tolist():
        for count in range(LOOKS["default"][0], MOST_PRECISE + 1):
            if count < MOST_PRECISE and _is_far(of_case[:count]):
                continue
            rows = [[value] for value in of_case[:count]]
            figure = judge_rounds(rows, FLOOR_HALF, LOOKS["default"], known, forced=True).figure
            if is_precise(figure, PRECISION):
                break
        assert figure is not None
        covered += figure.lower <= 1 <= figure.upper
        taken += count
    return covered / cases, taken / cases


def _is_far(values: Sequence[float]) -> bool:
    """Return whether the interval is certainly still too long, which saves most of the time."""
    return FAR * float(np.std(values)) / math.sqrt(len(values)) > PRECISION


def precision_table(count: int) -> Iterator[str]:
    """Yield the table of coverage by the noise of a round and its kind."""
    yield from heading("a round's sd", *PRECISE_KINDS)
    for name, sd in OF_ROUNDS.items():
        cells = []
        for kind in PRECISE_KINDS:
            covered, rounds = coverage(sd, NOISES[kind], count)
            error = math.sqrt(covered * (1 - covered) / count)
            cells.append(f"{100 * covered:.1f} ± {100 * error:.1f} %, {rounds:.0f} rounds")
        yield row(f"{100 * sd:g} % ({name})", *cells)


def tables(count: int) -> Iterator[str]:
    """Yield the lines of all tables, of so many sessions a cell."""
    made: dict[str, Iterator[str]] = {
        "minutes until all is decided": minutes_table(count),
        **{name: table(name, count) for name in TABLES},
        "two identical groups": pairs_table(count),
        "intervals of a given length": precision_table(count),
    }
    for title, lines in made.items():
        yield from (f"\n{title}\n", *lines)
