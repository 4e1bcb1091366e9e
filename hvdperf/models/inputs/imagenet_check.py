"""Check all records of ImageNet's shards: python -m hvdperf.models.inputs.imagenet_check DIR

The numbers of records are printed as JSON. The first fault is one line on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError

from hvdperf.models.inputs.errors import faulty, finish, unreadable
from hvdperf.models.inputs.imagenet_files import CLASSES, REMEDY, ImagenetFiles, locate

# The first images of each shard are decoded. This takes milliseconds an image, hours for all of
# ImageNet; the pipeline names any other image that proves to be damaged.
DECODED = 32

# The data of a record lies between its length with a checksum, and a checksum of the data.
HEAD_BYTES, FOOT_BYTES = 12, 4


def check(files: ImagenetFiles) -> ImagenetFiles:
    """Return the files with the numbers of their records.

    Every record is read whole: its checksums, and that it is an Example of a JPEG with a label in
    1..1000. Raises DataError, in one line, for the first fault.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        numbers = [sum(pool.map(_check, paths)) for paths in (files.train, files.validation)]
    return replace(files, train_records=numbers[0], validation_records=numbers[1])


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a shard. Raises DataError for one that does not fit its checksums, and
    for a shard that is cut short, empty or unreadable."""
    number = end = 0
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
        for record in tf.data.TFRecordDataset(os.fsencode(path)).as_numpy_iterator():
            yield record
            number += 1
            end += HEAD_BYTES + len(record) + FOOT_BYTES
    except OSError as error:
        raise unreadable(path, error) from error
    except tf.errors.DataLossError as error:
        fault = "is truncated" if "truncated" in error.message else "does not fit its checksums"
        raise faulty(path, f"record {number} {fault}", _remedy(number)) from error
    if not size:
        raise faulty(path, "empty", REMEDY)
    if end < size:  # by less than a head, which TensorFlow ignores
        raise faulty(path, f"record {number} is truncated", _remedy(number))


def _remedy(record: int) -> str:
    """Return the advice about a damaged record: if it is the first one, the file may be another."""
    return REMEDY if record else f"is it really ImageNet as TFRecords? if so, {REMEDY}"


def _check(path: Path) -> int:
    """Return the number of records of a shard."""
    number = -1
    for number, record in enumerate(records(path)):
        fault = _fault(record, decode=number < DECODED)
        if fault:
            raise faulty(path, f"record {number} {fault}", _remedy(number))
    return number + 1


def _fault(record: bytes, decode: bool) -> str:
    """Return why the record is not one of ImageNet, "" if it is. decode: decode the image, too."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return "is not a tf.train.Example"
    for name in ("image/encoded", "image/class/label"):
        if name not in features:
            return f"is not an Example with {name}"
    images = features["image/encoded"].bytes_list.value
    labels = features["image/class/label"].int64_list.value
    if len(images) != 1 or not images[0].startswith(b"\xff\xd8\xff"):
        return "has no JPEG in image/encoded"
    if len(labels) != 1:
        return "has no integer in image/class/label"
    if not 1 <= labels[0] < CLASSES:
        return f"has {labels[0]} in image/class/label, not 1..{CLASSES - 1}"
    if decode:
        try:
            tf.io.decode_jpeg(images[0], channels=3)
        except tf.errors.InvalidArgumentError:
            return "cannot be decoded"
    return ""


def main(arguments: Sequence[str]) -> int:
    tf.config.set_visible_devices([], "GPU")

    def counted() -> str:
        files = check(locate(arguments[0]))
        counts = {name: getattr(files, name) for name in ("train_records", "validation_records")}
        return json.dumps(counts)

    return finish(counted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
