"""The computation of a training step, apart from how it is spread over replicas.

A task builds the models of a step, each of which is trained on a loss of its own, and computes
these losses from a batch. A batch is a pair of tensors whose first dimension counts samples; of a
network with data of its own, each part may also be tensors in dicts and tuples.
Importing this never imports TensorFlow; `find` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from hvdperf.models.registry import Network, Task


class Step(Protocol):
    """A task's part of a training step. Each task is one file beside this one.

    size: the input's height and width in pixels, or the length of a sequence. classes: the number
    of labels, or of words.
    """

    def __init__(self, size: int, classes: int) -> None: ...

    def build(self, network: str) -> Sequence[Any]:
        """Return new Keras models, in the order in which a step trains them."""

    def signature(self) -> Sequence[Any]:
        """Return a tf.TensorSpec for each tensor of a batch, nested as a batch is. The number of
        samples is open."""

    def losses(self, models: Sequence[Any], batch: Sequence[Any]) -> Sequence[Any]:
        """Return each model's loss of every sample, shape [samples]."""

    def scores(self, models: Sequence[Any], batch: Sequence[Any]) -> tuple[Any, Any]:
        """Return, without training, the loss of every sample and the share of its labels that was
        predicted, both of shape [samples]. Raises NotScored if the task has no right answers."""

    def prepare(self, dataset: Any, seed: int, stream: int) -> Any:
        """Turn a dataset of the network's kind of input into one of batches. seed and stream (the
        number of this shard) decide everything that is drawn at random."""


class NotScored(ValueError):
    """The task has no measure of how good a model is."""


_STEPS = {
    Task.CLASSIFICATION: ("hvdperf.models.tasks.classification", "Classification"),
    Task.LANGUAGE: ("hvdperf.models.tasks.language", "Language"),
    Task.ADVERSARIAL: ("hvdperf.models.tasks.adversarial", "Adversarial"),
}


def find(network: Network, size: int, classes: int) -> Step:
    module, name = _STEPS[network.task]
    step: Step = getattr(importlib.import_module(module), name)(size, classes)
    if not (network.loss or network.data):
        return step
    from hvdperf.models.tasks.own import Own

    return Own(size, network, step)
