"""The meaning of TensorFlow's errors about ImageNet's shards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import tensorflow as tf

from hvdperf.models.inputs.errors import DataError
from hvdperf.models.inputs.imagenet_check import FOOT_BYTES, HEAD_BYTES, records
from hvdperf.models.inputs.imagenet_files import REMEDY, ImagenetFiles, locate

# The messages of a reader of TFRecords, and of the pipeline's own check.
_DAMAGED = re.compile(r"(?:corrupted|truncated) record at ([0-9]+)")
_CHECKED = re.compile(rf"assertion failed: \[(.*; {REMEDY})\]")

_LENGTH_BYTES = 8


def explain(directory: str | Path, error: BaseException) -> str:
    """Return one line that names the file and the record that a TensorFlow error is about, and what
    to do. Return "" if the error is about something else, or if all records are sound by now."""
    if isinstance(error, tf.errors.InvalidArgumentError):
        checked = _CHECKED.search(error.message)
        return _unescaped(checked[1]) if checked else ""
    damaged = isinstance(error, tf.errors.DataLossError) and _DAMAGED.search(error.message)
    if not damaged:
        return ""
    try:
        _read_at(locate(directory), int(damaged[1]))
    except (DataError, OSError) as found:
        return str(found)
    return ""


def _unescaped(text: str) -> str:
    """Return the text without the C escapes that tf.Assert writes for quotes, and for characters
    that are not printable or not ASCII, which a path may have."""
    return os.fsdecode(text.encode().decode("unicode_escape").encode("latin-1"))


def _read_at(files: ImagenetFiles, offset: int) -> None:
    """Read the record that starts at the offset, or whose data starts there, in every shard that
    has one. Raises DataError for a damaged record.

    TensorFlow gives the offset of the data if only that is damaged.
    """
    for path in (*files.train, *files.validation):
        for number, start in enumerate(_starts(path)):
            if start in (offset, offset - HEAD_BYTES):
                next(islice(records(path), number, None), None)
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
