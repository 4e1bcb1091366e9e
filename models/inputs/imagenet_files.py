"""ImageNet as TFRecords on disk: find the shards, check them, read them. No TensorFlow here.

The published form is one tf.train.Example a record, in shards named train-00000-of-01024 and
validation-00000-of-00128. Records are numbered from 0 within their shard, here and in every
message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from models.inputs import examples, tfrecords
from models.inputs.errors import faulty, unreadable

# Labels are 1..1000; a network has one output more, for 0, the background.
CLASSES = 1001

# All heads of a shard up to this size are visited, which takes a read for each. The limit is above
# the size of a sample's shards, and below that of the published ones (50 MB and 140 MB).
VISITED_BYTES = 32 << 20

# The advice in every message about a damaged shard.
REMEDY = "fetch or write this shard again"


@dataclass(frozen=True)
class ImagenetFiles:
    """A data set that was found and checked.

    train, validation: the shards; validation may be empty. train_records, validation_records: how
    many records the shards of a split hold, or None if one of the shards is too large to count
    them in passing. `count` takes the time.
    """

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    train_records: int | None
    validation_records: int | None


def locate(directory: str | Path) -> ImagenetFiles:
    """Find the shards in the directory, or in its folders train and validation.

    The first record of every shard is read whole: its checksums, and that it is an Example of a
    JPEG with a label in 1..1000. Beyond that, the frames of small shards are followed from the
    first to the last, and a large shard is checked to end where its last record ends.

    Raises DataError, in one line, for a directory without training shards, a set of shards that
    is not whole, and a shard that is empty, cut short, damaged or of another format.
    """
    root = Path(directory)
    if not os.path.isdir(root):
        raise faulty(root, "no such directory", _MAKE_SAMPLES)
    train = shards(root, "train")
    if not train:
        looked_for = "looked for train-00000-of-*"
        raise faulty(root, f"holds no ImageNet training shards ({looked_for})", _MAKE_SAMPLES)
    validation = shards(root, "validation")
    return ImagenetFiles(train, validation, _checked(train), _checked(validation))


def count(paths: Iterable[Path]) -> int:
    """Return how many records the shards hold, by a read for each record: 1.4 s for all of ImageNet
    if it is in memory. Raises DataError for a shard that is unreadable, or does not end with a
    record."""
    return sum(_count(path) for path in paths)


_MAKE_SAMPLES = (
    "put the TFRecord shards there, or write a small sample with "
    "python -m models.inputs.imagenet_samples DIR"
)


# The files that there are -----------------------------------------------------------------------


def shards(root: Path, split: str) -> tuple[Path, ...]:
    """Return all shards of "train" or "validation" in order, or () if there is none.

    Raises DataError for an incomplete set of shards.
    """
    for folder in (root, root / split):
        totals = _totals(folder, split)
        if not totals:
            continue
        if len(totals) > 1:
            several = " and ".join(f"of {total}" for total in sorted(totals))
            raise faulty(folder, f"holds {split} shards {several}", "keep one set of them")
        ((total, names),) = totals.items()
        expected: list[str] = []
        # Looked for one by one, because a misnamed file may claim to be one of any number.
        for number in range(total):
            expected.append(f"{split}-{number:05d}-of-{total:05d}")
            if expected[-1] not in names:
                fault = f"missing, though {len(names)} of {total} shards are there"
                raise faulty(folder / expected[-1], fault, "fetch or write it again")
        for name in sorted(names.difference(expected)):
            raise faulty(folder / name, f"is none of {total} shards", "remove or rename it")
        return tuple(folder / name for name in expected)
    return ()


def _totals(folder: Path, split: str) -> dict[int, set[str]]:
    """Return the names of the shards in the folder by the total in the name."""
    found: dict[int, set[str]] = {}
    try:
        names = os.listdir(folder) if os.path.isdir(folder) else []
    except OSError as error:
        raise unreadable(folder, error) from error
    for name in names:
        match = re.fullmatch(rf"{split}-([0-9]{{5,9}})-of-([0-9]{{5,9}})", name)
        if match:
            found.setdefault(int(match[2]), set()).add(name)
    return found


# The checks of a shard --------------------------------------------------------------------------


def _checked(paths: Iterable[Path]) -> int | None:
    """Check every shard. Return the number of records in all shards, None if one is too large."""
    numbers = [_check(path) for path in paths]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _check(path: Path) -> int | None:
    """Check a shard. Return its number of records, None if it is too large to count them."""
    number = 0
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise faulty(path, "empty", REMEDY)
            _check_example(tfrecords.read_data(file, size))
            if size > VISITED_BYTES:
                if not tfrecords.ends_with_a_record(file, size):
                    raise faulty(path, "cut short: no record ends where the file does", REMEDY)
                return None
            number = 1
            while file.tell() < size:
                file.seek(tfrecords.read_length(file, size) + tfrecords.FOOT_BYTES, os.SEEK_CUR)
                number += 1
            return number
    except tfrecords.Damaged as error:
        remedy = f"is it really ImageNet as TFRecords? if so, {REMEDY}"
        raise faulty(path, f"record {number} {error}", remedy) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _count(path: Path) -> int:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            *_, (number, end) = enumerate(tfrecords.starts(file, size))
    except OSError as error:
        raise unreadable(path, error) from error
    if end != size:
        raise faulty(path, f"record {number - 1} has a wrong length or is cut short", REMEDY)
    return number


def _check_example(data: bytes) -> None:
    """Raise tfrecords.Damaged unless data is an Example of a JPEG and of a label in range."""
    features = examples.features(data)
    for name in ("image/encoded", "image/class/label"):
        if name.encode() not in features:
            raise tfrecords.Damaged(f"is no Example with {name}")
    images = examples.texts(features[b"image/encoded"])
    labels = examples.integers(features[b"image/class/label"])
    if len(images) != 1 or images[0][:3] != b"\xff\xd8\xff":
        raise tfrecords.Damaged("has no JPEG in image/encoded")
    if len(labels) != 1:
        raise tfrecords.Damaged("has no integer in image/class/label")
    if not 1 <= labels[0] < CLASSES:
        raise tfrecords.Damaged(f"has {labels[0]} in image/class/label, not 1..{CLASSES - 1}")
