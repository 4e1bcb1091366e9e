"""CIFAR: the files that are found, what is refused, and the pipeline."""

from __future__ import annotations

import errno
import pickle
import pickletools
import struct
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdperf.models import inputs
from hvdperf.models.inputs import TRAIN, VALIDATION, DataError, Files, Request
from hvdperf.models.inputs.cifar import MEAN, STANDARD_DEVIATION, dataset
from hvdperf.models.inputs.cifar_files import FORMATS, Layout, locate, rows
from tests.support.cifar_records import records, write_cifar
from tests.support.filesystems import write_anew
from tests.support.refusals import refusal

Damage = Callable[[str, Layout, bytes], Path]


def complaint(directory: Path, dataset: str = "cifar10") -> str:
    """The message with which the directory is refused."""
    return refusal(lambda: locate(directory, dataset))


def known_planes() -> bytes:
    """A record's pixels: red is 8 times the row, green 8 times the column, blue is 7."""
    row, column = np.mgrid[0:32, 0:32]
    planes = (8 * row, 8 * column, np.full((32, 32), 7))
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


def python2_batch(labels: dict[str, list[int]], pixels: bytes) -> bytes:
    """The opcodes that Python 2's cPickle wrote for the published batches, protocol 2."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    def numbers(values: list[int]) -> bytes:
        return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"

    count = len(pixels) // 3072
    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b")
    array += b"\x87R(K\x01M" + struct.pack("<H", count) + b"M\x00\x0c\x86" + dtype
    array += b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    fields = text("batch_label") + text("training batch 1 of 5")
    for name, values in labels.items():
        fields += text(name) + numbers(values)
    return b"\x80\x02}(" + fields + text("data") + array + b"u."


def test_every_layout_is_found_and_described(sample):
    ten = sample.dataset == "cifar10"
    form = FORMATS[sample.dataset]
    assert (form.classes, form.record_bytes) == ((10, 3073) if ten else (100, 3074))
    assert sample.counts == {TRAIN: 100, VALIDATION: 20 if ten else 100}
    assert [*map(len, sample.paths.values())] == ([5, 1] if ten else [1, 1])
    assert all(path.is_file() for path in sample.all)


@pytest.mark.parametrize(
    ("dataset", "layout", "folder"),
    [
        ("cifar10", Layout.BINARY, "cifar-10-batches-bin"),
        ("cifar10", Layout.PICKLE, "cifar-10-batches-py"),
        ("cifar100", Layout.BINARY, "cifar-100-binary"),
        ("cifar100", Layout.PICKLE, "cifar-100-python"),
    ],
)
def test_folder_of_the_archive_is_found_within(tmp_path, dataset, layout, folder):
    write_cifar(tmp_path / folder, dataset, layout)
    found = locate(tmp_path, dataset)
    assert found.layout is layout
    assert {path.parent for path in found.all} == {tmp_path / folder}
    assert locate(str(tmp_path / folder), dataset) == found


def test_whole_layout_is_preferred_to_half_of_another(tmp_path):
    write_cifar(tmp_path, "cifar10", Layout.PICKLE)
    write_cifar(tmp_path, "cifar10", Layout.BINARY)[3].unlink()
    assert locate(tmp_path, "cifar10").layout is Layout.PICKLE


@pytest.mark.parametrize("layout", Layout)
def test_planes_are_red_green_blue_row_by_row(damaged, layout):
    row, column = np.mgrid[0:32, 0:32]
    pickled = python2_batch({"labels": [4]}, known_planes())
    content = b"\x04" + known_planes() if layout is Layout.BINARY else pickled
    images, labels = records(locate(damaged("cifar10", layout, content).parent, "cifar10"), TRAIN)
    assert labels[0] == 4
    for channel, expected in enumerate((8 * row, 8 * column, 7)):
        np.testing.assert_array_equal(images[0, :, :, channel], expected)


def test_labels_of_cifar100_are_the_fine_ones(damaged):
    pickled = python2_batch({"coarse_labels": [3], "fine_labels": [77]}, known_planes())
    binary = bytes([3, 77]) + known_planes()
    for layout, content in (Layout.PICKLE, pickled), (Layout.BINARY, binary):
        files = locate(damaged("cifar100", layout, content).parent, "cifar100")
        assert files.layout is layout, "the binary one is preferred"
        assert records(files, TRAIN)[1].tolist() == [77]
        assert rows(files, TRAIN)[0, :2].tolist() == [3, 77]


def test_missing_wrong_and_unreadable_files_are_named(tmp_path, monkeypatch):
    assert f"{tmp_path}: holds no cifar10 " in complaint(tmp_path)
    victim = write_cifar(tmp_path, "cifar10", Layout.BINARY)[-1]
    victim.write_bytes(b"\x0b" + bytes(3072))
    assert f"{victim}: record 0 has 11 for labels, not 0..9" in complaint(tmp_path)

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "data_batch_1.bin: unreadable (Permission denied)" in complaint(tmp_path)
    assert f"{tmp_path}: holds no cifar100" in complaint(tmp_path, "cifar100")


def record_of_100(*labels: int) -> bytes:
    """A sound record of CIFAR-100, and one with these labels."""
    return bytes(3074) + bytes(labels) + bytes(3072)


NOT_WHOLE = "bytes are not a whole number of 3073-byte records"


@pytest.mark.parametrize(
    ("dataset", "layout", "content", "reason"),
    [
        ("cifar10", Layout.BINARY, b"", "empty"),
        ("cifar10", Layout.BINARY, bytes(3072), f"3072 {NOT_WHOLE}"),
        ("cifar10", Layout.BINARY, bytes(3074), f"3074 {NOT_WHOLE}"),
        ("cifar100", Layout.BINARY, record_of_100(20, 0), "record 1 has 20 for coarse_labels"),
        ("cifar100", Layout.BINARY, record_of_100(0, 100), "record 1 has 100 for fine_labels"),
        ("cifar10", Layout.PICKLE, python2_batch({"labels": []}, b""), "is truncated, or has"),
    ],
)
def test_damaged_file(damaged, dataset, layout, content, reason):
    victim = damaged(dataset, layout, content)
    assert complaint(victim.parent, dataset).startswith(f"{victim}: {reason}")


PIXELS = np.zeros((2, 3072), np.uint8)
OTHER = "is truncated, or has no data with labels"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1, 2], OTHER),
        ({"labels": [0, 1]}, OTHER),
        ({"data": PIXELS}, OTHER),
        ({"data": PIXELS, "labels": [0]}, OTHER),
        ({"data": PIXELS, "labels": [0, "1"]}, OTHER),
        ({"data": PIXELS[:, 1:], "labels": [0, 0]}, OTHER),
        ({"data": PIXELS.astype(np.int32), "labels": [0, 0]}, OTHER),
        ({"data": PIXELS, "labels": [0, 10]}, "record 1 has 10 for labels"),
        ({"data": PIXELS, "labels": [0, -1]}, "record 1 has -1 for labels"),
        ({"data": PIXELS, "labels": [0, 256]}, "record 1 has 256 for labels"),
    ],
)
def test_pickle_of_something_else(damaged, content, reason):
    victim = damaged("cifar10", Layout.PICKLE, pickle.dumps(content, protocol=2))
    assert complaint(victim.parent).startswith(f"{victim}: {reason}")


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file that every example writes anew, of each data set."""
    found = {}
    for name in ("cifar10", "cifar100"):
        folder = tmp_path_factory.mktemp(name)
        found[name] = write_cifar(folder, name, Layout.PICKLE, records=5)[0]
    return found


