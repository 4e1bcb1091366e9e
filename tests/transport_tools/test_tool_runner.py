"""Which tools are run on which slots, and what they are told; mpirun is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdperf.launch.job import LaunchError, NotEnded, Order
from hvdperf.launch.mpirun import command
from hvdperf.launch.tool_runner import ToolRunner
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.collectives import Collective

RECORDED = Path(__file__).parent / "recorded"


class MadeUpMpirun:
    """Says what a tool has printed."""

    def __init__(self, said: str | LaunchError) -> None:
        self.said = said
        self.orders: list[Order] = []

    def run(self, order: Order) -> str:
        self.orders.append(order)
        if isinstance(self.said, LaunchError):
            raise self.said
        return self.said


def runner_on(
    launcher: Any, tmp_path: Path, gpus: tuple[str, ...], hosts: tuple[str, ...] = ("node",)
) -> ToolRunner:
    offers = [Offer(rank, hosts[rank % len(hosts)], (0, 1, 2, 3), gpus) for rank in range(2)]
    return ToolRunner(launcher, place(offers), "/env/python", tmp_path, lambda text: None)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where PATH has tools for everything."""
    for name in ("osu_allgather", "all_gather_perf", "all_gather_perf_mpi"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_where_there_are_no_gpus_nccl_has_nothing_to_do(installed):
    launcher = MadeUpMpirun((RECORDED / "osu_allgather_7.4_full.txt").read_text())
    (run,) = runner_on(launcher, installed, ()).run(Collective.ALLGATHER, 2)
    assert (run.tool, run.problem, len(run.figures)) == ("osu", "", 2)


def test_on_gpus_both_are_run_and_nccl_tests_as_built_for_mpi(installed):
    launcher = MadeUpMpirun((RECORDED / "nccl_all_gather_2.18.0.txt").read_text())
    osu, nccl = runner_on(launcher, installed, ("GPU-a", "GPU-b")).run(Collective.ALLGATHER, 2)
    assert osu.problem.startswith("no title of an OSU benchmark")
    assert (nccl.tool, nccl.problem, len(nccl.figures)) == ("nccl", "", 4)
    assert Path(nccl.program).name == "all_gather_perf_mpi"
    assert len({order.scratch for order in launcher.orders}) == 2


def test_every_rank_is_told_its_cores_and_its_device(installed):
    launcher = MadeUpMpirun("")
    runner_on(launcher, installed, ("GPU-a", "GPU-b")).run(Collective.ALLGATHER, 2)
    (order, _) = launcher.orders
    program = order.program[order.program.index("0,1;GPU-a|2,3;GPU-b") :]
    assert program[1] == str(installed / "osu_allgather")
    assert command(order, "mpirun")[-len(order.program) :] == list(order.program)
    assert "hvdperf.worker" not in command(order, "mpirun")


def test_on_several_hosts_mpirun_starts_it_where_the_slots_are(installed):
    launcher = MadeUpMpirun("")
    runner_on(launcher, installed, (), hosts=("a", "b")).run(Collective.ALLGATHER, 2)
    tokens = command(launcher.orders[0], "mpirun")
    assert tokens[tokens.index("--host") + 1] == "a:1,b:1"


def test_what_cannot_be_started_is_told(installed):
    launcher = MadeUpMpirun(LaunchError("mpirun could not be started: no such file"))
    (run,) = runner_on(launcher, installed, ()).run(Collective.ALLGATHER, 2)
    assert run.problem == "mpirun could not be started: no such file"
    assert run.figures == ()


def test_a_tool_that_hangs_is_not_waited_for_twice(installed):
    launcher = MadeUpMpirun(NotEnded("had not ended after 60 s"))
    runner = runner_on(launcher, installed, ())
    assert [run.problem for run in runner.run(Collective.ALLGATHER, 2)] == [
        "had not ended after 60 s"
    ]
    assert runner.run(Collective.ALLGATHER, 2) == []
    assert len(launcher.orders) == 1
