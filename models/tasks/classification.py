"""Which of the classes an image shows: cross-entropy of the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from models import registry
from models.tasks.logits import cross_entropy, hits


class Classification:
    """See models.tasks.Step. A batch is images float32 [n, s, s, 3] and labels int32 [n]."""

    def __init__(self, size: int, classes: int) -> None:
        self._size = size
        self._classes = classes

    def build(self, network: str) -> Sequence[Any]:
        return (registry.build(network, self._size, self._classes),)

    def signature(self) -> Sequence[tf.TensorSpec]:
        images = tf.TensorSpec([None, self._size, self._size, 3], tf.float32)
        return images, tf.TensorSpec([None], tf.int32)

    def losses(self, models: Sequence[Any], batch: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        (model,) = models
        images, labels = batch
        return (cross_entropy(labels, model(images, training=True)),)

    def scores(
        self, models: Sequence[Any], batch: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        (model,) = models
        images, labels = batch
        logits = model(images, training=False)
        return cross_entropy(labels, logits), hits(labels, logits)

    def prepare(self, dataset: tf.data.Dataset, seed: int, stream: int) -> tf.data.Dataset:
        return dataset
