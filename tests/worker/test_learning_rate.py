"""The learning rate over steps and epochs, with variables that only remember their value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hvdperf.worker.learning.learning_rate import (
    FACTOR,
    PATIENCE,
    WARM_UP_EPOCHS,
    Adaptive,
    Constant,
)

EPOCH_STEPS = 10
WARM = WARM_UP_EPOCHS * EPOCH_STEPS


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


def adaptive(mean_loss: Callable[[float], float] = float) -> Adaptive:
    return Adaptive([Rate(1e-3)], EPOCH_STEPS, mean_loss)


def train(rate: Constant, steps: int, loss: float = 1.0) -> list[float]:
    """The rates that the steps were trained with."""
    used = []
    for _ in range(steps):
        rate.before_step()
        used.append(rate.value)
        assert rate.assigned == pytest.approx(rate.value), "known without asking the variable"
        rate.after_step(loss)
    return used


def test_a_constant_rate_is_never_touched() -> None:
    variable = Rate(1e-3)
    train(Constant([variable]), 30)
    assert variable.value == 1e-3
    assert variable.assigned == 0


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
    assert used[plateau] == pytest.approx(1e-3 * FACTOR)


def test_it_stays_while_the_loss_falls() -> None:
    rate = adaptive()
    for epoch in range(10):
        used = train(rate, EPOCH_STEPS, loss=1.0 - epoch / 20)
    assert used[-1] == pytest.approx(1e-3)


def test_ranks_that_average_their_losses_agree_and_others_do_not() -> None:
    losses = {0: [1.0, 0.9, 0.8, 0.7, 0.6], 1: [1.0, 1.1, 1.2, 1.3, 1.4]}
    epochs = range(5)

    def rates_after(averaged: bool) -> list[float]:
        ended = []
        for rank in losses:
            means = iter([(losses[0][epoch] + losses[1][epoch]) / 2 for epoch in epochs])

            def mean_loss(own: float, means: object = means) -> float:
                return next(means) if averaged else own  # type: ignore[call-overload]

            rate = adaptive(mean_loss)
            for epoch in epochs:
                train(rate, EPOCH_STEPS, losses[rank][epoch])
            ended.append(train(rate, 1)[0])
        return ended

    alike = rates_after(averaged=True)
    assert alike[0] == alike[1]
    torn = rates_after(averaged=False)
    assert torn[0] > torn[1]


def test_a_rate_that_goes_astray_stays_off_by_its_factor() -> None:
    constant, rising = Constant([Rate(1e-3)]), adaptive()
    for rate in (constant, rising):
        rate.go_astray(2.0)
    assert train(constant, 1) == pytest.approx([2e-3])
    assert train(rising, 2) == pytest.approx([2e-3 / WARM, 4e-3 / WARM])


def test_where_there_is_no_optimizer_the_rate_is_nothing() -> None:
    assert Constant([]).assigned == Constant([]).value == 0.0
