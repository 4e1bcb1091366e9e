"""CIFAR as a tf.data pipeline: read, shard, shuffle, batch, then prepare whole batches.

The augmentation is that of arXiv:1512.03385, section 4.2: four pixels of black on every side, a
random 32 x 32 crop, a random mirror image. Working on batches rather than on single images makes
it several times faster.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs import TRAIN, Files, Request, pipeline
from hvdperf.models.inputs.cifar_files import FORMATS, Layout, rows

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


def dataset(files: Files, split: str, request: Request) -> tf.data.Dataset:
    """Return (images float32 [b, size, size, 3], labels int32 [b]), as inputs.open_split does.

    The shard has the records whose number in file order is index modulo count; they are taken
    before anything is shuffled. Each epoch is the whole shard in a new order; a batch may span two
    epochs. The images are standardised by channel, or scaled to -1..1 with symmetric, and resized
    bilinearly unless they keep their 32 pixels. The seed and the shard's index decide every
    augmentation. With neither shuffle nor augment the stream is the records of the shard in file
    order.

    Raises DataError if there are fewer records than shards.
    """
    index, count = request.shard
    is_training = split == TRAIN
    records = _source(files, split, request)
    records = pipeline.ordered(records, split, request, -(-files.counts[split] // count))
    batches = records.batch(request.batch, drop_remainder=is_training)
    stream = pipeline.streams(request.seed, index, 1)[0]

    def prepare(number: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = _decoded(files, records)
        if is_training and request.augment:
            images = _augmented(images, tf.stack([stream, number]))
        return _finished(files, images, request, records.shape[0]), labels

    decoded = pipeline.mapped(batches.enumerate(), prepare, request.threads)
    return pipeline.ready(decoded, request.threads)


def _source(files: Files, split: str, request: Request) -> tf.data.Dataset:
    """Return the records of the shard: strings, or uint8 [record_bytes] from the pickle layout."""
    index, count = request.shard
    paths = files.paths[split]
    things = "training records" if split == TRAIN else "test records"
    inputs.check_enough(paths[0].parent, files.counts[split], things, request, "more records")
    if files.layout is Layout.PICKLE:
        return tf.data.Dataset.from_tensor_slices(rows(files, split)[index::count])
    record_bytes = FORMATS[files.dataset].record_bytes
    names = [str(path) for path in paths]
    return tf.data.FixedLengthRecordDataset(names, record_bytes).shard(count, index)


def _decoded(files: Files, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode a batch of records -> (images uint8 [b, 32, 32, 3], labels int32 [b])."""
    form = FORMATS[files.dataset]
    if files.layout is Layout.BINARY:
        records = tf.io.decode_raw(records, tf.uint8)
    records = tf.ensure_shape(records, [None, form.record_bytes])
    planes = tf.reshape(records[:, form.label_bytes :], [-1, 3, _SIDE, _SIDE])
    # Not tf.transpose: on bytes, oneDNN prints an error on processors without AVX-512.
    images = tf.stack(tf.unstack(planes, axis=1), axis=-1)
    return images, tf.cast(records[:, form.label_bytes - 1], tf.int32)


def _augmented(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Crop and mirror images: uint8 [b, 32, 32, 3] -> the same shape. One gather does both."""
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


def _finished(files: Files, images: tf.Tensor, request: Request, batch: int | None) -> tf.Tensor:
    """Scale and resize: uint8 [b, 32, 32, 3] -> float32 [b, size, size, 3]. batch: b if it is
    static, else None."""
    images = tf.cast(images, tf.float32)
    if request.symmetric:
        images = images / 127.5 - 1
    else:
        images = (images - MEAN[files.dataset]) / STANDARD_DEVIATION[files.dataset]
    if request.size != _SIDE:
        images = tf.image.resize(images, (request.size, request.size), method="bilinear")
    return tf.ensure_shape(images, [batch, request.size, request.size, 3])
