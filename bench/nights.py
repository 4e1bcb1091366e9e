"""Nights of made-up years, judged by the suite's own code: which losses and lasting changes are
found there, and how often something is found that is not there; and allocations with a bad node.
`python -m bench rates falls nodes gate changes vet` prints the tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from scipy.special import chdtri

from bench import simulator
from bench.simulator import Array, Generator, Part, Table, drawn
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import SUMMARY_FORMAT, Kind, Limit, Result, Row, Summary
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.session.proposals import NIGHTS
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import FORMAT, Night
from hvdperf.timeline.nights.series import Series
from hvdperf.verdict import REGRESSION, Verdict
from hvdperf.vet import judge as vet
from hvdperf.vet.commands import ROUNDS
from hvdperf.vet.nodes import schedule

FIRST = datetime(2025, 11, 24, 1, tzinfo=UTC)
NETWORKS = tuple(f"network_{number}" for number in range(15))
GOOD = ("gpu-01", "gpu-02")


def night(index: int, *parts: Summary) -> Night:
    """Return a night with these sessions."""
    began = FIRST + timedelta(days=index)
    command, ended = "pytest perf/ --profile=nightly-gpu", began + timedelta(minutes=50)
    return Night(FORMAT, "a100", began.date(), began, command, parts=parts, ended_at=ended)


def summary(
    index: int,
    rows: Sequence[Row] = (),
    results: Sequence[Result] = (),
    kind: Kind = Kind.OWN,
    hosts: tuple[str, ...] = GOOD,
    node: str = "",
) -> Summary:
    """Return a session of a night. Half a year has the old driver."""
    began = FIRST + timedelta(days=index)
    session, ended = f"{began:%Y%m%dT%H%M%SZ}-1", began + timedelta(minutes=50)
    head = SUMMARY_FORMAT, session, ended, kind, 0, 50.0
    machine = hosts, fingerprint("535.129.03" if index < 180 else "550.54.15")
    return Summary(*head, *machine, {}, tuple(rows), tuple(results), node=node)


def fingerprint(driver: str = "535.129.03") -> Fingerprint:
    """Return the fingerprint of a made-up node of 8 GPUs."""
    # Some value of each kind; any other is a text.
    some: dict[object, object] = {list[str]: [], int: 1, float | None: None}
    values = {name: some.get(kind, "x") for name, kind in get_type_hints(Fingerprint).items()}
    known = {"gpus": 8, "gpu_model": ["NVIDIA A100-SXM4-40GB"], "gpu_driver": [driver]}
    return Fingerprint(**{**values, **known})  # type: ignore[typeddict-item]


# Throughputs that fall ---------------------------------------------------------------------------


class Loss(NamedTuple):
    """A planted loss. throughputs, nodes: which of them have it. names: whose fall finds it; "" for
    that of all. nights: the number of nights on which it is looked for."""

    factor: float
    throughputs: slice = slice(None)
    nodes: slice = slice(None)
    names: Set[str] = frozenset(("", NETWORKS[0]))
    nights: int = 3


# What is red on a night: the number of the year or loss, or the name of the case, and what says
# that it is the same as on the night before.
Red = set[tuple[object, object]]
# Yields what is red: the index of the night, the names, and what says that it is still the same.
Decider = Callable[[Sequence[Night]], Iterable[tuple[int, Set[str], object]]]


def falls(nights: Sequence[Night]) -> Iterator[tuple[int, Set[str], object]]:
    for at, fall in judge_speeds(nights).falls.items():
        yield at, {key.name for _, key in fall.what}, fall.since.night


def lasting_changes(nights: Sequence[Night]) -> Iterator[tuple[int, Set[str], object]]:
    """Yield what is known on the last night."""
    for each in Series("", nights).found.changes:
        yield len(nights) - 1, {each.line.model}, (each.line.name, each.at)


def differing(
    own: float,
    of_all: float = 0.0,
    of_node: float = 0.0,
    tail: int = 10**6,  # which is as good as normal
    correlation: float = 0.3,
) -> tuple[Part, ...]:
    """Return what a night does to each throughput alone, to each node, and to all. tail: degrees of
    freedom of Student's t. correlation: of one night and the next."""
    how = simulator.student(tail), {"night": correlation}
    return (
        Part(own, ("night", "node", "key"), *how),
        Part(of_node, ("night", "node"), *how),
        Part(of_all, ("night",), *how),
    )


