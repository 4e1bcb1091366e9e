"""Tools that time collective operations, run on slots of this machine.

Neither OSU's nor NVIDIA's comes with the environment. What stands in for OSU's times real
operations, takes its arguments and prints its tables.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hvdperf.launch.group import Group
from hvdperf.launch.mpirun import is_running
from hvdperf.launch.resources import make_tool_runner
from hvdperf.launch.tool_runner import ToolRunner
from hvdperf.plan.arms import SWEEP, Arm, Strategy
from hvdperf.plan.collectives import MIB, Collective, Series, Transfer
from hvdperf.transport_tools import osu
from hvdperf.worker.protocol import Phase
from tests.support.groups import DEADLINE_S, MakeStarter

pytestmark = pytest.mark.mpirun

OSU_LIKE = str(Path(__file__).resolve().parents[1] / "support/osu_like.py")
Install = Callable[[str, str], None]
"""By name, a Python program on PATH."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")

    def installed(name: str, source: str) -> None:
        path = directory / name
        path.write_text(f"#!{sys.executable}\n{source}\n")
        path.chmod(0o755)

    return installed


@pytest.fixture
def runner(make_starter: MakeStarter) -> ToolRunner:
    made = make_tool_runner(make_starter("mpirun"), 1e6, lambda text: None)
    assert made is not None
    return made


def problem(runner: ToolRunner) -> str:
    (run,) = runner.run(Collective.ALLREDUCE, 2)
    assert run.figures == ()
    return run.problem


def test_a_tool_finds_about_what_the_bare_transport_does(
    start: Callable[..., Group],
    runner: ToolRunner,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not up to 128 MB: that takes half a minute.
    monkeypatch.setattr(osu, "SWEEP_BYTES", (MIB, 4 * MIB))
    for names in osu.PROGRAMS.values():
        operation = names[0].removeprefix("osu_")
        begin = f"sys.argv.insert(1, {operation!r}); runpy.run_path({OSU_LIKE!r})"
        install(names[0], f"import runpy, sys; {begin}")
    runs = {collective: runner.run(collective, 2) for collective in Collective}
    group = start("mpirun", Arm(SWEEP, Strategy.BARE, 2), kinds=(), last_phase=Phase.INIT)
    for collective, (run,) in runs.items():
        assert (run.tool, run.problem) == ("osu", "")
        assert [figure.size_bytes for figure in run.figures] == [MIB, 2 * MIB, 4 * MIB]
        transfer = Transfer(collective, (4 * MIB,))
        replies = group.ask(
            "collective",
            DEADLINE_S,
            collective=collective.value,
            tensor_bytes=[4 * MIB],
            repeats=5,
            check=True,
        )
        bare = Series(transfer, 0, replies)
        # Another unit would be a factor of 1,000.
        assert 0.01 < run.figures[-1].seconds / bare.seconds < 100
    group.close()


def test_every_rank_has_its_slot_and_nothing_else(
    runner: ToolRunner, install: Install, tmp_path: Path
) -> None:
    told = f"open({str(tmp_path)!r} + '/rank' + os.environ['OMPI_COMM_WORLD_RANK'], 'w')"
    seen = "*sorted(os.sched_getaffinity(0)), repr(os.environ['CUDA_VISIBLE_DEVICES'])"
    install("osu_allreduce", f"import os; print({seen}, file={told})")
    assert problem(runner) == "no title of an OSU benchmark in 0 lines of output"
    for rank, slot in enumerate(runner.slots):
        own = (tmp_path / f"rank{rank}").read_text().split()
        assert own == [*map(str, sorted(slot.cores)), repr(slot.device or "")]


def test_a_tool_that_fails_is_told_with_the_end_of_its_stderr(
    runner: ToolRunner, install: Install
) -> None:
    install("osu_allreduce", "import sys; sys.exit('no such luck')")
    assert problem(runner) == "ended with status 1: no such luck"


def test_the_rank_that_has_failed_is_heard(runner: ToolRunner, install: Install) -> None:
    wait = "time.sleep(60 * (os.environ['OMPI_COMM_WORLD_RANK'] == '0'))"
    install("osu_allreduce", f"import os, sys, time; {wait}; sys.exit('rank 1 says why')")
    assert problem(runner) == "ended with status 1: rank 1 says why"


def test_a_tool_of_another_mpi_is_recognized(runner: ToolRunner, install: Install) -> None:
    install("osu_allreduce", "import sys; sys.exit('This test requires at least two processes')")
    assert problem(runner).startswith("every rank says that it is alone")


def test_a_tool_that_hangs_is_ended(runner: ToolRunner, install: Install, tmp_path: Path) -> None:
    runner.deadline_s = 3.0
    told = f"open({str(tmp_path)!r} + '/pid' + os.environ['OMPI_COMM_WORLD_RANK'], 'w')"
    install("osu_allreduce", f"import os, time; {told}.write(str(os.getpid())); time.sleep(60)")
    assert problem(runner) == "had not ended after 3 s"
    pids = [int((tmp_path / f"pid{rank}").read_text()) for rank in range(2)]
    deadline = time.monotonic() + 5
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))
    assert list(runner.scratch.iterdir()) == []
    # It is not waited for again.
    assert runner.run(Collective.ALLREDUCE, 2) == []


def test_what_is_not_installed_is_not_run(runner: ToolRunner) -> None:
    assert [runner.run(collective, 2) for collective in Collective] == [[]] * 4


def test_agents_cannot_run_any(make_starter: MakeStarter) -> None:
    assert make_tool_runner(make_starter("agents"), 1e6, lambda text: None) is None
