"""Nights of made-up years: which of the lasting changes that are planted there are found, and how
many false FAILs proposed thresholds give. `python -m bench rates changes thresholds` prints the
tables.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain, product
from statistics import fmean, median, median_high
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

from bench.losses import verdicts
from bench.sessions import SEED, Array, Generator, Part, drawn, normal, student
from docs.markdown import heading, row
from hvdperf.machine.host import Machine
from hvdperf.plan.comparisons import Question
from hvdperf.plan.thresholds import Case, proposed_rule
from hvdperf.records.documents import SUMMARY_FORMAT, Kind, Limit, Result, Row, Summary
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.session import proposals
from hvdperf.session.proposals import MOST_A_YEAR, NIGHTS, Scatter
from hvdperf.timeline.lines import Change
from hvdperf.timeline.nights.changes import findings
from hvdperf.timeline.nights.night import FORMAT, Night
from hvdperf.verdict import Floor, Rule, Verdict

FIRST = datetime(2025, 11, 24, 1, tzinfo=UTC)
# On the bad ones throughputs are 8 % lower.
GOOD, BAD = ("gpu-01", "gpu-02"), (("gpu-01", "gpu-07"), ("gpu-01", "gpu-09"))
NAMED = ("gpu-07",), ("gpu-09",)


@dataclass(frozen=True)
class Year:
    """What is planted in a year.

    noise: standard deviation between nights. steps: night -> factor of the lines of the first
    network. drift: factor of the second network's lines at the end of the year. missing: nights
    without a document. bad: nights on each of the two bad nodes. weekend: factor of
    throughputs on Saturdays and Sundays.
    """

    noise: float
    steps: Mapping[int, float] = field(default_factory=lambda: {90: 0.97, 180: 0.95, 270: 0.90})
    drift: float = 0.96
    missing: Sequence[int] = tuple(range(40, 50))
    bad: Sequence[Sequence[int]] = ((60, 121, 122, 200), (30, 150, 251, 310))
    weekend: float = 1.0
    networks: int = 15
    world_sizes: tuple[int, ...] = (1, 2, 4, 8)


def fingerprint(driver: str = "535.129.03") -> Fingerprint:
    """Return the fingerprint of a made-up node of 8 GPUs."""
    # Some value of each kind; any other is a text.
    some: dict[object, object] = {list[str]: [], int: 1, float | None: None}
    values = {name: some.get(kind, "x") for name, kind in get_type_hints(Fingerprint).items()}
    known = {"gpus": 8, "gpu_model": ["NVIDIA A100-SXM4-40GB"], "gpu_driver": [driver]}
    return Fingerprint(**{**values, **known})  # type: ignore[typeddict-item]


def nights(year: Year, seed: int) -> list[Night]:
    """Return the nights of a made-up year, a throughput and a figure for every network and world
    size."""
    noise = random.Random(seed)
    return [_night(year, index, noise) for index in range(NIGHTS) if index not in set(year.missing)]


def _night(year: Year, index: int, noise: random.Random) -> Night:
    began = FIRST + timedelta(days=index)
    bad = next((node for node, at in zip(BAD, year.bad, strict=True) if index in at), None)
    usual = (0.92 if bad else 1.0) * (year.weekend if began.weekday() >= 5 else 1.0)
    stepped = math.prod(size for at, size in year.steps.items() if index >= at)
    planted = {0: stepped, 1: year.drift ** (index / NIGHTS)}
    rows, results = [], []
    for network, size in product(range(year.networks), year.world_sizes):
        model, factor = f"network_{network}", usual * planted.get(network, 1.0)
        speed = 400.0 * size * factor * math.exp(noise.gauss(0, year.noise))
        launches = tuple(speed * math.exp(noise.gauss(0, 0.002)) for _ in range(3))
        results.append(Result(Measure.SPEED, model, size, launches))
        figure = 0.9 * math.exp(noise.gauss(0, year.noise))
        place = f"weak_scaling[{model}-np{size}]", Question.WEAK_SCALING, model, size
        bounds = figure, figure * 0.98, figure * 1.02
        rows.append(Row(*place, Verdict.PASS, *bounds, Limit(0.8, None), 3, ""))
    machine = bad or GOOD, fingerprint("535.129.03" if index < 180 else "550.54.15")
    session = f"{began:%Y%m%dT%H%M%SZ}-1"
    ended = began + timedelta(minutes=50)
    head = SUMMARY_FORMAT, session, ended, Kind.OWN, 0, 50.0
    part = Summary(*head, *machine, {}, tuple(rows), tuple(results))
    command = "pytest perf/ --profile=nightly-gpu"
    return Night(FORMAT, "a100", began.date(), began, command, parts=(part,), ended_at=ended)


def changes(years: int) -> Iterator[str]:
    """Yield the rows of a table: what is found of what is planted in so many years, in how many
    lines; of steps also after how many nights."""
    steps = (f"{percent} %: found; after nights (most) in lines" for percent in (-3, -5, -10))
    planted = ("drift: steps found", "slow nodes found, other nodes named", "false changes")
    yield from heading("noise", *steps, *planted)
    for noise in (0.01, 0.02, 0.03):
        yield row(f"{100 * noise:.0f} %", *_planted(Year(noise), years))


def _planted(year: Year, years: int) -> Iterator[str]:
    found = [findings(nights(year, seed)) for seed in range(years)]
    causes = Counter(_cause(change, year) for each in found for change in each.changes)
    lines = years * len(year.world_sizes)
    for at in year.steps:
        after = [delay for seed in range(years) for delay in _delays(year, seed, at)]
        delays = f"{median_high(after)} ({max(after)}) in {len(after)}" if after else "-"
        yield f"{causes[at]} of {lines}; {delays}"
    yield f"{causes['drift']} in {lines}"
    named = [node.hosts in NAMED for each in found for node in each.nodes]
    yield f"{sum(named)} of {2 * years}, {len(named) - sum(named)}"
    yield f"{causes[None]} in {2 * year.networks * lines}"


def _cause(change: Change, year: Year) -> object:
    """Return the night of the step that a change is, or "drift"; None if it was not planted."""
    index = (date.fromisoformat(change.since) - FIRST.date()).days
    step = next((at for at in year.steps if abs(at - index) <= 7), None)
    planted = {"throughput[network_0": step, "throughput[network_1": "drift"}
    return planted.get(change.line.name.partition("-")[0])


def _delays(year: Year, seed: int, at: int) -> Collection[int]:
    """Return after how many measured nights a step is first seen, looked for night by night, for
    each line that sees it within 60."""
    made = nights(replace(year, networks=1), seed)
    before = sum((night.began_at - FIRST).days < at for night in made)
    found: dict[str, int] = {}
    for seen in range(3, 61):
        if len(found) < len(year.world_sizes):
            told = findings(made[: before + seen]).changes
            names = [change.line.name for change in told if _cause(change, year) == at]
            found = dict.fromkeys(names, seen) | found
    return found.values()


# Proposed thresholds: the false FAILs that a file says, and those of nights without a change ------

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
USUAL, ALIKE = Noise(0.026, 0.02), Noise(0.026, 0.02, common=True)
LUCK = ((8, USUAL), (12, USUAL), (12, Noise(0.071, 0.01)), (12, ALIKE))
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
    return File(
        expected(of, rules),
        false_fails(rules, nights) * NIGHTS / COUNTED,
        expected(of, narrow),
        false_fails(narrow, nights[:NIGHTS]),
        median(rule.fail_below for rule in rules if isinstance(rule, Floor)) / math.exp(FIGURE),
        float((judged(rules, whole) == Verdict.PASS).all(axis=1).mean()),
        float((judged(rules, whole + math.log(SLOWER)) == Verdict.FAIL).mean()),
    )


def meant(rules: Sequence[Rule], noise: Noise) -> float:
    """Return the false FAILs of a year that the rules mean at normal noise of which everything is
    known, by the formula of hvdperf.session.proposals."""
    known = Scatter(MANY, FIGURE, noise.nights**2 + noise.rounds**2, noise.rounds**2, MANY, 1)
    return proposals.of_year(((rule, known) for rule in rules), LOOKS)


def judged(rules: Sequence[Rule], nights: Array) -> npt.NDArray[Any]:
    """Return the verdicts of nights, [night, case], by the first look that decides. Early looks are
    left out, because they only add PASSes. nights: ln ratios, [night, case, round]."""
    floors = [(rule.fail_below, rule.pass_from) for rule in rules if isinstance(rule, Floor)]
    fail_below, pass_from = np.tile(np.log(floors).T, len(nights))
    found, _ = verdicts(nights.reshape(-1, nights.shape[2]), fail_below, pass_from, LOOKS)
    return np.array(found).reshape(nights.shape[:2])


def false_fails(rules: Sequence[Rule], nights: Array) -> int:
    return int((judged(rules, nights) == Verdict.FAIL).sum())


def file_table(sessions: int, rounds: int, files: int) -> Iterator[str]:
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


def file_tables(files: int) -> Iterator[str]:
    """Yield the lines of all tables, of so many files a row."""
    yield f"{files} files a row, each of {CASES} cases, and {COUNTED:,} nights for each file"
    for sessions, rounds in SESSIONS:
        yield f"\n{sessions} sessions of {rounds} rounds\n"
        yield from file_table(sessions, rounds, files)
    yield "\nfiles from the same noise, by the formula\n"
    yield from lucky_table(5 * files)
