"""The task of a network of one's own that has a loss or data of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdperf.models import contract, registry
from hvdperf.models.inputs import own
from hvdperf.models.tasks import NotScored, Step


class Own:
    """The task (models.tasks.Step). A batch is what the network's data function yields, batched, or
    what the task that the network is registered for takes.

    base: that task. Everything that the network does not define is left to it.
    """

    def __init__(self, size: int, network: registry.Network, base: Step) -> None:
        self._size = size
        self._network = network
        self._base = base

    def build(self, network: str) -> Sequence[Any]:
        return self._base.build(network)

    def signature(self) -> Sequence[Any]:
        if not self._network.data:
            return self._base.signature()
        return own.batch_signature(self._network.name, self._size)

    def losses(self, models: Sequence[Any], batch: Sequence[Any]) -> Sequence[tf.Tensor]:
        if not self._network.loss:
            return self._base.losses(models, batch)
        (model,) = models
        inputs, labels = batch
        losses = registry.function(self._network.loss)(labels, model(inputs, training=True))
        contract.check_loss(losses)
        return (losses,)

    def scores(self, models: Sequence[Any], batch: Sequence[Any]) -> tuple[tf.Tensor, tf.Tensor]:
        if self._network.loss:
            raise NotScored(f"{self._network.name} has a loss of its own")
        return self._base.scores(models, batch)

    def prepare(self, dataset: tf.data.Dataset, seed: int, stream: int) -> tf.data.Dataset:
        return dataset if self._network.data else self._base.prepare(dataset, seed, stream)
