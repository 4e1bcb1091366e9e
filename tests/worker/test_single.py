"""Several passes of plain TensorFlow in the place of as many replicas. Imports TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.strategies.single import SingleTrainer
from tests.support.rank_configs import rank_config

MOMENTUM = 0.99  # that of Keras
HUGE = 1e6  # beside what a batch adds


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_old_averages_keep_their_weight_over_an_update(passes: int) -> None:
    trainer = SingleTrainer(rank_config(passes=passes, common_order=True))
    trainer.build()
    trainer.open_input()
    trainer.trace()
    averages = training.statistics(trainer.parts)
    assert len(averages) > 20
    for average in averages:
        average.assign(tf.fill(average.shape, HUGE))
    for _ in range(passes):
        trainer.step("full", trainer.next_batch("full"))
    for average in averages:
        np.testing.assert_allclose(average.numpy() / HUGE, MOMENTUM, rtol=1e-4)
