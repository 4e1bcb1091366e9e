"""ImageNet as TFRecords on disk: find the shards, check them, read them. No TensorFlow here.

The published form is one tf.train.Example a record, in shards named train-00000-of-01024 and
validation-00000-of-00128. A shard is nothing but records, each framed like this
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details):

    uint64 length, uint32 masked crc32c of the length, byte data[length], uint32 masked crc32c of it

Records are numbered from 0 within their shard, here and in every message.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from models.inputs.errors import faulty, unreadable

# Labels are 1..1000; a network has one output more, for 0, the background.
CLASSES = 1001

# The frames of a shard up to this size are all visited, which takes a read for each. It is above
# what a sample has, and below what the published shards have (50 MB and 140 MB).
VISITED_BYTES = 32 << 20

# How far from the end of a larger shard its last record is looked for, and in what steps.
_LARGEST_RECORD = 64 << 20
_PART = 256 << 10


@dataclass(frozen=True)
class ImagenetFiles:
    """A data set that was found and checked. validation may be empty.

    train_records is how many records the training shards hold, or None where one of them is too
    large for its records to be counted.
    """

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    train_records: int | None


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
    train = _shards(root, "train")
    if not train:
        looked_for = "looked for train-00000-of-*"
        raise faulty(root, f"holds no ImageNet training shards ({looked_for})", _MAKE_SAMPLES)
    validation = _shards(root, "validation")
    counts = [_check(path) for path in train]
    for path in validation:
        _check(path)
    known = [count for count in counts if count is not None]
    return ImagenetFiles(train, validation, sum(known) if len(known) == len(counts) else None)


def read_records(path: Path) -> Iterator[bytes]:
    """The data of every record, in order. Raises DataError at the first that is damaged."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            number = 0
            while file.tell() < size:
                try:
                    data = _read_data(file, size)
                except _Damaged as error:
                    raise faulty(path, f"record {number} {error}", _FETCH) from error
                yield data
                number += 1
    except OSError as error:
        raise unreadable(path, error) from error


_FETCH = "fetch or write this shard again"
_MAKE_SAMPLES = (
    "put the TFRecord shards there, or write a small sample with "
    "python -m models.inputs.imagenet_samples DIR"
)


class _Damaged(ValueError):
    """What is wrong with a record, to be said after its number."""


# Which files there are --------------------------------------------------------------------------


def _shards(root: Path, split: str) -> tuple[Path, ...]:
    """All shards of a split in order; none if there is not one."""
    for folder in (root, root / split):
        totals = _totals(folder, split)
        if not totals:
            continue
        if len(totals) > 1:
            several = " and ".join(f"of {total}" for total in sorted(totals))
            raise faulty(folder, f"holds {split} shards {several}", "keep one set of them")
        ((total, names),) = totals.items()
        expected: list[str] = []
        # Looked for one by one: a misnamed file may claim to be one of any number.
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
    """The names of the shards in the folder by the total that they name."""
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


# Whether a shard is sound -----------------------------------------------------------------------


def _check(path: Path) -> int | None:
    """The number of records in a shard, None if it is too large to count them."""
    number = 0
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise faulty(path, "empty", _FETCH)
            _check_example(_read_data(file, size))
            if size > VISITED_BYTES:
                if not _ends_with_a_record(file, size):
                    raise faulty(path, "cut short: no record ends where the file does", _FETCH)
                return None
            number = 1
            while file.tell() < size:
                file.seek(_read_length(file, size) + 4, os.SEEK_CUR)
                number += 1
            return number
    except _Damaged as error:
        remedy = f"is it really ImageNet as TFRecords? if so, {_FETCH}"
        raise faulty(path, f"record {number} {error}", remedy) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _read_length(file: BinaryIO, size: int) -> int:
    """Read the head of a record: how many bytes of data come now. The file has size bytes."""
    head = file.read(12)
    if len(head) < 12:
        raise _Damaged("is cut short")
    length, checksum = struct.unpack("<QI", head)
    if checksum != masked_crc32c(head[:8]):
        raise _Damaged("has a length that does not fit its checksum")
    if length + 4 > size - file.tell():
        raise _Damaged(f"is cut short: {length} bytes were announced")
    return int(length)


def _read_data(file: BinaryIO, size: int) -> bytes:
    """Read one record. The file has size bytes."""
    length = _read_length(file, size)
    data, checksum = file.read(length), file.read(4)
    if len(data) < length or len(checksum) < 4:
        raise _Damaged("is cut short")
    if struct.unpack("<I", checksum)[0] != masked_crc32c(data):
        raise _Damaged("has data that does not fit its checksum")
    return data


def _ends_with_a_record(file: BinaryIO, size: int) -> bool:
    """Whether, near its end, the file has a head that announces just the bytes that are left.

    This tells a whole file from one cut anywhere without visiting all of its records.
    """
    for end in range(size, max(0, size - _LARGEST_RECORD), -_PART):
        begin = max(0, end - _PART)
        file.seek(begin)
        part = file.read(end - begin + 11)
        starts = np.arange(max(0, len(part) - 11))
        announced = size - begin - 16 - starts
        fits = np.ones(len(starts), bool)
        for place in range(3):
            values = np.frombuffer(part, np.uint8)[place : place + len(starts)]
            fits &= values == announced >> 8 * place & 0xFF
        for start in np.flatnonzero(fits).tolist():
            length, checksum = struct.unpack_from("<QI", part, start)
            if length == announced[start] and checksum == masked_crc32c(part[start : start + 8]):
                return True
    return False


