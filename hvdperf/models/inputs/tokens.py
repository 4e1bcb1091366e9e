"""Text as a tf.data pipeline: number the words, cut into sequences, shard, shuffle, batch.

The text is numbered when the pipeline is made and kept in memory: four bytes a token.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from hvdperf.models.inputs import pipeline, token_files
from hvdperf.models.inputs.token_files import Split, TokenFiles


def train_dataset(
    files: TokenFiles,
    *,
    shard: tuple[int, int],
    batch: int,
    length: int,
    vocabulary: int,
    seed: int,
    shuffle: bool = True,
    threads: int = 1,
) -> tf.data.Dataset:
    """Return a dataset of (tokens int32 [batch, length], targets int32 [batch, length]); the batch
    dimension is static.

    The targets are the tokens, one position on. Sequence k starts at token k * length of the
    training text. shard is (index, count). The shard has the sequences whose number is index modulo
    count; they are taken before anything is shuffled. Each epoch is the whole shard in a new order
    that the seed decides; a batch may span two epochs. Without shuffle the stream is the sequences
    of the shard in the order of the text.

    vocabulary: how many words of the training text are distinguished, see `token_files.vocabulary`;
    every token is less. `threads` threads that are the pipeline's own do the work.

    Raises DataError if there are fewer sequences than shards or no sequence at all, ValueError for
    an impossible shard, batch, length, vocabulary or number of threads.
    """
    dataset, number = _source(files, Split.TRAIN, shard, length, vocabulary)
    if shuffle:
        dataset = dataset.shuffle(number, seed=seed, reshuffle_each_iteration=True)
    return _batched(dataset.repeat(), batch, drop_remainder=True, threads=threads)


def validation_dataset(
    files: TokenFiles,
    *,
    shard: tuple[int, int],
    batch: int,
    length: int,
    vocabulary: int,
    threads: int = 1,
) -> tf.data.Dataset:
    """Return one pass over the shard of the validation text, in its order.

    The elements are (tokens int32 [b, length], targets int32 [b, length]). b is `batch`, or less in
    the last one, so that no sequence of the shard is left out. All else, errors included, is as in
    `train_dataset`.
    """
    dataset, _ = _source(files, Split.VALID, shard, length, vocabulary)
    return _batched(dataset, batch, drop_remainder=False, threads=threads)


def _source(
    files: TokenFiles,
    split: Split,
    shard: tuple[int, int],
    length: int,
    vocabulary: int,
) -> tuple[tf.data.Dataset, int]:
    """Return the shard's sequences with the token after each, int32 [length + 1], and how many
    there are."""
    index, count = shard
    pipeline.check_shard(index, count)
    total = token_files.sequences(files, split, length)
    things = f"sequences of {length} tokens"
    pipeline.check_enough(files.path(split), total, things, count, "more text, shorter sequences")
    stream = token_files.ids(files, split, token_files.vocabulary(files, vocabulary))
    windows = np.lib.stride_tricks.sliding_window_view(stream, length + 1)
    mine = windows[::length][index::count]
    return tf.data.Dataset.from_tensor_slices(mine), len(mine)


def _batched(
    dataset: tf.data.Dataset, batch: int, drop_remainder: bool, threads: int
) -> tf.data.Dataset:
    pipeline.check_numbers(batch, threads)
    dataset = dataset.batch(batch, drop_remainder=drop_remainder)
    return pipeline.prepared(dataset, lambda rows: (rows[:, :-1], rows[:, 1:]), threads)
