"""One random batch, repeated: an input that costs nothing, so an upper bound of throughput."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def train_dataset(
    classes: int,
    *,
    shard: tuple[int, int],
    batch: int,
    image_size: int,
    seed: int,
) -> tf.data.Dataset:
    """(images float32 [batch, image_size, image_size, 3], labels int32 [batch]), for ever.

    The images are drawn from a standard normal distribution, the labels evenly from the classes;
    the batch is another one for each shard (index, count) and each seed. Its dimension is static.
    Raises ValueError for a shard or a batch that makes no sense.
    """
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count}: the index must be in 0..count-1")
    if batch < 1:
        raise ValueError(f"batch {batch}: must be at least 1")
    rng = np.random.default_rng([seed, index])
    images = rng.standard_normal((batch, image_size, image_size, 3), dtype=np.float32)
    labels = rng.integers(0, classes, batch, dtype=np.int32)
    dataset = tf.data.Dataset.from_tensors((images, labels)).repeat()
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
