"""The common part of tasks in which every output of one model has a label: cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdperf.models import contract, registry


class Labelled:
    """The common part of such a models.tasks.Step. A batch is inputs and their labels, int32 [n] or
    [n, length]. The loss and the score of a sample are means over its labels."""

    def __init__(self, size: int, classes: int) -> None:
        self._size = size
        self._classes = classes

    def build(self, network: str) -> Sequence[Any]:
        return (registry.build(network, self._size, self._classes),)

    def losses(self, models: Sequence[Any], batch: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        (model,) = models
        inputs, labels = batch
        logits = model(inputs, training=True)
        contract.check_logits(logits, labels, self._classes)
        return (_of_sample(_cross_entropy(labels, logits)),)

    def scores(
        self, models: Sequence[Any], batch: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        (model,) = models
        inputs, labels = batch
        logits = model(inputs, training=False)
        return _of_sample(_cross_entropy(labels, logits)), _of_sample(_hits(labels, logits))

    def prepare(self, dataset: tf.data.Dataset, seed: int, stream: int) -> tf.data.Dataset:
        return dataset


def _of_sample(values: tf.Tensor) -> tf.Tensor:
    """Return the mean of each sample: float32 [n] or [n, length] -> [n]."""
    return tf.reduce_mean(values, axis=1) if values.shape.rank > 1 else values


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the loss of every label [...] from logits [..., classes]. It is computed in float32,
    because half precision overflows."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def _hits(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return 1 where the largest logit is the label's, else 0: float32 [...]."""
    chosen = tf.argmax(tf.cast(logits, tf.float32), axis=-1, output_type=labels.dtype)
    return tf.cast(chosen == labels, tf.float32)
