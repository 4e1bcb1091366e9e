"""Strategy `multiworker`: one process a worker, tf.distribute.MultiWorkerMirroredStrategy."""

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import (
    CollectiveAllReduceExtended,
)

from harness.worker import training
from harness.worker.distributed import DistributedTrainer, Replicated

_Communication = tf.distribute.experimental.CommunicationImplementation


class MultiWorkerTrainer(DistributedTrainer):
    """See harness.worker.trainer.Trainer. TF_CONFIG is set by harness.worker.rendezvous."""

    def make_strategy(self) -> tf.distribute.Strategy:
        training.set_up_devices(self.config)
        # Its heartbeat would take a worker that is stopped between its turns for a dead one.
        CollectiveAllReduceExtended._enable_check_health = False
        gpu = bool(tf.config.list_physical_devices("GPU"))
        self._implementation = _Communication.NCCL if gpu else _Communication.RING
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=self._implementation
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        self.rank = strategy.cluster_resolver.task_id
        return strategy

    def transport(self) -> str:
        """The collectives that were really chosen. Raises RuntimeError if they are not those that
        were asked for."""
        chosen = self.strategy.extended._communication_options.implementation
        if chosen is not self._implementation:
            raise RuntimeError(f"asked for {self._implementation.value}, got {chosen.value}")
        return str(chosen.value).lower()

    def distribute(self, augment: bool) -> Any:
        def shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
            index, count = context.input_pipeline_id, context.num_input_pipelines
            if augment:
                return training.open_dataset(
                    self.config, self.task, self.config["batch"], shard=(index, count)
                )
            # Of every global batch the contiguous slice of this worker.
            whole = training.open_dataset(self.config, self.task, self.global_batch, augment=False)
            batch = self.config["batch"]
            mine = slice(index * batch, (index + 1) * batch)
            return whole.map(lambda *parts: tuple(part[mine] for part in parts))

        return self.strategy.distribute_datasets_from_function(shard)

    def loss_of(self, per_replica: Replicated) -> tf.Tensor:
        # This worker's share: adding up all of them would be another collective in every step.
        return self.strategy.experimental_local_results(per_replica)[0]
