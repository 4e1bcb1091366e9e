"""The networks by name. Importing this never imports TensorFlow; `build` does."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple


class Scale(Enum):
    """The size of a network. FULL: as published. SMALL: the same topology with less width and
    depth, for CPUs. THIN: as deep as published, so that its trace costs as much, with a quarter of
    the width."""

    FULL = "full"
    SMALL = "small"
    THIN = "thin"


class Form(Enum):
    """The kind of data that an input consists of."""

    IMAGES = "images"
    WORDS = "words"


class Task(Enum):
    """The task that a network is trained for; hvdperf/models/tasks.py implements each."""

    CLASSIFICATION = "classification"
    LANGUAGE = "language"
    ADVERSARIAL = "adversarial"

    @property
    def form(self) -> Form:
        """The form of the task's input."""
        return Form.WORDS if self is Task.LANGUAGE else Form.IMAGES


class Shard(NamedTuple):
    """The part of the samples that one of `count` replicas trains on. index: from 0."""

    index: int  # type: ignore[assignment]  # tuples have methods of these names
    count: int  # type: ignore[assignment]


# The data set of a workload that is a training script, which opens its own.
SCRIPT = "script"


class UnknownNetwork(ValueError):
    """No network has that name."""


@dataclass(frozen=True)
class Network:
    """A network that can be built by name.

    builder: "module:function", a function (input_size, classes) -> keras.Model, or a pair of
    models. input_size: the default height and width of an image in pixels, or the default length of
    a sequence. gradient_tensors: number of trainable variables, and so of tensors that a step
    reduces; 0 if that is not known before it is built. classes: number of words that a language
    model knows; 0 if the data set gives the number of labels. smallest: the least input_size that a
    classifier can be built for.

    A network of one's own may also have functions "module:function": loss (labels, outputs) ->
    float32 [n], optimizer () -> Keras optimizer, and data (input_size, shard) -> tf.data.Dataset of
    that Shard's single samples (inputs, label), of which each part may be a tensor, or tensors in
    dicts and tuples. origin: the file that defines the network. script, place: of a
    training script, which is run as it is, its path with its arguments, and the directory in which
    it is run.
    """

    name: str
    builder: str
    input_size: int
    scale: Scale = Scale.FULL
    gradient_tensors: int = 0
    task: Task = Task.CLASSIFICATION
    classes: int = 0
    smallest: int = 1
    loss: str = ""
    optimizer: str = ""
    data: str = ""
    origin: str = ""
    script: str = ""
    place: str = ""

    @property
    def looks_up_rows(self) -> bool:
        """Whether it is one of the suite's networks with an embedding, whose gradient is the rows
        that a batch looks up."""
        return self.task is Task.LANGUAGE and not self.origin


_FULL, _SMALL = Scale.FULL, Scale.SMALL

# A row names the module here, in which a function of the network's name builds it.
_HOME = "hvdperf.models.networks"
NETWORKS: dict[str, Network] = {
    network.name: replace(network, builder=f"{_HOME}.{network.builder}:{network.name}")
    for network in (
        Network("vgg_16", "classifiers", 224, _FULL, 32, smallest=32),
        Network("vgg_19", "classifiers", 224, _FULL, 38, smallest=32),
        Network("resnet_50", "classifiers", 224, _FULL, 214, smallest=32),
        Network("resnet_v2_101", "classifiers", 224, _FULL, 344, smallest=32),
        Network("inception_v4", "inception", 299, _FULL, 300, smallest=75),
        Network("inception_v3", "inception", 299, _FULL, 190, smallest=75),
        Network("googlenet", "inception", 224, _FULL, 116),
        Network("alexnet", "classifiers", 227, _FULL, 16, smallest=67),
        Network("dcgan", "dcgan", 64, _FULL, 27, Task.ADVERSARIAL),
        Network("lstm", "language", 35, _FULL, 9, Task.LANGUAGE, 10_000),
        Network("transformer", "language", 64, _FULL, 70, Task.LANGUAGE, 8_000),
        Network("vgg_16_s", "classifiers", 32, _SMALL, 32, smallest=32),
        Network("vgg_19_s", "classifiers", 32, _SMALL, 38, smallest=32),
        Network("resnet_50_s", "classifiers", 32, _SMALL, 54),
        Network("resnet_v2_101_s", "classifiers", 32, _SMALL, 94),
        Network("inception_v4_s", "inception", 75, _SMALL, 98, smallest=75),
        Network("googlenet_s", "inception", 64, _SMALL, 44),
        Network("alexnet_s", "classifiers", 67, _SMALL, 16, smallest=67),
        Network("dcgan_s", "dcgan", 64, _SMALL, 27, Task.ADVERSARIAL),
        Network("lstm_s", "language", 20, _SMALL, 9, Task.LANGUAGE, 2_000),
        Network("transformer_s", "language", 32, _SMALL, 38, Task.LANGUAGE, 2_000),
        Network("resnet_v2_101_t", "classifiers", 32, Scale.THIN, 344),
    )
}


def function(name: str) -> Any:
    """Return the function of a name "module:function"."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def network(name: str) -> Network:
    """Return the network of that name. Raises UnknownNetwork, which names the known ones and the
    closest."""
    if name in NETWORKS:
        return NETWORKS[name]
    raise UnknownNetwork(f"unknown network {name!r}: {hint(name, NETWORKS)}")


def hint(name: str, known: Collection[str]) -> str:
    """Return the words on a name that is not known."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"{f'did you mean {close[0]}? ' if close else ''}known are {', '.join(known)}"


def build(name: str, input_size: int, classes: int) -> Any:
    """Build a new keras.Model: float32 images [n, input_size, input_size, 3] -> logits
    [n, classes], or int32 words [n, input_size] -> logits [n, input_size, classes]. For an
    adversarial network, build the generator and the discriminator.

    Raises UnknownNetwork for an unknown name, and ValueError for an image too small for the
    network.
    """
    return function(network(name).builder)(input_size, classes)
