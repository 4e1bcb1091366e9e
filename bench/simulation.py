"""Error rates and durations of verdicts: whole sessions with made-up noise and the real rule.

`python -m bench rates simulation` prints the tables on which docs/error_rates.md is based. A
session has the judged cases of one network of the default profile (bench.sessions). Nothing is
measured, so the figures do not depend on the machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, median, quantiles
from typing import Any

import numpy as np

from bench import sessions
from bench.sessions import MACHINES, NOISES, Case, Machine, Setting
from docs.markdown import heading, row
from hvdperf import verdict
from hvdperf.interim import EARLY_LOOKS
from hvdperf.machine.noise_record import LEAST_LAUNCH_SD
from hvdperf.plan.comparisons import Comparison
from hvdperf.verdict import Band, Floor, Judgement, Rule, Verdict

# Full looks of the profiles.
LOOKS = {"smoke": (8,), "default": (8, 12), "nightly": (8, 12, 24)}
FLOOR = Floor.at(1.0)
ON_CPUS, ON_GPUS, IDENTICAL = (Band(low, 1 / low) for low in (0.75, 0.95, 0.9))
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
    "nothing: 5 %": verdict.UNKNOWN_LAUNCH_SD,
    "20 such sessions": None,
    "20 quiet sessions: 2 %": LEAST_LAUNCH_SD,
}


# Comparisons whose true figure is known ----------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Comparisons that all have the same rule and the same true figure. asked: by world sizes."""

    asked: Callable[[Sequence[int]], Iterable[Comparison]]
    rule: Rule
    figure: float = 1.0

    def verdicts(self, setting: Setting, count: int) -> Counter[Verdict]:
        """Return the numbers of these comparisons in so many sessions by their verdict."""
        asked = self.asked(tuple(setting.machine.turns))
        cases = [Case(each, self.rule, self.figure) for each in asked]
        judged = (each.judged.values() for each in sessions.simulated(setting, cases, count))
        return Counter(judgement.verdict for of_one in judged for judgement in of_one)


def shares(counts: Counter[Verdict]) -> str:
    """Return the percentages of PASS and FAIL."""
    both = (100 * counts[each] / counts.total() for each in (Verdict.PASS, Verdict.FAIL))
    return " / ".join(f"{percent:.2f}" for percent in both)


# At a floor of 1, and of one stack against another.
AT_FLOOR = Compared(sessions.asked, FLOOR)
AS_FAST = Compared(sessions.asked_against, verdict.REGRESSION)
BELOW_FLOOR = replace(AT_FLOOR, figure=0.9)
BOTH = {"at the floor": AT_FLOOR, "as fast": AS_FAST}
SLOWER = {f"{n} % slower": replace(AS_FAST, figure=1 - n / 100) for n in (5, 10, 15)}
BANDS = {
    "alike, in 0.75": Compared(sessions.asked, ON_CPUS),
    "at 0.75": Compared(sessions.asked, ON_CPUS, 0.75),
    "alike, in 0.95": Compared(sessions.asked, ON_GPUS),
}


OTHER_NOISE = {name: {"noise": noise, "known": LEAST_LAUNCH_SD} for name, noise in NOISES.items()}
# By title: the fields of the setting by row, on each machine; and the columns.
TABLES: Mapping[str, tuple[Mapping[str, Mapping[str, Any]], Mapping[str, Compared]]] = {
    "at a floor": (
        {f"of launches is known {name}": {"known": sd} for name, sd in KNOWN.items()},
        {"at the floor": AT_FLOOR, "10 % below": BELOW_FLOOR},
    ),
    "by looks": (
        {f"looks at {of[-1]} at last": {"looks": of} for of in LOOKS.values()},
        BOTH | SLOWER,
    ),
    "in a band": ({"": {}}, BANDS),
    "of other noise": ({**OTHER_NOISE, "ended by the clock": {"by_clock": True}}, BOTH),
    "of sessions that are resumed": (
        {name: {"looks": RESUMED_LOOKS, "parts": parts} for name, parts in PARTS.items()},
        BOTH,
    ),
}


def table(title: str, count: int) -> Iterator[str]:
    """Yield the rows of a table, of so many sessions a cell."""
    rows, columns = TABLES[title]
    yield from heading("noise", *(f"{each}: PASS / FAIL, %" for each in columns))
    for machine, (name, fields) in product(MACHINES, rows.items()):
        setting = Setting(machine, **fields)
        cells = (shares(of.verdicts(setting, count)) for of in columns.values())
        yield row("; ".join(filter(None, (machine.name, name))), *cells)


# How long it takes ------------------------------------------------------------------------------


def minutes_table(count: int) -> Iterator[str]:
    """Yield the table of sessions of the default profile that end when all is decided."""
    after = ["decided after 3 rounds, %", *(" or ".join(map(str, n)) for n in ENDS[1:-1]), "never"]
    yield from heading("noise", "of launches is known", "minutes: median", "90 %", *after)
    for machine, (name, known) in product(MACHINES, KNOWN.items()):
        found = ordinary_sessions(machine, known, count)
        minutes = [session.seconds / 60 for session in found]
        cells = [median(minutes), quantiles(minutes, n=10)[-1]]
        cells += [100 * share for share in decided_after(found)]
        yield row(machine.name, name, *(f"{cell:.1f}" for cell in cells))


