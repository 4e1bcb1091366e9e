"""False FAILs of proposed thresholds: the number that a file says, and that of simulated nights.

`python -m bench.rates thresholds` prints the tables that docs/error_rates.md rests on. A file is
proposed from simulated sessions, and nights on which nothing has changed are then judged by it with
the suite's own rule. Nothing is measured, so the figures do not depend on the machine.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import NamedTuple

import numpy as np

from bench.noise import SEED, Array, Generator, Part, drawn, normal, student
from bench.pages import heading, row
from hvdperf.interim import fail_alpha, judge_rounds
from hvdperf.machine.host import Machine
from hvdperf.plan.comparisons import Question
from hvdperf.plan.thresholds import Case, proposed_rule
from hvdperf.session import proposals
from hvdperf.session.proposals import MOST_A_YEAR, NIGHTS, Scatter
from hvdperf.stats import bound_depth
from hvdperf.verdict import Floor, Rule, Verdict

# The cases of a file, and the full looks of a night.
CASES, LOOKS = 60, (8, 12, 24)
# Nights by which a file's false FAILs are counted: five years.
COUNTED = 5 * NIGHTS
# Nights by which the share that PASSes, and that of a slower build that FAILs, are counted.
WHOLE = 20
SLOWER = 0.9
FIGURE = math.log(0.8)


@dataclass(frozen=True)
class Noise:
    """The noise of a machine. rounds, nights: standard deviations of ln ratio of a round, and of a
    night in addition. common: whether a night is the same for all cases. tails: degrees of freedom
    of Student's t for nights; 0 for normal ones. correlation: between a round and the next one."""

    rounds: float
    nights: float
    common: bool = False
    tails: int = 0
    correlation: float = 0.0

    def __str__(self) -> str:
        words = [f"{100 * self.rounds:.1f} %; {100 * self.nights:g} %"]
        words += ["nights are the same for all cases"] if self.common else []
        words += [f"nights of Student t{self.tails}"] if self.tails else []
        words += [f"rounds correlate by {self.correlation:g}"] if self.correlation else []
        return ", ".join(words)

    def draw(self, generator: Generator, nights: int, rounds: int) -> Array:
        """Return the ln ratios of CASES, [nights, cases, rounds]."""
        axes = {"night": nights, "case": CASES, "round": rounds}
        values = student(self.tails) if self.tails else normal
        of_nights = Part(self.nights, ("night",) if self.common else ("night", "case"), values)
        of_rounds = Part(self.rounds, tuple(axes), near={"round": self.correlation})
        return FIGURE + drawn(generator, axes, of_nights, of_rounds)


NOISES = tuple(
    Noise(rounds, nights) for rounds in (0.026, 0.045, 0.071) for nights in (0.0, 0.005, 0.01, 0.03)
)
ENDS = tuple(noise for noise in NOISES if noise.rounds != 0.045 and noise.nights != 0.005)
OTHER = (
    Noise(0.026, 0.01, common=True),
    Noise(0.026, 0.01, tails=5),
    Noise(0.026, 0.01, correlation=0.3),
)
# By number of sessions of eight rounds, noises of which many files are drawn.
LUCK = (
    (8, Noise(0.026, 0.02)),
    (12, Noise(0.026, 0.02)),
    (12, Noise(0.071, 0.01)),
    (12, Noise(0.026, 0.02, common=True)),
)
# A number of sessions that leaves nothing open.
MANY = 10**9
# By the number of sessions and of the rounds of each: the noises of its table.
SESSIONS = {(12, 8): (*NOISES, *OTHER), (8, 8): ENDS, (12, 3): ENDS}


class File(NamedTuple):
    """A proposed file. expected: the false FAILs of a year that it says. counted: those of
    simulated nights, a year. narrow, counted_narrow: the same of floors that only PASS in 95 % of
    sessions. limit: the median floor, as a share of the true figure. passed: the share of nights on
    which every case PASSes. found: the share of cases that are 10 % slower, and FAIL."""

    expected: float
    counted: float
    narrow: float
    counted_narrow: float
    limit: float
    passed: float
    found: float


Observed = Mapping[Case, Sequence[Sequence[float]]]


def observed(noise: Noise, sessions: int, rounds: int, generator: Generator) -> Observed:
    """Return the ln ratios of each case, by session, of simulated sessions."""
    values = noise.draw(generator, sessions, rounds)
    cases = [Case(Question.WEAK_SCALING, "vgg_16", at + 2, 1) for at in range(CASES)]
    return {case: values[:, at].tolist() for at, case in enumerate(cases)}


def floors(of: Observed) -> list[Rule]:
    """Return the floors of the file that is proposed from these sessions."""
    text = proposals.propose(of, LOOKS, Machine("", (0,), cpu_model="made up"))
    return [Floor.at(float(value)) for value in tomllib.loads(text)["thresholds"].values()]


def expected(of: Observed, rules: Sequence[Rule]) -> float:
    """Return the false FAILs of a year that the sessions let expect of these rules."""
    return proposals.of_year(zip(rules, map(proposals.scatter, of.values()), strict=True), LOOKS)


