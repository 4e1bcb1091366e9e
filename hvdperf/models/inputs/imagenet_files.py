"""ImageNet as TFRecords on disk: find the shards, and check all of their records.

The published form is one tf.train.Example a record, in shards named train-00000-of-01024 and
validation-00000-of-00128. Records are numbered from 0 within their shard, here and in every
message. Finding needs no TensorFlow.

python -m hvdperf.models.inputs.imagenet_files DIR [--decode] prints the numbers of records as JSON.
The first fault is one line on stderr. --decode: parse every record, and decode its image.
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


# The first records of each shard are parsed and their images decoded. This takes milliseconds a
# record, hours for all of ImageNet.
PARSED = 32

# Their records ---------------------------------------------------------------------------------


def check(files: Files, parsed: float = PARSED) -> Files:
    """Return the files with the numbers of their records.

    Every record is read, and so its checksums are checked. parsed: of how many records of each
    shard it is checked that they are Examples of a JPEG with a label in 1..1000. Raises DataError,
    in one line, for the first fault.
    """
    check_shard = partial(_check, parsed=parsed)
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


def _check(path: Path, parsed: float) -> int:
    """Return the number of records of a shard."""
    number = -1
    for number, record in enumerate(records(path)):
        fault = _fault(record) if number < parsed else ""
        if fault:
            raise faulty(path, f"record {number} {fault}", _remedy(number))
    return number + 1


def _fault(record: bytes) -> str:
    """Return why the pipeline cannot read the record, "" if it can."""
    import tensorflow as tf

    from hvdperf.models.inputs.imagenet import FEATURES

    try:
        features = tf.io.parse_single_example(record, FEATURES)
    # The error quotes the record, which need not be UTF-8.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return f"is not a tf.train.Example with {' and '.join(FEATURES)}"
    image, label = features["image/encoded"], int(features["image/class/label"])
    try:
        tf.io.extract_jpeg_shape(image)
        tf.io.decode_jpeg(image, channels=3)
    except tf.errors.InvalidArgumentError:
        return "has no whole JPEG in image/encoded"
    return "" if 1 <= label < CLASSES else f"has {label} in image/class/label, not 1..{CLASSES - 1}"


def main(directory: str, *options: str) -> int:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    try:
        files = check(locate(directory), math.inf if options else PARSED)
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(files.counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
