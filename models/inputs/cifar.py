"""CIFAR as a tf.data pipeline: read, shard, shuffle, batch, then prepare whole batches.

The augmentation is that of arXiv:1512.03385, section 4.2: four pixels of black on every side, a
random 32 x 32 crop, a random mirror image. Working on batches rather than on single images makes
it several times faster.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.inputs import pipeline
from models.inputs.cifar_files import CifarFiles, Layout, Split, rows
from models.inputs.errors import DataError

# Mean and standard deviation of each channel over the training images, as published widely for
# pixels in 0..1; here times 255.
MEAN = {
    "cifar10": np.array([0.4914, 0.4822, 0.4465], np.float32) * 255,
    "cifar100": np.array([0.5071, 0.4865, 0.4409], np.float32) * 255,
}
STANDARD_DEVIATION = {
    "cifar10": np.array([0.2470, 0.2435, 0.2616], np.float32) * 255,
    "cifar100": np.array([0.2673, 0.2564, 0.2762], np.float32) * 255,
}

_SIDE = 32
_MARGIN = 4
_OFFSETS = 2 * _MARGIN + 1


def train_dataset(
    files: CifarFiles,
    *,
    shard: tuple[int, int],
    batch: int,
    image_size: int,
    seed: int,
    augment: bool = True,
    shuffle: bool = True,
    symmetric: bool = False,
    repeat: bool = True,
    drop_remainder: bool = True,
    threads: int = 1,
) -> tf.data.Dataset:
    """(images float32 [batch, image_size, image_size, 3], labels int32 [batch]).

    shard is (index, count): of the records in file order, those whose number is index modulo
    count, taken before anything is shuffled. Each epoch is the whole shard in a new order; with
    repeat, a batch may span two epochs. The images are standardised by channel, or with symmetric
    in -1..1, and resized bilinearly unless image_size is 32. The seed and the shard's index decide
    every augmentation. With neither shuffle nor augment the stream is the records of the shard in
    file order.

    The static batch dimension is `batch` with drop_remainder, None without. The work is done by
    `threads` threads that are the pipeline's own.

    Raises DataError if there are fewer records than shards, ValueError for a shard, a batch or
    threads that make no sense.
    """
    index, count = shard
    pipeline.check_shard(index, count)
    pipeline.check_numbers(batch, threads)
    if count > files.train_records:
        raise DataError(
            f"{files.train[0].parent}: {files.train_records} training records cannot be shared by "
            f"{count} ranks; use more records or fewer ranks"
        )
    dataset = _source(files, index, count)
    if shuffle:
        shard_records = -(-files.train_records // count)
        dataset = dataset.shuffle(shard_records, seed=seed, reshuffle_each_iteration=True)
    if repeat:
        dataset = dataset.repeat()
    dataset = dataset.batch(batch, drop_remainder=drop_remainder).enumerate()

    stream = pipeline.streams(seed, index, 1)[0]

    def prepare(number: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = _decoded(files, records)
        if augment:
            images = _augmented(images, tf.stack([stream, number]))
        images = _scaled(images) if symmetric else _standardised(files, images)
        if image_size != _SIDE:
            images = tf.image.resize(images, (image_size, image_size), method="bilinear")
        return tf.ensure_shape(images, [records.shape[0], image_size, image_size, 3]), labels

    dataset = dataset.map(prepare, num_parallel_calls=pipeline.calls(threads))
    return pipeline.ready(dataset, threads)


def _source(files: CifarFiles, index: int, count: int) -> tf.data.Dataset:
    """Single records of the shard: strings, or uint8 [record_bytes] from the pickle layout."""
    if files.layout is Layout.PICKLE:
        return tf.data.Dataset.from_tensor_slices(rows(files, Split.TRAIN)[index::count])
    paths = [str(path) for path in files.train]
    return tf.data.FixedLengthRecordDataset(paths, files.record_bytes).shard(count, index)


def _decoded(files: CifarFiles, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A batch of records -> (images uint8 [b, 32, 32, 3], labels int32 [b])."""
    if files.layout is Layout.BINARY:
        records = tf.io.decode_raw(records, tf.uint8)
    records = tf.ensure_shape(records, [None, files.record_bytes])
    planes = tf.reshape(records[:, files.label_bytes :], [-1, 3, _SIDE, _SIDE])
    # Not tf.transpose: on bytes, oneDNN prints an error on processors without AVX-512.
    images = tf.stack(tf.unstack(planes, axis=1), axis=-1)
    return images, tf.cast(records[:, files.label_bytes - 1], tf.int32)


def _augmented(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """uint8 [b, 32, 32, 3] -> the same, cropped and mirrored. One gather does both."""
    number = tf.shape(images)[0]
    draw = tf.random.stateless_uniform(
        [number], seed, minval=0, maxval=_OFFSETS * _OFFSETS * 2, dtype=tf.int32
    )
    mirrored, top, left = draw % 2, draw // 2 % _OFFSETS, draw // 2 // _OFFSETS
    side = tf.range(_SIDE)
    down = top[:, None] + side
    across = left[:, None] + tf.where(mirrored[:, None] == 1, _SIDE - 1 - side, side)
    wide = _SIDE + 2 * _MARGIN
    padded = tf.pad(images, [[0, 0], [_MARGIN, _MARGIN], [_MARGIN, _MARGIN], [0, 0]])
    pixels = tf.reshape(padded, [number, wide * wide, 3])
    return tf.gather(pixels, down[:, :, None] * wide + across[:, None, :], axis=1, batch_dims=1)


def _standardised(files: CifarFiles, images: tf.Tensor) -> tf.Tensor:
    images = tf.cast(images, tf.float32)
    return (images - MEAN[files.dataset]) / STANDARD_DEVIATION[files.dataset]


def _scaled(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(images, tf.float32) / 127.5 - 1
