"""Several backward passes per exchange of gradients (Horovod's `backward_passes_per_step`).

This is written here because Horovod 0.28's optimizers support it for Keras 2 only: with Keras 3
they end in "'super' object has no attribute 'aggregate_gradients'".
"""

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf


class Accumulator:
    """Sums of the gradients of some weights, over passes that have not been exchanged yet."""

    def __init__(self, sources: Sequence[tf.Variable], passes: int) -> None:
        self._passes = passes
        self._sums = {
            source.ref(): tf.Variable(tf.zeros_like(source), trainable=False) for source in sources
        }

    def add(self, gradients: Sequence[Any], sources: Sequence[tf.Variable]) -> None:
        """Add the gradients of a pass. A gradient of rows of a table becomes one of the table."""
        for gradient, source in zip(gradients, sources):
            self._sums[source.ref()].assign_add(tf.convert_to_tensor(gradient))

    def take(self, gradients: Sequence[Any], sources: Sequence[tf.Variable]) -> list[tf.Tensor]:
        """Return the mean over all passes, including the given gradients of the last one; then set
        the sums to 0."""
        means = []
        for gradient, source in zip(gradients, sources):
            held = self._sums[source.ref()]
            means.append((held + tf.convert_to_tensor(gradient)) / self._passes)
            held.assign(tf.zeros_like(held))
        return means


class ExchangedMean:
    """A tape whose gradients are the mean over the passes and over all replicas."""

    def __init__(
        self,
        tape: tf.GradientTape,
        accumulator: Accumulator,
        exchanged: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]],
    ) -> None:
        self._tape = tape
        self._accumulator = accumulator
        self._exchanged = exchanged

    def gradient(self, loss: tf.Tensor, sources: Sequence[tf.Variable]) -> Sequence[tf.Tensor]:
        own = self._tape.gradient(loss, sources)
        return self._exchanged(self._accumulator.take(own, sources))
