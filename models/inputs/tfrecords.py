"""TFRecords: files of records, each in a frame that gives its length. No TensorFlow here.

A frame is (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details):

    uint64 length, uint32 masked crc32c of the length, byte data[length], uint32 masked crc32c of it

The first twelve bytes of a frame are called its head here.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from models.inputs.crc32c import crc32c

HEAD_BYTES = 12
FOOT_BYTES = 4
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")

# Distance from the end of a file within which its last record is looked for, and the step.
_LARGEST_RECORD = 64 << 20
_PART = 256 << 10


class Damaged(ValueError):
    """The record is damaged. The message is to follow the number of the record."""


def read_length(file: BinaryIO, size: int) -> int:
    """Read the head of a record and return how many bytes of data follow. size: of the file.

    Raises Damaged if the record is cut short, in its head or later, or if its length does not fit
    its checksum.
    """
    head = file.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        raise Damaged("is cut short")
    if not _fits(head):
        raise Damaged("has a length that does not fit its checksum")
    (length,) = _LENGTH.unpack_from(head)
    if length + FOOT_BYTES > size - file.tell():
        raise Damaged(f"is cut short: {length} bytes were announced")
    return int(length)


def read_data(file: BinaryIO, size: int) -> bytes:
    """Read one record and return its data. size: of the file. Raises Damaged as `read_length` does,
    and if the data does not fit its checksum."""
    length = read_length(file, size)
    data, checksum = file.read(length), file.read(FOOT_BYTES)
    if len(data) < length or len(checksum) < FOOT_BYTES:
        raise Damaged("is cut short")
    if _CHECKSUM.unpack(checksum) != (masked_crc32c(data),):
        raise Damaged("has data that does not fit its checksum")
    return data


def starts(file: BinaryIO, size: int) -> Iterator[int]:
    """Yield where each record starts, and at last where the last one ends. If that is not the
    file's size, the length before is wrong or the file is cut short.

    The checksums of lengths are not checked, because that would take three times as long. Without
    it, a million records take about a second if the file is in memory.
    """
    descriptor, start = file.fileno(), 0
    while start < size:
        yield start
        length = os.pread(descriptor, _LENGTH.size, start)
        # A length that is cut short is filled up, so that its record ends after the file.
        start += HEAD_BYTES + FOOT_BYTES + _LENGTH.unpack(length.ljust(_LENGTH.size, b"\xff"))[0]
    yield start


def number_at(file: BinaryIO, size: int, start: int) -> int | None:
    """Return the number of the record that starts at `start`, None if there is none."""
    for number, each in enumerate(starts(file, size)):
        if each >= start:
            return number if each == start < size else None
    return None


def has_head(file: BinaryIO, start: int) -> bool:
    """Return whether a record might start at `start`: twelve bytes that fit their checksum."""
    if start < 0:
        return False
    head = os.pread(file.fileno(), HEAD_BYTES, start)
    return len(head) == HEAD_BYTES and _fits(head)


def ends_with_a_record(file: BinaryIO, size: int) -> bool:
    """Return whether, near its end, the file has a head that announces just the bytes left.

    This distinguishes a whole file from one cut anywhere without visiting all of its records.
    """
    for end in range(size, max(0, size - _LARGEST_RECORD), -_PART):
        begin = max(0, end - _PART)
        file.seek(begin)
        part = file.read(end - begin + HEAD_BYTES - 1)
        offsets = np.arange(max(0, len(part) - HEAD_BYTES + 1))
        announced = size - begin - HEAD_BYTES - FOOT_BYTES - offsets
        fits = np.ones(len(offsets), bool)
        for place in range(3):
            values = np.frombuffer(part, np.uint8)[place : place + len(offsets)]
            fits &= values == announced >> 8 * place & 0xFF
        for offset in np.flatnonzero(fits).tolist():
            head = part[offset : offset + HEAD_BYTES]
            if _LENGTH.unpack_from(head) == (announced[offset],) and _fits(head):
                return True
    return False


def _fits(head: bytes) -> bool:
    """Return whether the length in a head has the checksum that follows it."""
    return _CHECKSUM.unpack_from(head, _LENGTH.size) == (masked_crc32c(head[: _LENGTH.size]),)


def masked_crc32c(data: bytes) -> int:
    """Return a frame's checksum: CRC-32C (RFC 3720, appendix B.4), rotated, plus a constant."""
    state = crc32c(data)
    return ((state >> 15 | state << 17) + 0xA282EAD8) & 0xFFFFFFFF
