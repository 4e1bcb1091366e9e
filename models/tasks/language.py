"""Which word comes next: cross-entropy of the logits, averaged over a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from models import registry
from models.tasks.logits import cross_entropy, hits


class Language:
    """See models.tasks.Step. A batch is tokens int32 [n, length] and, one word later in the
    stream, targets int32 [n, length]."""

    def __init__(self, size: int, classes: int) -> None:
        self._length = size
        self._words = classes

    def build(self, network: str) -> Sequence[Any]:
        return (registry.build(network, self._length, self._words),)

    def signature(self) -> Sequence[tf.TensorSpec]:
        sequence = tf.TensorSpec([None, self._length], tf.int32)
        return sequence, sequence

    def losses(self, models: Sequence[Any], batch: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        (model,) = models
        tokens, targets = batch
        return (tf.reduce_mean(cross_entropy(targets, model(tokens, training=True)), axis=1),)

    def scores(
        self, models: Sequence[Any], batch: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        (model,) = models
        tokens, targets = batch
        logits = model(tokens, training=False)
        of_word = cross_entropy(targets, logits), hits(targets, logits)
        return tf.reduce_mean(of_word[0], axis=1), tf.reduce_mean(of_word[1], axis=1)

    def prepare(self, dataset: tf.data.Dataset, seed: int, stream: int) -> tf.data.Dataset:
        return dataset
