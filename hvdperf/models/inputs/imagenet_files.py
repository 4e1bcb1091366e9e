"""ImageNet as TFRecords on disk: find the shards, and check all of their records.

The published form is one tf.train.Example a record, in shards named train-00000-of-01024 and
validation-00000-of-00128. Records are numbered from 0 within their shard, here and in every
message. Finding needs no TensorFlow.

python -m hvdperf.models.inputs.imagenet_files DIR [--decode] prints the numbers of records as JSON.
The first fault is one line on stderr. --decode: decode every image.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from hvdperf.models import inputs
from hvdperf.models.inputs import DataError, Files, faulty, unreadable

# Labels are 1..1000; a network has one output more, for 0, the background.
CLASSES = 1001

# The advice in every message about a damaged shard.
REMEDY = "fetch or write this shard again"


def locate(directory: str | Path, dataset: str = "imagenet") -> Files:
    """Find the shards in the directory, or in its folders train and validation. Those to validate
    with may be missing.

    Raises DataError, in one line, for a directory without training shards, and for a set of shards
    that is not whole.
    """
    root, remedy = Path(directory), f"put the TFRecord shards there, {inputs.or_sample(dataset)}"
    inputs.check_directory(root, remedy)
    paths = {split: shards(root, split) for split in (inputs.TRAIN, inputs.VALIDATION)}
    if not paths[inputs.TRAIN]:
        fault = "holds no ImageNet training shards (looked for train-00000-of-*)"
        raise faulty(root, fault, remedy)
    return Files(dataset, paths)


def shards(root: Path, split: str) -> tuple[Path, ...]:
    """Return all shards of "train" or "validation" in order, or () if there is none.

    Raises DataError for an incomplete set of shards.
    """
    pattern = re.compile(rf"{split}-[0-9]{{5,9}}-of-[0-9]{{5,9}}")
    for folder in filter(os.path.isdir, (root, root / split)):
        names = set(filter(pattern.fullmatch, os.listdir(folder)))
        if not names:
            continue
        total = min(names).rpartition("-")[2]
        # Looked for one by one, because a misnamed file may claim to be one of any number.
        expected = (f"{split}-{number:05d}-of-{total}" for number in range(int(total)))
        whole = list(itertools.takewhile(names.__contains__, expected))
        if len(whole) < int(total):
            missing = folder / f"{split}-{len(whole):05d}-of-{total}"
            fault = f"missing, though {len(names)} of {int(total)} shards are there"
            raise faulty(missing, fault, "fetch or write it again")
        for name in sorted(names.difference(whole)):
            fault = f"is not one of {int(total)} shards"
            raise faulty(folder / name, fault, "keep one set of them")
        return tuple(folder / name for name in whole)
    return ()


# The first images of each shard are decoded. This takes milliseconds an image, hours for all of
# ImageNet.
DECODED = 32

# Their records ---------------------------------------------------------------------------------


def check(files: Files, decoded: float = DECODED) -> Files:
    """Return the files with the numbers of their records.

    Every record is read whole: its checksums, and that it is an Example of a JPEG with a label in
    1..1000. decoded: how many images of each shard are decoded. Raises DataError, in one line, for
    the first fault.
    """
    check_shard = partial(_check, decoded=decoded)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = {split: sum(pool.map(check_shard, paths)) for split, paths in files.paths.items()}
    return replace(files, counts=counts)


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a shard. Raises DataError for one that does not fit its checksums, and
    for a shard that is cut short, empty or unreadable."""
    import tensorflow as tf

    number = 0
    try:
        with open(path, "rb") as file:
            is_empty = not file.read(1)
        for record in tf.data.TFRecordDataset(os.fsencode(path)).as_numpy_iterator():
            yield record
            number += 1
    except OSError as error:
        raise unreadable(path, error) from error
    except tf.errors.DataLossError as error:
        fault = "is truncated" if "truncated" in error.message else "does not fit its checksums"
        raise faulty(path, f"record {number} {fault}", _remedy(number)) from error
    if is_empty:
        raise faulty(path, "empty", REMEDY)


def _remedy(record: int) -> str:
    """Return the advice about a damaged record: if it is the first one, the file may be another."""
    return REMEDY if record else f"is it really ImageNet as TFRecords? if so, {REMEDY}"


def _check(path: Path, decoded: float) -> int:
    """Return the number of records of a shard."""
    number = -1
    for number, record in enumerate(records(path)):
        fault = _fault(record, decode=number < decoded)
        if fault:
            raise faulty(path, f"record {number} {fault}", _remedy(number))
    return number + 1


def _fault(record: bytes, decode: bool) -> str:
    """Return why the record is not one of ImageNet, "" if it is. decode: decode the image, too."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

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


def main(directory: str, *options: str) -> int:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    try:
        files = check(locate(directory), math.inf if options else DECODED)
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(files.counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
