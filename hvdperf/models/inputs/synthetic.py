"""One random batch, repeated: an input that costs nothing, for an upper bound of throughput."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from hvdperf.models.inputs import pipeline


def images(
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


def words(
    classes: int, *, shard: tuple[int, int], batch: int, size: int, seed: int
) -> tf.data.Dataset:
    """Return an endless dataset of (words int32 [batch, size], the next words int32 [batch, size]).
    The words are drawn evenly from the vocabulary. All else is as in `images`."""
    stream = _generator(shard, batch, seed).integers(0, classes, (batch, size + 1), dtype=np.int32)
    return _repeated(stream[:, :-1], stream[:, 1:])


def _generator(shard: tuple[int, int], batch: int, seed: int) -> np.random.Generator:
    index, count = shard
    pipeline.check_shard(index, count)
    if batch < 1:
        raise ValueError(f"batch {batch}: must be at least 1")
    return np.random.default_rng([seed, index])


def _repeated(*batch: np.ndarray) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    return dataset.with_options(pipeline.fixed(1))
