"""ImageNet as a tf.data pipeline: read, shard, shuffle, decode and prepare, then batch.

The augmentation is that of arXiv:1409.4842, section 6: a random crop of 8 % to 100 % of the image
with an aspect ratio of 3/4 to 4/3, stretched to a square, and a random mirror image. Only the crop
is decoded. Without augmentation it is the middle 87.5 % of height and width. Pixels are scaled to
-1..1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs import Files, Request, faulty, pipeline

# Size of the buffer that shuffles. It holds records as they are stored, 110 KB each in the
# published shards, which are shuffled already.
SHUFFLED_RECORDS = 1024

_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}

# Maps a JPEG and its number in the stream to uint8 [h, w, 3].
Crop = Callable[[Any, Any], Any]


def train_dataset(files: Files, request: Request) -> tf.data.Dataset:
    """Return a dataset of (images float32 [batch, size, size, 3], labels int32 [batch] in 1..1000).

    The shard is taken before anything is shuffled. If there is a file for every shard, the shard
    has the files whose number is index modulo count, so that no rank reads another's files, and
    shards may have different numbers of records. Otherwise the shard has the records whose number
    in file order is index modulo count. Each epoch is the whole shard in a new order, as far as a
    buffer of SHUFFLED_RECORDS mixes it; a batch may span two epochs. The seed, the shard's index
    and the number of a record in the stream decide its augmentation. With neither shuffle nor
    augment the stream is the records of the shard in file order. The batch dimension is static.

    If there are fewer records than shards, a shard may have none, and its dataset ends at once.
    Iterating raises an error of TensorFlow for an image that cannot be decoded, and for a record
    that does not fit its checksum (imagenet_files.explain).
    """
    seed = request.seed
    records = _source(files.paths[inputs.TRAIN], request.shard, seed if request.shuffle else None)
    if request.shuffle:
        records = records.shuffle(SHUFFLED_RECORDS, seed=seed, reshuffle_each_iteration=True)
    streams = pipeline.streams(seed, request.shard[0], 2)

    def cropped(encoded: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        if not request.augment:
            return _central_crop(encoded)
        image = _random_crop(encoded, tf.stack([streams[0], number]))
        return tf.image.stateless_random_flip_left_right(image, tf.stack([streams[1], number]))

    return _batches(records.repeat(), cropped, request, drop_remainder=True)


def validation_dataset(files: Files, request: Request) -> tf.data.Dataset:
    """Return one pass over the shard of the validation records, in file order and not augmented.

    The elements are (images float32 [b, size, size, 3], labels int32 [b] in 1..1000). b is `batch`,
    or less in the last one, so that nothing of the shard is left out. If whole files are dealt out,
    the ranks may have different numbers of records. Raises DataError also if there are no
    validation shards. All else, errors included, is as in `train_dataset`.
    """
    paths = files.paths[inputs.VALIDATION]
    if not paths:
        fault = "holds no validation shards (looked for validation-00000-of-*)"
        raise faulty(files.paths[inputs.TRAIN][0].parent, fault, "put them there")
    records = _source(paths, request.shard, None)
    return _batches(
        records, lambda encoded, _: _central_crop(encoded), request, drop_remainder=False
    )


def _source(paths: tuple[Path, ...], shard: tuple[int, int], seed: int | None) -> tf.data.Dataset:
    """Return the records of the shard, strings. seed: of the order of whole files, which differs in
    every epoch; None for file order."""
    index, count = shard
    names = [os.fsencode(path) for path in paths]
    if len(names) < count:
        # Every rank reads all files: count times the reading.
        return tf.data.TFRecordDataset(names).shard(count, index)
    files = tf.data.Dataset.from_tensor_slices(names[index::count])
    if seed is not None:
        files = files.shuffle(len(names), seed=seed, reshuffle_each_iteration=True)
    return tf.data.TFRecordDataset(files)


def _batches(
    records: tf.data.Dataset, crop: Crop, request: Request, drop_remainder: bool
) -> tf.data.Dataset:
    """Map records as `_source` returns them to batches as `train_dataset` returns them."""
    size = (request.size, request.size)

    def decode(number: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.io.parse_single_example(record, _FEATURES)
        image = crop(features["image/encoded"], number)
        image = tf.image.resize(image, size, method="bilinear") * (1 / 127.5) - 1
        return tf.ensure_shape(image, [*size, 3]), tf.cast(features["image/class/label"], tf.int32)

    decoded = pipeline.mapped(records.enumerate(), decode, request.threads)
    return pipeline.ready(decoded.batch(request.batch, drop_remainder), request.threads)


def _random_crop(encoded: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Decode a random crop: a JPEG -> uint8 [h, w, 3]. If no crop of these proportions fits, decode
    the whole image."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=_ASPECT,
        area_range=_AREA,
    )
    return _decoded(encoded, begin[:2], size[:2])


def _central_crop(encoded: tf.Tensor) -> tf.Tensor:
    """Decode a JPEG -> uint8 [h, w, 3] without a sixteenth of it on every side."""
    size = tf.io.extract_jpeg_shape(encoded)[:2]
    begin = size // 16
    return _decoded(encoded, begin, size - 2 * begin)


def _decoded(encoded: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    # The faster method, as in tf_cnn_benchmarks. Its pixels differ by a grey level or two.
    return tf.io.decode_and_crop_jpeg(
        encoded,
        tf.concat([begin, size], axis=0),
        channels=3,
        fancy_upscaling=False,
        dct_method="INTEGER_FAST",
    )
