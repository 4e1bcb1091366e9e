"""How often throughputs fall on nights on which nothing has changed, and which slow-downs are
found: the table of docs/error_rates.md, from simulated nights that the suite itself judges.

    python -m bench.falls --years 20

Each condition has 15 networks at four world sizes, three launches a night whose figures have heavy
tails (Student's t with 3 degrees of freedom, 2 %), weekends that are 2 % faster, nights that are
like the night before (correlation 0.3), 5 % of the nights missing and 3 % disturbed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri

from hvdperf.columns import Columns
from hvdperf.timeline.nights.speed import ALL, Key, UsualSpeeds

NIGHTS = 365
KEYS: tuple[Key, ...] = tuple((f"network_{i}", size) for i in range(15) for size in (1, 2, 4, 8))
LAUNCHES, LAUNCH_SD, LAUNCH_TAIL = 3, 0.02, 3
WEEKEND, CORRELATION, MISSING, DISTURBED = 1.02, 0.3, 0.05, 0.03
# What the planted slow-downs slow.
SLOWED: Mapping[str, tuple[Key, ...]] = {
    "all": KEYS,
    "one network": KEYS[:4],
    "one throughput": KEYS[2:3],
}


@dataclass(frozen=True)
class Condition:
    """How nights differ. sd: the standard deviation of a throughput between nights, launches and
    weekends apart. common: the share of its variance that all throughputs have in common. tail:
    degrees of freedom of Student's t; 0 for a normal distribution."""

    sd: float
    common: float = 0.0
    tail: int = 0

    def __str__(self) -> str:
        parts = [f"{100 * self.sd:g} %"]
        parts += [f"{100 * self.common:g} % of it common"] * bool(self.common)
        parts += [f"Student t{self.tail}"] * bool(self.tail)
        return ", ".join(parts)


CONDITIONS = (
    Condition(0.015),
    Condition(0.015, common=0.5),
    Condition(0.03),
    Condition(0.03, common=0.5),
    Condition(0.03, tail=5),
    Condition(0.03, tail=3),
)


class Event(NamedTuple):
    """A planted slow-down. at: the first night that has it."""

    slowed: tuple[Key, ...]
    factor: float
    at: int


class Judged(NamedTuple):
    """A simulated night: its index, what fell, and whether other programs disturbed it."""

    night: int
    fell: frozenset[Key]
    disturbed: bool


def judged(
    condition: Condition, seed: int, event: Event | None = None, nights: int = NIGHTS
) -> Iterator[Judged]:
    """Yield the nights of a simulated year as the suite judges them."""
    generator = np.random.default_rng(seed)
    own, common = (shocks(condition, nights, width, generator) for width in (len(KEYS), 1))
    launches = generator.standard_t(LAUNCH_TAIL, (nights, len(KEYS), LAUNCHES))
    launches *= LAUNCH_SD / math.sqrt(LAUNCH_TAIL / (LAUNCH_TAIL - 2))
    figures = own * math.sqrt(1 - condition.common) + common * math.sqrt(condition.common)
    figures = condition.sd * figures + np.median(launches, axis=2)
    figures[[night for night in range(nights) if night % 7 >= 5]] += math.log(WEEKEND)
    sure = range(0)
    if event is not None:
        sure = range(event.at, event.at + 3)
        figures[event.at :, [KEYS.index(key) for key in event.slowed]] += math.log(event.factor)
    usual = UsualSpeeds()
    for night in range(nights):
        missing, disturbed = generator.random(2) < (MISSING, DISTURBED)
        if night not in sure and missing:
            continue
        is_disturbed = bool(disturbed) and night not in sure
        slower = 0.2 * abs(generator.normal()) if is_disturbed else 0.0
        measured = dict(zip(KEYS, np.exp(figures[night] - slower), strict=True))
        speeds = usual.compare({"": measured}, night % 7 >= 5)
        fell = frozenset(key for key, speed in speeds.items() if speed.fell)
        if not fell and not is_disturbed:
            usual.keep()
        yield Judged(night, fell, is_disturbed)


def shocks(
    condition: Condition, nights: int, width: int, generator: np.random.Generator
) -> np.ndarray:
    """Return what nights do to throughputs, of variance 1, each night a little like the last."""
    if condition.tail:
        fresh = generator.standard_t(condition.tail, (nights, width))
        fresh /= math.sqrt(condition.tail / (condition.tail - 2))
    else:
        fresh = generator.normal(size=(nights, width))
    found = fresh.copy()
    for night in range(1, nights):
        kept = math.sqrt(1 - CORRELATION**2) * fresh[night]
        found[night] = CORRELATION * found[night - 1] + kept
    return found


def false_events(condition: Condition, years: int) -> tuple[int, int]:
    """Return how many times throughputs began to fall in quiet years, and on how many nights they
    had fallen: an event may last for months."""
    count = fallen = 0
    for seed in range(years):
        falls = False
        for night in judged(condition, seed):
            if not night.disturbed:
                count += bool(night.fell) and not falls
                falls = bool(night.fell)
                fallen += falls
    return count, fallen


def found(
    condition: Condition, slowed: tuple[Key, ...], factor: float, tries: int
) -> tuple[float, float]:
    """Return the shares of planted slow-downs that are found on the first night, and within
    three."""
    hits = [0, 0]
    networks = {model for model, _ in slowed}
    for seed in range(tries):
        at = int(np.random.default_rng(seed).integers(60, 200))
        event = Event(slowed, factor, at)
        seen = [
            any(key == ALL or key in slowed or (not key[1] and key[0] in networks) for key in fell)
            for night, fell, _ in judged(condition, 10_000 + seed, event, at + 3)
            if night >= at
        ]
        hits[0] += seen[0]
        hits[1] += any(seen)
    return hits[0] / tries, hits[1] / tries


def at_most(count: int, years: int) -> float:
    """Return the upper limit (95 %) of a rate a year of which so many were seen (Poisson)."""
    return float(chdtri(2 * count + 2, 0.05)) / 2 / years


def years_and_tries(module: str, about: str | None, years: int, tries: int) -> tuple[int, int]:
    """Return how many years without a change, and how many losses of each size, the command line
    asks a bench to simulate. module: its name. about: its docstring. years, tries: the defaults."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--years", type=int, default=years)
    parser.add_argument("--tries", type=int, default=tries, help="losses of each size")
    given = parser.parse_args()
    if min(given.years, given.tries) < 1:
        parser.error("--years and --tries: must be above zero")
    return given.years, given.tries


def main() -> None:
    years, tries = years_and_tries("falls", __doc__, 20, 40)
    rates = Columns(
        ("nights differ by", -26), ("false events", 12), ("at most a year", 14), ("nights", 6)
    )
    print(rates.header)
    for condition in CONDITIONS:
        count, fallen = false_events(condition, years)
        limit = f"{at_most(count, years):.2f}"
        print(rates.row(condition, f"{count} in {years}", limit, fallen), flush=True)
    print()
    shares = Columns(
        ("nights differ by", -26), ("slower", 6), ("of", -15), ("at once", 7), ("in three", 8)
    )
    print(shares.header)
    for condition in CONDITIONS:
        for factor in (0.5, 0.85, 0.95):
            for name, slowed in SLOWED.items():
                first, three = found(condition, slowed, factor, tries)
                size = f"{100 * (factor - 1):.0f} %"
                told = (f"{100 * share:.0f} %" for share in (first, three))
                print(shares.row(condition, size, name, *told), flush=True)


if __name__ == "__main__":
    main()
