"""A custom training loop under tf.distribute, as in TensorFlow's guide: the strategies `mirrored`,
one process with a replica per device, and `multiworker`, one process per worker."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Callable

import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts, Trainer
from hvdperf.worker.training import Part

Replicated = Any  # values of all replicas of this process
# A batch stays in host memory until a step takes it, as in the other strategies. By default it
# would be copied to a GPU before the step, and the step's time would lack the copy.
IN_HOST_MEMORY = tf.distribute.InputOptions(experimental_fetch_to_device=False)


class DistributedTrainer(Trainer):
    """The common part of every Trainer (base.py) under tf.distribute. A strategy adds how it is
    made, how its input is spread and what this process's share of a loss is."""

    @abstractmethod
    def make_strategy(self) -> tf.distribute.Strategy:
        """Set up the devices and return the strategy."""

    @abstractmethod
    def distribute(self, augment: bool) -> Any:
        """Return the workload's input; an element is this process's part of a global batch."""

    @abstractmethod
    def loss_of(self, per_replica: Replicated) -> tf.Tensor:
        """Return this process's value from those that its replicas returned."""

    @abstractmethod
    def transport(self) -> str:
        """Return how the replicas exchange gradients, for the launch's facts."""

    def mean_loss(self, loss: float) -> float:
        # A value is this process's share of the loss of the global batch.
        return self.total([loss])[0]

    def init(self) -> Facts:
        self.strategy = self.make_strategy()
        self.world_size = self.strategy.num_replicas_in_sync
        return {"rank": self.rank, "world_size": self.world_size, "transport": self.transport()}

    def scope(self) -> AbstractContextManager[Any]:
        return self.strategy.scope()  # type: ignore[no-any-return]

    def input(self) -> None:
        self._dataset = self.distribute(augment=True)
        self._batches: Iterator[Any] = iter(self._dataset)

    def trace(self) -> None:
        self._step = self._traced(self.parts, self._dataset)

    def _traced(self, parts: list[Part], dataset: Any) -> Callable[..., tf.Tensor]:
        whole = self.config.batch * self.config.world_size

        def average(losses: tf.Tensor) -> tf.Tensor:
            # Over the global batch, because the strategy sums the replicas' gradients.
            return tf.nn.compute_average_loss(losses, global_batch_size=whole)

        def replica_step(*batch: tf.Tensor) -> tf.Tensor:
            return training.update(self.task, parts, batch, average, summed=self.config.world_size)

        @training.graph(input_signature=[dataset.element_spec])
        def step(batch: Any) -> tf.Tensor:
            return self.loss_of(self.strategy.run(replica_step, args=batch))

        step.get_concrete_function()
        return step  # type: ignore[no-any-return]

    def first_step(self) -> None:
        float(self.step("full", self.next_batch("full")))

    def ablation(self) -> Facts:
        raise ValueError(f"{self.config.strategy} has no step without its exchange")

    def enter_block(self, kind: str) -> None:
        if kind != "full":
            raise ValueError(f"{self.config.strategy} has no blocks of kind {kind!r}")

    def next_batch(self, kind: str) -> Any:
        return next(self._batches)

    def step(self, kind: str, batch: Any) -> Any:
        return self._step(batch)

    def by_process(self, batch: Any) -> Sequence[Any]:
        parts = [self.strategy.experimental_local_results(leaf) for leaf in tf.nest.flatten(batch)]
        return [tf.nest.pack_sequence_as(batch, of_replica) for of_replica in zip(*parts)]

    def by_replica(self, parts: list[Part]) -> list[list[tf.Variable]]:
        copies = [
            self.strategy.experimental_local_results(variable)
            for variable in training.weights(parts)
        ]
        return [list(of_replica) for of_replica in zip(*copies)]

    def in_file_order(self, parts: list[Part]) -> tuple[Iterator[Any], Callable[[Any], Any]]:
        dataset = self.distribute(augment=False)
        return iter(dataset), self._traced(parts, dataset)


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
    # Imported only here, because not every release of TensorFlow has it in this place.
    from tensorflow.python.eager import context

    # The module of this message is elsewhere since 2.19, its place in the configuration is not.
    jobs = tf.compat.v1.ConfigProto().experimental.coordination_config.coordinated_job_list
    job = jobs.add(name="worker", num_tasks=workers)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=_HEARTBEAT_TIMEOUT_MS,
        coordinated_jobs=[job],
    )


class MultiWorkerTrainer(DistributedTrainer):
    """The Trainer (base.py) of MultiWorkerMirroredStrategy. hvdperf.worker.session_link sets
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
                self.config, self.task, self.config.batch, shard=(index, count), augment=augment
            )

        return self.strategy.distribute_datasets_from_function(shard, IN_HOST_MEMORY)

    def loss_of(self, per_replica: Replicated) -> tf.Tensor:
        # Only this worker's share: adding up all shares would be another collective in every step.
        return self.strategy.experimental_local_results(per_replica)[0]

    def own_loss(self, loss: float) -> float:
        return loss * float(self.config.world_size)
