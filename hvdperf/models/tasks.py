"""The computation of a training step, apart from how it is spread over replicas.

A task builds the models of a step, each of which is trained on a loss of its own, and computes
these losses from a batch. A batch is a pair of tensors whose first dimension counts samples; of a
network with data of its own, each part may also be tensors in dicts and tuples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from hvdperf.models import contract, registry
from hvdperf.models.networks.dcgan import LATENT
from hvdperf.models.registry import Network, Task


class NotScored(ValueError):
    """The task has no measure of how good a model is."""


class Step(ABC):
    """A task's part of a training step. Each task is a class below.

    size: the input's height and width in pixels, or the length of a sequence. classes: the number
    of labels, or of words. A network may have data of its own: then a batch is what its `data`
    function yields, batched.
    """

    def __init__(self, network: Network, size: int, classes: int) -> None:
        self._network = network
        self._size = size
        self._classes = classes

    def build(self, network: str) -> Sequence[Any]:
        """Return new Keras models, in the order in which a step trains them."""
        models = registry.build(network, self._size, self._classes)
        return models if isinstance(models, (tuple, list)) else (models,)

    def signature(self) -> Sequence[Any]:
        """Return a tf.TensorSpec for each tensor of a batch, nested as a batch is. The number of
        samples is open."""
        if self._network.data:
            return contract.batch_signature(self._network.name, self._size)
        return self._batch()

    def prepare(self, dataset: tf.data.Dataset, seed: int, stream: int) -> tf.data.Dataset:
        """Turn a dataset of the network's input into one of batches. seed and stream (the number of
        this shard) decide everything that is drawn at random."""
        return dataset

    @abstractmethod
    def _batch(self) -> Sequence[Any]:
        """Return the signature without data of the network's own."""

    @abstractmethod
    def losses(self, models: Sequence[Any], batch: Sequence[Any]) -> Sequence[tf.Tensor]:
        """Return each model's loss of every sample, shape [samples]."""

    @abstractmethod
    def scores(self, models: Sequence[Any], batch: Sequence[Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return, without training, the loss of every sample and the share of its labels that was
        predicted, both of shape [samples]. Raises NotScored if the task has no right answers."""


class Labelled(Step):
    """The common part of a Step in which every output of one model has a label. A batch is inputs
    and their labels, int32 [n] or [n, length]. The loss and the score of a sample are means over
    its labels, unless the network has a loss of its own."""

    def losses(self, models: Sequence[Any], batch: Sequence[Any]) -> Sequence[tf.Tensor]:
        (model,) = models
        inputs, labels = batch
        outputs = model(inputs, training=True)
        if self._network.loss:
            losses = registry.function(self._network.loss)(labels, outputs)
            contract.check_loss(losses)
            return (losses,)
        contract.check_logits(outputs, labels, self._classes)
        return (_of_sample(_cross_entropy(labels, outputs)),)

    def scores(self, models: Sequence[Any], batch: Sequence[Any]) -> tuple[tf.Tensor, tf.Tensor]:
        if self._network.loss:
            raise NotScored(f"{self._network.name} has a loss of its own")
        (model,) = models
        inputs, labels = batch
        logits = model(inputs, training=False)
        return _of_sample(_cross_entropy(labels, logits)), _of_sample(_hits(labels, logits))


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


class Classification(Labelled):
    """The choice of a class (Step). A batch is images float32 [n, s, s, 3] and labels int32 [n]."""

    def _batch(self) -> Sequence[tf.TensorSpec]:
        images = tf.TensorSpec([None, self._size, self._size, 3], tf.float32)
        return images, tf.TensorSpec([None], tf.int32)


class Language(Labelled):
    """The language task (Step). A batch is tokens int32 [n, length] and, one word later in the
    stream, targets int32 [n, length]."""

    def _batch(self) -> Sequence[tf.TensorSpec]:
        sequence = tf.TensorSpec([None, self._size], tf.int32)
        return sequence, sequence


class Adversarial(Step):
    """The adversarial task (Step), arXiv:1511.06434. A batch is images float32 [n, s, s, 3] in
    -1..1 and latent vectors float32 [n, LATENT], drawn evenly from -1..1 as in the paper.

    Both losses are taken from one forward pass, before either model is updated. The generator's is
    the one of arXiv:1406.2661, section 3, that does not saturate: -log D(G(z)).
    """

    def _batch(self) -> Sequence[tf.TensorSpec]:
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
        if self._network.data:
            return dataset

        def pair(number: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[Any, Any]:
            images, _ = batch
            # No key occurs twice: the number of a batch is below 2**40, and there are few seeds and
            # streams.
            keys = tf.stack([tf.constant(seed * 65_537 + stream, tf.int64), number])
            shape = [tf.shape(images)[0], LATENT]
            latent = tf.random.stateless_uniform(shape, keys, minval=-1, maxval=1)
            return images, tf.ensure_shape(latent, [images.shape[0], LATENT])

        return dataset.enumerate().map(pair)


_STEPS: Mapping[Task, type[Step]] = {
    Task.CLASSIFICATION: Classification,
    Task.LANGUAGE: Language,
    Task.ADVERSARIAL: Adversarial,
}


def find(network: Network, size: int, classes: int) -> Step:
    return _STEPS[network.task](network, size, classes)
