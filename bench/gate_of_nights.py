"""How often the gate of a series alarms on nights on which nothing has changed, and which losses it
finds: the table of docs/error_rates.md, from simulated rounds.

    python -m bench.gate_of_nights --years 60

A night has 60 cases of two stacks (hvdperf.timeline.nights.gate judges them over nights). A round
has four turns. Rounds and turns are normal; "nights differ" is what a night does to a case, beyond
its rounds. The rule of a night is hvdperf.interim's, which takes a tenth of the time for all cases
together; a test compares both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from bench.falls import at_most, years_and_tries
from hvdperf.columns import Columns
from hvdperf.interim import EARLY, EARLY_LOOKS, PRIOR_ROUNDS, fail_alpha
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Row
from hvdperf.stats import bound_depth
from hvdperf.timeline.nights.gate import NIGHTS, CaseOverNights
from hvdperf.verdict import REGRESSION, Noise, Verdict

Array = npt.NDArray[np.float64]

NIGHTS_A_YEAR, CASES, TURNS = 365, 60, 4
# Nights that are drawn together, which keeps the memory small.
BLOCK = 73
# Variance of the median of four turns / variance of a turn.
OF_A_MEDIAN = 0.298
LOOKS = ((8, 12, 24), (8, 12))
# The figures of a year are drawn anew for each loss.
LOSSES = (0.03, 0.05, 0.07, 0.10, 0.15, 0.50)


@dataclass(frozen=True)
class Condition:
    """The noise of a machine. sd: of the ln ratio of a round. launches: the part of it that turns
    do not explain. nights: the standard deviation of what a night does to a case. rounds: the
    correlation of a round and the next one."""

    sd: float
    launches: float
    nights: float = 0.0
    rounds: float = 0.0

    def __str__(self) -> str:
        own = f"; rounds correlate by {self.rounds:g}" * bool(self.rounds)
        return f"{100 * self.sd:g} %; {100 * self.nights:g} %{own}"

    @property
    def noise(self) -> Noise:
        """Return what is known of it after some sessions."""
        return Noise(max(0.02, self.launches))

    def of_nights(self, count: int, loss: float, generator: np.random.Generator) -> Array:
        """Return what nights are to cases, in ln, one a case of a night."""
        found: Array = math.log1p(-loss) + self.nights * generator.standard_normal(count)
        return found

    def turns(self, of_nights: Array, rounds: int, generator: np.random.Generator) -> Array:
        """Return ln ratios of all turns, [case of a night, round, turn]."""
        shape = len(of_nights), rounds
        turn = math.sqrt((self.sd**2 - self.launches**2) / OF_A_MEDIAN)
        launches = self.launches * generator.standard_normal((*shape, 1))
        found: Array = launches + turn * generator.standard_normal((*shape, TURNS))
        kept = math.sqrt(1 - self.rounds**2)
        for at in range(1, rounds if self.rounds else 0):
            found[:, at] = self.rounds * found[:, at - 1] + kept * found[:, at]
        return found + of_nights[:, None, None]


# Quiet, in between, A and B of the other tables.
QUIET, A, B = Condition(0.026, 0.015), Condition(0.071, 0.0), Condition(0.13, 0.108)
BETWEEN = Condition(0.045, 0.015), Condition(0.055, 0.015)


@dataclass(frozen=True)
class Nights:
    """Judged cases, each of one night. verdicts, rounds: of each. lower, upper: bounds of those
    that do not PASS, in ln. observations: ln ratios, [case, round]."""

    verdicts: Sequence[Verdict]
    rounds: npt.NDArray[np.int64]
    lower: Array
    upper: Array
    observations: Array

    def row(self, at: int) -> Row:
        """Return a case as the document of its night has it."""
        values = self.observations[at, : self.rounds[at]].tolist()
        figure, lower, upper = map(math.exp, (median(values), self.lower[at], self.upper[at]))
        place = Question.WEAK_SCALING, "network", 8
        verdict = self.verdicts[at]
        return Row(
            "case", *place, verdict, figure, lower, upper, None, len(values), "", tuple(values)
        )


def judged(turns: Array, looks: Sequence[int], noise: Noise) -> Nights:
    """Judge cases by their rounds up to the look that decides. turns: [case, round, turn]."""
    count, rounds, _ = turns.shape
    observations = np.median(turns, axis=2)
    verdicts = [Verdict.INCONCLUSIVE] * count
    taken = np.full(count, rounds)
    lower, upper = np.full(count, -np.inf), np.full(count, np.inf)
    undecided = np.arange(count)
    for look in (*EARLY_LOOKS, *looks):
        values = observations[undecided, :look]
        if look in EARLY_LOOKS:
            passed = early_lower(turns[undecided, :look], noise) >= math.log(REGRESSION.pass_from)
            failed = np.zeros_like(passed)
        else:
            depth = bound_depth(look, fail_alpha(look, REGRESSION.alpha, looks))
            upper[undecided] = -bound(-values, depth, -math.log(REGRESSION.fail_below))
            failed = upper[undecided] < math.log(REGRESSION.fail_below)
            depth = bound_depth(look, REGRESSION.alpha)
            lower[undecided] = bound(values, depth, math.log(REGRESSION.pass_from))
            passed = ~failed & (lower[undecided] >= math.log(REGRESSION.pass_from))
        for which, verdict in ((passed, Verdict.PASS), (failed, Verdict.FAIL)):
            for at in undecided[which]:
                verdicts[at] = verdict
        taken[undecided[passed | failed]] = look
        undecided = undecided[~(passed | failed)]
    return Nights(verdicts, taken, lower, upper, observations)


def bound(values: Array, depth: int, limit: float) -> Array:
    """Return the average of two that is the `depth`-th lowest of each row, or -inf if so many
    observations lie below the limit that it does. values: [case, round]."""
    below = (values < limit).sum(axis=1)
    near = below * (below + 1) // 2 < depth
    found = np.full(len(values), -np.inf)
    if near.any():
        i, j = np.triu_indices(values.shape[1])
        averages = (values[near][:, i] + values[near][:, j]) / 2
        found[near] = np.partition(averages, depth - 1, axis=1)[:, depth - 1]
    return found


def early_lower(turns: Array, noise: Noise) -> Array:
    """Return the lower bounds of an early look, in ln, as hvdperf.interim.early_interval does."""
    _, look, each = turns.shape
    of_turns = turns.var(axis=2, ddof=1).mean(axis=1)
    floor = noise.launch_sd**2 + 2 * of_turns / each
    values = np.median(turns, axis=2)
    freedom = PRIOR_ROUNDS + look - 1
    pooled = (PRIOR_ROUNDS * floor + (look - 1) * values.var(axis=1, ddof=1)) / freedom
    error = np.sqrt(np.maximum(floor, pooled) / look)
    found: Array = values.mean(axis=1) - stdtrit(freedom, 1 - EARLY * REGRESSION.alpha) * error
    return found


@dataclass(frozen=True)
class Measured:
    """Cases of nights. first: by the nights' own sessions. again: by the second sessions, of those
    that FAILed, by their number."""

    first: Nights
    again: Mapping[int, Row]

    @property
    def fails(self) -> int:
        return len(self.again)


def measured(
    condition: Condition,
    looks: Sequence[int],
    count: int,
    loss: float,
    generator: np.random.Generator,
) -> Measured:
    """Measure cases of nights, and what FAILs again."""
    of_nights = condition.of_nights(count, loss, generator)

    def session(of_nights: Array) -> Nights:
        turns = condition.turns(of_nights, looks[-1], generator)
        return judged(turns, looks, condition.noise)

    first = session(of_nights)
    failed = [at for at, verdict in enumerate(first.verdicts) if verdict is Verdict.FAIL]
    again = session(of_nights[failed]) if failed else first
    return Measured(first, {at: again.row(place) for place, at in enumerate(failed)})


@dataclass(frozen=True)
class Rates:
    """What nights without a loss give. fails: FAILs by one night each. alarms: how many times a
    case became an alarm. years: together."""

    fails: int
    alarms: int
    years: float


def without_loss(condition: Condition, looks: Sequence[int], years: int, seed: int = 1) -> Rates:
    generator = np.random.default_rng(seed)
    cases = [CaseOverNights() for _ in range(CASES)]
    is_on = [False] * CASES
    fails = alarms = 0
    for _ in range(years * NIGHTS_A_YEAR // BLOCK):
        nights = measured(condition, looks, BLOCK * CASES, 0.0, generator)
        fails += nights.fails
        for at in range(BLOCK * CASES):
            place = at % CASES
            row = cases[place].judge(nights.first.row(at), nights.again.get(at))
            was, is_on[place] = is_on[place], row.verdict is Verdict.FAIL
            alarms += is_on[place] and not was
    return Rates(fails, alarms, years)


def found(
    condition: Condition, looks: Sequence[int], loss: float, tries: int, seed: int = 2
) -> tuple[float, float]:
    """Return the shares of losses that are an alarm on their first night, and within NIGHTS. The
    nights before have none."""
    generator = np.random.default_rng(seed)
    cases = [CaseOverNights() for _ in range(tries)]
    seen = np.zeros((2 * NIGHTS - 1, tries), dtype=bool)
    for night in range(len(seen)):
        of_night = loss if night >= NIGHTS - 1 else 0.0
        nights = measured(condition, looks, tries, of_night, generator)
        for at, case in enumerate(cases):
            row = case.judge(nights.first.row(at), nights.again.get(at))
            seen[night, at] = row.verdict is Verdict.FAIL
    since = seen[NIGHTS - 1 :]
    return float(since[0].mean()), float(since.any(axis=0).mean())


def main() -> None:
    years, tries = years_and_tries("gate_of_nights", __doc__, 60, 2000)
    sizes = (f"-{100 * loss:.0f} %" for loss in LOSSES)
    table = Columns(
        ("looks", -9),
        ("a round; nights differ by", -34),
        ("FAILs", 6),
        ("alarms a year, at most", 22),
        *((size, 11) for size in sizes),
    )
    print(table.header)
    for looks in LOOKS:
        for condition in conditions():
            rates = without_loss(condition, looks, years)
            limit = at_most(rates.alarms, years)
            shares = (found(condition, looks, loss, tries) for loss in LOSSES)
            told = (f"{100 * first:.1f}, {100 * three:.1f}" for first, three in shares)
            cells = (
                f"{rates.fails / years:.0f}",
                f"{rates.alarms / years:.2f}, {limit:.2f}",
            )
            print(table.row(", ".join(map(str, looks)), condition, *cells, *told), flush=True)


def conditions() -> Iterator[Condition]:
    """Yield the conditions of the table."""
    for machine in (QUIET, *BETWEEN, A):
        for nights in (0.0, 0.005, 0.01):
            yield replace(machine, nights=nights)
        yield replace(machine, rounds=0.2)
    yield B


if __name__ == "__main__":
    main()
