"""Which losses are found, and how often something is found that is not there: tables of simulated
years that the suite itself judges, of throughputs that fall and of a gate's cases, and of
allocations with a bad node. `python -m bench rates falls nodes gate vet` prints them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, stdtrit

from bench.sessions import Array, Generator, Part, drawn, normal, student
from docs.markdown import heading, row
from hvdperf.interim import EARLY, EARLY_LOOKS, PRIOR_ROUNDS, fail_alpha
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Row
from hvdperf.session.proposals import NIGHTS
from hvdperf.stats import bound_depth
from hvdperf.timeline.nights.gate import FEWEST, CaseOverNights, NightNoise
from hvdperf.timeline.nights.gate import NIGHTS as TOGETHER
from hvdperf.timeline.nights.speed import Key, Scope, UsualSpeeds
from hvdperf.verdict import REGRESSION, Verdict
from hvdperf.vet import judge as vet
from hvdperf.vet.commands import ROUNDS
from hvdperf.vet.nodes import schedule

# [night, simulation].
Judged = npt.NDArray[np.bool_]

NETWORKS = tuple(f"network_{number}" for number in range(15))
NODES = tuple(f"gpu{number:02}" for number in range(16))
# Nights of a gate without a change, by which it is known how they differ.
BEFORE = 2 * FEWEST
FAIL_BELOW, PASS_FROM = math.log(REGRESSION.fail_below), math.log(REGRESSION.pass_from)


class Loss(NamedTuple):
    """A planted loss. throughputs, nodes: which of them have it. names: whose fall finds it; "" for
    that of all."""

    factor: float
    throughputs: slice = slice(None)
    nodes: slice = slice(None)
    names: Collection[str] = ("", NETWORKS[0])


def throughputs(networks: Sequence[str], sizes: Sequence[int]) -> tuple[Key, ...]:
    return tuple(Key(Scope.THROUGHPUT, *each) for each in product(networks, sizes))


@dataclass(frozen=True)
class Throughputs:
    """How the throughputs of nights differ.

    own, of_all, of_node: standard deviations of what a night does to each throughput alone, to all,
    and to each node. tail: degrees of freedom of Student's t for these. nodes: their names; "" for
    one session of all. keys: of each node. launch: standard deviation of one of three launches,
    whose tails are heavy. weekend: factor. missing: share of each node's nights; by default 5 % are
    missing, and 3 % disturbed, which tell no more. latest: a loss begins from the 60th night on,
    and before this one. correlation: of one night and the next.
    """

    own: float
    of_all: float = 0.0
    of_node: float = 0.0
    tail: int = 10**6  # which is as good as normal
    nodes: Sequence[str] = ("",)
    keys: Sequence[Key] = throughputs(NETWORKS, (1, 2, 4, 8))
    launch: float = 0.02
    weekend: float = 1.02
    missing: float = 1 - 0.95 * 0.97
    latest: int = 200
    correlation: float = 0.3

    def judged(self, count: int, loss: Loss | None = None) -> tuple[Judged, Judged]:
        """Return whether throughputs have fallen, also while a night is missing, and on which
        nights they were measured so: in so many years without a loss, or on the first three nights
        of so many losses."""
        on, red = np.array([list(self._nights(seed, loss)) for seed in range(count)]).T
        return on, red

    def _nights(self, seed: int, loss: Loss | None) -> Iterator[tuple[bool, bool]]:
        generator = np.random.default_rng(seed)
        first = int(generator.integers(60, self.latest))
        count = NIGHTS if loss is None else first + 3
        axes = {"night": count, "node": len(self.nodes), "key": len(self.keys)}
        launches = axes | {"launch": 3}
        figures = np.median(
            drawn(generator, launches, Part(self.launch, tuple(launches), student(3))), axis=3
        )
        of_all, of_node, own = ("night",), ("night", "node"), tuple(axes)
        of_nights = ((self.own, own), (self.of_node, of_node), (self.of_all, of_all))
        near = {"night": self.correlation}
        parts = (Part(sd, over, student(self.tail), near) for sd, over in of_nights)
        figures = figures + drawn(generator, axes, *parts)
        figures[np.arange(count) % 7 >= 5] += math.log(self.weekend)
        measures = generator.random(figures.shape[:2]) >= self.missing
        if loss is not None:
            figures[first:, loss.nodes, loss.throughputs] += math.log(loss.factor)
            measures[first:] = True
        usual, on = UsualSpeeds(), False
        for night in range(count):
            measured = {
                self.nodes[at]: dict(zip(self.keys, np.exp(figures[night, at]), strict=True))
                for at in np.flatnonzero(measures[night])
            }
            if measured:
                speeds = usual.compare(measured, night % 7 >= 5)
                fell = [key for key, speed in speeds.items() if speed.fell]
                slow = {key.name for key in fell if key.scope is Scope.NODE}
                if len(slow) == len(fell):
                    usual.keep(without=slow)
                on = any(loss is None or key.name in loss.names for key in fell)
            if loss is None or night >= first:
                yield on, on and bool(measured)


@dataclass(frozen=True)
class Gate:
    """The noise of 60 cases of two stacks (hvdperf.timeline.nights.gate judges them over nights).

    sd: of the ln ratio of a round, which has four turns; all is normal. launches: the part of it
    that turns do not explain. nights: the standard deviation of what a night does to a case beyond
    its rounds. rounds: the correlation of a round and the next one. looks: the full ones.
    """

    sd: float
    launches: float
    nights: float = 0.0
    rounds: float = 0.0
    looks: Sequence[int] = (8, 12, 24)

    def judged(self, count: int, loss: Loss | None = None) -> tuple[Judged, Judged]:
        """Return whether cases are an alarm, and whether they FAIL by one night, as Throughputs
        does."""
        generator = np.random.default_rng(1)
        lost = [0.0] * NIGHTS if loss is None else [math.log(loss.factor)] * TOGETHER
        cases = [CaseOverNights() for _ in range(60 * count if loss is None else count)]
        known, on, red = NightNoise(), *np.zeros((2, BEFORE + len(lost), len(cases)), dtype=bool)
        for night, of_all in enumerate([0.0] * BEFORE + lost):
            of_cases = of_all + self.nights * normal(generator, (len(cases),))
            rows = self.rows(self.turns(of_cases, generator))
            failed = [at for at, row in enumerate(rows) if row.verdict is Verdict.FAIL]
            second = self.rows(self.turns(of_cases[failed], generator))
            again = dict(zip(failed, second, strict=True))
            red[night, failed] = True
            limits = known.limits
            for at, (case, own) in enumerate(zip(cases, rows, strict=True)):
                on[night, at] = case.judge(own, again.get(at), limits).verdict is Verdict.FAIL
            known.add({f"{at}": own.observations for at, own in enumerate(rows)})
        return on[BEFORE:], red[BEFORE:]

    def turns(self, of_cases: Array, generator: Generator) -> Array:
        """Return ln ratios of all turns, [case, round, turn]. of_cases: what the night does to
        each, in ln."""
        axes = {"case": len(of_cases), "round": self.looks[-1], "turn": 4}
        # The variance of the median of four turns is 0.298 of that of one.
        turn = math.sqrt((self.sd**2 - self.launches**2) / 0.298)
        near = {"round": self.rounds}
        launches = Part(self.launches, ("case", "round"), near=near)
        turns = drawn(generator, axes, launches, Part(turn, tuple(axes), near=near))
        return turns + of_cases[:, None, None]

    def rows(self, turns: Array) -> list[Row]:
        """Judge cases. Figures and bounds are made up: over nights only those of what FAILs count,
        and that is judged again by the rounds of two sessions. turns: [case, round, turn]."""
        observations = np.median(turns, axis=2)

        def early(cases: npt.NDArray[np.int_], look: int) -> Array:
            return early_lower(turns[cases, :look], max(0.02, self.launches))

        judged = verdicts(observations, FAIL_BELOW, PASS_FROM, self.looks, early)
        place = "case", Question.WEAK_SCALING, "network", 8
        return [
            Row(*place, verdict, 1.0, 1.0, 1.0, None, count, "", tuple(values[:count]))
            for verdict, count, values in zip(*judged, observations.tolist(), strict=True)
        ]


def verdicts(
    values: Array,
    fail_below: float | Array,
    pass_from: float | Array,
    looks: Sequence[int],
    early: Callable[[npt.NDArray[np.int_], int], Array] | None = None,
) -> tuple[list[Verdict], list[int]]:
    """Judge cases as hvdperf.interim does, in a tenth of the time. Return their verdicts, and the
    rounds that these take. values: ln ratios, [case, round]. fail_below, pass_from: the limits in
    ln, of each case or of all. early: returns the lower bounds of these cases at an early look;
    None if there are no early looks."""
    fail_below, pass_from = (
        np.broadcast_to(limit, len(values))[:, None] for limit in (fail_below, pass_from)
    )
    found, rounds = np.full(len(values), Verdict.INCONCLUSIVE), np.full(len(values), looks[-1])
    left = np.arange(len(values))
    for look in (*(EARLY_LOOKS if early else ()), *looks):
        rows = values[left, :look]
        # At an early look the depth is 0, so nothing FAILs.
        depth = bound_depth(look, fail_alpha(look, REGRESSION.alpha, looks))
        fails = averages_below(fail_below[left] - rows) < depth
        if early is not None and look in EARLY_LOOKS:
            passes = early(left, look) >= pass_from[left, 0]
        else:
            depth = bound_depth(look, REGRESSION.alpha)
            passes = averages_below(rows - pass_from[left]) < depth
        found[left[passes]] = Verdict.PASS
        found[left[fails]] = Verdict.FAIL
        rounds[left[passes | fails]] = look
        left = left[~(passes | fails)]
    return found.tolist(), rounds.tolist()


def averages_below(values: Array) -> Array:
    """Return how many averages of two of each row are below 0, which is the sum of the ranks of the
    values that are. values: [case, round]."""
    ordered = np.take_along_axis(values, np.abs(values).argsort(axis=1), axis=1)
    found: Array = ((ordered < 0) * np.arange(1.0, values.shape[1] + 1)).sum(axis=1)
    return found


def early_lower(turns: Array, launch_sd: float) -> Array:
    """Return the lower bounds of an early look, in ln, as hvdperf.interim.early_interval does."""
    _, look, each = turns.shape
    values, freedom = np.median(turns, axis=2), PRIOR_ROUNDS + look - 1
    floor = launch_sd**2 + 2 * turns.var(axis=2, ddof=1).mean(axis=1) / each
    pooled = (PRIOR_ROUNDS * floor + (look - 1) * values.var(axis=1, ddof=1)) / freedom
    error = np.sqrt(np.maximum(floor, pooled) / look)
    found: Array = values.mean(axis=1) - stdtrit(freedom, 1 - EARLY * REGRESSION.alpha) * error
    return found


Simulated = Throughputs | Gate
HALF = math.sqrt(0.5)
FALLS = {
    "1.5 %": Throughputs(0.015),
    "1.5 %, 50 % of it common": Throughputs(0.015 * HALF, 0.015 * HALF),
    "3 %": Throughputs(0.03),
    "3 %, 50 % of it common": Throughputs(0.03 * HALF, 0.03 * HALF),
    "3 %, Student t5": Throughputs(0.03, tail=5),
    "3 %, Student t3": Throughputs(0.03, tail=3),
    "1.5 % of all, 0.7 % of each; correlation 0.7": Throughputs(0.007, 0.015, correlation=0.7),
    "the same, correlation 0.3, Student t5": Throughputs(0.007, 0.015, tail=5),
}
# Each part of a night differs by so much.
NODE_KEYS = throughputs(NETWORKS[:4], (1, 8))
FALLS_OF_NODES = {
    name: Throughputs(sd, sd, sd, tail, NODES, NODE_KEYS, 0.0, 1.0, 0.03, 61)
    for name, sd, tail in (("1 %", 0.01, 10**6), ("2 %", 0.02, 10**6), ("1 %, t5", 0.01, 5))
}
# The noise of a round, and the part of it that turns do not explain: quiet, A and B of the other
# tables, and in between.
QUIET, A, B = (0.026, 0.015), (0.071, 0.0), (0.13, 0.108)
BETWEEN = (0.045, 0.015), (0.055, 0.015)
# By how much nights differ, and the correlation of rounds.
DIFFER = ((0.0, 0.0), (0.005, 0.0), (0.01, 0.0), (0.015, 0.0), (0.02, 0.0), (0.0, 0.2))
GATES = {
    f"{100 * nights:g} %; rounds by {100 * machine[0]:g} %, r = {rounds:g}; looks {looks}": Gate(
        *machine, nights, rounds, looks
    )
    for looks in ((8, 12, 24), (8, 12))
    for machine in (QUIET, *BETWEEN, A, B)
    for nights, rounds in (DIFFER[:1] if machine is B else DIFFER)
}


def planted(what: str, *percents: int, **where: Any) -> dict[str, Loss]:
    """Return losses of these sizes, by name. where: as Loss has it."""
    return {f"{what} -{percent} %": Loss(1 - percent / 100, **where) for percent in percents}


LOSSES = (
    planted("all", 50, 15, 5)
    | planted("one network", 50, 15, 5, throughputs=slice(4))
    | planted("one throughput", 50, 15, 5, throughputs=slice(2, 3))
)
OF_NODES = planted("a node", 8, 15, nodes=slice(3, 4), names=NODES[3:4]) | planted("all", 5, 15)
# By name: the noises, the losses, and how many of each are tried for a year without one.
TABLES: Mapping[str, tuple[Mapping[str, Simulated], Mapping[str, Loss], int]] = {
    "falls": (FALLS, LOSSES, 2),
    "nodes": (FALLS_OF_NODES, OF_NODES, 4),
    "gate": (GATES, planted("all", 3, 5, 7, 10, 15, 50), 40),
}


def false_events(condition: Simulated, years: int) -> tuple[int, int]:
    """Return how many times something began in years without a loss, and how many nights FAIL by
    themselves: it may last for months."""
    on, red = condition.judged(years)
    return int((on & np.diff(on, axis=0, prepend=False)).sum()), int(red.sum())


def found(condition: Simulated, loss: Loss, tries: int) -> tuple[float, float]:
    """Return the shares of losses that are found on the first night, and within three."""
    on, _ = condition.judged(tries, loss)
    return float(on[0].mean()), float(on.any(axis=0).mean())


def at_most(count: int, years: int) -> float:
    """Return the upper limit (95 %) of a rate a year of which so many were seen (Poisson)."""
    return float(chdtri(2 * count + 2, 0.05)) / 2 / years


def table(name: str, years: int) -> Iterator[str]:
    """Yield the rows of a table of TABLES: what is found in years without a loss, and the shares of
    losses, in %, that are found on the first night, and within three."""
    conditions, losses, tries = TABLES[name]
    events = f"false events in {years} years (a year, upper limit 95 %)"
    yield from heading("nights differ by", events, "FAILs a year by one night each", *losses)
    for differ, condition in conditions.items():
        count, red = false_events(condition, years)
        shares = (found(condition, loss, tries * years) for loss in losses.values())
        cells = (f"{100 * first:.3g}, {100 * three:.3g}" for first, three in shares)
        yield row(differ, f"{count} ({at_most(count, years):.2f})", f"{red / years:.1f}", *cells)


# Allocations with a bad node --------------------------------------------------------------------

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
    rates: Array = np.exp(drawn(generator, axes, *parts))
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
    return vet.Measured(ALLOCATED, dict.fromkeys(ALLOCATED, "simulated"), {}, digests, rounds, 0.0)


def vet_table(times: int) -> Iterator[str]:
    """Yield the rows of a table: how often `hvdperf vet` names the bad node of an allocation, and a
    good one."""
    states = vet.State.SLOW, vet.State.UNDECIDED
    others = (f"another one {state.value}" for state in states)
    yield from heading("speed; link of the bad node", "SLOW", "UNDECIDED", *others, "of")
    for speed, link in BAD:
        counts: Counter[tuple[bool, vet.State]] = Counter()
        for seed in range(times):
            found = vet.judge(allocation(speed, link, seed))
            counts.update({(each.node == ALLOCATED[0], each.state) for each in found})
        cells = (f"{counts[is_bad, state]}" for is_bad in (True, False) for state in states)
        yield row(f"{speed:g}; {link:g}", *cells, f"{times}")
