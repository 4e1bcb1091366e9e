"""What TensorFlow's errors about ImageNet's shards mean. No TensorFlow here."""

from __future__ import annotations

import os
import re
from pathlib import Path

from models.inputs import tfrecords
from models.inputs.errors import DataError, faulty
from models.inputs.imagenet_files import REMEDY, shards

# As in tf.errors.
_INVALID_ARGUMENT, _DATA_LOSS = 3, 15

# What a reader of TFRecords says, and what the pipeline's own check does.
_DAMAGED = re.compile(r"(?:corrupted|truncated) record at ([0-9]+)")
_CHECKED = re.compile(rf"assertion failed: \[(.*; {REMEDY})\]")

_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def explain(directory: str | Path, error: BaseException) -> str:
    """One line that names the file and the record that a TensorFlow error is about, and what to do;
    "" for an error that is about something else, or where all records are sound by now.

    A damaged record takes one read of every shard to find, and, where it is its length that is
    damaged, one of every record up to that place.
    """
    code, message = getattr(error, "error_code", None), str(getattr(error, "message", ""))
    if code == _INVALID_ARGUMENT:
        checked = _CHECKED.search(message)
        return _unescaped(checked[1]) if checked else ""
    damaged = _DAMAGED.search(message) if code == _DATA_LOSS else None
    return _damage(Path(directory), int(damaged[1])) if damaged else ""


def _unescaped(text: str) -> str:
    """A path may have quotes or control characters in it: tf.Assert writes these as in C."""

    def meant(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8)]) if len(code) == 3 else _CONTROLS.get(code, code)

    return os.fsdecode(_ESCAPED.sub(meant, text.encode()))


def _damage(root: Path, offset: int) -> str:
    """What is wrong with the record of which TensorFlow named that place, without its file."""
    try:
        paths = [path for split in ("train", "validation") for path in shards(root, split)]
    except DataError as error:
        return str(error)
    # Of a record whose data is damaged it names where the data starts, else where the record does.
    # Whether a record starts there, its head tells; unless the head is what is damaged.
    starts = (offset - tfrecords.HEAD_BYTES, offset)
    for by_head in (True, False):
        for path in paths:
            for start in starts:
                fault = _fault_at(path, start, by_head)
                if fault:
                    return fault
    return ""


def _fault_at(path: Path, start: int, by_head: bool) -> str:
    """What is wrong with the record that starts there; "" if nothing is, or none does. by_head:
    only if its head is sound."""
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
        pass  # Whatever TensorFlow has read, it was not this.
    return ""
