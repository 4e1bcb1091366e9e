"""ImageNet as a tf.data pipeline: read, shard, shuffle, batch, then decode and prepare.

The augmentation is that of arXiv:1409.4842, section 6: a random crop of 8 % to 100 % of the image
with an aspect ratio of 3/4 to 4/3, stretched to a square, and a random mirror image. Only the crop
is decoded. Without augmentation it is the middle 87.5 % of height and width. Pixels are scaled to
-1..1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs import DataError, Files, Request, faulty, imagenet_files, pipeline
from hvdperf.models.inputs.imagenet_files import CLASSES, FOOT_BYTES, HEAD_BYTES, REMEDY

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
    Iterating raises tf.errors.InvalidArgumentError, with the file and the record, if an image
    cannot be decoded or a label is out of range. It raises DataLossError, without the file, if a
    record does not fit its checksum; `explain` finds the file.
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

    return _batches(records.repeat(), files.paths[inputs.TRAIN], cropped, request, request.batch)


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
    return _batches(records, paths, lambda encoded, _: _central_crop(encoded), request, None)


def _source(paths: tuple[Path, ...], shard: tuple[int, int], seed: int | None) -> tf.data.Dataset:
    """Return the records of the shard, as `_records` returns them. seed: of the order of whole
    files, which differs in every epoch; None for file order."""
    index, count = shard
    # If records are dealt out one by one, every rank reads all files: count times the reading.
    by_file = len(paths) >= count
    files = np.arange(len(paths))[index::count] if by_file else np.arange(len(paths))
    numbers = tf.data.Dataset.from_tensor_slices(files)
    if not by_file:
        # Records are dealt out by their number in file order, so that order has to stay.
        return _records(numbers, paths).shard(count, index)
    if seed is not None:
        numbers = numbers.shuffle(len(files), seed=seed, reshuffle_each_iteration=True)
    return _records(numbers, paths)


def _records(shards: tf.data.Dataset, paths: tuple[Path, ...]) -> tf.data.Dataset:
    """Map shards by number to (the shard's number, (the record's number, the record: string))."""
    names = _names(paths)

    def read(shard: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(tf.gather(names, shard)).enumerate()
        return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(shard).repeat(), records))

    return shards.flat_map(pipeline.as_written(read))


def _names(paths: tuple[Path, ...]) -> tf.Tensor:
    return tf.constant([os.fsencode(path) for path in paths])


def _batches(
    records: tf.data.Dataset,
    paths: tuple[Path, ...],
    crop: Crop,
    request: Request,
    static_batch: int | None,
) -> tf.data.Dataset:
    """Map records as `_records` returns them to batches as `train_dataset` returns them.
    static_batch: the size of all batches; None if the last one may be smaller."""
    image_size, batch, threads = request.size, request.batch, request.threads

    def decode(
        row: tf.Tensor, number: tf.Tensor, record: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        features = tf.io.parse_single_example(record, _FEATURES)
        image = crop(features["image/encoded"], number)
        image = tf.image.resize(image, (image_size, image_size), method="bilinear")
        return row, image * (1 / 127.5) - 1, features["image/class/label"]

    parallel = {"num_parallel_calls": threads, "deterministic": True} if threads > 1 else {}

    # An error in `decode` does not name the file. So here it only drops the image from its batch,
    # which then has fewer images or none, and `check` finds out which one. An error outside, such
    # as a file that has gone, is passed on.
    def decode_batch(numbers: tf.Tensor, items: tuple[tf.Tensor, Any]) -> tf.data.Dataset:
        shards, (lines, encoded) = items
        rows = tf.range(tf.size(numbers))
        decoded = tf.data.Dataset.from_tensor_slices((rows, numbers, encoded))
        decoded = decoded.map(pipeline.as_written(decode), **parallel)
        decoded = decoded.ignore_errors(log_warning=True).batch(batch)
        nothing = (
            tf.zeros([0], tf.int32),
            tf.zeros([0, image_size, image_size, 3]),
            tf.zeros([0], tf.int64),
        )
        decoded = decoded.concatenate(tf.data.Dataset.from_tensors(nothing))
        places = tf.stack([shards, lines], axis=1)
        return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(places), decoded))

    names = _names(paths)

    def check(
        places: tf.Tensor, decoded: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        rows, images, labels = decoded
        # The shapes of an incomplete batch are wrong, too, so this check has to come first.
        with tf.control_dependencies([_assert_sound(names, places, rows, labels)]):
            images = tf.ensure_shape(images, [static_batch, image_size, image_size, 3])
            return images, tf.ensure_shape(tf.cast(labels, tf.int32), [static_batch])

    dataset = records.enumerate().batch(batch, drop_remainder=static_batch is not None)
    # Two batches at a time, in turn. TensorFlow keeps the function `decode` as long as one of them
    # lives. Preparing the function again for each batch would take milliseconds.
    decode_batches = pipeline.as_written(decode_batch)
    dataset = dataset.interleave(decode_batches, cycle_length=2, block_length=1)
    dataset = dataset.map(pipeline.as_written(check))
    return pipeline.ready(dataset, threads)


def _assert_sound(
    names: tf.Tensor, places: tf.Tensor, rows: tf.Tensor, labels: tf.Tensor
) -> tf.Operation:
    """Return an operation that fails, with the file and the record, unless the batch is whole and
    its labels are in range.

    places: int64 [b, 2], the shard and the record of each image. rows: the rows of places that the
    labels belong to, in rising order.
    """
    lost = tf.fill([tf.shape(places)[0]], tf.int64.min)
    found = tf.tensor_scatter_nd_update(lost, rows[:, None], labels)
    wrong = (found < 1) | (found >= CLASSES)
    first = tf.argmax(tf.cast(wrong, tf.int32))
    label = found[first]
    fault = tf.where(
        label == tf.int64.min,
        "cannot be decoded",
        tf.strings.join(
            ["has ", tf.strings.as_string(label), f" in image/class/label, not 1..{CLASSES - 1}"]
        ),
    )
    file, record = tf.gather(names, places[first, 0]), tf.strings.as_string(places[first, 1])
    message = tf.strings.join([file, ": record ", record, " ", fault, f"; {REMEDY}"])
    return tf.debugging.Assert(~tf.reduce_any(wrong), [message])


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


# Errors ----------------------------------------------------------------------------------------

# The messages of a reader of TFRecords, and of the pipeline's own check.
_DAMAGED = re.compile(r"(?:corrupted|truncated) record at ([0-9]+)")
_CHECKED = re.compile(rf"assertion failed: \[(.*; {REMEDY})\]")

_LENGTH_BYTES = 8


def explain(directory: str | Path, error: BaseException) -> str:
    """Return one line that names the file and the record that a TensorFlow error is about, and what
    to do. Return "" if the error is about something else, or if all records are sound by now."""
    if isinstance(error, tf.errors.InvalidArgumentError):
        checked = _CHECKED.search(error.message)
        # tf.Assert writes C escapes for quotes, and for characters that are not printable or not
        # ASCII, which a path may have.
        text = checked[1].encode().decode("unicode_escape") if checked else ""
        return os.fsdecode(text.encode("latin-1"))
    damaged = isinstance(error, tf.errors.DataLossError) and _DAMAGED.search(error.message)
    if not damaged:
        return ""
    try:
        _read_at(imagenet_files.locate(directory), int(damaged[1]))
    except (DataError, OSError) as found:
        return str(found)
    return ""


def _read_at(files: Files, offset: int) -> None:
    """Read the record that starts at the offset, or whose data starts there, in every shard that
    has one. Raises DataError for a damaged record.

    TensorFlow gives the offset of the data if only that is damaged.
    """
    for path in files.all:
        for number, start in enumerate(_starts(path)):
            if start in (offset, offset - HEAD_BYTES):
                next(islice(imagenet_files.records(path), number, None), None)
            if start >= offset:
                break


def _starts(path: Path) -> Iterator[int]:
    """Yield where each record starts, as far as the lengths of the earlier ones are right."""
    with open(path, "rb") as file:
        start, size = 0, os.fstat(file.fileno()).st_size
        while start < size:
            yield start
            length = os.pread(file.fileno(), _LENGTH_BYTES, start)
            start += HEAD_BYTES + int.from_bytes(length, "little") + FOOT_BYTES
