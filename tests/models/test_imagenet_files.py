"""The shards of ImageNet that are found, what is said about them before anything trains on them,
and those that the suite writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdperf.models.inputs import TRAIN, DataError, Request, imagenet, imagenet_files
from hvdperf.models.inputs.imagenet_files import check, locate
from hvdperf.models.inputs.sample_sets import LABELS, write_imagenet
from tests.support.filesystems import write_anew
from tests.support.refusals import refusal
from tests.support.shards import framed, grey, jpeg, mutations, write_shards


def complaint(directory: Path) -> str:
    """The message with which the directory is refused."""
    return refusal(lambda: check(locate(directory)))


def empty_shards(folder: Path, number: int, split: str = "train") -> list[Path]:
    """Write files of the names of shards, which is all that is looked at when they are found."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{split}-{index:05d}-of-{number:05d}" for index in range(number)]
    for path in paths:
        path.touch()
    return paths


# What is found ----------------------------------------------------------------------------------


def test_shards_are_found_in_order(tmp_path):
    train = empty_shards(tmp_path, 3)
    validation = empty_shards(tmp_path, 2, split="validation")
    (tmp_path / "README").write_text("not a shard")
    (tmp_path / "train-00000-of-00003.md5").write_text("not a shard")
    files = locate(str(tmp_path))
    assert files.paths == {"train": tuple(train), "validation": tuple(validation)}
    assert files.counts == {}


def test_splits_may_have_folders_of_their_own_and_validation_may_be_absent(tmp_path):
    train = empty_shards(tmp_path / "train", 1)
    assert locate(tmp_path).paths == {"train": tuple(train), "validation": ()}
    validation = empty_shards(tmp_path / "validation", 1, split="validation")
    assert locate(tmp_path).paths == {"train": tuple(train), "validation": tuple(validation)}


# What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "missing"), [("train", 0), ("validation", 2)])
def test_missing_shard_is_named(tmp_path, split, missing):
    paths = {name: empty_shards(tmp_path, 3, split=name) for name in ("train", "validation")}
    victim = paths[split][missing]
    victim.unlink()
    assert complaint(tmp_path).startswith(f"{victim}: missing, though 2 of 3 shards are there")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["validation-00000-of-00001", "train-0-of-1"], ": holds no ImageNet training shards"),
        (
            ["train-00000-of-00001", "train-00000-of-00002"],
            "/train-00000-of-00002: is not one of 1 shards; keep one set",
        ),
        (
            [f"train-{index:05d}-of-00002" for index in range(3)],
            "/train-00002-of-00002: is not one of 2 shards",
        ),
        (["train-00000-of-999999999"], "/train-00001-of-999999999: missing"),
    ],
)
def test_shards_that_are_no_set_are_named(tmp_path, names, said):
    for name in names:
        (tmp_path / name).touch()
    assert complaint(tmp_path).startswith(f"{tmp_path}{said}")


# Their records -----------------------------------------------------------------------------------

IMAGE = grey(9)
CUT = jpeg(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))[:900]
PNG = tf.io.encode_png(np.zeros((8, 8, 3), np.uint8)).numpy()
OTHER = "is not a tf.train.Example with image/encoded and image/class/label"


