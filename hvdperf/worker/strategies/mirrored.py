"""Strategy `mirrored`: one process, one replica per device, tf.distribute.MirroredStrategy."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.strategies.tf_distribute import IN_HOST_MEMORY, DistributedTrainer, Replicated


class MirroredTrainer(DistributedTrainer):
    """The Trainer (base.py) of MirroredStrategy."""

    def make_strategy(self) -> tf.distribute.Strategy:
        replicas = self.config.world_size
        training.set_up_devices(self.config, logical_cpus=replicas)
        device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        found = [logical.name for logical in tf.config.list_logical_devices(device)]
        return tf.distribute.MirroredStrategy(found[:replicas])

    def transport(self) -> str:
        return type(self.strategy.extended._get_cross_device_ops(tf.zeros([]))).__name__

    def total(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def validate(self) -> Facts:
        # Every replica has seen other samples, and with Keras 3 it has its own statistics. Outside
        # of a replica only those of the first one would be read.
        for variable in training.statistics(self.parts):
            copies = self.strategy.experimental_local_results(variable)
            mean = tf.add_n([tf.identity(copy) for copy in copies]) / len(copies)
            for copy in copies:
                copy.assign(mean)
        return training.validate(self.config, self.task, self.parts, (0, 1), self.total)

    def distribute(self, augment: bool) -> Any:
        dataset = training.open_global(self.config, self.task, augment)
        return self.strategy.experimental_distribute_dataset(dataset, IN_HOST_MEMORY)

    def loss_of(self, per_replica: Replicated) -> tf.Tensor:
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    def own_loss(self, loss: float) -> float:
        # This process has all replicas.
        return loss
