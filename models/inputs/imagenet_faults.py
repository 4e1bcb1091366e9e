"""The meaning of TensorFlow's errors about ImageNet's shards. No TensorFlow here."""

from __future__ import annotations

import os
import re
from pathlib import Path

from models.inputs import tfrecords
from models.inputs.errors import DataError, faulty
from models.inputs.imagenet_files import REMEDY, shards

# Error codes, as in tf.errors.
_INVALID_ARGUMENT, _DATA_LOSS = 3, 15

# The messages of a reader of TFRecords, and of the pipeline's own check.
_DAMAGED = re.compile(r"(?:corrupted|truncated) record at ([0-9]+)")
_CHECKED = re.compile(rf"assertion failed: \[(.*; {REMEDY})\]")

_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def explain(directory: str | Path, error: BaseException) -> str:
    """Return one line that names the file and the record that a TensorFlow error is about, and what
    to do. Return "" if the error is about something else, or if all records are sound by now.

    Finding a damaged record takes one read of every shard and, if the record's length is damaged,
    one read of every record up to that place.
    """
    code, message = getattr(error, "error_code", None), str(getattr(error, "message", ""))
    if code == _INVALID_ARGUMENT:
        checked = _CHECKED.search(message)
        return _unescaped(checked[1]) if checked else ""
    damaged = _DAMAGED.search(message) if code == _DATA_LOSS else None
    return _damage(Path(directory), int(damaged[1])) if damaged else ""


def _unescaped(text: str) -> str:
    """Return the text without C escapes: tf.Assert writes these for quotes and control characters,
    which a path may have."""

    def meant(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8)]) if len(code) == 3 else _CONTROLS.get(code, code)

    return os.fsdecode(_ESCAPED.sub(meant, text.encode()))


def _damage(root: Path, offset: int) -> str:
    """Return what is wrong with the record of which TensorFlow named the offset, without its file.
    Return "" if no such record is found."""
    try:
        paths = [path for split in ("train", "validation") for path in shards(root, split)]
    except DataError as error:
        return str(error)
    # If the data of a record is damaged, TensorFlow names where the data starts, else where the
    # record does. A sound head shows that a record starts there, unless the head itself is damaged.
    starts = (offset - tfrecords.HEAD_BYTES, offset)
    for by_head in (True, False):
        for path in paths:
            for start in starts:
                fault = _fault_at(path, start, by_head)
                if fault:
                    return fault
    return ""


def _fault_at(path: Path, start: int, by_head: bool) -> str:
    """Return what is wrong with the record that starts at `start`, or "" if nothing is, or if no
    record starts there. by_head: look at the record only if its head is sound."""
    number = None
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not by_head or tfrecords.has_head(file, start):
                number = tfrecords.number_at(file, size, start)
            if number is not None:
                file.seek(start)
                tfrecords.read_data(file, size)
    except tfrecords.Damaged as error:
        return str(faulty(path, f"record {number} {error}", REMEDY))
    except OSError:
        pass  # TensorFlow has read another file, because this one cannot be read.
    return ""