OPCODES = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])
PIECES = st.lists(st.one_of(st.binary(max_size=6), OPCODES), max_size=8).map(b"".join)


@settings(deadline=None, max_examples=200)
@given(st.data(), PIECES, st.sampled_from(["cifar10", "cifar100"]))
def test_any_damage_to_a_pickle_is_refused_or_leaves_a_sound_one(victims, data, new, dataset):
    names = ["labels"] if dataset == "cifar10" else ["coarse_labels", "fine_labels"]
    whole = python2_batch({name: [1, 2] for name in names}, known_planes() * 2)
    victim = victims[dataset]
    # Before the pixels and after them: in between all bytes are alike.
    start = data.draw(st.one_of(st.integers(0, 300), st.integers(len(whole) - 4, len(whole))))
    gone = data.draw(st.one_of(st.integers(0, 30), st.just(len(whole))))
    write_anew(victim, whole[:start] + new + whole[start + gone :])
    try:
        images, labels = records(locate(victim.parent, dataset), TRAIN)
    except DataError as error:
        assert str(error).startswith(f"{victim}: ")
        assert "\n" not in str(error)
    else:
        assert images.shape == (len(labels), 32, 32, 3)
        assert images.dtype == np.uint8
        assert 0 <= labels.min() <= labels.max() < FORMATS[dataset].classes


Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]

PLAIN: dict[str, Any] = {"augment": False, "shuffle": False}


def stream(files: Files, batches: int | None = None, **options: Any) -> tuple[Images, Labels]:
    """All images and labels of the first so many batches, at 32 px from seed 0 by default."""
    request = Request(files.dataset, **{"batch": 10, "size": 32, **options})
    found = dataset(files, TRAIN, request).as_numpy_iterator()
    images, labels = zip(*islice(found, batches), strict=False)
    return np.concatenate(images), np.concatenate(labels)


def pixels(files: Files, images: Images) -> npt.NDArray[np.uint8]:
    """The bytes that were standardised. Fails unless they were whole numbers in 0..255."""
    exact = images * STANDARD_DEVIATION[files.dataset] + MEAN[files.dataset]
    rounded = np.rint(exact)
    assert np.abs(exact - rounded).max() < 1e-3
    assert 0 <= rounded.min() <= rounded.max() <= 255
    whole: npt.NDArray[np.uint8] = rounded.astype(np.uint8)
    return whole


