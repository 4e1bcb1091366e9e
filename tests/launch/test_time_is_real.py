"""Real timelines of real steps, and real runs that are accounted for to the second."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hvdperf.explain.speedup import scaling_breakdown
from hvdperf.explain.time_breakdown import time_breakdown
from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.plan.arms import Arm, BlockKind, Schedule
from hvdperf.plan.options import LAUNCHERS, Runs, Sampling
from hvdperf.plan.questions import Fault, wall_time
from hvdperf.plan.terms import TERMS
from hvdperf.records.rounds import Round
from hvdperf.work.base import RoundRequest, RoundSettings
from hvdperf.work.round_runner import RoundRunner
from hvdperf.work.table import observation
from hvdperf.work.wall_time import WallTime, stamped
from hvdperf.worker import horovod_timeline
from hvdperf.worker.protocol import Phase
from tests.support.groups import DEADLINE_S, WORKLOAD, MakeStarter, Start, horovod, single

pytestmark = pytest.mark.mpirun

RECORDED = 5
TENSORS = 16  # gradients of alexnet_s


def record(group: LiveLaunch, directory: Path, name: str) -> list[dict[str, Any]]:
    """The ranks' answers, each of which was given a path of its own."""
    for i, rank in enumerate(group.ranks):
        rank.replies.clear()
        path = directory / f"{name}-{i}.json"
        group._tell(i, {"op": "timeline", "steps": RECORDED, "path": str(path)})
    group._wait(lambda: all(rank.replies for rank in group.ranks), DEADLINE_S)
    return [rank.replies[0] for rank in group.ranks]


def test_steps_are_recorded_on_rank_0_again_and_again(
    start: Start, launcher: str, tmp_path: Path
) -> None:
    group = start(launcher, horovod(2), timeline=True)
    carried = "MPI_ALLREDUCE" if LAUNCHERS[launcher].over_mpi else "GLOO_ALLREDUCE"
    for name in ("one", "another", "one"):
        told, others = record(group, tmp_path, name)
        assert set(others) == {"steps", "seconds"}
        assert others["seconds"] > 0
        recorded = horovod_timeline.read(str(tmp_path / f"{name}-0.json"))
        assert recorded.closed
        # Of every step and the barrier, nothing missing.
        assert len(recorded.activities[carried]) == RECORDED * TENSORS + 1
        one_step = told["seconds"] / RECORDED
        assert 0 < told["wire_seconds"] <= told["activities"]["ALLREDUCE"]
        assert told["activities"]["ALLREDUCE"] <= told["seconds"] + one_step
        assert told["wire_seconds"] == pytest.approx(told["activities"][carried])
        # What fused tensors do together is done once.
        assert horovod_timeline.length(recorded.activities[carried]) > 3 * told["wire_seconds"]
    assert {path.name for path in tmp_path.glob("*.json")} == {"one-0.json", "another-0.json"}
    evidence = group.ask("evidence", DEADLINE_S)
    assert evidence[0]["digests"] == evidence[1]["digests"]


def test_without_fusion_every_tensor_travels_alone(start: Start, tmp_path: Path) -> None:
    group = start("mpirun", replace(horovod(2), exchange="nofuse"), timeline=True)
    told, _ = record(group, tmp_path, "alone")
    recorded = horovod_timeline.read(str(tmp_path / "alone-0.json"))
    assert "MEMCPY_IN_FUSION_BUFFER" not in told["activities"]
    assert len(recorded.wire()) == RECORDED * TENSORS + 1


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        (horovod(2), "this launch records no timeline; start it with HOROVOD_TIMELINE=DYNAMIC"),
        (single(), "strategy single has no Horovod timeline; use the strategy horovod"),
    ],
    ids=["not started for it", "single"],
)
def test_a_launch_that_cannot_refuses_in_a_line(
    start: Start, arm: Arm, says: str, tmp_path: Path
) -> None:
    group = start("mpirun", arm, kinds=(), last_phase=Phase.INIT)
    with pytest.raises(LaunchFailed) as raised:
        group.ask("timeline", DEADLINE_S, steps=1, path=str(tmp_path / "none.json"))
    assert raised.value.failure.phase == "timeline"
    assert raised.value.failure.cause == f"ValueError: {says}"
    assert list(tmp_path.glob("*.json")) == []


