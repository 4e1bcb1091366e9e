"""Collective operations of real groups, through Horovod and through bare MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdperf.explain.collectives import library_mismatch
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import SWEEP, Arm, Collective, Transfer
from hvdperf.plan.questions import Fault
from hvdperf.records.rounds import CollectiveReport, Series, Turns
from hvdperf.work.collectives import Collectives
from hvdperf.worker.protocol import Phase
from hvdperf.worker.strategies import Strategy
from tests.support.groups import DEADLINE_S, WORKLOAD, Start, failure_of, horovod, launched

pytestmark = pytest.mark.mpirun

HOROVOD, BARE = (Arm(SWEEP, strategy, 2) for strategy in (Strategy.HOROVOD, Strategy.BARE))
# Not a multiple of the pattern that the ranks send, and odd to divide.
SIZE = 4 * 10_001


def exchange(group: LiveLaunch, transfer: Transfer, repeats: int = 3, **other: Any) -> Series:
    reports = group.reports(
        CollectiveReport,
        "collective",
        DEADLINE_S,
        collective=transfer.collective.value,
        tensor_bytes=list(transfer.tensor_bytes),
        **{"repeats": repeats, "check": True, **other},
    )
    return Series(transfer, 0, reports)


def problems(arm: Arm, group: LiveLaunch, *series: Series) -> list[str]:
    return Collectives.problems(launched(arm, group, Turns(series=list(series))))


@pytest.mark.parametrize("arm", [HOROVOD, BARE], ids=lambda arm: arm.label)
def test_every_operation_gives_the_right_numbers_of_every_size(start: Start, arm: Arm) -> None:
    group = start("mpirun", arm, kinds=(), last_phase=Phase.INIT)
    phases = ["init"] if arm == HOROVOD else ["launch", "import", "init"]
    assert [list(rank) for rank in group.startup_seconds()] == [phases] * 2
    taken = [
        exchange(group, Transfer(collective, (size,)))
        for collective in Collective
        for size in (SIZE, 64, 4 * SIZE)
    ]
    assert problems(arm, group, *taken) == []
    assert all(len(series.repeats) == 3 for series in taken)
    whole = {
        s.transfer.collective: s.size_bytes for s in taken if s.transfer.tensor_bytes[0] == SIZE
    }
    # Each rank has the same part of what is gathered or scattered.
    assert whole == {
        Collective.ALLREDUCE: SIZE,
        Collective.BROADCAST: SIZE,
        Collective.ALLGATHER: SIZE - 4,
        Collective.REDUCESCATTER: SIZE - 4,
    }
    group.close()


def test_the_gradients_of_a_model_go_tensor_by_tensor_and_in_one_buffer_beside_its_training(
    start: Start,
) -> None:
    ours = start("mpirun", horovod(2))
    before = ours.ask("evidence", DEADLINE_S)
    facts = ours.ranks[0].metadata
    gradients = Transfer(Collective.ALLREDUCE)
    taken = exchange(ours, gradients)
    assert [rank.tensors for rank in taken.ranks] == [facts["gradient_tensors"]] * 2
    assert taken.size_bytes == facts["gradient_bytes"]
    assert problems(horovod(2), ours, taken) == []
    assert ours.ask("evidence", DEADLINE_S) == before
    blocks = ours.ask("block", DEADLINE_S, kind="full", steps=2)
    assert all(np.isfinite(rank["loss"]) for rank in blocks)
    ours.close()
    arm = Arm(WORKLOAD, Strategy.BARE, 2)
    bare = start("mpirun", arm, kinds=())
    whole = exchange(bare, Transfer(Collective.ALLREDUCE, (facts["gradient_bytes"],)))
    assert [rank.tensors for rank in whole.ranks] == [1, 1]
    assert whole.size_bytes == taken.size_bytes
    assert problems(arm, bare, whole) == []
    assert library_mismatch([taken], [whole]) == ""
    assert taken.ranks[0].library


# A rank's numbers that are off by one make every sum so.
OF_RANK_1 = {
    Collective.ALLREDUCE: ["number 0 is 2 instead of 1"] * 2,
    Collective.REDUCESCATTER: ["number 0 is 2 instead of 1", "instead of"],
    Collective.ALLGATHER: [f"number {SIZE // 8} is 2 instead of 1"] * 2,
}
OF_RANK_0 = {Collective.BROADCAST: ["number 0 is 1 instead of 0"] * 2}


@pytest.mark.parametrize(("rank", "told"), [(1, OF_RANK_1), (0, OF_RANK_0)])
def test_numbers_that_are_wrong_are_evidence_against_a_launch_if_they_are_looked_at(
    start: Start, rank: int, told: dict[Collective, list[str]]
) -> None:
    group = start(
        "mpirun", HOROVOD, kinds=(), last_phase=Phase.INIT, fault=Fault("corrupt", rank=rank)
    )
    for collective, said in told.items():
        taken = exchange(group, Transfer(collective, (SIZE,)))
        found = problems(HOROVOD, group, taken)
        assert len(found) == 2
        for number, (problem, words) in enumerate(zip(found, said, strict=True)):
            assert f"rank {number}: " in problem
            assert words in problem
        unseen = exchange(group, Transfer(collective, (SIZE,)), check=False)
        assert [each.problem for each in unseen.ranks] == ["", ""]


def test_a_rank_that_hangs_in_an_operation_is_named(start: Start) -> None:
    fault = Fault("hang", rank=1, phase="collective")
    group = start("mpirun", HOROVOD, kinds=(), last_phase=Phase.INIT, fault=fault)
    order: dict[str, Any] = {"collective": "allreduce", "tensor_bytes": [64], "repeats": 1}
    failure = failure_of(lambda: group.ask("collective", 3.0, check=False, **order))
    assert (failure.rank, failure.phase) == (1, "collective")


def test_without_mpi4py_there_is_one_line_and_no_figure(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "mpi4py"
    missing.mkdir()
    (missing / "__init__.py").write_text("raise ImportError('no such package')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    group = start("mpirun", BARE, kinds=(), last_phase=Phase.INIT)
    taken = exchange(group, Transfer(Collective.ALLREDUCE, (SIZE,)))
    first = problems(BARE, group, taken)[0]
    problem = "the ranks' interpreter has no working mpi4py (no such package)"
    assert f"{problem}: install an mpi4py there" in first
    assert taken.repeats == []