def test_plain_stream_is_the_records_in_file_order(sample):
    expected_images, expected_labels = records(sample, TRAIN)
    images, labels = stream(sample, batches=20, **PLAIN)
    np.testing.assert_array_equal(pixels(sample, images), np.tile(expected_images, (2, 1, 1, 1)))
    np.testing.assert_array_equal(labels, np.tile(expected_labels, 2))


def test_standardised_by_the_published_statistics(tmp_path):
    write_cifar(tmp_path, "cifar10")
    files = locate(tmp_path, "cifar10")
    image = records(files, TRAIN)[0][0]
    expected = (image / 255 - (0.4914, 0.4822, 0.4465)) / (0.2470, 0.2435, 0.2616)
    np.testing.assert_allclose(stream(files, 1, **PLAIN)[0][0], expected, rtol=1e-4, atol=1e-5)


def choices(original: npt.NDArray[np.uint8], image: npt.NDArray[np.uint8]) -> set[Any]:
    """Every (top, left, mirrored) by which the image can be cut from the padded original."""
    padded = np.pad(original, [(4, 4), (4, 4), (0, 0)])
    return {
        (top, left, mirrored)
        for top in range(9)
        for left in range(9)
        for mirrored in (False, True)
        if np.array_equal(
            padded[top : top + 32, left : left + 32][:, :: -1 if mirrored else 1], image
        )
    }


def drawn(files: Files, batches: int, **options: Any) -> list[Any]:
    """How each image of the first so many batches is cut."""
    options = {"batch": 20, "shuffle": False, **options}
    whole, images = (
        pixels(files, stream(files, batches, augment=augment, **options)[0])
        for augment in (False, True)
    )
    found = [choices(original, image) for original, image in zip(whole, images, strict=True)]
    return [choice for (choice,) in found]


def test_augmented_images_are_crops_and_mirror_images(sample):
    found = drawn(sample, batches=20)
    tops, lefts, mirrored = zip(*found, strict=True)
    assert set(tops) == set(lefts) == set(range(9))
    assert 140 < sum(mirrored) < 260
    # A new draw for every image and every batch: no epoch repeats another.
    assert len(set(found)) > 100
    first = found[:20]
    others = drawn(sample, 1, seed=1), drawn(sample, 1, shard=(1, 2)), found[20:40], found[100:120]
    for other in others:
        # One augmentation in 162 is the same by chance.
        assert sum(one == another for one, another in zip(first, other, strict=True)) < 4


@pytest.mark.parametrize("size", [32, 64])
def test_images_are_sized_alike_in_training_and_validation(sample, size):
    validation = dataset(sample, VALIDATION, Request(sample.dataset, 8, size))
    trained = dataset(sample, TRAIN, Request(sample.dataset, 6, size, shard=(0, 2)))
    for batch, opened in (6, trained), (None, validation):
        images = tf.TensorSpec((batch, size, size, 3), tf.float32)
        assert opened.element_spec == (images, tf.TensorSpec((batch,), tf.int32))
    held_out, labels = next(validation.as_numpy_iterator())
    assert labels.tolist() == records(sample, VALIDATION)[1][:8].tolist()
    sample.all[0].write_bytes(sample.all[-1].read_bytes())
    found, _ = stream(sample, 1, batch=8, size=size, **PLAIN)
    np.testing.assert_array_equal(held_out, found)
    if size == 64:
        # The inner pixels of twice the size are means of neighbours: three parts to one.
        small, _ = stream(sample, 1, batch=8, **PLAIN)
        down = 0.75 * small[:, 1:-1] + 0.25 * small[:, :-2]
        expected = 0.75 * down[:, :, 1:-1] + 0.25 * down[:, :, :-2]
        np.testing.assert_allclose(found[:, 2:-2:2, 2:-2:2], expected, atol=1e-5)


def test_synthetic_input_repeats_one_batch_of_each_shard():
    def batches(index: int) -> list[tuple[Images, Labels]]:
        opened = inputs.open_split(Request("synthetic", 64, 8, shard=(index, 2), seed=1))
        assert opened.element_spec == (
            tf.TensorSpec((64, 8, 8, 3), tf.float32),
            tf.TensorSpec((64,), tf.int32),
        )
        return list(opened.take(3).as_numpy_iterator())

    first, again, once_more = batches(0)
    for images, labels in (again, once_more):
        np.testing.assert_array_equal(images, first[0])
        np.testing.assert_array_equal(labels, first[1])
    assert not np.array_equal(batches(1)[0][0], first[0])
    assert abs(first[0].mean()) < 0.1
    assert abs(first[0].std() - 1) < 0.1
    assert first[1].min() >= 0
    assert 500 < first[1].max() < 1000
