"""One step of a network without the suite. Imports TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf


def parameters(model: Any) -> int:
    """Return the number of trainable parameters of a model."""
    return sum(math.prod(shape) for shape in shapes(model))


def shapes(model: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the trainable variables, in their order."""
    return [tuple(variable.shape) for variable in model.trainable_variables]


def words(*shape: int) -> Any:
    """Return random words of a vocabulary of 2,000, the same each time."""
    return np.random.default_rng(0).integers(0, 2000, shape, dtype=np.int32)


def gradients(model: Any, inputs: Any, labels: Any) -> list[Any]:
    """Return the gradients of one step. The cross entropies of all outputs, [..., classes], count
    alike."""
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(model(inputs, training=True))
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits) for logits in outputs
        ]
        loss = tf.add_n([tf.reduce_mean(each) for each in losses])
    return list(tape.gradient(loss, model.trainable_variables))


def all_finite(gradients: list[Any]) -> bool:
    """Return whether every variable has a gradient, dense or sparse, of finite numbers."""
    return all(
        gradient is not None and bool(np.isfinite(tf.convert_to_tensor(gradient)).all())
        for gradient in gradients
    )
