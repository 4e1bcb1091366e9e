"""Which nodes are looked at, how a process is started on each, and which exchange bytes."""

from __future__ import annotations

import socket
import stat
from collections import Counter
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.vet.nodes import find_nodes, schedule, starting


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (None, "which nodes?"),
        ("", "no node"),
        ("a", "a alone"),
        ("a,b,a", "names a twice"),
        ("a,-oProxyCommand=x", "is no name of a host"),
        ("a,b c", "is no name of a host"),
    ],
)
def test_bad_hosts_are_refused(hosts: str | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_nodes(hosts, {})


def test_a_command_that_a_launcher_started_several_times_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(UserError, match="mpirun has started 4"):
        find_nodes("a,b", {})


def test_the_nodes_of_an_allocation_are_those_that_slurm_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$3" = "gpu[1-2]" ] && printf "gpu1\\ngpu2\\n"\n')
    scontrol.chmod(scontrol.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_nodes(None, {"SLURM_JOB_NODELIST": "gpu[1-2]"}) == ("gpu1", "gpu2")
    with pytest.raises(UserError, match="scontrol cannot say"):
        find_nodes(None, {"SLURM_JOB_NODELIST": "gpu[3-4]"})


def test_this_host_needs_no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "ssh" not in starting(socket.gethostname(), by_slurm=False)
    with pytest.raises(UserError, match="no ssh"):
        starting("elsewhere", by_slurm=False)


@pytest.mark.parametrize("count", [4, 5, 8, 9, 64])
def test_a_node_meets_every_other_one_once(count: int) -> None:
    nodes = [f"node{number}" for number in range(count)]
    rounds = list(schedule(nodes, count - 1 + count % 2, seed=3))
    for pairs in rounds:
        once = Counter(node for pair in pairs for node in pair)
        assert set(once.values()) == {1}
        assert len(once) == count - count % 2
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert len(met) == count * (count - 1) // 2
    assert set(met.values()) == {1}


def test_few_nodes_have_no_pairs() -> None:
    assert list(schedule(["a", "b", "c"], 2, seed=1)) == [[], []]
