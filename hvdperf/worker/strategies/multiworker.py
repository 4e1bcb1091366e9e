"""Strategy `multiworker`: one process per worker, tf.distribute.MultiWorkerMirroredStrategy."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.tsl.protobuf import coordination_config_pb2

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.strategies.tf_distribute import IN_HOST_MEMORY, DistributedTrainer, Replicated

_Communication = tf.distribute.experimental.CommunicationImplementation


# The default is ten seconds. With it, a group that is stopped while other arms run would be taken
# for dead. The driver's own deadlines are the guard instead.
_HEARTBEAT_TIMEOUT_MS = 24 * 3600 * 1000
# Length of the vector that `total` adds up: the values, zeros, and a count of the workers.
_VALUES = 4


def configure_heartbeat(workers: int) -> None:
    """Configure the coordination service of the workers with a longer heartbeat timeout. Call this
    before the strategy is made.

    The strategy makes the same call (TensorFlow's collective_all_reduce_strategy.py) unless the
    service is configured already. TensorFlow has no public function for this.
    """
    job = coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=workers)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=_HEARTBEAT_TIMEOUT_MS,
        coordinated_jobs=[job],
    )


class MultiWorkerTrainer(DistributedTrainer):
    """The Trainer (base.py) of MultiWorkerMirroredStrategy. hvdperf.worker.rendezvous sets
    TF_CONFIG."""

    def make_strategy(self) -> tf.distribute.Strategy:
        training.set_up_devices(self.config)
        configure_heartbeat(self.config.world_size)
        gpu = bool(tf.config.list_physical_devices("GPU"))
        self._implementation = _Communication.NCCL if gpu else _Communication.RING
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=self._implementation
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        self.rank = strategy.cluster_resolver.task_id
        return strategy

    def transport(self) -> str:
        """Return the collectives that TensorFlow has chosen. Raises RuntimeError if they are not
        those that were asked for."""
        chosen = self.strategy.extended._communication_options.implementation
        if chosen is not self._implementation:
            raise RuntimeError(f"asked for {self._implementation.value}, got {chosen.value}")
        return str(chosen.value).lower()

    def trace(self) -> None:
        super().trace()

        def add(values: tf.Tensor) -> tf.Tensor:
            here = tf.distribute.get_replica_context()
            # tf.identity makes a copy on the replica's device: an argument of a graph is on none.
            return here.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

        # The length is fixed, because the workers agree on it once per collective.
        @training.graph(input_signature=[tf.TensorSpec([_VALUES], tf.float64)])
        def summed(values: tf.Tensor) -> tf.Tensor:
            return self.loss_of(self.strategy.run(add, args=(values,)))

        self._summed = summed.get_concrete_function()

    def total(self, values: Sequence[float]) -> list[float]:
        # The last place counts the workers.
        padded = [*values, *[0.0] * (_VALUES - 1 - len(values)), 1.0]
        summed = [float(value) for value in self._summed(tf.constant(padded, tf.float64))]
        if summed[-1] != self.config.world_size:
            raise RuntimeError(f"{summed[-1]:g} of {self.config.world_size} workers met")
        return summed[: len(values)]

    def validate(self) -> Facts:
        raise ValueError("the weights of multiworker are not compared, only its speed")

    def distribute(self, augment: bool) -> Any:
        def shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
            index, count = context.input_pipeline_id, context.num_input_pipelines
            return training.open_dataset(
                self.config,
                self.task,
                self.config.batch,
                shard=(index, count),
                augment=augment,
            )

        return self.strategy.distribute_datasets_from_function(shard, IN_HOST_MEMORY)

    def loss_of(self, per_replica: Replicated) -> tf.Tensor:
        # Only this worker's share: adding up all shares would be another collective in every step.
        return self.strategy.experimental_local_results(per_replica)[0]

    def own_loss(self, loss: float) -> float:
        return loss * float(self.config.world_size)
