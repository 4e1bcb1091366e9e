"""The common part of all pipelines, and the synthetic input: one random batch, repeated. It costs
nothing, for an upper bound of throughput."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from hvdperf.models.inputs import INPUTS, TRAIN, Files, Request
from hvdperf.models.registry import Form

PREFETCHED_BATCHES = 2


def streams(seed: int, index: int, number: int) -> tf.Tensor:
    """Return int64 [number]: keys of random streams, other ones for each pair of seed and rank."""
    state = np.random.SeedSequence([seed, index]).generate_state(number)
    return tf.constant(state.astype(np.int64))


def ordered(records: tf.data.Dataset, split: str, request: Request, buffer: int) -> tf.data.Dataset:
    """Return the records of a shard in the order in which they are read: to train on, without an
    end, each epoch in a new order as far as a buffer of that many mixes them; to validate with,
    once, as they are."""
    if split != TRAIN:
        return records
    if request.shuffle:
        records = records.shuffle(buffer, seed=request.seed, reshuffle_each_iteration=True)
    return records.repeat()


def mapped(dataset: tf.data.Dataset, function: Callable[..., Any], threads: int) -> tf.data.Dataset:
    """Return the dataset with a function applied to every element, on so many threads."""
    parallel = threads if threads > 1 else None  # None: one call after the other
    return dataset.map(as_written(function), num_parallel_calls=parallel)


def as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that a dataset calls without AutoGraph. Nothing in it depends on a tensor's
    value, and AutoGraph's search for such code takes half of opening a pipeline."""
    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


def ready(dataset: tf.data.Dataset, threads: int) -> tf.data.Dataset:
    """Return the dataset with batches made ahead, on threads of its own, and with nothing left to
    be chosen at run time."""
    return dataset.prefetch(PREFETCHED_BATCHES).with_options(fixed(threads))


def fixed(threads: int) -> tf.data.Options:
    """Return options under which nothing about a pipeline is chosen at run time."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    # The pipeline is sharded already, and has a fixed number of threads.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def dataset(files: Files | None, split: str, request: Request) -> tf.data.Dataset:
    """Return an endless dataset of one batch, other ones for each index of a shard and each seed.

    It is images float32 [batch, size, size, 3], drawn from a standard normal distribution, and
    labels int32 [batch], drawn evenly from the classes; or words int32 [batch, size], drawn evenly
    from the vocabulary, and the next words. The batch dimension is static.
    """
    rng = np.random.default_rng([request.seed, request.shard[0]])
    classes = request.classes or INPUTS[request.dataset].classes
    batch, size = request.batch, request.size
    parts: tuple[np.ndarray, ...]
    if request.form is Form.IMAGES:
        pixels = rng.standard_normal((batch, size, size, 3), dtype=np.float32)
        parts = pixels, rng.integers(0, classes, batch, dtype=np.int32)
    else:
        words = rng.integers(0, classes, (batch, size + 1), dtype=np.int32)
        parts = words[:, :-1], words[:, 1:]
    return tf.data.Dataset.from_tensors(parts).repeat().with_options(fixed(1))
