"""Where the batches of tf.distribute's strategies are before a step. Imports TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf

from hvdperf.paths import ROOT
from hvdperf.worker.strategies.mirrored import MirroredTrainer
from hvdperf.worker.strategies.multiworker import MultiWorkerTrainer
from hvdperf.worker.strategies.tf_distribute import DistributedTrainer
from tests.support.rank_configs import rank_config

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
def test_no_batch_is_copied_to_a_device_ahead(
    trainer: type[DistributedTrainer], augment: bool
) -> None:
    asked: Any = trainer(CONFIG)
    asked.strategy = Recorder()
    asked.distribute(augment)
    assert not asked.strategy.options.experimental_fetch_to_device


def test_the_batches_of_all_replicas_are_in_the_host_s_memory() -> None:
    # A process of its own: how many devices a CPU is taken for is settled once.
    code = (
        "from hvdperf.worker.strategies.mirrored import MirroredTrainer\n"
        "from hvdperf.worker.rank_config import Exchange, RankConfig\n"
        f"trainer = MirroredTrainer({CONFIG!r})\n"
        "trainer.init()\n"
        "trainer.open_input()\n"
        "images, _ = trainer.next_batch('full')\n"
        "parts = trainer.strategy.experimental_local_results(images)\n"
        "print([part.device[-5:] for part in parts], trainer.strategy.extended.worker_devices)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "['CPU:0', 'CPU:0']" in done.stdout
    assert "CPU:1" in done.stdout, "the second replica has a device of its own"
