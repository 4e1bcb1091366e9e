"""Who is who for Horovod over Gloo, on one host and on several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hvdperf.launch.agents import AgentsLauncher, horovod_environment, rendezvous_plan
from hvdperf.launch.job import LaunchError, Order, Variables
from hvdperf.machine.placement import Slot


def slots(*hosts: str) -> list[Slot]:
    return [Slot(rank, host, (rank,)) for rank, host in enumerate(hosts)]


def columns(plan: list[dict[str, object]], *names: str) -> list[tuple[object, ...]]:
    return [tuple(entry[name] for name in names) for entry in plan]


@pytest.mark.parametrize(
    ("hosts", "local", "cross"),
    [
        ("aa", [(0, 2), (1, 2)], [(0, 1), (0, 1)]),
        ("aaaabbbb", [(rank, 4) for rank in range(4)] * 2, [(0, 2)] * 4 + [(1, 2)] * 4),
        ("abab", [(0, 2), (0, 2), (1, 2), (1, 2)], [(0, 2), (1, 2), (0, 2), (1, 2)]),
        # Of the third local rank there is one on host b alone.
        (
            "aabbbc",
            [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 1)],
            [(0, 3), (0, 2), (1, 3), (1, 2), (0, 1), (2, 3)],
        ),
    ],
)
def test_ranks_are_numbered_within_their_host_and_across_hosts(hosts, local, cross):
    plan = rendezvous_plan(slots(*hosts))
    assert columns(plan, "local_rank", "local_size") == local
    assert columns(plan, "cross_rank", "cross_size") == cross
    ranks = [(host, rank, len(hosts)) for rank, host in enumerate(hosts)]
    assert columns(plan, "hostname", "rank", "size") == ranks


@pytest.mark.parametrize(("one_host", "interface"), [(True, "lo"), (False, None)])
def test_horovod_is_told_its_own_entry_and_talks_over_gloo_alone(one_host, interface):
    own = rendezvous_plan(slots("a", "a"))[1]
    environment = horovod_environment(own, one_host, deadline_s=60)
    for name, value in own.items():
        assert environment[f"HOROVOD_{name.upper()}"] == str(value)
    assert environment["HOROVOD_CONTROLLER"] == environment["HOROVOD_CPU_OPERATIONS"] == "gloo"
    assert environment.get("HOROVOD_GLOO_IFACE") == interface
    # Gloo waits longer than a paused group may be stopped.
    assert int(environment["HOROVOD_GLOO_TIMEOUT_SECONDS"]) > 60


class FakeAgent:
    """An agent whose process never runs."""

    def __init__(self, broken: bool = False, status: int | None = None) -> None:
        self.environment: Variables = {}
        self.running: set[str] = set()
        self._broken = broken
        self._status = status

    def start(self, launch: str, environment: Variables, command: Sequence[str]) -> None:
        if self._broken:
            raise OSError("no such file: python")
        self.environment = environment
        self.running.add(launch)

    def status(self, launch: str) -> int | None:
        return self._status

    def signal(self, launch: str, signum: int) -> None: ...

    def tail(self, launch: str) -> list[str]:
        return []

    def end(self, launch: str) -> None:
        self.running.discard(launch)


def order(processes: int) -> Order:
    return Order(processes, slots("a", "a"), "python", {"MINE": "1"}, Path("scratch/launch-3"), 60)


def test_every_rank_is_started_by_its_own_agent():
    agents = [FakeAgent(), FakeAgent()]
    AgentsLauncher(agents).start(order(2))
    assert [agent.environment["HOROVOD_RANK"] for agent in agents] == ["0", "1"]
    assert [agent.environment["MINE"] for agent in agents] == ["1", "1"]
    assert [agent.running for agent in agents] == [{"launch-3"}, {"launch-3"}]


def test_a_strategy_of_one_process_starts_one():
    agents = [FakeAgent(), FakeAgent()]
    AgentsLauncher(agents).start(order(1))
    assert agents[1].running == set()
    assert agents[0].environment["HOROVOD_SIZE"] == "1"


def test_ranks_already_started_end_when_one_cannot_be():
    agents = [FakeAgent(), FakeAgent(broken=True)]
    with pytest.raises(LaunchError, match="rank 1 could not be started: no such file"):
        AgentsLauncher(agents).start(order(2))
    assert agents[0].running == set()


def test_every_rank_is_ended_although_one_slot_cannot_end_its_own():
    class Stubborn(FakeAgent):
        def end(self, launch: str) -> None:
            raise OSError("slot of rank 0: Operation not permitted")

    agents = [Stubborn(), FakeAgent()]
    AgentsLauncher(agents).start(order(2)).end({})
    assert agents[1].running == set()


@pytest.mark.parametrize(
    ("statuses", "ended", "fate"),
    [
        ((None, None), None, ""),
        ((3, None), None, "(exit status 3)"),
        ((-9, 0), "ended with status [-9, 0]", "(killed by signal 9, SIGKILL)"),
        # Batch systems use real-time signals, too.
        ((-36, None), None, "(killed by signal 36, which has no name)"),
    ],
)
def test_how_ranks_ended_is_told_in_words(statuses, ended, fate):
    job = AgentsLauncher([FakeAgent(status=status) for status in statuses]).start(order(2))
    assert job.ended() == ended
    assert job.fate(0) == fate
