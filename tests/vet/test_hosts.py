"""Nodes that are namespaces of this machine, or those of a real Slurm, measured by real
processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hvdperf.paths import ROOT
from tests.support.hosts import LOGIN, Hosts, small_hosts
from tests.support.leftovers import ended
from tests.support.slurm import slurm_cluster
from tests.support.whole_sessions import environment_of_sessions

pytestmark = pytest.mark.mpirun
# Measures with short terms, and prints a line of JSON.
MEASURES = """
import json, sys
from hvdperf.json_records import encode
from hvdperf.vet.nodes import Crew, measure

with Crew(sys.argv[1].split(","), "", by_slurm=False) as crew:
    print("started", flush=True)
    found = measure(crew, int(sys.argv[2]), seconds=0.05)
print(encode(found).decode())
"""
# A term of a round takes 3 s otherwise.
VET = """
import sys
from functools import partial
from hvdperf.__main__ import main
from hvdperf.vet import nodes

nodes.measure = partial(nodes.measure, seconds=0.05)
sys.exit(main())
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with small_hosts(5) as made:
        yield made


def measured(
    hosts: Hosts,
    nodes: list[str],
    rounds: int,
    then: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Measure from the login host. then: done when the processes have started."""
    command = [sys.executable, "-c", MEASURES, ",".join(nodes), str(rounds)]
    with subprocess.Popen(
        [*hosts.inside(LOGIN), *command],
        cwd=ROOT,
        env=hosts.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        then()
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output)
    return found


def left(hosts: Hosts) -> list[int]:
    """Return the processes of the nodes that stay, after some seconds."""
    for _ in range(200):
        found = [pid for node in hosts.nodes for pid in hosts.processes(node)]
        if not found:
            break
        time.sleep(0.05)
    return found


def test_every_node_is_measured_and_one_that_is_not_there_or_is_lost_is_told(
    hosts: Hosts,
) -> None:
    def lose() -> None:
        # It imports TensorFlow by then.
        threading.Timer(0.5, hosts.kill, ("node2",)).start()

    nodes = [node for node in hosts.nodes if node != "node2"]
    found = measured(hosts, [*hosts.nodes, "nowhere"], 2, then=lose)
    assert set(found["not_run"]) == {"node2", "nowhere"}
    assert "Could not resolve hostname nowhere" in found["not_run"]["nowhere"]
    assert len(found["rounds"]) == 2
    for taken in found["rounds"]:
        assert set(taken["rates"]) == {"compute", "memory", "input"}
        assert all(set(rates) == set(nodes) for rates in taken["rates"].values())
        assert all(rate > 0 for rates in taken["rates"].values() for rate in rates.values())
        assert sorted(node for pair in taken["pairs"] for node in pair["nodes"]) == nodes
        assert all(pair["rate"] > 0 for pair in taken["pairs"])
    computed = [each["CPU"] for node in nodes for each in found["digests"][node]]
    assert len(computed) == 8
    assert len(set(computed)) == 1
    assert left(hosts) == []


@pytest.mark.long
def test_the_nodes_of_an_allocation_are_compared(tmp_path: Path) -> None:
    vet = [sys.executable, "-c", VET, "vet", "--rounds=10"]
    with (
        slurm_cluster(tmp_path, environment_of_sessions()) as cluster,
        cluster.start("salloc", "--nodes=2", "--ntasks=2", *vet) as process,
    ):
        output, _ = process.communicate(timeout=500)
        # The two nodes share two cores with whatever else runs: they may differ.
        assert process.returncode in (0, 1, 6), output
        assert "10 rounds" in output
        assert ended(cluster.processes())
    assert "node1" in output
    assert "NOT RUN" not in output
