"""The parser of a serialised tf.train.Example, without TensorFlow.

An Example is a protocol buffer: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator

from models.inputs.tfrecords import Damaged

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

# A tag is the number of a field and its wire type. An Example has one field, Features: a map from a
# string to a Feature. A Feature is one of three lists, and a list has one field, its values.
_FEATURES = _ENTRY = _KEY = _VALUE = 1 << 3 | _BYTES
_FEATURE = 2 << 3 | _BYTES
_BYTES_LIST, _INT64_LIST = 1 << 3 | _BYTES, 3 << 3 | _BYTES
_SINGLE_INTEGER = 1 << 3 | _VARINT

_NOT_AN_EXAMPLE = "is no tf.train.Example"


def features(example: bytes) -> dict[bytes, memoryview]:
    """Return the features by name, each still serialised. Raises Damaged if this is no Example."""
    found = {}
    for tag, part in _fields(memoryview(example)):
        for inner, entry in _fields(part) if tag == _FEATURES else ():
            if inner == _ENTRY:
                pair = dict(_fields(entry))
                found[bytes(pair.get(_KEY, b""))] = pair.get(_FEATURE, memoryview(b""))
    return found


def texts(feature: memoryview) -> list[bytes]:
    """Return the values of a feature that are bytes. Raises Damaged if this is no Feature."""
    return [bytes(value) for tag, value in _values(feature, _BYTES_LIST) if tag == _VALUE]


def integers(feature: memoryview) -> list[int]:
    """Return the values of a feature that are integers. Raises Damaged if this is no Feature."""
    return [
        number
        for tag, value in _values(feature, _INT64_LIST)
        if tag in (_VALUE, _SINGLE_INTEGER)
        for number in _numbers(value)
    ]


def _values(feature: memoryview, kind: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the fields of a feature's lists of that kind."""
    for tag, values in _fields(feature):
        if tag == kind:
            yield from _fields(values)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the tag and the value, still serialised, of each field of a message."""
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
            raise Damaged(_NOT_AN_EXAMPLE)
        yield tag, message[start:end]
        start = end


def _varint(message: memoryview, start: int) -> tuple[int, int]:
    """Return the unsigned 64-bit integer at start, and the position after it."""
    value = 0
    for place, byte in enumerate(message[start : start + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & (1 << 64) - 1, start + place + 1
    raise Damaged(_NOT_AN_EXAMPLE)


def _numbers(values: memoryview) -> Iterator[int]:
    """Yield signed 64-bit integers."""
    start = 0
    while start < len(values):
        value, start = _varint(values, start)
        yield value - (1 << 64) if value >> 63 else value
