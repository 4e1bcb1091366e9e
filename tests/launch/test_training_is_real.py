"""Real gradients, really averaged, over each launcher."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import EXCHANGES, Arm, BlockKind, Workload
from hvdperf.records.rounds import Block, BlockReport, Evidence, Launch, Turns
from hvdperf.work.blocks import Blocks
from hvdperf.work.evidence import weights_differ
from hvdperf.worker.process import is_stopped
from hvdperf.worker.protocol import Phase
from tests.support.groups import (
    ADAM,
    DCGAN,
    DEADLINE_S,
    LSTM,
    TRANSFORMER,
    WORKLOAD,
    MakeStarter,
    Start,
    environments,
    horovod,
    mirrored,
    multiworker,
    single,
)

# While the workers are stopped the other tests go on.
pytestmark = [pytest.mark.mpirun, pytest.mark.usefixtures("stopped_workers")]

Weights = Callable[..., dict[str, np.ndarray]]
# TensorFlow's own heartbeat gives up after ten to twenty seconds.
STOPPED_S = 25.0


@pytest.fixture(scope="module")
def stopped_workers(start_for_all: Start) -> tuple[LiveLaunch, float]:
    """Return a group of MultiWorkerMirroredStrategy that has been stopped, and since when."""
    group = start_for_all("mpirun", multiworker(2, DCGAN))
    group.pause()
    return group, time.monotonic()


@pytest.fixture(scope="module")
def group_for_all(start_for_all: Start, launcher: str) -> LiveLaunch:
    return start_for_all(launcher, horovod(2, ADAM), tuple(BlockKind))


@pytest.fixture
def group(group_for_all: LiveLaunch) -> Iterator[LiveLaunch]:
    """Yield a group that can time every kind of block: the same for all tests, over each
    launcher. It is stopped between them."""
    group_for_all.resume()
    yield group_for_all
    group_for_all.pause()


@pytest.mark.parametrize(
    ("arm", "other"),
    [(horovod(2), mirrored(2)), (horovod(2), multiworker(2)), (horovod(1), single())],
    ids=lambda arm: arm.label,
)
def test_strategies_train_the_same_weights(weights: Weights, arm: Arm, other: Arm) -> None:
    assert weights_differ(weights("mpirun", arm), weights("mpirun", other)) == ""


@pytest.mark.parametrize("arm", [horovod(2), multiworker(2), single()], ids=lambda arm: arm.label)
def test_every_launcher_starts_what_trains_the_same_weights(weights: Weights, arm: Arm) -> None:
    assert weights_differ(weights("agents", arm), weights("mpirun", arm)) == ""


@pytest.mark.parametrize("workload", [LSTM, TRANSFORMER, DCGAN], ids=lambda known: known.model)
def test_every_task_is_trained_alike(weights: Weights, workload: Workload) -> None:
    ours = weights("mpirun", horovod(2, workload))
    theirs = weights("mpirun", mirrored(2, workload))
    assert weights_differ(ours, theirs) == ""


@pytest.mark.parametrize("variant", [variant for variant in EXCHANGES if variant])
def test_another_way_of_exchanging_trains_what_it_says(weights: Weights, variant: str) -> None:
    plain = horovod(2, LSTM if variant == "dense" else WORKLOAD)
    tolerance = EXCHANGES[variant].tolerance
    expected = weights("mpirun", plain)
    trained = weights("mpirun", replace(plain, exchange=variant))
    if tolerance is None:
        assert weights_differ(trained, expected) != ""
    else:
        assert weights_differ(trained, expected, of_update=tolerance) == ""


def test_what_horovod_reads_from_its_environment_is_there(start: Start) -> None:
    arm = replace(horovod(2), exchange="nofuse")
    told = environments(start("agents", arm, kinds=(), last_phase=Phase.INIT))
    assert ["HOROVOD_FUSION_THRESHOLD=0" in given for given in told] == [True] * 2


# Timed as Horovod's examples do it, or not timed. Two models have variables of the same names.
@pytest.mark.parametrize(("workload", "share_startup"), [(ADAM, False), (DCGAN, True)])
def test_replicas_that_begin_otherwise_are_given_the_state_of_rank_0(
    make_arm_launcher: MakeStarter,
    monkeypatch: pytest.MonkeyPatch,
    workload: Workload,
    share_startup: bool,
) -> None:
    def of_other_seeds(
        arm: str, launcher: Any, hub: Any, order: Any, configs: Any, *others: Any
    ) -> LiveLaunch:
        seeded = [{**each, "seed": rank} for rank, each in enumerate(configs)]
        return LiveLaunch(arm, launcher, hub, order, seeded, *others)

    monkeypatch.setattr("hvdperf.launch.arm_launcher.LiveLaunch", of_other_seeds)
    arm_launcher = make_arm_launcher("mpirun")
    group = arm_launcher.start(
        horovod(2, workload), {BlockKind.FULL}, 1, share_startup=share_startup
    )
    try:
        group.wait_ready(DEADLINE_S)
        first, second = group.ask("evidence", DEADLINE_S)
    finally:
        group.end()
    assert first["digests"] == second["digests"]


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
    evidence = group.reports(Evidence, "evidence", DEADLINE_S)
    launch = Launch(horovod(2, ADAM), 0, work=Turns(blocks=blocks), evidence=evidence)
    assert Blocks.problems(launch) == []
    expected = 5 * WORKLOAD.batch * (1 if kind is BlockKind.SPLIT else 2)
    assert [block.samples for block in blocks] == [expected, expected]


def test_a_block_begins_when_the_last_rank_is_there(group: LiveLaunch) -> None:
    begins_when_the_last_rank_is_there(group)


def test_a_block_of_workers_begins_when_the_last_one_is_there(start: Start) -> None:
    begins_when_the_last_rank_is_there(start("mpirun", multiworker(2)))


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
    deadline = time.monotonic() + 10
    while not all(is_stopped(rank.pid) for rank in group.ranks):
        assert time.monotonic() < deadline, "a rank goes on although it was stopped"
        time.sleep(0.01)
    group.resume()
    after = group.ask("block", DEADLINE_S, kind="full", steps=3)
    assert [reply["samples"] for reply in before] == [reply["samples"] for reply in after]


def test_ranks_are_pinned_to_their_own_cores(group: LiveLaunch) -> None:
    for config, rank in zip(group._configs, group.ranks, strict=True):
        threads = os.listdir(f"/proc/{rank.pid}/task")
        masks = {tuple(sorted(os.sched_getaffinity(int(thread)))) for thread in threads}
        assert masks == {tuple(config["cores"])}


def test_workers_that_were_stopped_for_long_are_not_taken_for_dead(
    stopped_workers: tuple[LiveLaunch, float],
) -> None:
    group, since = stopped_workers
    assert {rank.metadata["transport"] for rank in group.ranks} == {"ring"}
    time.sleep(max(0.0, since + STOPPED_S - time.monotonic()))
    group.resume()
    replies = group.ask("block", DEADLINE_S, kind="full", steps=3)
    assert [reply["samples"] for reply in replies] == [3 * DCGAN.batch] * 2