def example(**changed: list[Any] | None) -> bytes:
    """An Example as TensorFlow writes it; image and label may be changed or left out."""
    values: dict[str, list[Any] | None] = {"image/encoded": [IMAGE], "image/class/label": [7]}
    names = {"image": "image/encoded", "label": "image/class/label"}
    built = tf.train.Example()
    for key, value in {**values, **{names[key]: value for key, value in changed.items()}}.items():
        kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
        for each in value or ():
            getattr(built.features.feature[key], kinds[type(each)]).value.append(each)
    content: bytes = built.SerializeToString(deterministic=True)
    return content


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two shards of three records."""
    return write_shards(tmp_path, [example()] * 3, [example()] * 3)


def refused(paths: list[Path], content: bytes) -> str:
    """How the set is refused when its last shard has this content."""
    write_anew(paths[-1], content)
    message = complaint(paths[-1].parent)
    assert message.startswith(f"{paths[-1]}: ")
    return message


# Sound shards -----------------------------------------------------------------------------------


def test_records_are_counted(tmp_path):
    # The third shard has the labels at the limits.
    limits = [example(label=[label]) for label in (1, 7, 1000)]
    write_shards(tmp_path, [example()], [example()] * 2, limits)
    assert check(locate(tmp_path)).counts["validation"] == 0
    write_shards(tmp_path, [example()], [example()] * 2, split="validation")
    files = check(locate(tmp_path))
    assert files.counts == {"train": 6, "validation": 3}


def test_the_first_images_of_a_shard_are_decoded(tmp_path):
    (path,) = write_shards(tmp_path, [*[example()] * 3, example(image=[CUT])])
    assert complaint(tmp_path).startswith(
        f"{path}: record 3 has no whole JPEG in image/encoded; fetch or write"
    )
    assert check(locate(tmp_path), parsed=3).counts["train"] == 4


# Damaged shards ---------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [0, 2])
def test_record_with_any_byte_changed(shards, record):
    whole = shards[-1].read_bytes()
    length = len(whole) // 3
    for position in {*range(0, 12, 2), *range(12, length, 97), *range(length - 4, length)}:
        changed = bytearray(whole)
        changed[record * length + position] ^= 0x10
        assert f"record {record} does not fit its checksums" in refused(shards, bytes(changed))


@pytest.mark.parametrize("first", [[], [example()]])
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"image": None}, OTHER),
        ({"label": None}, OTHER),
        ({"label": [0]}, "has 0 in image/class/label, not 1..1000"),
        ({"label": [1001]}, "has 1001 in image/class/label"),
        ({"label": [1, 2]}, OTHER),
        ({"label": [b"7"]}, OTHER),
        ({"image": [PNG]}, "has no whole JPEG"),
        ({"image": [IMAGE, IMAGE]}, OTHER),
        ({"image": [CUT]}, "has no whole JPEG"),
    ],
)
def test_record_that_is_not_imagenet(shards, first, record, reason):
    content = b"".join(map(framed, [*first, example(**record)]))
    assert f"record {len(first)} {reason}" in refused(shards, content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        # The first one announces more than there is.
        (framed(b"\x0a\x7f"), OTHER),
        (framed(b"plain text of some other kind"), OTHER),
        (b"\x1f\x8b\x08" + bytes(100), "does not fit its checksums"),
        (b"<html>not found</html>", "does not fit its checksums"),
    ],
)
def test_file_of_another_kind(shards, content, reason):
    assert f"record 0 {reason}; is it really" in refused(shards, content)


def test_empty_shard_and_directory_in_its_place(shards):
    assert "empty" in refused(shards, b"")
    shards[-1].unlink()
    shards[-1].mkdir()
    assert complaint(shards[0].parent).startswith(f"{shards[-1]}: unreadable (Is a directory)")


def test_the_command_prints_the_numbers_or_one_line_of_what_is_damaged(shards, capsys):
    folder, undecodable = str(shards[0].parent), framed(example(image=[CUT]))
    shards[1].write_bytes(framed(example()) * 32 + undecodable)
    assert imagenet_files.main(folder) == 0
    assert json.loads(capsys.readouterr().out) == {"train": 3 + 33, "validation": 0}
    assert imagenet_files.main(folder, "--decode") == 2
    assert "record 32 has no whole JPEG" in capsys.readouterr().err
    shards[1].write_bytes(shards[0].read_bytes()[:-1])
    assert imagenet_files.main(folder) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert said.startswith(f"{shards[1]}: record 2 is truncated; ")


# Any bytes at all -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = write_shards(tmp_path_factory.mktemp("fuzz"), [example()])
    return path


@pytest.mark.long
@settings(max_examples=100)
@given(
    changes=st.lists(mutations(), max_size=3),
    data=st.one_of(st.binary(max_size=200), mutations().map(lambda change: change(example()))),
)
def test_any_damage_is_refused_or_leaves_records_with_an_image_and_a_label(victim, changes, data):
    content = framed(example()) + framed(data)
    for change in changes:
        content = change(content)
    write_anew(victim, content)
    try:
        check(locate(victim.parent))
    except DataError as error:
        assert str(error).startswith(f"{victim}: ")
        return
    request = Request("imagenet", 1, 8, augment=False)
    for _, labels in imagenet.dataset(locate(victim.parent), TRAIN, request).take(2):
        assert 1 <= int(labels[0]) <= 1000


# Samples ------------------------------------------------------------------------------------------


def test_samples_are_what_the_published_records_are(tmp_path):
    paths = write_imagenet(tmp_path, shards=2, per_shard=10, validation_shards=0)
    files = check(locate(tmp_path))
    assert (files.paths["train"], files.counts) == (paths, {"train": 20, "validation": 0})
    labels: list[int] = []
    colours: list[Any] = []
    for path in paths:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            pixels = tf.io.decode_jpeg(feature["image/encoded"].bytes_list.value[0]).numpy()
            height, width = pixels.shape[:2]
            assert 300 <= min(height, width) <= max(height, width) <= 500
            # Smooth: neighbours are nearly the same.
            assert np.abs(np.diff(pixels.astype(int), axis=0)).mean() < 3
            labels.append(feature["image/class/label"].int64_list.value[0])
            colours.append(pixels.mean(axis=(0, 1)))
    assert sorted(labels) == sorted(2 * LABELS)
    assert (min(LABELS), max(LABELS)) == (1, 1000)
    # A class can be told by its colour.
    for i, label in enumerate(labels):
        distances = [np.abs(colours[i] - other).max() for other in colours]
        nearest = sorted(range(20), key=distances.__getitem__)[:2]
        assert [labels[j] for j in nearest] == [label, label]
