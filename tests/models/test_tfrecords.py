"""Frames and checksums, held against their definitions and against TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.inputs import tfrecords
from models.inputs.crc32c import crc32c
from tests.support.shards import Mutation, framed, mutations, write_shards


def read(path: Path) -> tuple[list[bytes], str]:
    """The records up to the first that is damaged, and what is wrong with that."""
    records: list[bytes] = []
    size = path.stat().st_size
    with open(path, "rb") as file:
        while file.tell() < size:
            try:
                records.append(tfrecords.read_data(file, size))
            except tfrecords.Damaged as error:
                return records, str(error)
    return records, ""


def read_by_tensorflow(path: Path) -> tuple[list[bytes], str]:
    records: list[bytes] = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            records.append(record)
    except tf.errors.DataLossError as error:
        return records, error.message
    return records, ""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, appendix B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_checksums(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_checksum_of_any_length_is_that_of_its_definition() -> None:
    data = np.random.default_rng(0).bytes(600)
    state = 0xFFFFFFFF
    for length, byte in enumerate(data):
        assert crc32c(data[:length]) == state ^ 0xFFFFFFFF
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 4097, 300_001])
def test_frame_is_that_of_tensorflow(tmp_path: Path, length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    (path,) = write_shards(tmp_path, [data, b"next"])
    assert path.read_bytes() == framed(data) + framed(b"next")
    assert read(path) == ([data, b"next"], "")


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "train-00000-of-00001"


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(mutations(), max_size=3))
@example(changes=[lambda content: content[:5]])
def test_any_damage_is_found_where_tensorflow_finds_it(
    victim: Path, changes: list[Mutation]
) -> None:
    content = framed(bytes(range(200))) + framed(b"second") + framed(b"") + framed(bytes(90))
    for change in changes:
        content = change(content)
    victim.write_bytes(content)
    records, fault = read(victim)
    expected, error = read_by_tensorflow(victim)
    assert records == expected
    rest = len(content) - sum(tfrecords.HEAD_BYTES + len(r) + tfrecords.FOOT_BYTES for r in records)
    # TensorFlow takes the file to end before a head that is cut short.
    assert bool(error) == (rest >= tfrecords.HEAD_BYTES)
    assert bool(fault) == (rest > 0)


@pytest.mark.parametrize("lengths", [[5], [0, 0, 7], [200, 0, 3, 70_000]])
def test_records_are_found_by_going_from_one_to_the_next(
    tmp_path: Path, lengths: list[int]
) -> None:
    (path,) = write_shards(tmp_path, map(bytes, lengths))
    ends = np.cumsum([tfrecords.HEAD_BYTES + n + tfrecords.FOOT_BYTES for n in lengths]).tolist()
    begins = [0, *ends[:-1]]
    with open(path, "rb") as file:
        assert list(tfrecords.starts(file, ends[-1])) == [0, *ends]
        for place in range(ends[-1] + 20):
            expected = begins.index(place) if place in begins else None
            assert tfrecords.number_at(file, ends[-1], place) == expected
            assert tfrecords.has_head(file, place) == (place in begins)
        assert not tfrecords.has_head(file, -1)
