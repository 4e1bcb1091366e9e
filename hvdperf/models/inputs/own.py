"""Input of one's own: the samples that a network's `data` function yields."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvdperf.models import registry

# Samples among which the next one is drawn.
_BUFFER = 1024


def samples(network: str, size: int) -> Any:
    """Return the tf.data.Dataset of single samples (inputs, label) of a network."""
    return registry.function(registry.network(network).data)(size)


def train_dataset(
    network: str, size: int, *, shard: tuple[int, int], batch: int, seed: int, shuffle: bool
) -> tf.data.Dataset:
    """Return an endless dataset of batches. shard: (index, count)."""
    index, count = shard
    dataset = samples(network, size).shard(count, index)
    if shuffle:
        dataset = dataset.shuffle(_BUFFER, seed=seed)
    return dataset.repeat().batch(batch, drop_remainder=True).prefetch(2)
