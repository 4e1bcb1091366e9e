"""Real gradients, really averaged, over each launcher."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import EXCHANGES, Arm, BlockKind
from hvdperf.plan.options import LAUNCHERS
from hvdperf.records.rounds import Block, BlockReport, Turns
from hvdperf.work.blocks import Blocks
from hvdperf.work.evidence import weights_differ
from hvdperf.work.round_runner import CORRECTNESS_STEPS
from hvdperf.worker.process import is_stopped
from tests.support.groups import (
    ADAM,
    DCGAN,
    DEADLINE_S,
    LSTM,
    TRANSFORMER,
    WORKLOAD,
    Start,
    horovod,
    launched,
    mirrored,
    multiworker,
    single,
    trained,
)
from tests.support.leftovers import eventually

# While the workers are stopped the other tests go on.
pytestmark = [pytest.mark.mpirun, pytest.mark.usefixtures("stopped_workers", "groups")]

Weights = Callable[..., dict[str, np.ndarray]]
ByArm = dict[Any, dict[str, np.ndarray]]
# TensorFlow's own heartbeat gives up after ten to twenty seconds.
STOPPED_S = 25.0


def of_other_seeds(
    arm: str, launcher: Any, hub: Any, order: Any, configs: Any, *others: Any
) -> LiveLaunch:
    """Have each rank draw initial weights of its own, which those of rank 0 have to replace."""
    seeded = [{**each, "seed": each["seed"] + rank} for rank, each in enumerate(configs)]
    return LiveLaunch(arm, launcher, hub, order, seeded, *others)


@pytest.fixture(scope="module")
def stopped_workers(start_for_all: Start) -> tuple[LiveLaunch, float]:
    """Return a group of MultiWorkerMirroredStrategy that has been stopped, and since when."""
    group = start_for_all("agents", multiworker(2))
    group.pause()
    return group, time.monotonic()


@pytest.fixture(scope="module")
def groups(
    start_for_all: Start, weights_by_arm: ByArm, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, LiveLaunch]:
    """Return a stopped group over each launcher that can time every kind of block, and has trained
    reproducibly, too. Its start was timed, as Horovod's examples do it."""
    made = {}
    directory = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hvdperf.launch.arm_launcher.LiveLaunch", of_other_seeds)
        for launcher in LAUNCHERS:
            made[launcher] = start_for_all(launcher, horovod(2, ADAM), tuple(BlockKind))
            weights = trained(made[launcher], directory / f"{launcher}.npz")
            weights_by_arm[launcher, horovod(2), CORRECTNESS_STEPS] = weights
            made[launcher].pause()
    return made


@pytest.fixture
def group(groups: dict[str, LiveLaunch], launcher: str) -> Iterator[LiveLaunch]:
    """Yield the group of all tests, which is stopped between them."""
    groups[launcher].resume()
    yield groups[launcher]
    groups[launcher].pause()


@pytest.mark.parametrize(
    ("launcher", "arm", "other"),
    [
        ("mpirun", horovod(2), mirrored(2)),
        ("mpirun", horovod(1), single()),
        ("agents", horovod(2), horovod(2)),
        ("mpirun", horovod(2, LSTM), mirrored(2, LSTM)),
        pytest.param(
            *("mpirun", horovod(2, TRANSFORMER), mirrored(2, TRANSFORMER)), marks=pytest.mark.long
        ),
    ],
)
def test_every_strategy_and_launcher_trains_the_same_weights(
    weights: Weights, launcher: str, arm: Arm, other: Arm
) -> None:
    assert weights_differ(weights(launcher, arm), weights("mpirun", other)) == ""


