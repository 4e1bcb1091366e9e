"""Strategy `horovod`: one process a replica, gradients averaged by DistributedGradientTape."""

from collections.abc import Iterator
from typing import Any, Callable

import horovod.tensorflow as hvd
import tensorflow as tf

from harness.worker import training
from harness.worker.trainer import Facts
from harness.worker.training import Config


def split_batch(batch: int, rank: int, world_size: int) -> int:
    """This rank's part of a batch divided among all: the first ranks take what is left over."""
    return batch // world_size + (1 if rank < batch % world_size else 0)


class HorovodTrainer:
    """See harness.worker.trainer.Trainer."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._steps: dict[str, Callable[..., tf.Tensor]] = {}
        self._batches: dict[str, Iterator[Any]] = {}
        self._saved: list[tf.Tensor] = []

    def init(self) -> Facts:
        training.set_up_devices(self._config)
        hvd.init()
        self._barrier_token = tf.zeros([])
        return {
            "rank": hvd.rank(),
            "world_size": hvd.size(),
            "transport": "mpi" if hvd.mpi_enabled() else "gloo",
            "nccl": bool(hvd.nccl_built()),
        }

    def build(self) -> Facts:
        self._model = training.build_model(self._config)
        self._optimizer = training.prepare(
            training.make_optimizer(self._config["optimizer"]), self._model
        )
        return training.size_of(self._model)

    def open_input(self) -> None:
        rank, size, batch = hvd.rank(), hvd.size(), self._config["batch"]
        sizes = {"full": batch, "split": split_batch(batch, rank, size)}
        for kind in self._config["kinds"]:
            if kind in sizes:
                dataset = training.open_dataset(self._config, sizes[kind], shard=(rank, size))
                self._batches[kind] = iter(dataset)
        self._batches["local"] = self._batches["full"]

    def trace(self) -> None:
        self._steps["full"] = self._traced(self._model, self._optimizer, distributed=True)
        self._steps["split"] = self._steps["full"]
        if "local" in self._config["kinds"]:
            self._steps["local"] = self._traced(self._model, self._optimizer, distributed=False)

    def _traced(self, model: Any, optimizer: Any, distributed: bool) -> Callable[..., tf.Tensor]:
        """One training step; without `distributed`, the same one less the allreduce."""
        sources = training.tf_variables(model.trainable_variables)

        @training.graph(input_signature=training.step_signature(self._config))
        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(training.losses(labels, model(images, training=True)))
            if distributed:
                tape = hvd.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, sources)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        return step.get_concrete_function()  # type: ignore[no-any-return]

    def first_step(self) -> None:
        float(self.step("full", self.next_batch("full")))

    def broadcast(self) -> None:
        # After the first step, as Horovod's examples do: by then the optimizer has its state.
        hvd.broadcast_variables(self._state(), root_rank=0)

    def _state(self) -> list[tf.Variable]:
        return training.tf_variables([*self._model.variables, *self._optimizer.variables])

    def barrier(self) -> None:
        hvd.allreduce(self._barrier_token, name="hvdperf.barrier")

    def enter_block(self, kind: str) -> None:
        if kind == "local":
            self._saved = [tf.identity(variable) for variable in self._state()]

    def leave_block(self, kind: str) -> None:
        # Without allreduce the replicas drift apart: go on from where they agreed.
        if kind == "local":
            for variable, value in zip(self._state(), self._saved):
                variable.assign(value)
            self._saved = []

    def next_batch(self, kind: str) -> Any:
        return next(self._batches[kind])

    def step(self, kind: str, batch: Any) -> Any:
        return self._steps[kind](*batch)

    def count(self, batch: Any) -> int:
        return int(batch[1].shape[0])

    def evidence(self) -> Facts:
        weights = training.tf_variables(self._model.trainable_variables)
        return {"world_size": hvd.size(), "digests": [training.digest(weights)]}

    def correctness(self, steps: int, path: str) -> Facts:
        rank, size, batch = hvd.rank(), hvd.size(), self._config["batch"]
        model = training.without_dropout(training.build_model(self._config))
        step = self._traced(
            model, training.prepare(training.make_optimizer("sgd"), model), distributed=True
        )
        hvd.broadcast_variables(training.tf_variables(model.variables), root_rank=0)
        mine = slice(rank * batch, (rank + 1) * batch)
        dataset = training.open_dataset(self._config, batch * size, augment=False)
        loss = 0.0
        for images, labels in dataset.take(steps):
            loss = float(step(images[mine], labels[mine]))
        weights = training.tf_variables(model.trainable_variables)
        if rank == 0:
            training.save_arrays(path, weights)
        return {"loss": loss, "digests": [training.digest(weights)]}

    def gradients(self, path: str) -> Facts:
        images, labels = self.next_batch("full")
        sources = training.tf_variables(self._model.trainable_variables)

        @training.graph()
        def both() -> Any:
            with tf.GradientTape(persistent=True) as tape:
                logits = self._model(images, training=True)
                loss = tf.reduce_mean(training.losses(labels, logits))
            own = tape.gradient(loss, sources)
            reduced = hvd.DistributedGradientTape(tape).gradient(loss, sources)
            return own, reduced

        own, reduced = both()
        training.save_arrays(path.format(rank=hvd.rank()), [*own, *reduced])
        return {"tensors": len(sources)}