def _check_example(data: bytes) -> None:
    """Raises _Damaged unless it is an Example of a JPEG and of a label in range."""
    features = dict(_features(memoryview(data)))
    for name in (b"image/encoded", b"image/class/label"):
        if name not in features:
            raise _Damaged(f"is no Example with {name.decode()}")
    images = [
        value
        for kind, values in _fields(features[b"image/encoded"])
        for tag, value in _fields(values)
        if (kind, tag) == (_BYTES_LIST, _VALUE)
    ]
    labels = [
        label
        for kind, values in _fields(features[b"image/class/label"])
        for tag, value in _fields(values)
        if kind == _INT64_LIST and tag in (_VALUE, _SINGLE_INTEGER)
        for label in _integers(value)
    ]
    if len(images) != 1 or bytes(images[0][:3]) != b"\xff\xd8\xff":
        raise _Damaged("has no JPEG in image/encoded")
    if len(labels) != 1:
        raise _Damaged("has no integer in image/class/label")
    if not 1 <= labels[0] < CLASSES:
        raise _Damaged(f"has {labels[0]} in image/class/label, not 1..{CLASSES - 1}")


# Protocol buffers, https://protobuf.dev/programming-guides/encoding -------------------------------

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

# A tag is the number of a field and how it is written. An Example has one field, Features: a map
# from a string to a Feature, which is one of three lists; a list has one field, its values.
_FEATURES = _ENTRY = _KEY = _VALUE = 1 << 3 | _BYTES
_FEATURE = 2 << 3 | _BYTES
_BYTES_LIST, _INT64_LIST = 1 << 3 | _BYTES, 3 << 3 | _BYTES
_SINGLE_INTEGER = 1 << 3 | _VARINT

_NOT_AN_EXAMPLE = "is no tf.train.Example"


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message: their tags, and their values as they are written."""
    start = 0
    while start < len(message):
        tag, start = _varint(message, start)
        wire = tag & 7
        if wire == _VARINT:
            end = _varint(message, start)[1]
        elif wire == _BYTES:
            length, start = _varint(message, start)
            end = start + length
        else:
            end = start + _FIXED_BYTES.get(wire, len(message))
        if end > len(message) or not tag >> 3:
            raise _Damaged(_NOT_AN_EXAMPLE)
        yield tag, message[start:end]
        start = end


def _varint(message: memoryview, start: int) -> tuple[int, int]:
    """An unsigned integer of 64 bits, and where what follows it starts."""
    value = 0
    for place, byte in enumerate(message[start : start + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & (1 << 64) - 1, start + place + 1
    raise _Damaged(_NOT_AN_EXAMPLE)


def _integers(values: memoryview) -> Iterator[int]:
    """Signed integers of 64 bits."""
    start = 0
    while start < len(values):
        value, start = _varint(values, start)
        yield value - (1 << 64) if value >> 63 else value


def _features(example: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The features of an Example by name."""
    for tag, features in _fields(example):
        for inner, entry in _fields(features) if tag == _FEATURES else ():
            if inner == _ENTRY:
                pair = dict(_fields(entry))
                yield bytes(pair.get(_KEY, b"")), pair.get(_FEATURE, memoryview(b""))


# Checksums --------------------------------------------------------------------------------------


def masked_crc32c(data: bytes) -> int:
    """The checksum in a frame: CRC-32C (RFC 3720, appendix B.4), rotated, and a constant added."""
    state = crc32c(data)
    return ((state >> 15 | state << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C, as in iSCSI. An ordinary image takes a few milliseconds."""
    if len(data) < 64:
        state = 0xFFFFFFFF
        for byte in data:
            state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
        return state ^ 0xFFFFFFFF
    # Byte by byte, Python would take ten times as long. A CRC is linear: that of two halves is that
    # of the first half followed by zeros, plus that of the second. So all pairs of neighbours are
    # joined at once, until one is left. The initial state is the same as four inverted bytes.
    content = np.frombuffer(data, np.uint8).copy()
    content[:4] ^= 0xFF
    states = _AFTER_A_BYTE[content]
    level = 0
    while len(states) > 1:
        if len(states) % 2:
            states = np.concatenate([np.zeros(1, "<u4"), states])
        states = _followed_by_zeros(level, states[0::2]) ^ states[1::2]
        level += 1
    return int(states[0]) ^ 0xFFFFFFFF


def _table() -> list[int]:
    """The state after each byte, from 0; the polynomial is 0x1EDC6F41 with its bits reversed."""
    table = list(range(256))
    for _ in range(8):
        table = [state >> 1 ^ (0x82F63B78 if state & 1 else 0) for state in table]
    return table


_TABLE = _table()
_AFTER_A_BYTE = np.array(_TABLE, "<u4")


def _followed_by_zeros(level: int, states: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The states after 2**level more bytes of 0."""
    parts = np.ascontiguousarray(states).view(np.uint8).reshape(-1, 4)
    tables = _zeros(level)
    joined: npt.NDArray[np.uint32] = tables[0][parts[:, 0]]
    for place in (1, 2, 3):
        joined ^= tables[place][parts[:, place]]
    return joined


@cache
def _zeros(level: int) -> npt.NDArray[np.uint32]:
    """[4, 256]: what 2**level bytes of 0 make of each value of each byte of the state."""
    if level:
        half = _zeros(level - 1)
        return _followed_by_zeros(level - 1, half.ravel()).reshape(half.shape)
    values = np.arange(256, dtype="<u4")
    states = np.stack([values << np.uint32(8 * place) for place in range(4)])
    moved: npt.NDArray[np.uint32] = states >> np.uint32(8) ^ _AFTER_A_BYTE[states & np.uint32(0xFF)]
    return moved
