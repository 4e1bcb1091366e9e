"""The shards of ImageNet that are found, and those that the suite writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.models.inputs.imagenet_check import check
from hvdperf.models.inputs.imagenet_files import locate
from hvdperf.models.inputs.imagenet_samples import LABELS, write_imagenet
from tests.support.refusals import refusal


def complaint(directory: Path) -> str:
    """The message with which the directory is refused."""
    return refusal(lambda: locate(directory))


def empty_shards(folder: Path, number: int, split: str = "train") -> list[Path]:
    """Write files of the names of shards, which is all that is looked at when they are found."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{split}-{index:05d}-of-{number:05d}" for index in range(number)]
    for path in paths:
        path.touch()
    return paths


# What is found ----------------------------------------------------------------------------------


def test_shards_are_found_in_order(tmp_path: Path) -> None:
    train = empty_shards(tmp_path, 3)
    validation = empty_shards(tmp_path, 2, split="validation")
    (tmp_path / "README").write_text("not a shard")
    (tmp_path / "train-00000-of-00003.md5").write_text("not a shard")
    files = locate(str(tmp_path))
    assert files.train == tuple(train)
    assert files.validation == tuple(validation)
    assert (files.train_records, files.validation_records) == (None, None)


def test_validation_may_be_absent(tmp_path: Path) -> None:
    empty_shards(tmp_path, 1)
    assert locate(tmp_path).validation == ()


def test_splits_may_have_folders_of_their_own(tmp_path: Path) -> None:
    train = empty_shards(tmp_path / "train", 1)
    validation = empty_shards(tmp_path / "validation", 1, split="validation")
    files = locate(tmp_path)
    assert (files.train, files.validation) == (tuple(train), tuple(validation))


# What is refused --------------------------------------------------------------------------------


def test_no_shards(tmp_path: Path) -> None:
    empty_shards(tmp_path, 1, split="validation")
    (tmp_path / "train-0-of-1").touch()
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path}: holds no ImageNet training shards")
    assert "hvdperf.models.inputs.imagenet_samples" in message


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_shard_is_named(tmp_path: Path, split: str, missing: int) -> None:
    paths = {name: empty_shards(tmp_path, 3, split=name) for name in ("train", "validation")}
    victim = paths[split][missing]
    victim.unlink()
    assert complaint(tmp_path).startswith(f"{victim}: missing, though 2 of 3 shards are there")


def test_shards_of_two_sets(tmp_path: Path) -> None:
    empty_shards(tmp_path, 1)
    empty_shards(tmp_path, 2)
    assert "holds train shards of 1 and of 2" in complaint(tmp_path)


@pytest.mark.parametrize("name", ["train-00002-of-00002", "train-000001-of-00002"])
def test_shard_that_cannot_be(tmp_path: Path, name: str) -> None:
    empty_shards(tmp_path, 2)
    extra = tmp_path / name
    extra.touch()
    assert complaint(tmp_path).startswith(f"{extra}: is not one of 2 shards")


def test_shard_of_an_endless_set(tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-999999999").touch()
    assert f"{tmp_path}/train-00001-of-999999999: missing" in complaint(tmp_path)


# Samples ------------------------------------------------------------------------------------------


def test_samples_are_what_the_published_records_are(tmp_path: Path) -> None:
    paths = write_imagenet(tmp_path, shards=2, per_shard=10, validation_shards=0)
    files = check(locate(tmp_path))
    assert (files.train, files.validation, files.train_records) == (paths, (), 20)
    labels: list[int] = []
    colours: list[Any] = []
    names: set[bytes] = set()
    for path in paths:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            pixels = tf.io.decode_jpeg(feature["image/encoded"].bytes_list.value[0]).numpy()
            shape = [
                feature[f"image/{key}"].int64_list.value[0]
                for key in ("height", "width", "channels")
            ]
            assert list(pixels.shape) == shape
            assert min(shape[:2]) >= 300
            assert max(shape[:2]) <= 500
            # Smooth: neighbours are nearly the same.
            assert np.abs(np.diff(pixels.astype(int), axis=0)).mean() < 3
            assert feature["image/format"].bytes_list.value == [b"JPEG"]
            assert feature["image/colorspace"].bytes_list.value == [b"RGB"]
            assert len(feature["image/class/synset"].bytes_list.value[0]) == 9
            for side in "xy":
                low, high = (
                    feature[f"image/object/bbox/{side}{end}"].float_list.value[0]
                    for end in ("min", "max")
                )
                assert 0 <= low <= high <= 1
            names.add(feature["image/filename"].bytes_list.value[0])
            labels.append(feature["image/class/label"].int64_list.value[0])
            colours.append(pixels.mean(axis=(0, 1)))
    assert len(names) == 20
    assert sorted(labels) == sorted(2 * LABELS)
    assert (min(LABELS), max(LABELS)) == (1, 1000)
    # A class can be told by its colour.
    for i, label in enumerate(labels):
        distances = [np.abs(colours[i] - other).max() for other in colours]
        nearest = sorted(range(20), key=distances.__getitem__)[:2]
        assert [labels[j] for j in nearest] == [label, label]
