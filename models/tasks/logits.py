"""What logits are worth, whatever precision they were computed in."""

from __future__ import annotations

import tensorflow as tf


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Of every label [...], from logits [..., classes]: float32, for half of it overflows."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def hits(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """1 where the largest logit is the label's, else 0: float32 [...]."""
    chosen = tf.argmax(tf.cast(logits, tf.float32), axis=-1, output_type=labels.dtype)
    return tf.cast(chosen == labels, tf.float32)
