"""How fast the devices of a node train, and what they compute. A device is a GPU, or else all cores
together. Rates are units a second: steps, and of a GPU's memory and bus bytes.

``python -m hvdperf.worker.devices`` reports how fast the GPUs of this host are without Horovod: one
JSON object on stdout. A night's process, which never imports TensorFlow, starts it.
"""

from __future__ import annotations

import json
import timeit
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf

from hvdperf.models import contract, registry, tasks
from hvdperf.worker import training
from hvdperf.worker.training import Part
from hvdperf.worker.vet import copier, rate

# What is trained, and with how many samples a step: on a GPU, and on cores.
ON_GPU, ON_CORES = ("resnet_50", 64), ("vgg_16_s", 16)
_CLASSES, _SEED = 1000, 1
# Updates after which weights are compared.
_UPDATES = 3
# The work of a GPU that a term is, by the name of the term.
_OF_GPU = {"memory": "copy", "bus": "link"}
# Does some work, and returns its amount.
Unit = Callable[[], float]


class Training:
    """A network of the suite, trained by its own step on one device and on one random batch."""

    def __init__(self, device: str, name: str, batch: int) -> None:
        self._device = device
        network = registry.network(name)
        task = tasks.find(network, network.input_size, _CLASSES)
        tf.keras.utils.set_random_seed(_SEED)
        with tf.device(device):
            models = contract.built(task.build(name), task)
            self._parts = training.without_randomness(
                Part(model, training.prepare(training.make_optimizer("sgd", "float32"), model))
                for model in models
            )
        self._state = training.tf_variables(
            variable for part in self._parts for variable in part.state
        )
        self._initial = [variable.numpy() for variable in self._state]
        drawn = np.random.default_rng(_SEED)
        images = drawn.random((batch, network.input_size, network.input_size, 3), np.float32)
        labels = drawn.integers(0, _CLASSES, batch, np.int32)
        self._timed = self._on_device(images, labels)
        # On a GPU, TensorFlow keeps by size the algorithms that it chose by their speed.
        self._compared = self._on_device(images[1:], labels[1:])

        @training.graph(reduce_retracing=False)
        def step(images: Any, labels: Any) -> Any:
            with tf.device(device):
                return training.update(task, self._parts, (images, labels), tf.reduce_mean)

        self._step = step
        # Keras is traced here, in the main thread.
        self.step()

    def _on_device(self, *arrays: Any) -> Sequence[Any]:
        with tf.device(self._device):
            return [tf.constant(array) for array in arrays]

    def step(self) -> float:
        """Train a step, and wait for its end. Return 1.0, the amount of this unit."""
        self._step(*self._timed).numpy()
        return 1.0

    def digest(self) -> str:
        """Return a hash of the weights after a few reproducible updates from the same weights. It
        differs if any bit does; "" if the device cannot repeat itself."""
        for variable, value in zip(self._state, self._initial):
            variable.assign(value)
        with suppress(training.Irreproducible), training.reproducible():
            for _ in range(_UPDATES):
                self._step(*self._compared).numpy()
            return training.digest(training.weights(self._parts))
        return ""


def _gpus() -> Sequence[Any]:
    """Return the GPUs, after switching on memory growth for each."""
    gpus: Sequence[Any] = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return gpus


class Devices:
    """The devices of this node, GPU 0 and so on; or CPU. models: of its GPUs."""

    def __init__(self) -> None:
        gpus = _gpus()
        names = [f"GPU {i}" for i in range(len(gpus))] or ["CPU"]
        self.models = tuple(
            str(tf.config.experimental.get_device_details(gpu).get("device_name", "GPU"))
            for gpu in gpus
        )
        self._placed = {name: name.replace(" ", ":") for name in names}
        trained, batch = ON_GPU if gpus else ON_CORES
        self._trainings = {name: Training(at, trained, batch) for name, at in self._placed.items()}
        # The terms that `rates` takes.
        self.terms = ["compute", *(_OF_GPU if gpus else ["memory"])]

    def rates(self, term: str, seconds: float) -> Mapping[str, float]:
        """Return how much each device does a second while all of them work. Memory is taken anew
        each time: which pages it gets changes how fast it is, by some percent."""
        units = self._units(term)
        with ThreadPoolExecutor(len(units)) as threads:
            # The first time compiles, and touches each page.
            list(threads.map(lambda unit: unit(), units.values()))
            found = {name: threads.submit(rate, unit, seconds) for name, unit in units.items()}
            return {name: each.result() for name, each in found.items()}

    def _units(self, term: str) -> Mapping[str, Unit]:
        if term == "compute":
            return {name: each.step for name, each in self._trainings.items()}
        if not self.models:
            return {"CPU": copier()}
        return {name: _unit(at, _OF_GPU[term]) for name, at in self._placed.items()}

    def digests(self) -> Mapping[str, str]:
        """Return what each device computes from the same seeds."""
        return {name: each.digest() for name, each in self._trainings.items()}


def _unit(device: str, name: str) -> Unit:
    """Return a unit of work of a GPU."""
    with tf.device(device):
        work = works()[name]

    def run() -> float:
        with tf.device(device):
            _do(work)
        return work.amount

    return run


# The work of a GPU -------------------------------------------------------------------------------

# Each measurement is the median of so many, each of which takes some milliseconds.
_REPEATS = 9
_SIDE = 8192
# Floats of 1 GiB, which no cache holds, and of 256 MiB.
_COPIED, _SENT = 1 << 28, 1 << 26


class Work(NamedTuple):
    """A unit of work of a GPU. amount: of it, in the unit of its rate. run: begins it, and returns
    a tensor that is there at its end."""

    amount: float
    run: Callable[[], Any]


def works() -> dict[str, Work]:
    """Return by name what `main` measures of the current device."""
    factor = tf.random.normal((_SIDE, _SIDE))
    source = tf.ones(_COPIED)
    sent = np.ones(_SENT, np.float32)

    @tf.function
    def product() -> Any:
        return tf.matmul(factor, factor)

    @tf.function
    def copied() -> Any:
        # TensorFlow would not copy what is not changed.
        return source + 1.0

    return {
        "matrix product": Work(2 * _SIDE**3, product),
        "copy": Work(2 * source.dtype.size * _COPIED, copied),
        "link": Work(sent.nbytes, lambda: tf.identity(tf.constant(sent))),
    }


def _do(work: Work) -> None:
    """Do some work, and wait for its end: reading an element of a tensor waits for the GPU."""
    tf.reshape(work.run(), [-1])[0].numpy()


def main() -> None:
    """Print by name how much each GPU does a second: floating point operations of a float32 matrix
    product as TensorFlow computes it (in TF32 where the GPU has it), bytes read and written by a
    copy in its memory, and bytes that reach it from the host."""
    found: dict[str, float] = {}
    for index in range(len(_gpus())):
        with tf.device(f"GPU:{index}"):
            for name, work in works().items():
                # The first time warms up.
                seconds = timeit.repeat(partial(_do, work), number=1, repeat=1 + _REPEATS)[1:]
                found[f"GPU {index} {name}"] = work.amount / median(seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
