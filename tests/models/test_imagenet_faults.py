"""What is said about records that turn out to be damaged while TensorFlow reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs.imagenet_files import FOOT_BYTES, HEAD_BYTES
from tests.support.shards import example, grey, jpeg, write_shards

SOUND = example(grey(9), 5)
WHOLE = len(SOUND) + HEAD_BYTES + FOOT_BYTES
WRONG, CUT = "does not fit its checksums", "is truncated"
REMEDY = "; fetch or write this shard again"


def flipped(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


# From a shard and where a record starts in it to the damaged shard, and what is wrong with it.
DAMAGE: dict[str, tuple[Callable[[bytes, int], bytes], str]] = {
    "length": (lambda shard, at: flipped(shard, at + 1), WRONG),
    "length's checksum": (lambda shard, at: flipped(shard, at + 8), WRONG),
    "data": (lambda shard, at: flipped(shard, at + 100), WRONG),
    "data's checksum": (lambda shard, at: flipped(shard, at + WHOLE - 1), WRONG),
    "zeros": (lambda shard, at: shard[:at] + bytes(len(shard) - at), WRONG),
    "cut in its data": (lambda shard, at: shard[: at + 100], CUT),
    "cut before its data": (lambda shard, at: shard[: at + HEAD_BYTES], CUT),
}


def opened(folder: Path, split: str, **options: Any) -> tf.data.Dataset:
    arguments: dict[str, Any] = {"shard": (0, 1), "batch": 2, "size": 8, **options}
    if split == "validation":
        return inputs.open_validation("imagenet", folder, **arguments)
    plain = {"augment": False, "shuffle": False, "seed": 0}
    return inputs.open_train("imagenet", folder, **{**arguments, **plain})


def explained(folder: Path, dataset: tf.data.Dataset) -> str:
    """What is said about the error with which the dataset ends."""
    with pytest.raises(tf.errors.OpError) as raised:
        list(dataset.take(20))
    return inputs.explain("imagenet", folder, raised.value)


@pytest.fixture
def shards(tmp_path: Path) -> dict[str, list[Path]]:
    """The same record throughout: one starts in several shards wherever one does in one of them,
    and the first shard ends where in others the record number 3 starts."""
    return {
        split: write_shards(tmp_path, [SOUND] * 3, [SOUND] * 6, [SOUND] * 4, split=split)
        for split in ("train", "validation")
    }


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("split", "record"), [("train", 0), ("train", 3), ("train", 5), ("validation", 3)]
)
def test_damaged_record_is_named(
    tmp_path: Path, shards: dict[str, list[Path]], split: str, damage: str, record: int
) -> None:
    victim = shards[split][1]
    make, fault = DAMAGE[damage]
    dataset = opened(tmp_path, split)
    victim.write_bytes(make(victim.read_bytes(), record * WHOLE))
    line = explained(tmp_path, dataset)
    assert line.startswith(f"{victim}: record {record} {fault}; ")
    assert line.endswith("fetch or write this shard again")


def test_damage_is_named_however_it_comes_out(
    tmp_path: Path, shards: dict[str, list[Path]]
) -> None:
    victim = shards["train"][2]
    victim.write_bytes(flipped(victim.read_bytes(), 2 * WHOLE + 50))
    expected = f"{victim}: record 2 {WRONG}{REMEDY}"
    assert explained(tmp_path, opened(tmp_path, "train", threads=2)) == expected

    @tf.function
    def in_a_graph(batches: Any) -> tf.Tensor:
        labels = tf.constant(0)
        for _ in tf.range(20):
            labels += tf.reduce_sum(next(batches)[1])
        return labels

    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    distributed = strategy.experimental_distribute_dataset(opened(tmp_path, "train"))
    for read in (
        lambda: in_a_graph(iter(opened(tmp_path, "train"))),
        lambda: [batch for batch, _ in zip(distributed, range(20), strict=False)],
    ):
        with pytest.raises(tf.errors.DataLossError) as raised:
            read()
        assert inputs.explain("imagenet", tmp_path, raised.value) == expected


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (example(jpeg(np.full((64, 64, 3), 9, np.uint8))[:300], 5), "cannot be decoded"),
        (example(grey(9), 0), "has 0 in image/class/label, not 1..1000"),
    ],
)
@pytest.mark.parametrize("name", ["plain", 'l\'été ["a\\b"]; fetch\x01'])
def test_what_the_pipeline_says_is_freed_of_decoration(
    tmp_path: Path, name: str, record: bytes, fault: str
) -> None:
    folder = tmp_path / name
    (path,) = write_shards(folder, [SOUND, SOUND, SOUND, record])
    line = explained(folder, opened(folder, "train"))
    assert line == f"{path}: record 3 {fault}{REMEDY}"


def test_nothing_is_added_to_other_errors(tmp_path: Path, shards: dict[str, list[Path]]) -> None:
    def data_loss(message: str) -> tf.errors.OpError:
        return tf.errors.DataLossError(None, None, message)

    for error in (
        data_loss(f"corrupted record at {WHOLE}"),  # repaired, or read wrongly
        data_loss(f"corrupted record at {3 * WHOLE}"),
        data_loss(f"truncated record at {10**18}' failed with"),
        data_loss("corrupted record at 5"),
        data_loss("corrupted record at 0"),
        data_loss("Unable to open table file"),
        tf.errors.InvalidArgumentError(None, None, "assertion failed: [x: y; z]"),
        tf.errors.InvalidArgumentError(None, None, "corrupted record at 5"),
        tf.errors.OutOfRangeError(None, None, "End of sequence"),
        ValueError(f"corrupted record at {WHOLE}"),
        KeyboardInterrupt(),
    ):
        assert inputs.explain("imagenet", tmp_path, error) == ""

    shards["train"][0].write_bytes(flipped(shards["train"][0].read_bytes(), 100))
    error = data_loss(f"corrupted record at {HEAD_BYTES}")
    assert inputs.explain("imagenet", tmp_path, error) != ""
    assert inputs.explain("cifar10", tmp_path, error) == ""
    assert inputs.explain("imagenet", None, error) == ""
    assert inputs.explain("synthetic", None, error) == ""


def test_shard_that_went_meanwhile(tmp_path: Path, shards: dict[str, list[Path]]) -> None:
    error = tf.errors.DataLossError(None, None, "corrupted record at 0")
    victim = shards["train"][1]
    victim.unlink()
    victim.mkdir()
    assert str(victim) in inputs.explain("imagenet", tmp_path, error)
    victim.rmdir()
    assert inputs.explain("imagenet", tmp_path, error).startswith(f"{victim}: missing, though")
