"""How often `hvdperf vet` names the bad node, and a good one: on hosts of this machine with quotas
that bind, and in allocations of 64 nodes that are put together from what was measured there.

    python -m bench.vet_reach record DIRECTORY --of both,equal --times 5   # as root
    python -m bench.vet_reach simulate DIRECTORY --nodes 64 --times 1000

A recording of `slow` has a node whose share of a core is 0.9 of that of others, such as 0.18 and
0.20; of `link`, one that sends at half the rate of others; of `both`, one of each; of `equal`,
none.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.small_hosts import LOGIN, SmallHosts, small_hosts
from hvdperf.files import write_record
from hvdperf.json_records import decode
from hvdperf.vet.commands import ROUNDS
from hvdperf.vet.crew import crew_of
from hvdperf.vet.judge import State, judge
from hvdperf.vet.nodes import environment_of_starting, starting
from hvdperf.vet.record import LINK, Measured, Pair, Round
from hvdperf.vet.rounds import measure, schedule

NODES = 8
SHARE, SLOWER = 0.20, 0.9
RATE, SLOW_RATE = "40mbit", "20mbit"
# The speed of the bad node, and of its link.
SIMULATED = ((1.0, 1.0), (0.95, 1.0), (0.93, 1.0), (0.9, 1.0), (0.8, 1.0), (1.0, 0.85), (1.0, 0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("record")
    add.add_argument("directory", type=Path)
    add.add_argument("--of", default="slow,equal,link")
    add.add_argument("--times", type=int, default=1)
    add.add_argument("--share", type=float, default=SHARE, help="of a core, for each node")
    add.add_argument("--inside", help=argparse.SUPPRESS)
    add.set_defaults(command=record)
    add = commands.add_parser("simulate")
    add.add_argument("directory", type=Path)
    add.add_argument("--nodes", type=int, default=64)
    add.add_argument("--times", type=int, default=1000)
    add.set_defaults(command=simulate)
    arguments = parser.parse_args()
    arguments.command(arguments)


# On hosts of this machine ------------------------------------------------------------------------


def record(arguments: argparse.Namespace) -> None:
    """Write what was measured to the directory, a file for each time."""
    directory: Path = arguments.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    if arguments.inside:
        found = json.loads(arguments.inside)
        groups = {node: Path(group) for node, group in found["groups"].items()}
        hosts = SmallHosts(found["first"], Path(found["directory"]), groups)
        _record(hosts, directory, arguments.of.split(","), arguments.times, arguments.share)
        return
    with small_hosts(NODES, quotas=True) as hosts:
        for node in hosts.nodes:
            hosts.set_quota(node, 0.4)
        inside = {
            "first": dict(hosts.first),
            "directory": str(hosts.directory),
            "groups": {node: str(group) for node, group in hosts.groups.items()},
        }
        words = [sys.executable, "-m", "bench.vet_reach", *sys.argv[1:], "--inside"]
        command = [*hosts.inside(LOGIN), *words, json.dumps(inside)]
        subprocess.run(command, env=hosts.environment(), check=True)


def _record(
    hosts: SmallHosts, directory: Path, kinds: Sequence[str], times: int, share: float
) -> None:
    nodes = hosts.nodes
    commands = {node: starting(node, by_slurm=False) for node in nodes}
    with crew_of(nodes, "", commands.__getitem__, environment_of_starting()) as crew:
        for kind in [*kinds] * times:
            slow, linked = random.sample(nodes, 2)
            for node in nodes:
                is_slow = kind in ("slow", "both") and node == slow
                is_linked = kind in ("link", "both") and node == linked
                hosts.set_quota(node, share * (SLOWER if is_slow else 1.0))
                hosts.set_rate(node, SLOW_RATE if is_linked else RATE)
            measured = measure(crew, ROUNDS)
            bad = {"slow": slow, "link": linked, "equal": "", "both": f"{slow}-{linked}"}[kind]
            name = f"{kind}-{bad}-{time.strftime('%H%M%S')}.json"
            write_record(directory / name, measured)
            named = _named(measured)
            print(f"{name}: {measured.took_seconds:.0f} s, {measured.load}: {named}", flush=True)


def _named(measured: Measured) -> dict[str, str]:
    """Return the nodes that are not as others, each with what was found."""
    return {
        each.node: " ".join((each.state.value, *each.slow))
        for each in judge(measured)
        if each.state is not State.OK
    }


# From recordings ---------------------------------------------------------------------------------


def simulate(arguments: argparse.Namespace) -> None:
    """Print how often the nodes of allocations are named that are put together from recordings."""
    paths = sorted(arguments.directory.glob("*.json"))
    recorded = {path.stem: decode(path.read_bytes(), Measured) for path in paths}
    chance = random.Random(1)
    for slow, linked in SIMULATED:
        counts: Counter[str] = Counter()
        for _ in range(arguments.times):
            counts.update(_judged(_allocation(recorded, arguments.nodes, slow, linked, chance)))
        print(f"speed {slow:g}, link {linked:g}: {dict(counts)} of {arguments.times}", flush=True)


def _judged(measured: Measured) -> Iterator[str]:
    states = {each.node: each.state for each in judge(measured)}
    yield f"bad node {states.pop(measured.nodes[0]).value}"
    if State.SLOW in states.values():
        yield "another one SLOW"
    if State.UNDECIDED in states.values():
        yield "another one UNDECIDED"


def _allocation(
    recorded: dict[str, Measured], count: int, slow: float, linked: float, chance: random.Random
) -> Measured:
    """Return an allocation of so many nodes. Each one has the rounds of a node that was good, from
    a random recording, relative to the median of the good ones there, in their order from a random
    one on. The first node is slowed by the factor `slow`; its link, by `linked`."""
    nodes = tuple(f"node{number}" for number in range(count))
    series = [_series(recorded, chance) for _ in nodes]
    rounds = []
    for number, pairs in enumerate(schedule(nodes, ROUNDS, chance.randrange(1 << 30))):
        rates = {
            term: {node: series[i][term][number] for i, node in enumerate(nodes)}
            for term in series[0]
            if term != LINK
        }
        for of_term in rates.values():
            of_term[nodes[0]] *= slow
        exchanged = []
        for one, other in pairs:
            rate = series[nodes.index(one)][LINK][number]
            is_bad = nodes[0] in (one, other)
            exchanged.append(Pair((one, other), rate * (linked if is_bad else 1.0)))
        device = {term: dict.fromkeys(nodes, "CPU") for term in rates}
        rounds.append(Round(rates, device, exchanged))
    kinds, digests = dict.fromkeys(nodes, "simulated"), {node: [{"CPU": ""}] for node in nodes}
    return Measured(nodes, kinds, {}, digests, rounds, 0.0)


def _series(recorded: dict[str, Measured], chance: random.Random) -> dict[str, list[float]]:
    """Return the relative rates of a good node by term, a round each."""
    name = chance.choice(list(recorded))
    measured = recorded[name]
    good = [node for node in measured.nodes if node not in name.split("-")]
    node = chance.choice(good)
    first = chance.randrange(len(measured.rounds))
    rounds = measured.rounds[first:] + measured.rounds[:first]
    found: dict[str, list[float]] = {LINK: []}
    for taken in rounds:
        for term, rates in taken.rates.items():
            usual = sorted(rates[each] for each in good)[len(good) // 2]
            found.setdefault(term, []).append(rates[node] / usual)
        pairs = [pair for pair in taken.pairs if set(pair.nodes) <= set(good)]
        usual = sorted(pair.rate for pair in pairs)[len(pairs) // 2]
        own = [pair.rate for pair in pairs if node in pair.nodes] or [usual]
        found[LINK].append(own[0] / usual)
    return found


if __name__ == "__main__":
    main()
