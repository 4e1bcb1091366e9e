"""The networks by name. Importing this never imports TensorFlow; `build` does."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


class Traffic(Enum):
    """The load that a network's gradients put on an allreduce.

    A small variant keeps the class of its full-size network.
    """

    FEW_HUGE = "few huge tensors"
    MANY_TINY = "hundreds of tiny tensors"
    MIXED = "in between"
    SPARSE = "a few rows of a large table, gathered rather than reduced"
    TWO_BURSTS = "two models, one burst of gradients after the other"
    UNKNOWN = "not classified"


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
    dicts and tuples. origin: the file or module that defines the network. script, place: of a
    training script, which is run as it is, its path with its arguments, and the directory in which
    it is run.
    """

    name: str
    builder: str
    input_size: int
    traffic: Traffic = Traffic.UNKNOWN
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


_HUGE, _TINY, _MIXED = Traffic.FEW_HUGE, Traffic.MANY_TINY, Traffic.MIXED
_BURSTS = Traffic.TWO_BURSTS
_FULL, _SMALL = Scale.FULL, Scale.SMALL


def _home(module: str, name: str) -> str:
    """Return the builder of a network, which has the network's name."""
    return f"hvdperf.models.networks.{module}:{name}"


def _classifier(
    module: str, name: str, size: int, traffic: Traffic, scale: Scale, tensors: int, smallest: int
) -> Network:
    builder = _home(module, name)
    return Network(name, builder, size, traffic, scale, tensors, smallest=smallest)


def _language_model(
    name: str, length: int, traffic: Traffic, scale: Scale, tensors: int, words: int
) -> Network:
    builder = _home("language", name)
    return Network(name, builder, length, traffic, scale, tensors, Task.LANGUAGE, words)


def _adversarial(name: str, scale: Scale) -> Network:
    return Network(name, _home("dcgan", name), 64, _BURSTS, scale, 27, Task.ADVERSARIAL)


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        _classifier("classifiers", "vgg_16", 224, _HUGE, _FULL, 32, 32),
        _classifier("classifiers", "vgg_19", 224, _HUGE, _FULL, 38, 32),
        _classifier("classifiers", "resnet_50", 224, _TINY, _FULL, 214, 32),
        _classifier("classifiers", "resnet_v2_101", 224, _TINY, _FULL, 344, 32),
        _classifier("inception", "inception_v4", 299, _TINY, _FULL, 300, 75),
        _classifier("inception", "inception_v3", 299, _MIXED, _FULL, 190, 75),
        _classifier("inception", "googlenet", 224, _MIXED, _FULL, 116, 1),
        _classifier("classifiers", "alexnet", 227, _HUGE, _FULL, 16, 67),
        _adversarial("dcgan", _FULL),
        _language_model("lstm", 35, Traffic.SPARSE, _FULL, 9, 10_000),
        _language_model("lstm_ptb_small", 20, Traffic.SPARSE, _FULL, 9, 10_000),
        _language_model("lstm_ptb_large", 35, Traffic.SPARSE, _FULL, 9, 10_000),
        _language_model("transformer", 64, _MIXED, _FULL, 70, 8_000),
        _classifier("classifiers", "vgg_16_s", 32, _HUGE, _SMALL, 32, 32),
        _classifier("classifiers", "vgg_19_s", 32, _HUGE, _SMALL, 38, 32),
        _classifier("classifiers", "resnet_50_s", 32, _TINY, _SMALL, 54, 1),
        _classifier("classifiers", "resnet_v2_101_s", 32, _TINY, _SMALL, 94, 1),
        _classifier("inception", "inception_v4_s", 75, _TINY, _SMALL, 98, 75),
        _classifier("inception", "inception_v3_s", 75, _MIXED, _SMALL, 84, 75),
        _classifier("inception", "googlenet_s", 64, _MIXED, _SMALL, 44, 1),
        _classifier("classifiers", "alexnet_s", 67, _HUGE, _SMALL, 16, 67),
        _adversarial("dcgan_s", _SMALL),
        _language_model("lstm_s", 20, Traffic.SPARSE, _SMALL, 9, 2_000),
        _language_model("transformer_s", 32, _MIXED, _SMALL, 38, 2_000),
        _classifier("classifiers", "resnet_v2_101_t", 32, _TINY, Scale.THIN, 344, 1),
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
    close = difflib.get_close_matches(name, NETWORKS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UnknownNetwork(f"unknown network {name!r}: {hint}known are {', '.join(NETWORKS)}")


def build(name: str, input_size: int, classes: int) -> Any:
    """Build a new keras.Model: float32 images [n, input_size, input_size, 3] -> logits
    [n, classes], or int32 words [n, input_size] -> logits [n, input_size, classes]. For an
    adversarial network, build the generator and the discriminator.

    Raises UnknownNetwork for an unknown name, and ValueError for an image too small for the
    network.
    """
    return function(network(name).builder)(input_size, classes)
