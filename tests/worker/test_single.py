"""Several passes of plain TensorFlow in the place of as many replicas. Imports TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.strategies.single import SingleTrainer

CONFIG: training.Config = {
    "strategy": "single",
    "world_size": 1,
    "model": "resnet_50_s",
    "input_size": 32,
    "classes": 1000,
    "batch": 4,
    "optimizer": "sgd",
    "precision": "float32",
    "learning_rate": "constant",
    "seed": 1,
    "dataset": "synthetic",
    "data_dir": "",
    "data_seed": 1,
    "input_threads": 1,
    "kinds": ["full"],
    "common_order": True,
}
MOMENTUM = 0.99  # that of Keras
HUGE = 1e6  # beside what a batch adds


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_old_averages_keep_their_weight_over_an_update(passes: int) -> None:
    trainer = SingleTrainer({**CONFIG, "passes": passes})
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
