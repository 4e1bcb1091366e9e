"""Report how fast the GPUs of this host are without Horovod: one JSON object on stdout.

It is run as ``python -m hvdperf.worker.vet.gpu_probe``, because a night's process never imports
TensorFlow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Each measurement is the median of so many, each of which takes some milliseconds.
_REPEATS = 9
_SIDE = 8192
# Floats of 1 GiB, which no cache holds, and of 256 MiB.
_COPIED, _SENT = 1 << 28, 1 << 26


def main() -> None:
    """Print by name how much each GPU does a second: floating point operations of a float32 matrix
    product as TensorFlow computes it (in TF32 where the GPU has it), bytes read and written by a
    copy in its memory, and bytes that reach it from the host."""
    found: dict[str, float] = {}
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    for index in range(len(gpus)):
        with tf.device(f"GPU:{index}"):
            found |= {f"GPU {index} {name}": rate for name, rate in _rates().items()}
    print(json.dumps(found))


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


def wait_for(result: Any) -> None:
    """Wait until a tensor is there: reading an element waits for the GPU."""
    tf.reshape(result, [-1])[0].numpy()


def _rates() -> dict[str, float]:
    return {name: work.amount / _seconds(work.run) for name, work in works().items()}


def _seconds(work: Callable[[], Any]) -> float:
    """Return the median time of some work on the GPU, after a first time that warms up."""
    found = []
    for _ in range(1 + _REPEATS):
        begun = time.perf_counter()
        wait_for(work())
        found.append(time.perf_counter() - begun)
    return median(found[1:])


if __name__ == "__main__":
    main()