def test_a_file_that_cannot_be_written_is_named(start: Start, tmp_path: Path) -> None:
    group = start("mpirun", horovod(2), timeline=True)
    path = tmp_path / "missing" / "timeline.json"
    with pytest.raises(LaunchFailed) as raised:
        group.ask("timeline", DEADLINE_S, steps=1, path=str(path))
    assert raised.value.failure.rank == 0
    assert f"{path} cannot be read" in raised.value.failure.cause


Measure = Callable[..., Round]
WEAK, STRONG = wall_time(WORKLOAD, 2)
STEPS = 40


@pytest.fixture
def measure(arm_launchers: MakeStarter) -> Measure:
    """Return a function that measures a round of a short run on one replica and on two. Its ranks
    are fresh processes, since their start is accounted for, too."""

    def measured(launcher: str, fault: Fault | None = None) -> Round:
        settings = RoundSettings(
            arm_launchers(launcher, fault),
            Sampling(min_block_seconds=0.1, startup_deadline_s=60, block_deadline_s=30),
            random.Random(1),
            progress=lambda text: None,
            runs=Runs(wall_time_steps=STEPS, ablation_turns=2),
        )
        runner = RoundRunner(WallTime(settings), Schedule.FRESH)
        kinds = {arm: {BlockKind.FULL} for arm in WEAK.arms}
        return runner.run(RoundRequest(0, WEAK.arms, kinds, (), 1))

    return measured


def assert_accounted_for(measured: Round) -> None:
    launches = [measured.of(arm) for arm in WEAK.arms]
    assert [problem for launch in launches for problem in WallTime.problems(launch)] == []
    for launch in launches:
        assert [rank.curve for rank in (*launch.run, *stamped(launch).met_run) if rank.curve] == []
        book = time_breakdown(launch)
        assert book.steps == STEPS
        # What is left to the balance of the steps may be below nothing by chance.
        others = [term for term in TERMS if term not in ("exposed communication", "apply")]
        assert all(rank[term] >= 0 for rank in book.ranks for term in others)
        for phase in ("import", "trace", "first step", "compute"):
            assert all(rank[phase] > 0 for rank in book.ranks)
    two = time_breakdown(measured.of(WEAK.candidate.arm))
    assert {rank.steps for rank in stamped(measured.of(WEAK.candidate.arm)).met_run}
    assert two.terms["straggler wait"] > 0
    found = scaling_breakdown(WEAK, [measured])
    assert found.wire_seconds is not None
    assert found.wire_seconds > 0
    assert found.candidate.fixed.b_seconds > 0
    assert observation(STRONG, measured) < 0 < found.steady_state.estimate


@pytest.mark.long
def test_a_run_is_accounted_for_to_the_second(measure: Measure) -> None:
    assert_accounted_for(measure("agents"))


@pytest.mark.long
def test_a_delayed_rank_is_named_by_both_ways_of_looking(measure: Measure) -> None:
    measured = measure("mpirun", Fault("delay", rank=1, ms=50.0))
    assert_accounted_for(measured)
    book = time_breakdown(measured.of(WEAK.candidate.arm))
    for late in (book.late, book.late_where_met):
        assert late is not None
        assert late.rank == 1
        assert late.lag_seconds > 0.04, "a sleep is never shorter than it was asked to be"
    on_time, delayed = book.ranks
    assert on_time["straggler wait"] > 0.04 * STEPS
    assert delayed["between steps"] > 0.05 * STEPS
    assert delayed["straggler wait"] < on_time["straggler wait"] / 4
