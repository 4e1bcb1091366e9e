"""What a step's clock has waited for, with a trainer whose steps are done when somebody waits for
them, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.worker import session_link, steps
from hvdperf.worker.protocol import FaultConfig

STEPS = 4


class Clock:
    """Seconds pass only where somebody spends them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Loss:
    """Of a step that takes a second once it is waited for, and all before it with it."""

    def __init__(self, queue: list[Loss], clock: Clock) -> None:
        self._queue, self._clock = queue, clock
        queue.append(self)

    def __float__(self) -> float:
        if self in self._queue:
            done = self._queue.index(self) + 1
            self._clock.now += done
            del self._queue[:done]
        return 0.5


def nothing(*arguments: Any) -> None:
    pass


@pytest.fixture
def block(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    clock, queue = Clock(), list[Loss]()
    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=clock))
    trainer: Any = SimpleNamespace(
        enter_block=nothing,
        leave_block=nothing,
        barrier=nothing,
        next_batch=nothing,
        step=lambda kind, batch: Loss(queue, clock),
        count=lambda batch: 32,
        learning_rate=SimpleNamespace(before_step=nothing, after_step=nothing),
    )
    driver: Any = SimpleNamespace(steps_begun=0, enter=nothing)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(session_link, "time", SimpleNamespace(sleep=sleep))

    def run(fault: FaultConfig | None = None, **options: Any) -> dict[str, Any]:
        driver.fault = session_link.Fault(fault, 0)
        return steps.run_block(trainer, driver, "full", STEPS, **options)

    return run


@pytest.mark.parametrize("fault", [None, FaultConfig("slow", 1, "block", 3.0, 0.0)])
def test_a_timed_block_waits_for_its_end_only_also_beside_a_slow_rank(block, fault):
    told = block(fault)
    assert (told["seconds"], told["inside_seconds"]) == (STEPS, 0)
    assert told["step_seconds"] == [0] * STEPS


def test_one_that_is_divided_waits_for_every_step(block):
    told = block(wait=True)
    assert (told["seconds"], told["inside_seconds"]) == (STEPS, STEPS)
    assert told["step_seconds"] == [1] * STEPS


@pytest.mark.parametrize("kind", ["slow", "input"])
def test_a_fault_that_is_as_long_as_a_step_follows_its_real_end(block, kind):
    told = block(FaultConfig(kind, 0, "block", 3.0, 0.0))
    # The first step has none before it to measure.
    assert told["seconds"] == STEPS + 2 * (STEPS - 1)