def proposed(noise: Noise, sessions: int, rounds: int, generator: Generator) -> File:
    """Propose a file from such sessions, and judge nights by it."""
    of = observed(noise, sessions, rounds, generator)
    rules = floors(of)
    narrow = [
        proposed_rule(case.question, [*chain(*values)], LOOKS[0]) for case, values in of.items()
    ]
    nights = noise.draw(generator, COUNTED, LOOKS[-1])
    whole = nights[:WHOLE]
    slower = whole + math.log(SLOWER)
    return File(
        expected(of, rules),
        false_fails(rules, nights) * NIGHTS / COUNTED,
        expected(of, narrow),
        false_fails(narrow, nights[:NIGHTS]),
        float(np.median([limit_of(rule) for rule in rules])) / math.exp(FIGURE),
        fmean(all(_are(Verdict.PASS, rules, night)) for night in whole),
        fmean(failed for night in slower for failed in _are(Verdict.FAIL, rules, night)),
    )


def meant(rules: Sequence[Rule], noise: Noise) -> float:
    """Return the false FAILs of a year that the rules mean at normal noise of which everything is
    known, by the formula of hvdperf.session.proposals."""
    known = Scatter(MANY, FIGURE, noise.nights**2 + noise.rounds**2, noise.rounds**2, MANY, 1)
    return proposals.of_year(((rule, known) for rule in rules), LOOKS)


def limit_of(rule: Rule) -> float:
    """Return the floor below which a figure FAILs."""
    assert isinstance(rule, Floor)
    return rule.fail_below


def false_fails(rules: Sequence[Rule], nights: Array) -> int:
    """Return the number of FAILs by the suite's own rule. nights: ln ratios, [nights, cases,
    rounds].

    Only those cases are judged that can FAIL. If k rounds reach the floor, so do the averages of
    all pairs of them, k (k + 1) / 2 with those of a round with itself. A bound that leaves out
    d - 1 averages is then not below the floor unless k (k + 1) / 2 < d.
    """
    limits = np.log(list(map(limit_of, rules)))[:, None]
    reached = np.cumsum(nights >= limits, axis=2)
    can = np.zeros(nights.shape[:2], dtype=bool)
    for look in LOOKS:
        depth = bound_depth(look, fail_alpha(look, rules[0].alpha, LOOKS))
        count = reached[:, :, look - 1]
        can |= count * (count + 1) // 2 < depth
    return sum(
        judged(nights[night, case].tolist(), rules[case]) is Verdict.FAIL
        for night, case in np.argwhere(can)
    )


def judged(values: Sequence[float], rule: Rule) -> Verdict:
    """Return the verdict of a night: that of the first look that decides. Early looks are left out,
    because they only add PASSes."""
    for look in LOOKS:
        verdict = judge_rounds([[value] for value in values[:look]], rule, LOOKS, None).verdict
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return verdict


def _are(verdict: Verdict, rules: Sequence[Rule], night: Array) -> list[bool]:
    """Return for each case whether it has this verdict."""
    return [
        judged(values.tolist(), rule) is verdict for values, rule in zip(night, rules, strict=True)
    ]


def table(sessions: int, rounds: int, files: int) -> Iterator[str]:
    """Yield the rows of a table of SESSIONS, of so many files a row."""
    narrow = ("95 % floors: expected", "counted")
    shares = ("limit / figure", "nights that PASS", "10 % slower: FAIL")
    more = ("largest count", f"files above {MOST_A_YEAR:g}")
    yield from heading(
        "rounds: sd; nights differ by", "expected", "counted", *narrow, *shares, *more
    )
    for noise in SESSIONS[sessions, rounds]:
        generator = np.random.default_rng(SEED)
        found = [proposed(noise, sessions, rounds, generator) for _ in range(files)]
        means = (f"{fmean(values):.3g}" for values in zip(*found, strict=True))
        above = sum(file.counted > MOST_A_YEAR for file in found)
        largest = max(file.counted for file in found)
        yield row(f"{noise}", *means, f"{largest:.1f}", f"{above} of {files}")


def lucky_table(files: int) -> Iterator[str]:
    """Yield the rows of a table of how far files are apart that come from the same noise."""
    yield from heading("sessions", "noise", "expected", "meant: mean, median, 95 %", "more than 1")
    for sessions, noise in LUCK:
        generator = np.random.default_rng(SEED)
        said, means = [], []
        for _ in range(files):
            of = observed(noise, sessions, 8, generator)
            rules = floors(of)
            said.append(expected(of, rules))
            means.append(meant(rules, noise))
        middle, high = np.quantile(means, [0.5, 0.95])
        more = f"{sum(mean > MOST_A_YEAR for mean in means)} of {files}"
        shares = f"{fmean(means):.2f}, {middle:.2g}, {high:.2g}"
        yield row(f"{sessions}", f"{noise}", f"{fmean(said):.2f}", shares, more)


def tables(files: int) -> Iterator[str]:
    """Yield the lines of all tables, of so many files a row."""
    yield f"{files} files a row, each of {CASES} cases, and {COUNTED:,} nights for each file"
    for sessions, rounds in SESSIONS:
        yield f"\n{sessions} sessions of {rounds} rounds\n"
        yield from table(sessions, rounds, files)
    yield "\nfiles from the same noise, by the formula\n"
    yield from lucky_table(5 * files)
