"""The common part of all pipelines: checks of their arguments, and options of their execution. The
synthetic input is one random batch, repeated: it costs nothing, for an upper bound of throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hvdperf.models.inputs import faulty

PREFETCHED_BATCHES = 2


def check_shard(index: int, count: int) -> None:
    """Raise ValueError unless the index is that of one of count shards."""
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count}: the index must be in 0..count-1")


def check_enough(path: Path, number: int, things: str, ranks: int, more: str) -> None:
    """Raise DataError if one of the ranks would get none of `number` things that are dealt out in
    turn. things: their name, in the plural. more: what to use, if not fewer ranks."""
    if ranks > number:
        fault = f"{number} {things} cannot be shared by {ranks} ranks"
        raise faulty(path, fault, f"use {more} or fewer ranks")


def check_numbers(batch: int, threads: int) -> None:
    """Raise ValueError if batch or threads is below 1."""
    if batch < 1 or threads < 1:
        raise ValueError(f"batch {batch}, threads {threads}: both must be at least 1")


def streams(seed: int, index: int, number: int) -> tf.Tensor:
    """Return int64 [number]: keys of random streams, other ones for each pair of seed and rank."""
    state = np.random.SeedSequence([seed, index]).generate_state(number)
    return tf.constant(state.astype(np.int64))


def prepared(
    dataset: tf.data.Dataset, prepare: Callable[..., Any], threads: int
) -> tf.data.Dataset:
    """Return the dataset with `prepare` applied to every batch on `threads` threads, then
    `ready`."""
    parallel = threads if threads > 1 else None  # None: one call after the other
    return ready(dataset.map(as_written(prepare), num_parallel_calls=parallel), threads)


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


def random_images(
    classes: int, *, shard: tuple[int, int], batch: int, size: int, seed: int
) -> tf.data.Dataset:
    """Return an endless dataset of (images float32 [batch, size, size, 3], labels int32 [batch]).

    The images are drawn from a standard normal distribution, the labels evenly from the classes.
    shard is (index, count); each index and each seed give another batch. The batch dimension is
    static. Raises ValueError for an impossible shard or batch.
    """
    rng = _generator(shard, batch, seed)
    pixels = rng.standard_normal((batch, size, size, 3), dtype=np.float32)
    return _repeated(pixels, rng.integers(0, classes, batch, dtype=np.int32))


def random_words(
    classes: int, *, shard: tuple[int, int], batch: int, size: int, seed: int
) -> tf.data.Dataset:
    """Return an endless dataset of (words int32 [batch, size], the next words int32 [batch, size]).
    The words are drawn evenly from the vocabulary. All else is as in `random_images`."""
    stream = _generator(shard, batch, seed).integers(0, classes, (batch, size + 1), dtype=np.int32)
    return _repeated(stream[:, :-1], stream[:, 1:])


def _generator(shard: tuple[int, int], batch: int, seed: int) -> np.random.Generator:
    index, count = shard
    check_shard(index, count)
    if batch < 1:
        raise ValueError(f"batch {batch}: must be at least 1")
    return np.random.default_rng([seed, index])


def _repeated(*batch: np.ndarray) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    return dataset.with_options(fixed(1))