@dataclass(frozen=True)
class Throughputs:
    """How the throughputs of nights differ.

    noise: of nights. nodes: their names; "" for one session of all. launch: standard deviation of
    one of three launches, whose tails are heavy. weekend: factor. missing: share of each node's
    nights; by default 5 % are missing, and 3 % disturbed, which tell no more. latest: a loss begins
    from the 60th night on, and before this one. decide: says what is red.
    """

    noise: Sequence[Part]
    nodes: Sequence[str] = ("",)
    keys: Sequence[tuple[str, int]] = tuple(product(NETWORKS, (1, 2, 4, 8)))
    launch: float = 0.02
    weekend: float = 1.02
    missing: float = 1 - 0.95 * 0.97
    latest: int = 200
    decide: Decider = falls

    def judged(self, count: int, loss: Loss | None = None) -> tuple[list[Red], int]:
        """Return what is red in so many years without a loss, or on the first nights of so many
        losses, and on how many nights."""
        red: list[Red] = [set() for _ in range(NIGHTS if loss is None else loss.nights)]
        for seed in range(count):
            nights = self.nights(seed, loss)
            _add_red(red, seed, self.decide(nights), len(nights), loss)
        return red, sum(map(len, red))

    def nights(self, seed: int, loss: Loss | None = None) -> list[Night]:
        """Return a year, or the nights up to the last one of a loss, on which nothing is
        missing."""
        generator = np.random.default_rng(seed)
        first = int(generator.integers(60, self.latest))
        count = NIGHTS if loss is None else first + loss.nights
        axes = {"night": count, "node": len(self.nodes), "key": len(self.keys), "launch": 3}
        launches = Part(self.launch, tuple(axes), simulator.student(3))
        figures = np.median(drawn(generator, axes, launches, *self.noise), axis=3)
        figures[np.arange(count) % 7 >= 5] += math.log(self.weekend)
        measures = generator.random(figures.shape[:2]) >= self.missing
        if loss is not None:
            figures[first:, loss.nodes, loss.throughputs] += math.log(loss.factor)
            measures[first:] = True
        speeds = np.exp(figures).tolist()
        return [night(at, *self._parts(at, speeds[at], measures[at])) for at in range(count)]

    def _parts(
        self, index: int, speeds: Sequence[Sequence[float]], measures: Array
    ) -> Iterator[Summary]:
        for node, own, is_measured in zip(self.nodes, speeds, measures, strict=True):
            results = (
                Result(Measure.SPEED, *key, (speed,))
                for key, speed in zip(self.keys, own, strict=True)
            )
            if is_measured:
                hosts = (node,) if node else GOOD
                yield summary(index, results=tuple(results), hosts=hosts, node=node)


def _add_red(
    red: Sequence[Red],
    seed: int,
    found: Iterable[tuple[int, Set[str], object]],
    count: int,
    loss: Loss | None,
) -> None:
    """Add what was found on the last of so many nights."""
    for at, names, began in found:
        if at >= count - len(red) and (loss is None or loss.names & names):
            red[at - count].add((seed, began))


# The gate over nights ----------------------------------------------------------------------------

# The cases of a gate, and its nights before a loss.
CASES, BEFORE = 60, 40
FAIL_BELOW, PASS_FROM = math.log(REGRESSION.fail_below), math.log(REGRESSION.pass_from)


@dataclass(frozen=True)
class Gate:
    """The noise of CASES cases of two stacks.

    sd: of the ln ratio of a round, which has four turns; all is normal. launches: the part of it
    that turns do not explain. between: the standard deviation of what a night does to a case beyond
    its rounds. looks: the full ones.
    """

    sd: float
    launches: float
    between: float = 0.0
    looks: Sequence[int] = (8, 12, 24)

    def judged(self, count: int, loss: Loss | None = None) -> tuple[list[Red], int]:
        """Return what is red, as Throughputs does, and how many cases FAIL by one session."""
        red: list[Red] = [set() for _ in range(NIGHTS if loss is None else loss.nights)]
        failed = 0
        for seed in range(count):
            nights = self.nights(seed, loss)
            failed += sum(len(each.parts[-1].cases) for each in nights)
            _add_red(red, seed, falls(nights), len(nights), loss)
        return red, failed

    def nights(self, seed: int, loss: Loss | None = None) -> list[Night]:
        """Return a year, or the nights up to the last one of a loss. What FAILs is measured
        again."""
        generator, made = np.random.default_rng(seed), []
        for index in range(NIGHTS if loss is None else BEFORE + loss.nights):
            of_cases = self.between * simulator.normal(generator, (CASES,))
            if loss is not None and index >= BEFORE:
                of_cases[loss.throughputs] += math.log(loss.factor)
            rows = self.rows(self.turns(of_cases, generator), range(CASES))
            failed = [at for at, row in enumerate(rows) if row.verdict is Verdict.FAIL]
            again = self.rows(self.turns(of_cases[failed], generator), failed)
            kinds = (rows, Kind.GATE), (again, Kind.GATE_AGAIN)
            made.append(night(index, *(summary(index, own, kind=kind) for own, kind in kinds)))
        return made

    def turns(self, of_cases: Array, generator: Generator) -> Array:
        """Return ln ratios of all turns, [case, round, turn]. of_cases: what the night does to
        each, in ln."""
        axes = {"case": len(of_cases), "round": self.looks[-1], "turn": 4}
        # The variance of the median of four turns is 0.298 of that of one.
        turn = math.sqrt((self.sd**2 - self.launches**2) / 0.298)
        launches = Part(self.launches, ("case", "round"))
        turns = drawn(generator, axes, launches, Part(turn, tuple(axes)))
        return turns + of_cases[:, None, None]

    def rows(self, turns: Array, names: Sequence[int]) -> list[Row]:
        """Judge cases. Their bounds are made up: over nights only those of what FAILs count, and
        that is judged again by the rounds of two sessions. turns: [case, round, turn]."""
        observations = np.median(turns, axis=2)

        def early(cases: Any, look: int) -> Array:
            return simulator.early_lower(turns[cases, :look], max(0.02, self.launches))

        judged = simulator.verdicts(observations, FAIL_BELOW, PASS_FROM, self.looks, early)
        limit, rows = Limit(None, None), []
        for name, verdict, count, values in zip(names, *judged, observations.tolist(), strict=True):
            place = f"{name}", Question.WEAK_SCALING, "network", 8, verdict
            ratio = math.exp(fmean(values[:count]))
            bounds = ratio, ratio, ratio
            rows.append(Row(*place, *bounds, limit, count, "", tuple(values[:count])))
        return rows


