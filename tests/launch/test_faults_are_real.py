"""What is injected into real groups does what it says, and is seen where it should be."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.questions import Fault
from hvdperf.work.blocks import Blocks
from hvdperf.worker.process import stat_fields
from hvdperf.worker.protocol import Phase
from tests.support.groups import DEADLINE_S, Start, horovod, launched
from tests.support.leftovers import children, ended

pytestmark = pytest.mark.mpirun

ARM = horovod(2)
STEPS = 5


def injected(start: Start, text: str, **more: Any) -> LiveLaunch:
    return start("mpirun", ARM, fault=Fault.parse(text), **more)


def block(group: LiveLaunch) -> list[dict[str, list[float]]]:
    return group.ask("block", DEADLINE_S, kind="full", steps=STEPS)


def problems(group: LiveLaunch) -> list[str]:
    return Blocks.problems(launched(ARM, group))


def test_input_is_late_on_that_rank_alone(start: Start) -> None:
    group = injected(start, "input:rank=1,ms=100")
    first, second = block(group)
    assert min(second["input_seconds"]) >= 0.1
    assert min(first["input_seconds"]) < 0.1
    assert problems(group) == []


def test_a_phase_of_the_start_takes_longer_on_that_rank_which_ends_with_the_trace(
    start: Start,
) -> None:
    fault = "longer:rank=1,phase=build,factor=1,ms=3000"
    group = injected(start, fault, last_phase=Phase.TRACE)
    first, second = group.startup_seconds()
    assert second["build"] >= 3.0 > first["build"]
    assert list(first) == list(second) == ["init", "build", "input", "trace"]
    assert problems(group) == []


def test_a_gradient_that_is_not_exchanged_makes_replicas_differ(start: Start) -> None:
    group = injected(start, "skip")
    block(group)
    (problem,) = problems(group)
    assert "replicas differ" in problem


def ticks(pid: int) -> int:
    """Of CPU time."""
    return sum(map(int, stat_fields(pid)[11:13]))


def test_a_competing_process_runs_while_its_rank_does_and_ends_with_it(start: Start) -> None:
    group = injected(start, "busy:rank=1")
    first, second = (rank.pid for rank in group.ranks)
    assert children(first) == []
    (competitor,) = children(second)
    before = ticks(competitor)
    block(group)
    assert ticks(competitor) > before
    group.pause()
    time.sleep(0.2)  # until it has noticed
    stopped_at = ticks(competitor)
    time.sleep(0.5)
    assert ticks(competitor) - stopped_at <= 5, "of 50: it looks now and then"
    group.resume()
    block(group)
    group.close()
    assert ended([competitor])


def test_a_rank_that_reads_other_data_is_named(start: Start) -> None:
    group = start("mpirun", replace(ARM, injected="data"), last_phase=Phase.INPUT)
    assert "rank 1 reads other data" in problems(group)[0]
