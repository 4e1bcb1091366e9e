"""Networks of one's own and their data: what the suite can train, checked where it comes in, and
the samples that a network's `data` function yields."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdperf.models import registry
from hvdperf.models.inputs import Request
from hvdperf.models.own_networks import BadNetwork
from hvdperf.models.registry import Shard

# Methods of a model that the suite does not call: it trains by its own loop.
_NOT_CALLED = ("train_step", "compute_loss")
_KERAS = ("keras", "tf_keras", "tensorflow")


def built(models: Any, task: Any) -> Sequence[Any]:
    """Return a task's new models, each of which has its variables now. Raises BadNetwork.

    task: a models.tasks.Step. A model that is built by its first call is called with zeros.
    """
    for model in models:
        if not isinstance(model, tf.keras.Model):
            raise BadNetwork(
                f"the builder returns a {type(model).__name__}; return a keras.Model, such as one "
                "whose call() has this computation"
            )
        # A model is built if all of its layers have their variables.
        if not all(each.built for each in model._flatten_layers(include_self=True, recursive=True)):
            _build(model, task)
        if not model.trainable_variables:
            raise BadNetwork("it has no trainable variables; set trainable = True on some layers")
    return list(models)


def _build(model: Any, task: Any) -> None:
    inputs, _ = task.signature()
    zeros = tf.nest.map_structure(
        lambda spec: tf.zeros([size or 1 for size in spec.shape], spec.dtype), inputs
    )
    try:
        model(zeros, training=False)
    except Exception as error:
        raise BadNetwork(
            "it is not built, and a call with zeros does not build it: "
            f"{type(error).__name__}: {error}"
        ) from error


def check_optimizer(optimizer: Any) -> None:
    """Raise BadNetwork unless this is an optimizer of Keras that nothing wraps."""
    exchanges = any(
        str(getattr(part, "__module__", "")).startswith("horovod")
        for part in vars(type(optimizer)).values()
    )
    if exchanges:
        raise BadNetwork(
            "its optimizer is a DistributedOptimizer of Horovod; return the optimizer itself, "
            "since the suite exchanges the gradients"
        )
    if not (hasattr(optimizer, "build") and hasattr(optimizer, "apply_gradients")):
        raise BadNetwork(
            f"its optimizer is a {type(optimizer).__name__}; return an optimizer of tf.keras, "
            "such as tf.keras.optimizers.Adam()"
        )


def check_methods(model: Any, has_loss: bool, has_optimizer: bool) -> None:
    """Raise BadNetwork if a model defines a training that the suite would ignore.

    has_loss, has_optimizer: whether the network names its own.
    """
    for name in _NOT_CALLED:
        owner = next((each for each in type(model).__mro__ if name in vars(each)), object)
        if owner.__module__.partition(".")[0] not in _KERAS and owner is not object:
            raise BadNetwork(
                f"{owner.__name__} overrides {name}(), which the suite's own training loop does "
                "not call; express it by loss= of the Network and add_loss() in layers, or leave "
                "it out"
            )
    told = getattr(model, "optimizer", None) is not None
    if told and not (has_loss and has_optimizer):
        raise BadNetwork(
            "the builder calls compile(), which the suite's own training loop does not use; name "
            "loss= and optimizer= in the Network instead"
        )


def check_logits(logits: Any, labels: Any, classes: int) -> None:
    """Raise BadNetwork unless the suite's own loss can be taken: logits of one class more than the
    largest label, for every label. classes: 0 if the number is not known."""
    if isinstance(logits, tf.Tensor) and isinstance(labels, tf.Tensor) and labels.dtype.is_integer:
        wanted = tf.TensorShape(labels.shape).concatenate([classes or None])
        # Only the number of samples may be open.
        if logits.shape.rank == wanted.rank and logits.shape[1:].is_compatible_with(wanted[1:]):
            return
    raise BadNetwork(
        f"its outputs are {_shown(logits)} and its labels {_shown(labels)}, and the loss of the "
        f"suite takes logits [n, {classes or 'classes'}] and a whole number for each; change the "
        "last layer, or give a loss= of your own"
    )


def check_loss(losses: Any) -> None:
    """Raise BadNetwork unless a loss of one's own is one figure a sample, [n]."""
    if not isinstance(losses, tf.Tensor) or not losses.dtype.is_floating or losses.shape.rank != 1:
        raise BadNetwork(
            f"its loss returns {_shown(losses)}; return one figure a sample, float32 [n], as by "
            'reduction="none", or by tf.reduce_mean over the other dimensions'
        )