# Tables ------------------------------------------------------------------------------------------

NAMED = tuple(f"gpu{number:02}" for number in range(16))
HALF = math.sqrt(0.5)
FALLING = {
    "1.5 %": Throughputs(differing(0.015)),
    "1.5 %, 50 % of it common": Throughputs(differing(0.015 * HALF, 0.015 * HALF)),
    "3 %": Throughputs(differing(0.03)),
    "3 %, 50 % of it common": Throughputs(differing(0.03 * HALF, 0.03 * HALF)),
    "3 %, Student t5": Throughputs(differing(0.03, tail=5)),
    "3 %, Student t3": Throughputs(differing(0.03, tail=3)),
    "1.5 % of all, 0.7 % of each; correlation 0.7": Throughputs(
        differing(0.007, 0.015, correlation=0.7)
    ),
    "the same, correlation 0.3, Student t5": Throughputs(differing(0.007, 0.015, tail=5)),
}
NODE_KEYS = tuple(product(NETWORKS[:4], (1, 8)))
# Each part of a night differs by so much.
FALLING_NODES = {
    name: Throughputs(differing(sd, sd, sd, tail), NAMED, NODE_KEYS, 0.0, 1.0, 0.03, 61)
    for name, sd, tail in (("1 %", 0.01, 10**6), ("2 %", 0.02, 10**6), ("1 %, t5", 0.01, 5))
}
# The noise of a round, and the part of it that turns do not explain: quiet, A and B of the other
# tables.
QUIET, A, B = (0.026, 0.015), (0.071, 0.0), (0.13, 0.108)
GATES = {
    f"{100 * nights:g} %; rounds by {100 * machine[0]:g} %": Gate(*machine, nights)
    for machine, nights in ((QUIET, 0.0), (QUIET, 0.01), (QUIET, 0.02), (A, 0.0), (B, 0.0))
}


def planted(what: str, *percents: int, **where: Any) -> dict[str, Loss]:
    """Return losses of these sizes, by name. where: as Loss has it."""
    return {f"{what} -{percent} %": Loss(1 - percent / 100, **where) for percent in percents}


LOSSES = (
    planted("all", 50, 15, 5)
    | planted("one network", 50, 15, 5, throughputs=slice(4))
    | planted("one throughput", 50, 15, 5, throughputs=slice(2, 3))
)
OF_NODES = planted("a node", 8, 15, nodes=slice(3, 4), names={NAMED[3]}) | planted("all", 5, 15)
OF_GATES = planted("all", 3, 5, 15) | planted(
    "one case", 5, 10, 15, 50, throughputs=slice(1), names={"0"}
)


CHANGING = {
    f"{name}, r = {rho:g}": Throughputs(
        differing(sd, correlation=rho), keys=NODE_KEYS, launch=0.002, decide=lasting_changes
    )
    for rho in (0.0, 0.3)
    for name, sd in (("1 %", 0.01), ("2 %", 0.02), ("3 %", 0.03))
}
# The nights after which a lasting change is looked for.
LASTS = (10, 60)
STEPS = {
    f"{name}, {nights} nights": loss._replace(nights=nights)
    for name, loss in planted("one network", 3, 5, 10, throughputs=slice(2)).items()
    for nights in LASTS
}


