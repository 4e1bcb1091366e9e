"""The order in which nodes are measured. In a round all nodes work at the same time, term by term,
so that what disturbs all of them slows all alike; then they exchange bytes in pairs, each round
with other partners."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from hvdperf.launch.hub import Order
from hvdperf.vet.crew import Crew
from hvdperf.vet.record import FEWEST_LINKED, LINK, TERMS, Measured, Pair, Round
from hvdperf.worker.vet import CONNECT_S, DRAIN_S, KEY

# Seconds of a term in a round. A quota of cores is shared out every 0.1 s.
SECONDS = 3.0
# Seconds that a node has to import TensorFlow, build and train, and beyond its work to answer.
PREPARE_S, ANSWER_S = 300.0, 60.0
# Rounds before the first that counts, and after which progress is told.
_WARM_UP, _TOLD = 1, 5


def schedule(nodes: Sequence[str], rounds: int, seed: int) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs of each round. Every node has one partner, another one in each round until it
    has met all; of an odd number, one node has none (the circle method). Nodes that are too few to
    be judged by their links have no partners. seed: of the order."""
    places: list[str] = list(nodes) if len(nodes) >= FEWEST_LINKED else []
    random.Random(seed).shuffle(places)
    if len(places) % 2:
        places.append("")
    half = len(places) // 2
    for _ in range(rounds):
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        yield [(one, other) for one, other in pairs if one and other]
        places[1:] = [*places[-1:], *places[1:-1]]


def measure(
    crew: Crew,
    rounds: int,
    data_dir: str = "",
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Measure the nodes in so many rounds. data_dir: from which they read, "" for a file that each
    writes. seconds: of a term in a round. say: is told how far it is."""
    began, load = time.monotonic(), [os.getloadavg()[0]]
    facts = crew.ask({node: ("prepare", [data_dir]) for node in crew.there}, PREPARE_S)
    kinds = {node: str(each["kind"]) for node, each in facts.items()}
    ports = {node: int(each["port"]) for node, each in facts.items()}
    terms = {node: list(each["terms"]) for node, each in facts.items()}
    digests: dict[str, list[dict[str, str]]] = {node: [] for node in crew.there}

    def compare() -> None:
        orders: dict[str, Order] = {node: ("digests", []) for node in crew.there}
        for node, digest in crew.ask(orders, PREPARE_S).items():
            digests[node].append(digest)

    compare()
    alike: dict[str, list[str]] = {}
    for node, kind in kinds.items():
        alike.setdefault(kind, []).append(node)
    seed = secrets.randbits(32)
    schedules = [schedule(members, _WARM_UP + rounds, seed) for members in alike.values()]
    found = []
    for number, pairs in enumerate(zip(*schedules, strict=True), 1 - _WARM_UP):
        if len(crew.there) < 2:
            break
        flat = [pair for part in pairs for pair in part]
        taken = _round(crew, terms, ports, flat, seconds)
        if number >= 1:
            found.append(taken)
            if number % _TOLD == 0 and number < rounds:
                say(f"round {number} of {rounds}, {time.monotonic() - began:.0f} s")
    compare()
    load.append(os.getloadavg()[0])
    took = time.monotonic() - began
    return Measured(crew.nodes, kinds, dict(crew.lost), digests, found, seconds, took, load)


def _round(
    crew: Crew,
    terms: Mapping[str, Sequence[str]],
    ports: Mapping[str, int],
    pairs: Sequence[tuple[str, str]],
    seconds: float,
) -> Round:
    taken = Round({}, {}, [])
    for term in TERMS:
        orders = {
            node: ("rates", [term, seconds]) for node in crew.there if term in terms.get(node, ())
        }
        if not orders:
            continue
        answers: dict[str, dict[str, float]] = crew.ask(orders, seconds + ANSWER_S)
        slowest = {node: min(each, key=each.__getitem__) for node, each in answers.items()}
        taken.rates[term] = {node: answers[node][device] for node, device in slowest.items()}
        taken.slowest[term] = slowest
    taken.pairs.extend(_exchange(crew, ports, pairs, seconds))
    return taken


def _exchange(
    crew: Crew, ports: Mapping[str, int], pairs: Sequence[tuple[str, str]], seconds: float
) -> list[Pair]:
    """Have all pairs exchange bytes at the same time."""
    there = set(crew.there)
    pairs = [pair for pair in pairs if there.issuperset(pair)]
    orders: dict[str, Order] = {}
    for one, other in pairs:
        key = secrets.token_hex(KEY // 2)
        orders[one] = (LINK, [seconds, key, [crew.address_of(other), ports[other]]])
        orders[other] = (LINK, [seconds, key, []])
    answers = crew.try_to(orders, seconds + CONNECT_S + DRAIN_S + ANSWER_S)
    return [
        Pair(pair, min(float(answers[node] or 0.0) for node in pair))
        for pair in pairs
        if answers.keys() >= set(pair)
    ]
