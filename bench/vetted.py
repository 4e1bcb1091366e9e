"""How often `hvdperf vet` names the bad node of an allocation, and a good one:
`python -m bench.rates vet`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from bench.noise import Array, Part, drawn
from bench.pages import heading, row
from hvdperf.vet.commands import ROUNDS
from hvdperf.vet.judge import LINK, Measured, Pair, Round, State, judge
from hvdperf.vet.nodes import schedule

NODES = tuple(f"node{number}" for number in range(64))
TERMS = ("compute", "memory", LINK)
# Standard deviations of ln speed: of a node for good, and of each of its rounds.
OF_NODES, OF_ROUNDS = 0.005, 0.03
# The speed of the bad node, and of its link.
BAD = ((1.0, 1.0), (0.95, 1.0), (0.93, 1.0), (0.9, 1.0), (0.8, 1.0), (1.0, 0.85), (1.0, 0.5))


def allocation(speed: float, link: float, seed: int) -> Measured:
    """Return an allocation whose first node and its link are so fast."""
    generator = np.random.default_rng(seed)
    axes = {"round": ROUNDS, "term": len(TERMS), "node": len(NODES)}
    parts = Part(OF_NODES, ("term", "node")), Part(OF_ROUNDS, tuple(axes))
    rates: Array = np.exp(drawn(generator, axes, *parts))
    rates[:, :, 0] *= [link if term == LINK else speed for term in TERMS]
    rounds = []
    for of_round, pairs in zip(rates.tolist(), schedule(NODES, ROUNDS, seed), strict=True):
        by_term = {
            term: dict(zip(NODES, of_term, strict=True))
            for term, of_term in zip(TERMS, of_round, strict=True)
        }
        links = by_term.pop(LINK)
        device = {term: dict.fromkeys(NODES, "CPU") for term in by_term}
        exchanged = [Pair(pair, min(map(links.__getitem__, pair))) for pair in pairs]
        rounds.append(Round(by_term, device, exchanged))
    digests = {node: [{"CPU": ""}] for node in NODES}
    return Measured(NODES, dict.fromkeys(NODES, "simulated"), {}, digests, rounds, 0.0)


def table(times: int) -> Iterator[str]:
    """Yield the rows of a table: what is said of so many allocations."""
    others = (f"another one {state.value}" for state in (State.SLOW, State.UNDECIDED))
    yield from heading("speed; link of the bad node", "SLOW", "UNDECIDED", *others, "of")
    for speed, link in BAD:
        counts: Counter[tuple[bool, State]] = Counter()
        for seed in range(times):
            found = judge(allocation(speed, link, seed))
            counts.update({(each.node == NODES[0], each.state) for each in found})
        states = State.SLOW, State.UNDECIDED
        cells = (f"{counts[is_bad, state]}" for is_bad in (True, False) for state in states)
        yield row(f"{speed:g}; {link:g}", *cells, f"{times}")
