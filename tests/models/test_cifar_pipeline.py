from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs.cifar import MEAN, STANDARD_DEVIATION, train_dataset, validation_dataset
from hvdperf.models.inputs.cifar_files import CifarFiles, Layout, Split, locate, records
from hvdperf.models.inputs.sample_sets import write_cifar

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]

PLAIN: dict[str, Any] = {"augment": False, "shuffle": False}


def stream(files: CifarFiles, batches: int | None = None, **options: Any) -> tuple[Images, Labels]:
    """All images and labels of the first so many batches, at 32 px from seed 0 by default."""
    arguments = {"shard": (0, 1), "batch": 10, "image_size": 32, "seed": 0, **options}
    dataset = train_dataset(files, **arguments)
    images, labels = zip(*islice(dataset.as_numpy_iterator(), batches), strict=False)
    return np.concatenate(images), np.concatenate(labels)


def pixels(files: CifarFiles, images: Images) -> npt.NDArray[np.uint8]:
    """The bytes that were standardised. Fails unless they were whole numbers in 0..255."""
    exact = images * STANDARD_DEVIATION[files.dataset] + MEAN[files.dataset]
    rounded = np.rint(exact)
    assert np.abs(exact - rounded).max() < 1e-3
    assert rounded.min() >= 0
    assert rounded.max() <= 255
    whole: npt.NDArray[np.uint8] = rounded.astype(np.uint8)
    return whole


def write_records(folder: Path, images: npt.NDArray[np.uint8]) -> CifarFiles:
    """CIFAR-10, binary, all training records in the first file but for one in each other."""
    paths = write_cifar(folder, "cifar10", Layout.BINARY, records_per_file=1)
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    labels = np.arange(len(images))[:, None] % 10
    table = np.concatenate([labels, planes], axis=1).astype(np.uint8)
    for path, part in zip(paths, [table[:-4], *np.split(table[-4:], 4)], strict=False):
        path.write_bytes(part.tobytes())
    return locate(folder, "cifar10")


def test_plain_stream_is_the_records_in_file_order(sample: CifarFiles) -> None:
    expected_images, expected_labels = records(sample, Split.TRAIN)
    images, labels = stream(sample, batches=20, **PLAIN)
    np.testing.assert_array_equal(pixels(sample, images[:100]), expected_images)
    np.testing.assert_array_equal(labels[:100], expected_labels)
    np.testing.assert_array_equal(images[100:], images[:100])
    np.testing.assert_array_equal(labels[100:], labels[:100])


def test_standardised_by_the_published_statistics(cifar10: CifarFiles) -> None:
    image = records(cifar10, Split.TRAIN)[0][0]
    expected = (image / 255 - (0.4914, 0.4822, 0.4465)) / (0.2470, 0.2435, 0.2616)
    np.testing.assert_allclose(stream(cifar10, 1, **PLAIN)[0][0], expected, rtol=1e-4, atol=1e-5)


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


def test_augmented_images_are_crops_and_mirror_images(sample: CifarFiles) -> None:
    originals, expected_labels = records(sample, Split.TRAIN)
    images, labels = stream(sample, batches=4, batch=100, shuffle=False)
    np.testing.assert_array_equal(labels, np.tile(expected_labels, 4))
    found = []
    for original, image in zip(
        np.tile(originals, (4, 1, 1, 1)), pixels(sample, images), strict=False
    ):
        (choice,) = choices(original, image)
        found.append(choice)
    tops, lefts, mirrored = zip(*found, strict=False)
    assert set(tops) == set(lefts) == set(range(9))
    assert 140 < sum(mirrored) < 260
    # A new draw for every image and every batch: no epoch repeats another.
    assert len(set(found)) > 100
    assert len({tuple(found[i : i + 100]) for i in range(0, 400, 100)}) == 4


def test_augmentation_differs_by_rank_and_by_seed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    twice = np.repeat(rng.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8), 2, axis=0)
    files = write_records(tmp_path, twice)
    options: dict[str, Any] = {"batches": 3, "batch": 10, "shuffle": False}

    plain = [stream(files, shard=(rank, 2), augment=False, **options)[0] for rank in (0, 1)]
    np.testing.assert_array_equal(plain[0], plain[1])

    first, second = (stream(files, shard=(rank, 2), **options)[0] for rank in (0, 1))
    reseeded, _ = stream(files, shard=(0, 2), seed=1, **options)
    # One augmentation in 162 is the same by chance.
    for other in (second, reseeded):
        same = sum(np.array_equal(a, b) for a, b in zip(first, other, strict=False))
        assert same < 5


