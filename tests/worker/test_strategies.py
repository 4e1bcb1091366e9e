"""What strategies make of batches and of averages, in this process. Imports TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.paths import ROOT
from hvdperf.worker import training
from hvdperf.worker.strategies.replica import SingleTrainer
from hvdperf.worker.strategies.tf_distribute import MirroredTrainer, MultiWorkerTrainer
from tests.support.rank_configs import rank_config

MOMENTUM = 0.99  # that of Keras
HUGE = 1e6  # beside what a batch adds


def test_old_averages_keep_their_weight_over_an_update_of_several_passes() -> None:
    passes = 3
    trainer = SingleTrainer(rank_config(passes=passes, common_order=True))
    trainer.build()
    trainer.input()
    trainer.trace()
    averages = training.statistics(trainer.parts)
    assert len(averages) > 20
    for average in averages:
        average.assign(tf.fill(average.shape, HUGE))
    for _ in range(passes):
        trainer.step("full", trainer.next_batch("full"))
    for average in averages:
        np.testing.assert_allclose(average.numpy() / HUGE, MOMENTUM, rtol=1e-4)


CONFIG = rank_config(strategy="mirrored", world_size=2, model="vgg_16_s")


class Recorder:
    """As much of a strategy as spreads input: it keeps the options that it is given."""

    def experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: tf.distribute.InputOptions
    ) -> None:
        self.options = options

    distribute_datasets_from_function = experimental_distribute_dataset


@pytest.mark.parametrize("augment", [True, False])
@pytest.mark.parametrize("trainer", [MirroredTrainer, MultiWorkerTrainer])
def test_no_batch_is_copied_to_a_device_ahead(trainer: Any, augment: bool) -> None:
    asked = trainer(CONFIG)
    asked.strategy = Recorder()
    asked.distribute(augment)
    assert not asked.strategy.options.experimental_fetch_to_device


def test_the_batches_of_all_replicas_are_in_the_host_s_memory() -> None:
    # A process of its own: how many devices a CPU is taken for is settled once.
    code = (
        "from hvdperf.worker.strategies.tf_distribute import MirroredTrainer\n"
        "from hvdperf.worker.protocol import Exchange, RankConfig\n"
        f"trainer = MirroredTrainer({CONFIG!r})\n"
        "trainer.init()\n"
        "trainer.input()\n"
        "images, _ = trainer.next_batch('full')\n"
        "parts = trainer.strategy.experimental_local_results(images)\n"
        "print([part.device[-5:] for part in parts], trainer.strategy.extended.worker_devices)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "['CPU:0', 'CPU:0']" in done.stdout
    assert "CPU:1" in done.stdout, "the second replica has a device of its own"