# Its two models have variables of the same names.
def test_replicas_whose_start_is_shared_are_given_the_state_of_rank_0(
    start: Start, weights: Weights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hvdperf.launch.arm_launcher.LiveLaunch", of_other_seeds)
    group = start("mpirun", horovod(2, DCGAN), share_startup=True)
    first, second = group.ask("evidence", DEADLINE_S)
    assert first["digests"] == second["digests"]
    ours = trained(group, tmp_path / "weights.npz")
    group.close()
    assert weights_differ(ours, weights("mpirun", mirrored(2, DCGAN))) == ""


# What `cycle` changes is the environment of the ranks, as `nofuse` does.
@pytest.mark.parametrize("variant", [each for each in EXCHANGES if each not in ("", "cycle")])
def test_another_way_of_exchanging_trains_what_it_says(weights: Weights, variant: str) -> None:
    plain = horovod(2, LSTM if variant == "dense" else WORKLOAD)
    tolerance = EXCHANGES[variant].tolerance
    expected = weights("mpirun", plain)
    ours = weights("mpirun", replace(plain, exchange=variant))
    if tolerance is None:
        assert weights_differ(ours, expected) != ""
    else:
        assert weights_differ(ours, expected, of_update=tolerance) == ""


@pytest.mark.parametrize("kind", list(BlockKind))
def test_blocks_consume_what_the_plan_says_and_replicas_stay_equal(
    group: LiveLaunch, kind: BlockKind
) -> None:
    blocks = [
        Block(
            kind, turn, 5, group.reports(BlockReport, "block", DEADLINE_S, kind=kind.value, steps=5)
        )
        for turn in range(2)
    ]
    assert Blocks.problems(launched(horovod(2, ADAM), group, Turns(blocks=blocks))) == []
    expected = 5 * WORKLOAD.batch * (1 if kind is BlockKind.SPLIT else 2)
    assert [block.samples for block in blocks] == [expected, expected]


def test_a_block_begins_when_the_last_rank_is_there(group: LiveLaunch) -> None:
    begins_when_the_last_rank_is_there(group)


def begins_when_the_last_rank_is_there(group: LiveLaunch) -> None:
    late_s = 2.0
    group.ask("block", DEADLINE_S, kind="full", steps=3)
    for rank in group.ranks:
        rank.replies.clear()
    order = {"op": "block", "kind": "full", "steps": 3}
    group._tell(0, order)
    time.sleep(late_s)
    group._tell(1, order)
    group._wait(lambda: all(rank.replies for rank in group.ranks), time.monotonic() + DEADLINE_S)
    assert all(rank.replies[0]["seconds"] < late_s / 2 for rank in group.ranks)


def test_a_stopped_group_goes_on_where_it_was(group: LiveLaunch) -> None:
    before = group.ask("block", DEADLINE_S, kind="full", steps=3)
    group.pause()
    assert eventually(lambda: all(is_stopped(rank.pid) for rank in group.ranks))
    group.resume()
    after = group.ask("block", DEADLINE_S, kind="full", steps=3)
    assert [reply["samples"] for reply in before] == [reply["samples"] for reply in after]


def test_ranks_are_pinned_to_their_own_cores(group: LiveLaunch) -> None:
    for config, rank in zip(group._configs, group.ranks, strict=True):
        threads = os.listdir(f"/proc/{rank.pid}/task")
        masks = {tuple(sorted(os.sched_getaffinity(int(thread)))) for thread in threads}
        assert masks == {tuple(config["cores"])}


def test_workers_that_were_stopped_for_long_are_not_taken_for_dead_and_train_the_same_weights(
    stopped_workers: tuple[LiveLaunch, float], weights: Weights, tmp_path: Path
) -> None:
    group, since = stopped_workers
    assert {rank.metadata["transport"] for rank in group.ranks} == {"ring"}
    time.sleep(max(0.0, since + STOPPED_S - time.monotonic()))
    group.resume()
    replies = group.ask("block", DEADLINE_S, kind="full", steps=3)
    assert [reply["samples"] for reply in replies] == [3 * WORKLOAD.batch] * 2
    begins_when_the_last_rank_is_there(group)
    theirs = trained(group, tmp_path / "weights.npz")
    assert weights_differ(theirs, weights("mpirun", horovod(2))) == ""
