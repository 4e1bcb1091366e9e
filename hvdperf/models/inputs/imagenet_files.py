"""ImageNet as TFRecords on disk: find the shards. No TensorFlow here; imagenet_check reads them.

The published form is one tf.train.Example a record, in shards named train-00000-of-01024 and
validation-00000-of-00128. Records are numbered from 0 within their shard, here and in every
message.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hvdperf.models.inputs.errors import faulty, unreadable

# Labels are 1..1000; a network has one output more, for 0, the background.
CLASSES = 1001

# The advice in every message about a damaged shard.
REMEDY = "fetch or write this shard again"


@dataclass(frozen=True)
class ImagenetFiles:
    """The shards of a data set.

    train, validation: the shards; validation may be empty. train_records, validation_records: the
    numbers of records in all shards of a split; None before imagenet_check has counted them.
    """

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    train_records: int | None = None
    validation_records: int | None = None


def locate(directory: str | Path) -> ImagenetFiles:
    """Find the shards in the directory, or in its folders train and validation.

    Raises DataError, in one line, for a directory without training shards, and for a set of shards
    that is not whole.
    """
    root = Path(directory)
    if not os.path.isdir(root):
        raise faulty(root, "no such directory", _MAKE_SAMPLES)
    train = shards(root, "train")
    if not train:
        looked_for = "looked for train-00000-of-*"
        raise faulty(root, f"holds no ImageNet training shards ({looked_for})", _MAKE_SAMPLES)
    return ImagenetFiles(train, shards(root, "validation"))


_MAKE_SAMPLES = (
    "put the TFRecord shards there, or write a small sample with "
    "python -m hvdperf.models.inputs.imagenet_samples DIR"
)


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
            raise faulty(folder / name, f"is not one of {total} shards", "remove or rename it")
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