def ordinary_sessions(machine: Machine, known: float | None, count: int) -> list[sessions.Session]:
    """Return sessions of at most two slots: of more, the default profile judges only communication,
    and only of one network."""
    sizes = [size for size in machine.turns if size <= 2]
    cases = [sessions.ordinary(each) for each in sessions.asked(sizes, tuple(sessions.SECONDS))]
    return list(sessions.simulated(Setting(machine, known=known), cases, count))


def decided_after(found: Sequence[sessions.Session]) -> list[float]:
    """Return the shares of cases that were decided after the numbers of rounds in ENDS."""
    judged = [each for session in found for each in session.judged.values()]
    ended = Counter(
        each.rounds if each.verdict is not Verdict.INCONCLUSIVE else NEVER for each in judged
    )
    return [sum(ended[rounds] for rounds in group) / len(judged) for group in ENDS]


# Two identical groups --------------------------------------------------------------------------

# Pairs for each session of a cell of the other tables.
PAIRS_A_SESSION = 50
# The noise of pairs. The standard deviation of a round is 2.6, 7.1 and 13 %.
PAIR_MACHINES = (
    Machine("quiet", {2: 0.038}, {2: 0.015}),
    Machine("A", {2: 0.127}, {2: 0.0}),
    Machine("B", {2: 0.125}, {2: 0.108}),
)
# The second group of real pairs has trained longer, and is a little faster (docs/notebook.md).
BIAS = 0.993
# True ratios of the two groups.
PAIR_RATIOS = (BIAS, 0.7, 1.3)


def of_pairs(machine: Machine, ratio: float, pairs: int) -> list[Judgement]:
    """Judge so many pairs by themselves, whose second group has this true ratio to the first. The
    noise record is empty, so the noise of launches is assumed to be 5 %."""
    case = Case(sessions.identical(), IDENTICAL, ratio)
    return [each.judged[case] for each in sessions.simulated(Setting(machine), [case], pairs)]


def is_at_once(judgement: Judgement) -> bool:
    """Return whether a pair is INVALID as soon as possible."""
    return judgement.verdict is Verdict.FAIL and judgement.rounds == EARLY_LOOKS[0]


def pairs_table(count: int) -> Iterator[str]:
    """Yield the table of A/A pairs by themselves. Of pairs that differ, a tenth of the number are
    judged."""
    names = ("true ratio", "pairs", "INVALID after three rounds", "in the session", "rounds, mean")
    yield from heading("noise", *names)
    for machine, ratio in product(PAIR_MACHINES, PAIR_RATIOS):
        pairs = PAIRS_A_SESSION * count // (1 if ratio == BIAS else 10)
        judged = of_pairs(machine, ratio, pairs)
        invalid = sum(each.verdict is Verdict.FAIL for each in judged)
        percents = (f"{100 * n / pairs:.2f} %" for n in (sum(map(is_at_once, judged)), invalid))
        rounds = fmean(each.rounds for each in judged)
        yield row(machine.name, f"{ratio:g}", f"{pairs:,}", *percents, f"{rounds:.2f}")


# Intervals of a given length ---------------------------------------------------------------------

# How far an interval may reach, and the most rounds of a case.
PRECISION, MOST_PRECISE = 0.02, 120
# By noise: the standard deviation of ln ratio between rounds, of few turns.
OF_ROUNDS: Mapping[str, float] = {"quiet": 0.026, "asked for": 0.045, "A": 0.071}
PRECISE_KINDS = ("normal", "Student t5", "5 % outliers x5", "rounds AR(1) 0.5")
# A figure whose true value is 1; no case FAILs.
PRECISE = Case(sessions.asked([1])[0], Floor.at(0.5))


def coverage(sd: float, noise: sessions.Noise, cases: int) -> tuple[float, float]:
    """Return the share of cases whose interval covers the true figure, if rounds end at PRECISION,
    and the mean number of rounds. sd: of a round. The correlation of rounds is known from earlier
    sessions, as in a session's record."""
    axes = {"case": cases, "round": MOST_PRECISE, "turn": 1}
    generator = np.random.default_rng(sessions.SEED)
    values = sessions.drawn(generator, axes, noise.part(sd, "case", "round"))
    known = {PRECISE.load: verdict.Noise(of_rounds=noise.rounds)}
    covered = taken = 0
    for rounds in values:
        drawn, looks = {PRECISE: rounds}, LOOKS["default"]
        session = sessions.Session(drawn, looks, known, MOST_PRECISE, precision=PRECISION)
        session.run()
        judgement = session.judged[PRECISE]
        assert judgement.figure is not None
        covered += judgement.figure.lower <= 1 <= judgement.figure.upper
        taken += judgement.rounds
    return covered / cases, taken / cases


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
