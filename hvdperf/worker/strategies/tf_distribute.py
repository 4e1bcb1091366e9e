"""A custom training loop under a tf.distribute strategy, as in TensorFlow's guide."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.training import Config, Part

Replicated = Any  # values of all replicas of this process
# A batch stays in host memory until a step takes it, as in the other strategies. By default it
# would be copied to a GPU before the step, and the step's time would lack the copy.
IN_HOST_MEMORY = tf.distribute.InputOptions(experimental_fetch_to_device=False)


class DistributedTrainer(ABC):
    """The common part of every Trainer (base.py) under tf.distribute. A strategy adds how it is
    made, how its input is spread and what this process's share of a loss is."""

    samples_of_a_pass = None

    def __init__(self, config: Config) -> None:
        self.config = config
        self.task = training.find_task(config)
        self.parts: list[Part] = []
        self.global_batch: int = config.batch * config.world_size
        self.rank = 0

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
    def own_loss(self, loss: float) -> float:
        """See hvdperf.worker.strategies.base.Trainer."""

    @abstractmethod
    def transport(self) -> str:
        """Return how the replicas exchange gradients, for the launch's facts."""

    @abstractmethod
    def validate(self) -> Facts:
        """See hvdperf.worker.strategies.base.Trainer."""

    @abstractmethod
    def total(self, values: Sequence[float]) -> list[float]:
        """Return each value added up over all processes."""

    def mean_loss(self, loss: float) -> float:
        """Return the loss of the global batch. loss: this process's share of that loss."""
        return self.total([loss])[0]

    def barrier(self) -> None:
        """Wait until every process has come here."""
        self.total([0.0])

    def init(self) -> Facts:
        self.strategy = self.make_strategy()
        return {
            "rank": self.rank,
            "world_size": self.strategy.num_replicas_in_sync,
            "transport": self.transport(),
        }

    def build(self) -> Facts:
        with self.strategy.scope():
            self.parts = training.build_parts(self.config, self.task, self.config.optimizer)
        self.learning_rate = training.make_learning_rate(self.config, self.parts, self.mean_loss)
        return training.size_of(self.parts)

    def open_input(self) -> None:
        self._dataset = self.distribute(augment=True)
        self._batches: Iterator[Any] = iter(self._dataset)

    def trace(self) -> None:
        self._step = self._traced(self.parts, self._dataset)

    def _traced(self, parts: list[Part], dataset: Any) -> Callable[..., tf.Tensor]:
        def average(losses: tf.Tensor) -> tf.Tensor:
            # Over the global batch, because the strategy sums the replicas' gradients.
            return tf.nn.compute_average_loss(losses, global_batch_size=self.global_batch)

        def replica_step(*batch: tf.Tensor) -> tf.Tensor:
            return training.update(self.task, parts, batch, average, summed=self.config.world_size)

        @training.graph(input_signature=[dataset.element_spec])
        def step(batch: Any) -> tf.Tensor:
            return self.loss_of(self.strategy.run(replica_step, args=batch))

        step.get_concrete_function()
        return step  # type: ignore[no-any-return]

    def first_step(self) -> None:
        float(self.step("full", self.next_batch("full")))

    def broadcast(self) -> None:  # noqa: B027 - a strategy has nothing to add
        """Do nothing: the replicas are mirrored from the start."""

    def ablation(self) -> Facts:
        raise ValueError(f"{self.config.strategy} has no step without its exchange")

    def enter_block(self, kind: str) -> None:
        if kind != "full":
            raise ValueError(f"{self.config.strategy} has no blocks of kind {kind!r}")

    def leave_block(self, kind: str) -> None:  # noqa: B027 - nor here
        """Do nothing: a block changes nothing that would have to be restored."""

    def leave_group(self) -> None:  # noqa: B027 - nor here
        """Do nothing: TensorFlow ends its cluster with the process."""

    def next_batch(self, kind: str) -> Any:
        return next(self._batches)

    def step(self, kind: str, batch: Any) -> Any:
        return self._step(batch)

    def count(self, batch: Any) -> int:
        return sum(training.count(part) for part in self._by_process(batch))

    def _by_process(self, batch: Any) -> Sequence[Any]:
        """Return the batches of the replicas of this process."""
        parts = [self.strategy.experimental_local_results(leaf) for leaf in tf.nest.flatten(batch)]
        return [tf.nest.pack_sequence_as(batch, of_replica) for of_replica in zip(*parts)]

    def evidence(self) -> Facts:
        return {
            "world_size": self.strategy.num_replicas_in_sync,
            "learning_rate": self.learning_rate.value,
            "digests": [training.digest(weights) for weights in self._by_replica(self.parts)],
        }

    def _by_replica(self, parts: list[Part]) -> list[list[tf.Variable]]:
        """Return the copies of the trainable weights of every replica of this process."""
        copies = [
            self.strategy.experimental_local_results(variable)
            for variable in training.weights(parts)
        ]
        return [list(of_replica) for of_replica in zip(*copies)]

    def correctness(self, steps: int, path: str) -> Facts:
        with self.strategy.scope():
            parts = training.without_randomness(training.build_parts(self.config, self.task, "sgd"))
        begun = [variable.numpy() for variable in self._by_replica(parts)[0]]
        dataset = self.distribute(augment=False)
        step = self._traced(parts, dataset)
        losses, samples = [], []
        batches = iter(dataset)
        for _ in range(steps):
            batch = next(batches)
            samples.append([training.samples_digest(each) for each in self._by_process(batch)])
            losses.append(self.own_loss(float(step(batch))))
        replicas = self._by_replica(parts)
        if self.rank == 0:
            training.save_arrays(path, trained=replicas[0], begun=begun)
        return {
            "loss": losses[0],
            "digests": [training.digest(weights) for weights in replicas],
            "samples": [training.combined(of_replica) for of_replica in zip(*samples)],
        }

    def timeline(self, steps: int, path: str) -> Facts:
        raise ValueError(training.no_timeline(self.config))
