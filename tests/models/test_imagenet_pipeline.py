"""ImageNet as a pipeline, and what is said about records that turn out to be damaged."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs import TRAIN, VALIDATION, DataError, Files, Request
from hvdperf.models.inputs.imagenet import dataset
from hvdperf.models.inputs.imagenet_files import locate
from tests.support.shards import example, framed, grey, jpeg, write_shards

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]

PLAIN: dict[str, Any] = {"augment": False, "shuffle": False}


def ramp(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Red says how far across a pixel is, green how far down, in 255ths of the image."""
    image = np.full((height, width, 3), 128, np.uint8)
    image[:, :, 0] = np.rint((np.arange(width) + 0.5) / width * 255)[None, :]
    image[:, :, 1] = np.rint((np.arange(height) + 0.5) / height * 255)[:, None]
    return image


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Four shards of six records: the label is the record's number in file order, plus one."""
    folder = tmp_path_factory.mktemp("numbered")
    records = [example(grey(10 * number), number + 1) for number in range(24)]
    write_shards(folder, *(records[start : start + 6] for start in range(0, 24, 6)))
    write_shards(folder, records[3:8], records[1:3], split="validation")
    return locate(folder)


@pytest.fixture(scope="module")
def ramps(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """One shard of 64 times the same image, 160 high and 200 wide."""
    folder = tmp_path_factory.mktemp("ramps")
    write_shards(folder, [example(jpeg(ramp(160, 200)), 1)] * 64)
    return locate(folder)


def stream(files: Files, batches: int | None = None, **options: Any) -> tuple[Images, Labels]:
    """All images and labels of the first so many batches, at 8 px from seed 0 by default."""
    request = Request("imagenet", **{"batch": 8, "size": 8, **options})
    found = dataset(files, TRAIN, request).as_numpy_iterator()
    images, labels = zip(*islice(found, batches), strict=False)
    return np.concatenate(images), np.concatenate(labels)


def numbers(labels: Labels) -> list[int]:
    """The records' numbers in file order."""
    return [int(label) - 1 for label in labels]


# Order ------------------------------------------------------------------------------------------


def test_plain_stream_is_the_records_in_file_order(numbered):
    request = Request("imagenet", 6, 75, shard=(0, 2))
    assert dataset(numbered, TRAIN, request).element_spec == (
        tf.TensorSpec((6, 75, 75, 3), tf.float32),
        tf.TensorSpec((6,), tf.int32),
    )
    images, labels = stream(numbered, batches=6, **PLAIN)
    assert numbers(labels) == [*range(24), *range(24)]
    # Every image has the pixels that go with its label, scaled to -1..1.
    expected = 10 * np.array(numbers(labels)) / 127.5 - 1
    assert np.abs(images - expected[:, None, None, None]).max() < 0.02
    np.testing.assert_array_equal(images[:24], images[24:])


@pytest.mark.parametrize("count", [3, 4, 5])
def test_shard_is_every_nth_file_where_there_are_enough_and_every_nth_record_elsewhere(
    numbered, count
):
    files = np.arange(24).reshape((4, 6) if count <= 4 else (24, 1))
    for index in (0, count - 1):
        expected = files[index::count].ravel().tolist()
        _, labels = stream(numbered, len(expected), shard=(index, count), batch=1, **PLAIN)
        assert numbers(labels) == expected


def test_files_are_read_in_a_new_order_in_each_epoch(numbered, monkeypatch):
    monkeypatch.setattr("hvdperf.models.inputs.imagenet.SHUFFLED_RECORDS", 1)
    _, labels = stream(numbered, batches=4, batch=24)
    epochs = np.array(numbers(labels)).reshape(4, 4, 6)
    orders = {tuple(epoch[:, 0].tolist()) for epoch in epochs}
    assert all(sorted(order) == [0, 6, 12, 18] for order in orders)
    assert len(orders) > 1


# Pixels -----------------------------------------------------------------------------------------


def test_plain_image_is_the_middle_resized(tmp_path):
    # Of 160 x 320 pixels, the middle 140 x 280: at half the size, the mean of neighbours.
    write_shards(tmp_path, [example(jpeg(ramp(160, 320)), 1)])
    images, _ = stream(locate(tmp_path), 1, batch=1, size=70, **PLAIN)
    middle = ramp(160, 320)[10:150, 20:300].astype(np.float32)
    # The centre of output pixel j lies at 2 (j + 1/2) - 1/2 down and 4 (j + 1/2) - 1/2 across.
    down, across = 2 * np.arange(70), 4 * np.arange(70) + 1
    expected = (middle[down][:, across] + middle[down + 1][:, across + 1]) / 2
    pixels = (images[0] + 1) * 127.5
    assert np.abs(pixels - expected).max() < 4
    assert np.abs(pixels - expected).mean() < 1


def test_grey_jpegs_have_three_channels_and_bytes_after_an_image_do_no_harm(tmp_path):
    pixels = np.full((20, 20, 1), 90, np.uint8)
    encoded = tf.io.encode_jpeg(pixels, format="grayscale").numpy()
    write_shards(tmp_path, [example(encoded, 1), example(grey(90) + b"\x00\x00 and more", 1)])
    images, _ = stream(locate(tmp_path), 1, batch=2, **PLAIN)
    np.testing.assert_allclose(images, np.full((2, 8, 8, 3), 90 / 127.5 - 1), atol=0.02)


def boxes(images: Images) -> npt.NDArray[np.float64]:
    """[n, 5]: left, top, width and height of each crop of a ramp, in shares, and if mirrored."""
    shares = (images.astype(np.float64) + 1) / 2
    size = shares.shape[1]
    # Away from the edges, which a resize repeats.
    near, far = 1, size - 2
    across = shares[:, :, :, 0].mean(axis=1)
    down = shares[:, :, :, 1].mean(axis=2)
    slope_x = (across[:, far] - across[:, near]) / (far - near)
    slope_y = (down[:, far] - down[:, near]) / (far - near)
    width, height = np.abs(slope_x) * size, slope_y * size
    left = across.mean(axis=1) - width / 2
    top = down.mean(axis=1) - height / 2
    return np.stack([left, top, width, height, slope_x < 0], axis=1)


def test_random_crops_have_the_published_proportions(ramps):
    images, _ = stream(ramps, batches=4, batch=64, size=32, shuffle=False)
    left, top, width, height, mirrored = boxes(images).T
    area, aspect = width * height, width * 200 / (height * 160)
    # Red and green are coded to some grey levels' precision.
    assert 0.07 < area.min() < 0.2
    assert 0.8 < area.max() < 1.03
    assert 0.7 < aspect.min() < 0.85
    assert 1.2 < aspect.max() < 1.42
    assert left.min() > -0.03
    assert top.min() > -0.03
    assert (left + width).max() < 1.03
    assert (top + height).max() < 1.03
    assert left.std() > 0.1
    assert top.std() > 0.1
    assert 90 < mirrored.sum() < 166


def test_augmentation_differs_by_record_epoch_rank_and_seed(ramps):
    def crops(**options: Any) -> set[bytes]:
        images, _ = stream(ramps, shuffle=False, batch=32, **options)
        return {image.tobytes() for image in images}

    # 32 records a rank: the second batch is the second epoch. All records are one image.
    first = crops(batches=2, shard=(0, 2))
    assert len(first) == 64
    assert first.isdisjoint(crops(batches=2, shard=(1, 2)))
    assert first.isdisjoint(crops(batches=2, shard=(0, 2), seed=1))


# Validation -------------------------------------------------------------------------------------


def validation(files: Files, **options: Any) -> tf.data.Dataset:
    return dataset(files, VALIDATION, Request("imagenet", **{"batch": 4, "size": 8, **options}))


def test_validation_is_one_pass_over_all_records(numbered):
    opened = validation(numbered)
    assert opened.element_spec[0] == tf.TensorSpec((None, 8, 8, 3), tf.float32)
    batches = list(opened.as_numpy_iterator())
    assert [len(labels) for _, labels in batches] == [4, 3]
    labels = np.concatenate([labels for _, labels in batches])
    assert numbers(labels) == [*range(3, 8), *range(1, 3)]
    plain, _ = stream(numbered, batches=1, **PLAIN)
    np.testing.assert_array_equal(batches[0][0], plain[3:7])
    # Two files are one for each of two ranks.
    for index, shard in enumerate(([*range(3, 8)], [*range(1, 3)])):
        dealt = validation(numbered, batch=9, shard=(index, 2)).as_numpy_iterator()
        assert [numbers(labels) for _, labels in dealt] == [shard]


def test_validation_without_shards(ramps):
    with pytest.raises(DataError, match="holds no validation shards"):
        validation(ramps)


# Damage -----------------------------------------------------------------------------------------

SOUND = example(grey(9), 5)
CUT = jpeg(ramp(64, 64))[:900]


def flipped(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda shard: flipped(shard, len(shard) // 2), "corrupted record at"),
        (lambda shard: shard[:-100], "truncated record at"),
        (lambda shard: framed(example(CUT, 5)), "Invalid JPEG data"),
        (lambda shard: framed(example(b"", 5)), "Invalid JPEG data"),
    ],
)
def test_damage_is_said_with_the_command_that_names_the_record(tmp_path, damage, said, threads):
    paths = write_shards(tmp_path, [SOUND] * 3, [SOUND] * 3)
    request = Request("imagenet", 2, 8, directory=tmp_path, threads=threads, **PLAIN)
    opened = inputs.open_split(request)
    paths[1].write_bytes(damage(paths[1].read_bytes()))
    with pytest.raises(tf.errors.OpError) as raised:
        list(opened.take(20))
    line = inputs.explain(str(tmp_path), raised.value)
    assert line.startswith(f"{tmp_path}: {said}; python -m hvdperf.models.inputs.imagenet_files ")


def test_nothing_is_added_to_other_errors(tmp_path):
    for error in (tf.errors.DataLossError(None, None, "Unable to open table file"), KeyError("a")):
        assert inputs.explain(str(tmp_path), error) == ""
    assert inputs.explain("", ValueError("corrupted record at 5")) == ""
