"""A generator against a discriminator, arXiv:1511.06434: two models, two losses, two updates.

Both losses are taken from one forward pass, before either model is updated. The generator's loss is
the one of arXiv:1406.2661, section 3, that does not saturate: -log D(G(z)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdperf.models import registry
from hvdperf.models.networks.dcgan import LATENT
from hvdperf.models.tasks import NotScored


class Adversarial:
    """The adversarial task (models.tasks.Step). A batch is images float32 [n, s, s, 3] in -1..1 and
    latent vectors float32 [n, LATENT], drawn evenly from -1..1 as in the paper."""

    def __init__(self, size: int, classes: int) -> None:
        self._size = size
        self._classes = classes

    def build(self, network: str) -> Sequence[Any]:
        generator, discriminator = registry.build(network, self._size, self._classes)
        return generator, discriminator

    def signature(self) -> Sequence[tf.TensorSpec]:
        images = tf.TensorSpec([None, self._size, self._size, 3], tf.float32)
        return images, tf.TensorSpec([None, LATENT], tf.float32)

    def losses(self, models: Sequence[Any], batch: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        generator, discriminator = models
        images, latent = batch
        made = generator(latent, training=True)
        real, generated = (
            tf.cast(discriminator(shown, training=True)[:, 0], tf.float32)
            for shown in (images, made)
        )
        # softplus(-x) is the cross-entropy of the logit x with the label "real", softplus(x) that
        # with "not real".
        return tf.nn.softplus(-generated), tf.nn.softplus(-real) + tf.nn.softplus(generated)

    def scores(
        self, models: Sequence[Any], batch: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        raise NotScored("a generator has no accuracy")

    def prepare(self, dataset: tf.data.Dataset, seed: int, stream: int) -> tf.data.Dataset:
        def pair(number: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[Any, Any]:
            images, _ = batch
            # No key occurs twice: the number of a batch is below 2**40, and there are few seeds and
            # streams.
            keys = tf.stack([tf.constant(seed * 65_537 + stream, tf.int64), number])
            shape = [tf.shape(images)[0], LATENT]
            latent = tf.random.stateless_uniform(shape, keys, minval=-1, maxval=1)
            return images, tf.ensure_shape(latent, [images.shape[0], LATENT])

        return dataset.enumerate().map(pair)
