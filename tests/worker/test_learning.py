"""The learning rate over steps and epochs, and the curve of a run, without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdperf.worker import learning
from hvdperf.worker.learning import PATIENCE, POINTS, READ, Adaptive, Constant, Curve

EPOCH_STEPS = 10
WARM = learning.WARM_UP_EPOCHS * EPOCH_STEPS


class Rate:
    """As much of a variable as is used."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.assigned = 0

    def numpy(self) -> np.float32:
        return np.float32(self.value)

    def assign(self, value: float) -> None:
        self.value = value
        self.assigned += 1


def optimizer(rate: Any) -> Any:
    return SimpleNamespace(learning_rate=rate, iterations=7)


def adaptive(mean_loss: Callable[[float], float] = float) -> Adaptive:
    return Adaptive([optimizer(Rate(1e-3))], EPOCH_STEPS, mean_loss)


def train(rate: Constant, steps: int, loss: float = 1.0) -> list[float]:
    """The rates that the steps were trained with."""
    used = []
    for _ in range(steps):
        rate.before_step()
        used.append(rate.value)
        rate.after_step(loss)
    return used


def test_a_constant_rate_is_never_touched() -> None:
    assert Constant([]).value == 0.0, "there is no optimizer"
    variable = Rate(1e-3)
    train(Constant([optimizer(variable)]), 30)
    assert variable.value == 1e-3
    assert variable.assigned == 0


def test_the_rate_of_a_schedule_is_that_of_its_step() -> None:
    for schedule in (lambda step: step / 10, lambda step: Rate(step / 10)):
        assert Constant([optimizer(schedule)]).value == pytest.approx(0.7)


def test_it_rises_linearly_to_the_rate_of_the_optimizer() -> None:
    used = train(adaptive(), WARM + 5)
    assert used[:2] == pytest.approx([1e-3 / WARM, 2e-3 / WARM])
    assert np.diff(used[:WARM]) == pytest.approx([1e-3 / WARM] * (WARM - 1))
    assert used[WARM - 1 :] == pytest.approx([1e-3] * 6)


def test_it_falls_when_the_loss_has_not_fallen_for_some_epochs() -> None:
    used = train(adaptive(), WARM + EPOCH_STEPS * (PATIENCE + 1))
    # The first epoch sets the best loss, PATIENCE more do not beat it.
    plateau = EPOCH_STEPS * (1 + PATIENCE)
    assert used[plateau - 1] == pytest.approx(1e-3)
    assert used[plateau] == pytest.approx(1e-3 * learning.FACTOR)


def test_ranks_that_average_their_losses_agree_and_others_do_not() -> None:
    losses = [1.0, 0.9, 0.8, 0.7, 0.6], [1.0, 1.1, 1.2, 1.3, 1.4]

    def rates_after(mean_loss: Callable[[float], float]) -> list[float]:
        rates = [adaptive(mean_loss) for _ in losses]
        for rate, of_rank in zip(rates, losses, strict=True):
            for loss in of_rank:
                train(rate, EPOCH_STEPS, loss)
        return [train(rate, 1)[0] for rate in rates]

    alike = rates_after(lambda _: 1.0)
    assert alike[0] == alike[1]
    torn = rates_after(float)
    assert torn[0] == pytest.approx(1e-3), "it stays while the loss falls"
    assert torn[0] > torn[1]


class Loss:
    """One that takes note of being read, as a GPU would of having to finish."""

    read = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        Loss.read += 1
        return self.value


def curve_of(losses: Sequence[float], share: float = 1.0) -> list[list[float]]:
    Loss.read = 0
    curve = Curve()
    for step, loss in enumerate(losses, 1):
        curve.after_step(Loss(loss))
        assert Loss.read == step - step % READ, "a loss was waited for"
    rows = curve.rows(lambda loss: loss / share)
    assert Loss.read == len(losses)
    return rows


def test_a_short_run_has_a_row_a_step() -> None:
    assert curve_of([1.0, 3.0], share=0.5) == [[1, 2.0], [2, 6.0]]
    rows = curve_of([1.0, math.nan, 1.0])
    assert [math.isnan(row[1]) for row in rows] == [False, True, False]


@settings(deadline=None)
@given(st.integers(0, 1500))
def test_rows_are_evenly_spread_and_hold_every_loss_once(steps: int) -> None:
    losses = [1 / (1 + step) for step in range(steps)]
    rows = curve_of(losses)
    assert min(steps, POINTS // 2) <= len(rows) <= POINTS
    ends = [int(row[0]) for row in rows]
    begun = list(range(0, steps, ends[0])) if rows else []
    assert ends == [*begun[1:], steps][: len(rows)]
    for row, begin, end in zip(rows, begun, ends, strict=True):
        assert row[1] == pytest.approx(sum(losses[begin:end]) / (end - begin))
