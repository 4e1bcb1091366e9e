"""Limits that `hvdperf thresholds propose` writes from simulated sessions: the false FAILs that
their file says, and those of nights without a change. `python -m bench rates thresholds` prints the
tables.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench import simulator
from bench.simulator import Array, Generator, Part, Table, drawn
from hvdperf.machine.host import Machine
from hvdperf.plan.comparisons import Question
from hvdperf.plan.thresholds import Case
from hvdperf.session import proposals
from hvdperf.session.proposals import NIGHTS
from hvdperf.verdict import Floor, Rule, Verdict

# The cases of a file, and the full looks of a night.
CASES, LOOKS = 60, (8, 12, 24)
# Nights by which a file's false FAILs are counted: five years.
COUNTED = 5 * NIGHTS
# Nights by which the share that PASSes, and that of a slower build that FAILs, are counted.
WHOLE = 20
# The most false FAILs a year that a file should cause.
MOST_A_YEAR = 1.0
SLOWER = 0.9
FIGURE = math.log(0.8)
# A number of sessions that leaves nothing open.
MANY = 10**9
# What nights do, and what rounds do.
Noise = tuple[Part, Part]
# The number of sessions from which a file is proposed, that of their rounds, and the noise.
Condition = tuple[int, int, Noise]
Observed = Mapping[Case, Sequence[Sequence[float]]]


class File(NamedTuple):
    """A proposed file. expected: the false FAILs of a year that it says. meant: those of normal
    noise of which everything is known. counted: those of simulated nights, a year. limit: the
    median floor, as a share of the true figure. passed: the share of nights on which every case
    PASSes. found: the share of cases that are 10 % slower, and FAIL."""

    expected: float
    meant: float
    counted: float
    limit: float
    passed: float
    found: float


def noise(
    rounds: float,
    nights: float,
    common: bool = False,
    values: simulator.Values = simulator.normal,
    correlation: float = 0.0,
) -> Noise:
    """Return the noise of a machine. rounds, nights: standard deviations of ln ratio of a round,
    and of a night in addition. common: whether a night is the same for all cases. values: of
    nights. correlation: between a round and the next one."""
    of_nights = Part(nights, ("night",) if common else ("night", "case"), values)
    return of_nights, Part(rounds, ("night", "case", "round"), near={"round": correlation})


def draw(parts: Noise, generator: Generator, nights: int, rounds: int) -> Array:
    """Return the ln ratios of CASES, [night, case, round]."""
    axes = {"night": nights, "case": CASES, "round": rounds}
    return FIGURE + drawn(generator, axes, *parts)


def observed(condition: Condition, generator: Generator) -> Observed:
    """Return the ln ratios of each case, by session, of simulated sessions."""
    sessions, rounds, parts = condition
    values = draw(parts, generator, sessions, rounds)
    cases = [Case(Question.WEAK_SCALING, "vgg_16", at + 2, 1) for at in range(CASES)]
    return {case: values[:, at].tolist() for at, case in enumerate(cases)}


def floors(of: Observed) -> list[Floor]:
    """Return the floors of the file that is proposed from these sessions."""
    text = proposals.propose(of, LOOKS, Machine("", (0,), cpu_model="made up"))
    return [Floor.at(float(value)) for value in tomllib.loads(text)["thresholds"].values()]


def proposed(condition: Condition, generator: Generator) -> File:
    """Propose a file from such sessions, and judge nights by it."""
    of = observed(condition, generator)
    rules = floors(of)
    nights = draw(condition[-1], generator, COUNTED, LOOKS[-1])
    whole = nights[:WHOLE]
    return File(
        proposals.of_year(zip(rules, map(proposals.scatter, of.values()), strict=True), LOOKS),
        meant(rules, condition[-1]),
        float((judged(rules, nights) == Verdict.FAIL).sum()) * NIGHTS / COUNTED,
        median(rule.fail_below for rule in rules) / math.exp(FIGURE),
        float((judged(rules, whole) == Verdict.PASS).all(axis=1).mean()),
        float((judged(rules, whole + math.log(SLOWER)) == Verdict.FAIL).mean()),
    )


def meant(rules: Sequence[Rule], parts: Noise) -> float:
    """Return the false FAILs of a year that the rules mean, by the formula of
    hvdperf.session.proposals."""
    of_nights, of_rounds = (part.sd**2 for part in parts)
    known = proposals.Scatter(MANY, FIGURE, of_nights + of_rounds, of_rounds, MANY, 1)
    return proposals.of_year(((rule, known) for rule in rules), LOOKS)


def judged(rules: Sequence[Floor], nights: Array) -> npt.NDArray[Any]:
    """Return the verdicts of nights, [night, case], by the first look that decides. Early looks are
    left out, because they only add PASSes. nights: ln ratios, [night, case, round]."""
    floors = [(rule.fail_below, rule.pass_from) for rule in rules]
    fail_below, pass_from = np.tile(np.log(floors).T, len(nights))
    found, _ = simulator.verdicts(nights.reshape(-1, nights.shape[2]), fail_below, pass_from, LOOKS)
    return np.array(found).reshape(nights.shape[:2])


def cells(condition: Condition, files: int) -> Iterator[str]:
    generator = np.random.default_rng(simulator.SEED)
    found = [proposed(condition, generator) for _ in range(files)]
    yield from (f"{fmean(values):.3g}" for values in zip(*found, strict=True))
    yield f"{max(file.counted for file in found):.1f}"
    yield f"{sum(file.counted > MOST_A_YEAR for file in found)} of {files}"


NORMAL = {
    f"{100 * rounds:.1f} %; {100 * nights:g} %": noise(rounds, nights)
    for rounds, nights in product((0.026, 0.045, 0.071), (0.0, 0.005, 0.01, 0.03))
}
OTHER = {
    "2.6 %; 1 %, nights are the same for all cases": noise(0.026, 0.01, common=True),
    "2.6 %; 1 %, nights of Student t5": noise(0.026, 0.01, values=simulator.student(5)),
    "2.6 %; 1 %, rounds correlate by 0.3": noise(0.026, 0.01, correlation=0.3),
}
TABLE = Table(
    (
        *("rounds: sd; nights differ by", "expected", "by the formula", "counted"),
        *("limit / figure", "nights that PASS", "10 % slower: FAIL"),
        *("largest count", f"files above {MOST_A_YEAR:g}"),
    ),
    {
        f"{sessions} sessions of {rounds} rounds; {name}": (sessions, rounds, parts)
        for sessions, rounds in ((12, 8), (8, 8), (12, 3))
        for name, parts in (NORMAL | OTHER).items()
    },
    cells,
)
