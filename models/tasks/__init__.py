"""What a training step computes, apart from how it is spread over replicas.

A task builds the models of a step, each of which is trained on a loss of its own, and computes
these losses from a batch. A batch is a tuple of tensors whose first dimension counts samples.
Importing this never imports TensorFlow; `find` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from models.registry import Task


class Step(Protocol):
    """One file beside this one implements it per task.

    size is the input's height and width in pixels, or the length of a sequence; classes the
    number of labels, or of words.
    """

    def __init__(self, size: int, classes: int) -> None: ...

    def build(self, network: str) -> Sequence[Any]:
        """New Keras models, in the order in which a step trains them."""

    def signature(self) -> Sequence[Any]:
        """A tf.TensorSpec for each part of a batch, the number of samples open."""

    def losses(self, models: Sequence[Any], batch: Sequence[Any]) -> Sequence[Any]:
        """Each model's loss of every sample, shape [samples]."""

    def scores(self, models: Sequence[Any], batch: Sequence[Any]) -> tuple[Any, Any]:
        """Without training: the loss of every sample and the share of it that was right, both of
        shape [samples]. Raises NotScored where a batch has nothing that would be right."""

    def prepare(self, dataset: Any, seed: int, stream: int) -> Any:
        """From a dataset of the network's kind of input to one of batches. seed and stream (the
        number of this shard) decide whatever is drawn at random."""


class NotScored(ValueError):
    """Of such a task nobody can say how good a model is at it."""


_STEPS = {
    Task.CLASSIFICATION: ("models.tasks.classification", "Classification"),
    Task.LANGUAGE: ("models.tasks.language", "Language"),
    Task.ADVERSARIAL: ("models.tasks.adversarial", "Adversarial"),
}


def find(task: Task, size: int, classes: int) -> Step:
    module, name = _STEPS[task]
    step: Step = getattr(importlib.import_module(module), name)(size, classes)
    return step
