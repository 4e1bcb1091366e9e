"""Strategy `mirrored`: one process, a replica a device, tf.distribute.MirroredStrategy."""

from collections.abc import Iterator
from typing import Any, Callable

import tensorflow as tf

from harness.worker import training
from harness.worker.trainer import Facts
from harness.worker.training import Config


class MirroredTrainer:
    """See harness.worker.trainer.Trainer."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._replicas: int = config["world_size"]
        self._global_batch: int = config["batch"] * self._replicas

    def init(self) -> Facts:
        training.set_up_devices(self._config, logical_cpus=self._replicas)
        device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        found = [logical.name for logical in tf.config.list_logical_devices(device)]
        self._strategy = tf.distribute.MirroredStrategy(found[: self._replicas])
        return {
            "rank": 0,
            "world_size": self._strategy.num_replicas_in_sync,
            "transport": type(self._strategy.extended._get_cross_device_ops(tf.zeros([]))).__name__,
        }

    def build(self) -> Facts:
        with self._strategy.scope():
            self._model = training.build_model(self._config)
            optimizer = training.make_optimizer(self._config["optimizer"])
            self._optimizer = training.prepare(optimizer, self._model)
        return training.size_of(self._model)

    def open_input(self) -> None:
        self._dataset = self._strategy.experimental_distribute_dataset(
            training.open_dataset(self._config, self._global_batch)
        )
        self._batches: Iterator[Any] = iter(self._dataset)

    def trace(self) -> None:
        self._step = self._traced(self._model, self._optimizer)

    def _traced(self, model: Any, optimizer: Any) -> Callable[..., tf.Tensor]:
        def replica_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                losses = training.losses(labels, model(images, training=True))
                # Over the global batch: the replicas' gradients are then summed, not averaged.
                loss = tf.nn.compute_average_loss(losses, global_batch_size=self._global_batch)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        @training.graph(input_signature=[self._dataset.element_spec])
        def step(batch: Any) -> tf.Tensor:
            per_replica = self._strategy.run(replica_step, args=batch)
            return self._strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

        step.get_concrete_function()
        return step  # type: ignore[no-any-return]

    def first_step(self) -> None:
        float(self.step("full", self.next_batch("full")))

    def broadcast(self) -> None:
        """Nothing to do: the replicas are mirrored from the start."""

    def barrier(self) -> None:
        """Nothing to do: there is one process."""

    def enter_block(self, kind: str) -> None:
        if kind != "full":
            raise ValueError(f"MirroredStrategy has no blocks of kind {kind!r}")

    def leave_block(self, kind: str) -> None:
        """Nothing was changed that would have to be restored."""

    def next_batch(self, kind: str) -> Any:
        return next(self._batches)

    def step(self, kind: str, batch: Any) -> Any:
        return self._step(batch)

    def count(self, batch: Any) -> int:
        labels = self._strategy.experimental_local_results(batch[1])
        return sum(int(part.shape[0]) for part in labels)

    def evidence(self) -> Facts:
        return {
            "world_size": self._strategy.num_replicas_in_sync,
            "digests": [training.digest(weights) for weights in self._by_replica(self._model)],
        }

    def _by_replica(self, model: Any) -> list[list[tf.Variable]]:
        """Every replica's copies of the trainable weights."""
        copies = [
            self._strategy.experimental_local_results(variable)
            for variable in training.tf_variables(model.trainable_variables)
        ]
        return [[copy[replica] for copy in copies] for replica in range(self._replicas)]

    def correctness(self, steps: int, path: str) -> Facts:
        with self._strategy.scope():
            model = training.without_dropout(training.build_model(self._config))
            optimizer = training.prepare(training.make_optimizer("sgd"), model)
        step = self._traced(model, optimizer)
        dataset = training.open_dataset(self._config, self._global_batch, augment=False)
        loss = 0.0
        batches = iter(self._strategy.experimental_distribute_dataset(dataset))
        for _ in range(steps):
            loss = float(step(next(batches)))
        replicas = self._by_replica(model)
        training.save_arrays(path, replicas[0])
        return {"loss": loss, "digests": [training.digest(weights) for weights in replicas]}

    def gradients(self, path: str) -> Facts:
        raise ValueError("MirroredStrategy reduces inside the optimizer; see correctness")
