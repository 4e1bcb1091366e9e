"""Write small but valid ImageNet shards, in the published format, that a network can learn from.

python -m hvdperf.models.inputs.imagenet_samples DIR [--shards 4] [--per-shard 16]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs.errors import DataError, finish

SHARDS = 4
PER_SHARD = 16

# Ten classes, from the first to the last.
LABELS = tuple(range(1, 1001, 111))

# Sides of an image, in pixels.
_SMALLEST, _LARGEST = 300, 500


def write_imagenet(
    directory: str | Path,
    shards: int = SHARDS,
    per_shard: int = PER_SHARD,
    seed: int = 0,
    validation_shards: int = 1,
) -> tuple[Path, ...]:
    """Write shards of per_shard records each into the directory; return their paths.

    shards, validation_shards: number of shards of each split. An image is smooth and has 300 to
    500 px a side. Its class, one of LABELS, has a colour of its own, so that a loss can fall. Each
    class is as frequent in a split as any other, give or take one record. The same arguments give
    the same bytes.
    Raises DataError if the directory holds shards already, or if a number is out of range.
    """
    if min(shards, per_shard) < 1 or min(seed, validation_shards) < 0:
        raise DataError(
            f"{shards} shards of {per_shard} records, {validation_shards} for validation, seed "
            f"{seed}: at least one shard and one record, and no negative number"
        )
    folder = Path(directory)
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if name.startswith(("train-", "validation-")):
            raise DataError(f"{folder / name}: exists already; choose an empty directory")
    folder.mkdir(parents=True, exist_ok=True)

    rng = np.random.default_rng(seed)
    paths: list[Path] = []
    for split, total in (("train", shards), ("validation", validation_shards)):
        classes = rng.permutation(np.arange(total * per_shard) % len(LABELS))
        for shard, part in enumerate(np.split(classes, total) if total else ()):
            paths.append(folder / f"{split}-{shard:05d}-of-{total:05d}")
            _write(paths[-1], part, rng)
    return tuple(paths)


def _write(path: Path, classes: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for number, index in enumerate(classes.tolist()):
            pixels = _image(index, rng)
            encoded = tf.io.encode_jpeg(pixels, quality=90).numpy()
            # The box may be anywhere. Its corners are shares of height and width.
            box = np.sort(rng.uniform(size=(2, 2)), axis=0).tolist()
            example = _example(encoded, pixels.shape, LABELS[index], f"{path.name}_{number}", box)
            writer.write(example.SerializeToString(deterministic=True))


def _image(index: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return uint8 [height, width, 3]: the colour of a class, and a few waves over it."""
    height, width = rng.integers(_SMALLEST, _LARGEST + 1, size=2)
    down, across = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)[None, :]
    # Digits of the class to base 3, one per channel, 64 grey levels apart. The waves change a level
    # by at most 40.
    colour = 64 + 64 * np.array([index % 3, index // 3 % 3, index // 9 % 3])
    image = np.empty((height, width, 3))
    for channel in range(3):
        waves = np.zeros((height, width))
        for _ in range(2):
            # At least one turn, so that the colour stays the same on average.
            turns, phase = rng.uniform(1, 3, size=2) * rng.choice((-1, 1), size=2), rng.uniform()
            waves += 20 * np.sin(2 * np.pi * (turns[0] * down + turns[1] * across + phase))
        image[:, :, channel] = colour[channel] + waves
    return np.rint(image).astype(np.uint8)


def _example(
    encoded: bytes, shape: tuple[int, ...], label: int, name: str, box: list[list[float]]
) -> Any:
    """Return a tf.train.Example with the keys of the published shards. box: (top, left), (low,
    right)."""
    import tensorflow as tf

    values: dict[str, list[Any]] = {
        "image/encoded": [encoded],
        "image/format": [b"JPEG"],
        "image/colorspace": [b"RGB"],
        "image/height": [shape[0]],
        "image/width": [shape[1]],
        "image/channels": [shape[2]],
        "image/filename": [f"{name}.JPEG".encode()],
        "image/class/label": [label],
        "image/class/synset": [f"n{label:08d}".encode()],
        "image/object/bbox/ymin": [box[0][0]],
        "image/object/bbox/xmin": [box[0][1]],
        "image/object/bbox/ymax": [box[1][0]],
        "image/object/bbox/xmax": [box[1][1]],
    }

    def feature(value: list[Any]) -> Any:
        if isinstance(value[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        if isinstance(value[0], int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))

    features = {key: feature(value) for key, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hvdperf.models.inputs.imagenet_samples",
        description="Write small valid ImageNet shards.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--shards", type=int, default=SHARDS, metavar="N")
    parser.add_argument("--per-shard", type=int, default=PER_SHARD, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)

    def write() -> str:
        paths = write_imagenet(options.directory, options.shards, options.per_shard, options.seed)
        return f"{len(paths)} shards of ImageNet in {options.directory}"

    return finish(write)


if __name__ == "__main__":
    sys.exit(main())
