"""ImageNet as a tf.data pipeline: read, shard, shuffle, decode and prepare, then batch.

The augmentation is that of arXiv:1409.4842, section 6: a random crop of 8 % to 100 % of the image
with an aspect ratio of 3/4 to 4/3, stretched to a square, and a random mirror image. Only the crop
is decoded. Without augmentation it is the middle 87.5 % of height and width. Pixels are scaled to
-1..1.
"""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs import Files, Request, faulty, pipeline

# Size of the buffer that shuffles. It holds records as they are stored, 110 KB each in the
# published shards, which are shuffled already.
SHUFFLED_RECORDS = 1024

_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def dataset(files: Files, split: str, request: Request) -> tf.data.Dataset:
    """Return (images float32 [b, size, size, 3], labels int32 [b] in 1..1000), as inputs.open_split
    does.

    The shard is taken before anything is shuffled. If there is a file for every shard, the shard
    has the files whose number is index modulo count, so that no rank reads another's files, and
    shards may have different numbers of records. Otherwise the shard has the records whose number
    in file order is index modulo count. Each epoch is the whole shard in a new order, as far as a
    buffer of SHUFFLED_RECORDS mixes it; a batch may span two epochs. The seed, the shard's index
    and the number of a record in the stream decide its augmentation. With neither shuffle nor
    augment the stream is the records of the shard in file order.

    If there are fewer records than shards, a shard may have none, and its dataset ends at once.
    Raises DataError if there are no files of the split. Iterating raises an error of TensorFlow for
    an image that cannot be decoded, and for a record that does not fit its checksum
    (inputs.explain).
    """
    paths = files.paths[split]
    if not paths:
        fault = "holds no validation shards (looked for validation-00000-of-*)"
        raise faulty(files.paths[inputs.TRAIN][0].parent, fault, "put them there")
    is_training = split == inputs.TRAIN
    shuffled = is_training and request.shuffle
    records = _source(paths, request.shard, request.seed if shuffled else None)
    records = pipeline.ordered(records, split, request, SHUFFLED_RECORDS)
    streams = pipeline.streams(request.seed, request.shard[0], 2)
    size = (request.size, request.size)

    def decode(number: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.io.parse_single_example(record, FEATURES)
        encoded = features["image/encoded"]
        if is_training and request.augment:
            image = _random_crop(encoded, tf.stack([streams[0], number]))
            image = tf.image.stateless_random_flip_left_right(image, tf.stack([streams[1], number]))
        else:
            image = _central_crop(encoded)
        image = tf.image.resize(image, size, method="bilinear") * (1 / 127.5) - 1
        return tf.ensure_shape(image, [*size, 3]), tf.cast(features["image/class/label"], tf.int32)

    decoded = pipeline.mapped(records.enumerate(), decode, request.threads)
    batches = decoded.batch(request.batch, drop_remainder=is_training)
    return pipeline.ready(batches, request.threads)


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
