"""What the ranks of an outer mpirun have to lend, over an MPI that only pretends."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import slots as slots_module
from hvdperf.launch.agents import LocalAgent
from hvdperf.launch.slots import Slots, own_offer, tasks_without_mpirun


class Comm:
    """Of rank 0; the other rank answers every call with the same."""

    def __init__(self, kind: str, value: Any) -> None:
        self._answer = kind, value
        self._answers: list[tuple[str, int, Any]] = []

    def Get_size(self) -> int:  # noqa: N802 - as mpi4py calls it
        return 2

    def isend(self, message: tuple[Any, ...], dest: int) -> SimpleNamespace:
        kind, value = self._answer
        self._answers.append((kind, message[1], value))
        return SimpleNamespace(Test=lambda: True)

    def iprobe(self, source: int) -> bool:
        return bool(self._answers)

    def recv(self, source: int) -> tuple[str, int, Any]:
        return self._answers.pop(0)


def slots(monkeypatch: pytest.MonkeyPatch, kind: str, value: Any) -> Slots:
    mpi = SimpleNamespace(COMM_WORLD=Comm(kind, value))
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    return Slots()


def test_every_rank_offers_what_it_has(monkeypatch):
    theirs = own_offer()
    assert slots(monkeypatch, "value", theirs).offers() == [own_offer(), theirs]


def test_a_rank_that_cannot_tell_what_it_has_is_named_in_one_line(monkeypatch):
    complaint = "nvidia-smi did not answer in 30 s: a GPU or its driver hangs; reset it"
    with pytest.raises(UserError) as refused:
        slots(monkeypatch, "error", complaint).offers()
    assert str(refused.value) == f"slot of rank 1: {complaint}"


@pytest.mark.parametrize(
    ("environment", "tasks"),
    [
        ({}, 1),
        ({"SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "4"}, 4),
        ({"SLURM_STEP_NUM_TASKS": "4", "OMPI_COMM_WORLD_SIZE": "2"}, 1),
    ],
)
def test_what_srun_has_started_by_itself_is_no_slot(monkeypatch, environment, tasks):
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tasks_without_mpirun() == tasks


@pytest.mark.parametrize("order", ["end_all", "_directory", "__init__", "no such thing"])
def test_a_slot_carries_out_no_order_that_is_not_listed(order, tmp_path):
    kind, problem = slots_module._carry_out(LocalAgent(tmp_path), order, ())
    assert (kind, problem) == ("error", f"a slot does not know the order {order!r}")


def test_every_order_that_a_slot_is_given_is_listed():
    given = re.findall(
        r'\.call\((?:self\._)?rank, "(\w+)"', Path(slots_module.__file__).read_text()
    )
    assert set(given) == set(slots_module._ORDERS)