def test_resize_is_bilinear(tmp_path: Path) -> None:
    ramp = np.zeros((5, 32, 32, 3), np.uint8)
    ramp[..., 0] = 4 * np.arange(32)[None, :]
    ramp[..., 1] = 4 * np.arange(32)[:, None]
    ramp[..., 2] = 200
    files = write_records(tmp_path, ramp)
    images, _ = stream(files, batches=1, batch=5, image_size=64, **PLAIN)
    assert images.shape == (5, 64, 64, 3)
    values = images[0] * STANDARD_DEVIATION["cifar10"] + MEAN["cifar10"]
    # The centre of output pixel j lies at (j + 1/2) / 2 - 1/2 of the input.
    where = np.clip((np.arange(64) + 0.5) / 2 - 0.5, 0, 31)
    np.testing.assert_allclose(values[..., 0], np.tile(4 * where, (64, 1)), atol=1e-3)
    np.testing.assert_allclose(values[..., 1], np.tile(4 * where, (64, 1)).T, atol=1e-3)
    np.testing.assert_allclose(values[..., 2], 200, atol=1e-3)


@pytest.mark.parametrize("size", [32, 75])
@pytest.mark.parametrize("augment", [False, True])
def test_types_and_shapes(sample: CifarFiles, size: int, augment: bool) -> None:
    options: dict[str, Any] = {"shard": (0, 2), "batch": 6, "image_size": size, "seed": 0}
    options["augment"] = augment
    images, labels = train_dataset(sample, **options).element_spec
    assert images == tf.TensorSpec((6, size, size, 3), tf.float32)
    assert labels == tf.TensorSpec((6,), tf.int32)


def validation(files: CifarFiles, **options: Any) -> tf.data.Dataset:
    return validation_dataset(files, **{"shard": (0, 1), "batch": 8, "image_size": 32, **options})


@pytest.mark.parametrize("count", [1, 3])
def test_validation_is_one_pass_over_the_test_records(sample: CifarFiles, count: int) -> None:
    expected_images, expected_labels = records(sample, Split.TEST)
    assert len(expected_labels) == sample.test_records
    for index in range(count):
        batches = list(validation(sample, shard=(index, count)).as_numpy_iterator())
        images = np.concatenate([each for each, _ in batches])
        np.testing.assert_array_equal(pixels(sample, images), expected_images[index::count])
        labels = np.concatenate([each for _, each in batches])
        np.testing.assert_array_equal(labels, expected_labels[index::count])


@pytest.mark.parametrize("size", [32, 75])
def test_validation_images_are_sized_as_in_training(cifar10: CifarFiles, size: int) -> None:
    dataset = validation(cifar10, image_size=size)
    assert dataset.element_spec == (
        tf.TensorSpec((None, size, size, 3), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    )
    (cifar10.train[0].parent / "data_batch_1.bin").write_bytes(cifar10.test[0].read_bytes())
    plain, _ = stream(cifar10, batches=1, batch=8, image_size=size, **PLAIN)
    np.testing.assert_array_equal(next(dataset.as_numpy_iterator())[0], plain)


def test_synthetic_input_repeats_one_batch_of_each_shard() -> None:
    def batches(index: int) -> list[tuple[Images, Labels]]:
        dataset = inputs.open_train("synthetic", None, shard=(index, 2), batch=64, size=8, seed=1)
        assert dataset.element_spec == (
            tf.TensorSpec((64, 8, 8, 3), tf.float32),
            tf.TensorSpec((64,), tf.int32),
        )
        return list(dataset.take(3).as_numpy_iterator())

    first, again, once_more = batches(0)
    for images, labels in (again, once_more):
        np.testing.assert_array_equal(images, first[0])
        np.testing.assert_array_equal(labels, first[1])
    assert not np.array_equal(batches(1)[0][0], first[0])
    assert abs(first[0].mean()) < 0.1
    assert abs(first[0].std() - 1) < 0.1
    assert first[1].min() >= 0
    assert 500 < first[1].max() < 1000
