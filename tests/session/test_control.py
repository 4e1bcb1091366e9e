"""Whose fault it is that a launch failed, by what starts for comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.launch.live_launch import LaunchFailed
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.arms import AGAINST, Arm
from hvdperf.records.outcome import Failure
from hvdperf.session import control
from hvdperf.session.control import MOST, Control
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import HOROVOD_2

BROKEN = Failure(HOROVOD_2.name, 1, "init", "it broke")
# Whether an arm starts without these variables.
Starts = Callable[[Arm, Collection[str]], bool]


@dataclass
class Launcher:
    """Starts what it is told to be able to start."""

    starts: Starts
    fault: object = None
    stacks: dict[str, object] = field(default_factory=dict)
    slots: Any = field(default_factory=lambda: place([Offer(0, "here", (0, 1))]))
    started: list[tuple[Arm, tuple[str, ...]]] = field(default_factory=list)

    def start(self, arm: Arm, kinds: object, without: Collection[str], **told: object) -> Any:
        self.started.append((arm, tuple(without)))

        def wait(deadline_s: float) -> None:
            if not self.starts(arm, without):
                raise LaunchFailed(Failure(arm.name, 0, "init", "no way"))

        return SimpleNamespace(wait_ready=wait, close=lambda: None)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lacks nothing, and a user who has set three variables."""
    monkeypatch.setattr(control, "killed_for_memory", lambda: 0)
    monkeypatch.setattr(control, "missing", lambda *told: "")
    groups = {"HOROVOD_": ["HOROVOD_A"], "LD_": ["LD_B"], "": ["C"]}
    monkeypatch.setattr(control, "not_needed", lambda: groups)


def examined(launcher: Launcher, failure: Failure = BROKEN, arm: Arm = HOROVOD_2) -> Failure:
    made: Any = launcher
    return Control(made, lambda text: None).examined(arm, failure)


def is_bare(arm: Arm) -> bool:
    return arm.strategy is Strategy.BARE


def test_a_stack_that_does_not_start_where_mpi_does_is_at_fault():
    launcher = Launcher(lambda arm, without: is_bare(arm))
    assert examined(launcher) == BROKEN
    assert launcher.started[0][1] == ("HOROVOD_A", "LD_B", "C")


def test_a_machine_on_which_mpi_alone_does_not_start_is():
    found = examined(Launcher(lambda arm, without: False))
    assert found.of_node
    assert "no way" in found.cause


@pytest.mark.parametrize("guilty", ["HOROVOD_A", "LD_B", "C"])
def test_a_variable_without_which_it_starts_is_named(guilty):
    found = examined(Launcher(lambda arm, without: guilty in without))
    assert found.of_node
    assert f"-u {guilty} " in found.cause
    others = {"HOROVOD_A", "LD_B", "C"} - {guilty}
    assert not any(f"-u {other} " in found.cause for other in others)


@pytest.mark.parametrize(("other_starts", "of_node"), [(True, False), (False, True)])
def test_the_other_stack_is_the_comparison_if_there_is_one(other_starts, of_node):
    launcher = Launcher(
        lambda arm, without: other_starts and arm.stack == AGAINST, stacks={AGAINST: None}
    )
    assert examined(launcher).of_node is of_node
    assert not any(is_bare(arm) for arm, _ in launcher.started)


def test_what_the_machine_lacks_needs_no_comparison(monkeypatch):
    monkeypatch.setattr(control, "missing", lambda *told: "no memory")
    launcher = Launcher(lambda arm, without: True)
    found = examined(launcher)
    assert found.of_node
    assert "no memory" in found.cause
    assert launcher.started == []


@pytest.mark.parametrize(
    "failure",
    [
        Failure(HOROVOD_2.name, 1, "block", "it broke"),
        Failure(HOROVOD_2.name, 1, "init", "it broke", of_user=True),
        Failure(HOROVOD_2.name, None, "launch", "gone", started=False),
    ],
)
def test_what_failed_later_or_by_another_cause_is_left_as_it_is(failure):
    launcher = Launcher(lambda arm, without: False)
    assert examined(launcher, failure) == failure
    assert launcher.started == []


def test_an_injected_fault_is_left_as_it_is():
    launcher = Launcher(lambda arm, without: False, fault=object())
    assert examined(launcher) == BROKEN


def test_few_failures_are_compared():
    launcher: Any = Launcher(lambda arm, without: is_bare(arm))
    own = Control(launcher, lambda text: None)
    for _ in range(MOST + 2):
        own.examined(HOROVOD_2, BROKEN)
    assert len(launcher.started) == 2 * MOST
