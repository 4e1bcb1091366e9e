"""The task of a network of one's own that has a loss or data of its own."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from hvdperf.models import registry
from hvdperf.models.inputs import own
from hvdperf.models.tasks import NotScored
from hvdperf.models.tasks.classification import Classification


class Own(Classification):
    """The task (models.tasks.Step). A batch is what the network's data function yields, batched, or
    images and their labels."""

    def __init__(self, size: int, classes: int, network: registry.Network) -> None:
        super().__init__(size, classes)
        self._network = network

    def signature(self) -> Sequence[tf.TensorSpec]:
        if not self._network.data:
            return super().signature()
        element = own.samples(self._network.name, self._size).element_spec
        return [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in element]

    def losses(self, models: Sequence[object], batch: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        if not self._network.loss:
            return super().losses(models, batch)
        (model,) = models
        inputs, labels = batch
        outputs = model(inputs, training=True)  # type: ignore[operator]
        return (registry.function(self._network.loss)(labels, outputs),)

    def scores(
        self, models: Sequence[object], batch: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self._network.loss:
            raise NotScored(f"{self._network.name} has a loss of its own")
        return super().scores(models, batch)