def false_events(condition: Throughputs | Gate, years: int) -> tuple[int, int]:
    """Return how many times something began in years without a loss, which may last for months, and
    how much FAILs by one night each."""
    red, failed = condition.judged(years)
    return len(set().union(*red)), failed


def found(condition: Throughputs | Gate, loss: Loss, tries: int) -> tuple[float, float]:
    """Return the shares of losses that are found on the first night, and on any."""
    red, _ = condition.judged(tries, loss)
    first, all_ = ({each for each, _ in of_nights} for of_nights in (red[0], set().union(*red)))
    return len(first) / tries, len(all_) / tries


def at_most(count: int, years: int) -> float:
    """Return the upper limit (95 %) of a rate a year of which so many were seen (Poisson)."""
    return float(chdtri(2 * count + 2, 0.05)) / 2 / years


def table(
    conditions: Mapping[str, Throughputs | Gate], losses: Mapping[str, Loss], a_year: int
) -> Table[Throughputs | Gate]:
    """Return a table of what is found in years without a loss, and of the shares of losses, in %,
    that are found on the first night, and within three. a_year: so many losses of each kind are
    tried for a year without one."""

    def cells(condition: Throughputs | Gate, years: int) -> Iterator[str]:
        count, failed = false_events(condition, years)
        yield f"{count} ({at_most(count, years):.2f})"
        yield f"{failed / years:.1f}"
        for loss in losses.values():
            shares = [f"{100 * share:.3g}" for share in found(condition, loss, a_year * years)]
            # A lasting change is not looked for on its first night.
            yield ", ".join(shares[loss.nights >= min(LASTS) :])

    events = "false events (a year, upper limit 95 %)", "FAILs a year by one night each"
    return Table(("nights differ by", *events, *losses), conditions, cells)


FALLS = table(FALLING, LOSSES, 2)
NODES = table(FALLING_NODES, OF_NODES, 4)
GATE = table(GATES, OF_GATES, 10)
CHANGES = table(CHANGING, STEPS, 4)


# Allocations with a bad node ---------------------------------------------------------------------

ALLOCATED = tuple(f"node{number}" for number in range(64))
TERMS = ("compute", "memory", vet.LINK)
# Standard deviations of ln speed: of a node for good, and of each of its rounds.
NODE_SD, ROUND_SD = 0.005, 0.03
# The speed of the bad node, and of its link.
BAD = ((1.0, 1.0), (0.95, 1.0), (0.93, 1.0), (0.9, 1.0), (0.8, 1.0), (1.0, 0.85), (1.0, 0.5))


def allocation(speed: float, link: float, seed: int) -> vet.Measured:
    """Return an allocation whose first node and its link are so fast."""
    generator = np.random.default_rng(seed)
    axes = {"round": ROUNDS, "term": len(TERMS), "node": len(ALLOCATED)}
    parts = Part(NODE_SD, ("term", "node")), Part(ROUND_SD, tuple(axes))
    rates = np.exp(drawn(generator, axes, *parts))
    rates[:, :, 0] *= [link if term == vet.LINK else speed for term in TERMS]
    rounds = []
    for of_round, pairs in zip(rates.tolist(), schedule(ALLOCATED, ROUNDS, seed), strict=True):
        by_term = {
            term: dict(zip(ALLOCATED, of_term, strict=True))
            for term, of_term in zip(TERMS, of_round, strict=True)
        }
        links = by_term.pop(vet.LINK)
        device = {term: dict.fromkeys(ALLOCATED, "CPU") for term in by_term}
        exchanged = [vet.Pair(pair, min(map(links.__getitem__, pair))) for pair in pairs]
        rounds.append(vet.Round(by_term, device, exchanged))
    digests = {node: [{"CPU": ""}] for node in ALLOCATED}
    return vet.Measured(ALLOCATED, dict.fromkeys(ALLOCATED, "simulated"), {}, digests, rounds)


def blamed(bad: tuple[float, float], times: int) -> Iterator[str]:
    counts: Counter[tuple[bool, Verdict]] = Counter()
    for seed in range(times):
        found = vet.judge(allocation(*bad, seed))
        counts.update({(each.node == ALLOCATED[0], each.verdict) for each in found})
    yield from (f"{counts[is_bad, verdict]}" for is_bad in (True, False) for verdict in VERDICTS)
    yield f"{times}"


VERDICTS = Verdict.FAIL, Verdict.INCONCLUSIVE
OTHERS = (f"another one {verdict.value}" for verdict in VERDICTS)
VET = Table(
    ("speed; link of the bad node", "FAIL", "INCONCLUSIVE", *OTHERS, "of"),
    {f"{speed:g}; {link:g}": (speed, link) for speed, link in BAD},
    blamed,
)