def _shown(value: Any) -> str:
    if not isinstance(value, (tf.Tensor, tf.TensorSpec)):
        return type(value).__name__
    sizes = value.shape if value.shape.rank is not None else "?"
    return f"{value.dtype.name} [{', '.join('n' if size is None else str(size) for size in sizes)}]"


# Data ------------------------------------------------------------------------------------------


def check_samples(dataset: Any) -> None:
    """Raise BadNetwork unless the dataset yields pairs of dense tensors of known rank."""
    if not isinstance(dataset, tf.data.Dataset):
        raise BadNetwork(
            f"the data are a {type(dataset).__name__}; return a tf.data.Dataset of single samples "
            "(inputs, label)"
        )
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        count = f"{len(spec)} parts" if isinstance(spec, tuple) else "one part"
        raise BadNetwork(
            f"the data yield {count}; yield pairs (inputs, label), with a weight as a part of the "
            "label, if the loss uses one"
        )
    for path, leaf in leaves(spec):
        if not isinstance(leaf, tf.TensorSpec) or leaf.shape.rank is None:
            raise BadNetwork(
                f"{path} of a sample is {_shown(leaf)}; make it a dense tensor of a known shape: a "
                "ragged one by to_tensor(shape=...), and after tf.numpy_function by tf.ensure_shape"
            )


def leaves(spec: Any) -> list[tuple[str, Any]]:
    """Return each tensor of a sample (inputs, label), or its spec, with its place in words, such as
    inputs['a']."""

    def below(path: str, part: Any) -> list[tuple[str, Any]]:
        if isinstance(part, dict):
            return [leaf for key in part for leaf in below(f"{path}[{key!r}]", part[key])]
        if isinstance(part, (tuple, list)):
            return [leaf for i, each in enumerate(part) for leaf in below(f"{path}[{i}]", each)]
        return [(path, part)]

    inputs, label = spec
    return below("inputs", inputs) + below("label", label)


# Input -----------------------------------------------------------------------------------------


def samples(network: str, size: int, shard: Shard, seed: int) -> Any:
    """Return the tf.data.Dataset of a shard's single samples (inputs, label), as the network's
    `data` function makes it.

    seed: of what the function draws at random without a seed of its own, such as the order of a
    shuffle, so that all strategies read the same samples in the same order. Raises BadNetwork, and
    whatever the function raises.
    """
    function = registry.function(registry.network(network).data)
    try:
        inspect.signature(function).bind(size, shard)
    except TypeError:
        name = getattr(function, "__name__", "samples")
        raise BadNetwork(
            f"{name}{inspect.signature(function)} cannot be called with an input size and a "
            f"shard: write `def {name}(input_size, shard)`, and divide its files or samples before "
            "it prepares them, as in dataset.shard(shard.count, shard.index)"
        ) from None
    tf.keras.utils.set_random_seed(seed + shard.index)
    dataset = function(size, shard)
    check_samples(dataset)
    return dataset


def batch_signature(network: str, size: int) -> tuple[Any, Any]:
    """Return tf.TensorSpecs of a batch (inputs, labels), whose number of samples is open."""
    spec = samples(network, size, Shard(0, 1), seed=0).element_spec
    inputs, labels = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec
    )
    return inputs, labels


def dataset(files: None, split: str, request: Request) -> tf.data.Dataset:
    """Return an endless dataset of batches of one shard, in the order in which the network's `data`
    function yields its samples."""
    own = samples(request.dataset, request.size, Shard(*request.shard), request.seed)
    return own.repeat().batch(request.batch, drop_remainder=True).prefetch(2)
