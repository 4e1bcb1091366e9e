"""How often a node, or all of them, fall on nights on which nothing has changed, where each node
measures itself, and which slow-downs are found: from simulated nights that the suite itself judges.

    python -m bench.falls_of_nodes --years 12

Each condition has 16 nodes with eight throughputs each. A throughput of a night is what the night
does to all, what it does to the node, and what it does to the throughput alone, each with the same
standard deviation and each like the night before (correlation 0.3). 3 % of the nodes' nights are
missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bench.falls import NIGHTS, Condition, at_most, shocks, years_and_tries
from hvdperf.columns import Columns
from hvdperf.timeline.nights.speed import ALL, NODE, Key, UsualSpeeds

NODES = tuple(f"gpu{index:02}" for index in range(16))
KEYS: tuple[Key, ...] = tuple((f"network_{i}", size) for i in range(4) for size in (1, 8))
SLOW, MISSING = NODES[3], 0.03
CONDITIONS = (Condition(0.01), Condition(0.02), Condition(0.01, tail=5))


class Event(NamedTuple):
    """A slow-down from a night on. all, node: the factors of all nodes, and of one beyond that."""

    all: float
    node: float
    at: int


def judged(
    condition: Condition, seed: int, event: Event | None = None, nights: int = NIGHTS
) -> Iterator[frozenset[Key]]:
    """Yield what fell, night by night, as the suite judges it."""
    generator = np.random.default_rng(seed)
    widths = (1, len(NODES), len(NODES) * len(KEYS))
    of_all, of_node, own = (
        condition.sd * shocks(condition, nights, width, generator) for width in widths
    )
    usual = UsualSpeeds()
    for night in range(nights):
        measured = {}
        for at, node in enumerate(NODES):
            if generator.random() < MISSING and (event is None or night < event.at):
                continue
            figures = own[night, at * len(KEYS) : (at + 1) * len(KEYS)] + of_all[night, 0]
            figures = figures + of_node[night, at]
            if event is not None and night >= event.at:
                figures += math.log(event.all * (event.node if node == SLOW else 1.0))
            measured[node] = dict(zip(KEYS, np.exp(figures), strict=True))
        speeds = usual.compare(measured, night % 7 >= 5)
        fell = frozenset(key for key, speed in speeds.items() if speed.fell)
        slow = {name for name, size in fell if size == NODE}
        if len(slow) == len(fell):
            usual.keep(without=slow)
        yield fell


def false_events(condition: Condition, years: int) -> int:
    """Return how many times something began to fall in quiet years."""
    count = 0
    for seed in range(years):
        falls: frozenset[Key] = frozenset()
        for fell in judged(condition, seed):
            count += bool(fell) and not falls
            falls = fell
    return count


def found(condition: Condition, event: Event, tries: int) -> tuple[float, float]:
    """Return the shares of slow-downs that are found on the first night, and within three."""
    what = ALL if event.all < 1 else (SLOW, NODE)
    hits = [0, 0]
    for seed in range(tries):
        nights = list(judged(condition, 10_000 + seed, event, event.at + 3))
        seen = [what in fell for fell in nights[event.at :]]
        hits[0] += seen[0]
        hits[1] += any(seen)
    return hits[0] / tries, hits[1] / tries


def main() -> None:
    years, tries = years_and_tries("falls_of_nodes", __doc__, 12, 40)
    table = Columns(
        ("each part differs by", -20),
        ("false events", 12),
        ("at most a year", 14),
        *((name, 16) for name in ("node -8 %", "node -15 %", "all -5 %", "all -15 %")),
    )
    print(table.header)
    events = [Event(1, 0.92, 60), Event(1, 0.85, 60), Event(0.95, 1, 60), Event(0.85, 1, 60)]
    for condition in CONDITIONS:
        count = false_events(condition, years)
        told = []
        for event in events:
            first, three = found(condition, event, tries)
            told.append(f"{100 * first:.0f} %, {100 * three:.0f} %")
        limit = f"{at_most(count, years):.2f}"
        print(table.row(condition, f"{count} in {years}", limit, *told), flush=True)


if __name__ == "__main__":
    main()
