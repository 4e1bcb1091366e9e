"""The curve of a run: how many rows, of what, and that no loss is read before the end."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdperf.worker.learning.learning_rate import Adaptive, Constant
from hvdperf.worker.learning.loss_curve import MOST, POINTS, Curve
from tests.worker.test_learning_rate import Rate

RATE = 2**-10  # which half of a float holds, too


class Loss:
    """One that takes note of being read, as a GPU would of having to finish."""

    read = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        Loss.read += 1
        return self.value


def added(losses: Sequence[Loss]) -> Loss:
    assert len(losses) > 1
    return Loss(math.fsum(loss.value for loss in losses))


def curve_of(losses: Sequence[float], steps: int | None, share: float = 1.0) -> list[list[float]]:
    """Of a run of these losses; steps: as far as they are known beforehand."""
    Loss.read = 0
    curve = Curve(steps, Constant([Rate(RATE)]), added)
    for loss in losses:
        curve.after_step(Loss(loss))
    assert Loss.read == 0, "a loss was waited for"
    rows = curve.rows(lambda loss: loss / share)
    assert Loss.read == len(rows)
    return rows


def falling(steps: int) -> list[float]:
    return [1 / (1 + step) for step in range(steps)]


def test_a_short_run_has_a_row_a_step() -> None:
    assert curve_of([4.0, 2.0, 1.0], steps=3) == [[1, 4.0, RATE], [2, 2.0, RATE], [3, 1.0, RATE]]


def test_a_long_run_has_evenly_spread_rows_of_means() -> None:
    rows = curve_of(falling(5000), steps=5000)
    assert [row[0] for row in rows] == list(range(50, 5001, 50))
    assert rows[1][1] == pytest.approx(sum(falling(100)[50:]) / 50)


def test_the_last_row_may_be_shorter() -> None:
    rows = curve_of(falling(1234), steps=1234)
    assert [row[0] for row in rows[-2:]] == [1222, 1234]
    assert rows[-1][1] == pytest.approx(sum(falling(1234)[1222:]) / 12)


def test_a_run_of_nobody_knows_how_long_never_has_too_many_rows() -> None:
    rows = curve_of(falling(12345), steps=None)
    assert MOST / 2 <= len(rows) < MOST
    steps = [int(row[0]) for row in rows]
    assert steps[:-1] == list(range(steps[0], 12345, steps[0])), "evenly spread"


@settings(deadline=None)
@given(st.integers(0, 1500), st.booleans())
def test_rows_hold_every_loss_once(steps: int, known: bool) -> None:
    losses = falling(steps)
    rows = curve_of(losses, steps if known else None)
    assert len(rows) <= (POINTS if known else MOST)
    begun = [0, *(int(row[0]) for row in rows)]
    assert begun[-1] == steps
    for row, (begin, end) in zip(rows, itertools.pairwise(begun), strict=True):
        assert row[1] == pytest.approx(sum(losses[begin:end]) / (end - begin))


def test_no_more_losses_are_held_than_a_row_takes() -> None:
    curve, held = Curve(None, Constant([]), added), weakref.WeakSet[Loss]()
    most = 0
    for _ in range(10_000):
        loss = Loss(1.0)
        held.add(loss)
        curve.after_step(loss)
        most = max(most, len(held))
    assert most < MOST + 10_000 / (MOST / 2), "of the rows, and of the steps since the last one"


def test_a_share_of_the_loss_is_made_whole() -> None:
    assert curve_of([1.0, 3.0], steps=2, share=0.5) == [[1, 2.0, RATE], [2, 6.0, RATE]]


def test_the_learning_rate_is_that_of_the_last_step() -> None:
    rate = Adaptive([Rate(1e-3)], 10, float)
    curve = Curve(40, rate, added)
    used = []
    for _ in range(40):
        rate.before_step()
        used.append(rate.value)
        rate.after_step(1.0)
        curve.after_step(Loss(1.0))
    assert [row[2] for row in curve.rows(float)] == pytest.approx(used)
    assert used[0] < used[-1]


def test_a_loss_that_is_none_spoils_its_own_row_only() -> None:
    rows = curve_of([1.0, math.nan, 1.0], steps=3)
    assert [math.isnan(row[1]) for row in rows] == [False, True, False]
