"""Real timelines of real steps: what Horovod writes, and what the order makes of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hvdperf.launch.group import Group, GroupFailed
from hvdperf.plan.arms import Arm
from hvdperf.plan.options import LAUNCHERS
from hvdperf.worker import horovod_timeline
from hvdperf.worker.protocol import Phase
from tests.support.groups import DEADLINE_S, Start, horovod, single

pytestmark = pytest.mark.mpirun

STEPS = 5
TENSORS = 16  # gradients of alexnet_s


def record(group: Group, directory: Path, name: str) -> list[dict[str, Any]]:
    """The ranks' answers, each of which was given a path of its own."""
    for i, rank in enumerate(group.ranks):
        rank.replies.clear()
        path = directory / f"{name}-{i}.json"
        group._tell(i, {"op": "timeline", "steps": STEPS, "path": str(path)})
    group._wait(lambda: all(rank.replies for rank in group.ranks), time.monotonic() + DEADLINE_S)
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
        assert len(recorded.activities[carried]) == STEPS * TENSORS + 1
        one_step = told["seconds"] / STEPS
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
    assert len(recorded.wire()) == STEPS * TENSORS + 1


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
    with pytest.raises(GroupFailed) as raised:
        group.ask("timeline", DEADLINE_S, steps=1, path=str(tmp_path / "none.json"))
    assert raised.value.failure.phase == "timeline"
    assert raised.value.failure.cause == f"ValueError: {says}"
    assert list(tmp_path.glob("*.json")) == []


def test_a_file_that_cannot_be_written_is_named(start: Start, tmp_path: Path) -> None:
    group = start("mpirun", horovod(2), timeline=True)
    path = tmp_path / "missing" / "timeline.json"
    with pytest.raises(GroupFailed) as raised:
        group.ask("timeline", DEADLINE_S, steps=1, path=str(path))
    assert raised.value.failure.rank == 0
    assert f"{path} cannot be read" in raised.value.failure.cause
