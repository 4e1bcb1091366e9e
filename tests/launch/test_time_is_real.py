"""Real runs that are accounted for to the second."""

from __future__ import annotations

import random

import pytest

from hvdperf.explain.speedup import scaling_breakdown
from hvdperf.explain.time_breakdown import time_breakdown
from hvdperf.plan.arms import TERMS, BlockKind, Schedule
from hvdperf.plan.profile import Runs, Sampling
from hvdperf.plan.questions import Fault, wall_time
from hvdperf.work.base import RoundRequest, RoundSettings
from hvdperf.work.round_runner import RoundRunner
from hvdperf.work.training import WallTime
from tests.support.groups import WORKLOAD, MakeStarter
from tests.support.rounds import observation

pytestmark = pytest.mark.mpirun

WEAK, STRONG = wall_time(WORKLOAD, 2)
STEPS = 40


@pytest.mark.long
def test_a_run_is_accounted_for_and_a_delayed_rank_is_named_by_both_ways_of_looking(
    arm_launchers: MakeStarter,
) -> None:
    """The ranks are fresh processes, since their start is accounted for, too."""
    settings = RoundSettings(
        arm_launchers("mpirun", Fault("slow", rank=1, ms=50.0)),
        Sampling(min_block_seconds=0.1, startup_deadline_s=60, block_deadline_s=30),
        random.Random(1),
        progress=lambda text: None,
        runs=Runs(wall_time_steps=STEPS, ablation_turns=2),
    )
    kinds = {arm: {BlockKind.FULL} for arm in WEAK.arms}
    runner = RoundRunner(WallTime(settings), Schedule.FRESH)
    measured = runner.run(RoundRequest(0, WEAK.arms, kinds, (), 1))
    launches = [measured.of(arm) for arm in WEAK.arms]
    assert [problem for launch in launches for problem in WallTime.problems(launch)] == []
    for launch in launches:
        assert [rank.curve for rank in launch.run if rank.curve] == []
        book = time_breakdown(launch)
        assert book.steps == STEPS
        # What is left to the balance of the steps may be below nothing by chance.
        others = [term for term in TERMS if term not in ("exposed communication", "apply")]
        assert all(rank[term] >= 0 for rank in book.ranks for term in others)
        for phase in ("import", "trace", "first step", "compute"):
            assert all(rank[phase] > 0 for rank in book.ranks)
    found = scaling_breakdown(WEAK, [measured])
    assert found.candidate.fixed.b_seconds > 0
    assert observation(STRONG, measured) < 0 < found.steady_state.estimate
    book = time_breakdown(measured.of(WEAK.candidate.arm))
    assert book.late is not None
    assert book.late.rank == 1
    assert book.late.lag_seconds > 0.04, "a sleep is never shorter than it was asked to be"
    on_time, delayed = book.ranks
    assert on_time["straggler wait"] > 0.04 * STEPS
    assert delayed["between steps"] > 0.05 * STEPS
    assert delayed["straggler wait"] < on_time["straggler wait"] / 4
