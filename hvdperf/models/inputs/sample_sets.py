"""Write small but valid data sets, in the published formats, for users without the real ones.

python -m hvdperf.models.inputs.sample_sets DIR [NAME...]

A network can learn from each of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs import text
from hvdperf.models.inputs.cifar_files import COARSE_CLASSES, FORMATS, PIXEL_BYTES, Format, Layout

# CIFAR -----------------------------------------------------------------------------------------

# Standard deviation, in grey levels of each channel, of the colour of a whole image from that of
# its class. Neighbouring classes are 40 levels apart. So about one image in four looks like one of
# another class, and the loss of a network that has learned all there is does not reach 0.
TINT = 16.0


def write_cifar(
    directory: Path, dataset: str, records: int = 100, seed: int = 0
) -> tuple[Path, ...]:
    """Write all training and test files of a data set, in the binary layout, into the directory;
    return their paths.

    A class has a colour of its own, under noise, so that a loss can fall, but not to 0. Each class
    is as frequent in a split as any other, give or take one record. The same arguments give the
    same bytes. records: to train on, of which each file has as many as that to validate with.
    """
    form = FORMATS[dataset]
    *train, test = (directory / name for name in form.names[Layout.BINARY][1])
    rng = np.random.default_rng(seed)
    tables = np.split(_cifar(form, records, rng), len(train))
    tables.append(_cifar(form, records // len(train), rng))
    directory.mkdir(parents=True, exist_ok=True)
    for path, table in zip((*train, test), tables, strict=True):
        path.write_bytes(table.tobytes())
    return (*train, test)


def _cifar(form: Format, count: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return records of the binary layout, uint8 [count, record_bytes]."""
    fine = rng.permutation(np.arange(count) % form.classes)
    # Digits of the class to base 5, one per channel: 125 colours, 40 grey levels apart.
    digits = np.stack([fine % 5, fine // 5 % 5, fine // 25], axis=1)
    colours = np.repeat(
        48 + 40 * digits + rng.normal(0, TINT, (count, 3)), PIXEL_BYTES // 3, axis=1
    )
    pixels = np.clip(colours + rng.integers(-32, 33, size=(count, PIXEL_BYTES)), 0, 255)
    columns = [fine[:, None], pixels]
    if form.label_bytes > 1:
        columns.insert(0, fine[:, None] * COARSE_CLASSES // form.classes)
    table: npt.NDArray[np.uint8] = np.concatenate(columns, axis=1).astype(np.uint8)
    return table


# ImageNet --------------------------------------------------------------------------------------

SHARDS = 4
PER_SHARD = 16

# Ten classes, from the first to the last.
LABELS = tuple(range(1, 1001, 111))

# Sides of an image, in pixels.
_SMALLEST_SIDE, _LARGEST_SIDE = 300, 500


def write_imagenet(
    directory: Path,
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
    """
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    paths: list[Path] = []
    for split, total in (("train", shards), ("validation", validation_shards)):
        classes = rng.permutation(np.arange(total * per_shard) % len(LABELS))
        for shard, part in enumerate(np.split(classes, total) if total else ()):
            paths.append(directory / f"{split}-{shard:05d}-of-{total:05d}")
            _write_shard(paths[-1], part, rng)
    return tuple(paths)


def _write_shard(path: Path, classes: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for index in classes.tolist():
            encoded = tf.io.encode_jpeg(_image(index, rng), quality=90).numpy()
            # Of the keys of the published shards, those that the pipeline reads.
            example = tf.train.Example()
            feature = example.features.feature
            feature["image/encoded"].bytes_list.value.append(encoded)
            feature["image/class/label"].int64_list.value.append(LABELS[index])
            writer.write(example.SerializeToString(deterministic=True))


def _image(index: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return uint8 [height, width, 3]: the colour of a class, and waves over it."""
    height, width = rng.integers(_SMALLEST_SIDE, _LARGEST_SIDE + 1, size=2)
    down, across = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
    # Digits of the class to base 3, one per channel, 64 grey levels apart.
    image: npt.NDArray[Any] = 64 + 64 * np.array([index % 3, index // 3 % 3, index // 9 % 3])
    for _ in range(2):
        # At least one turn, so that the colour stays the same on average.
        turns, phase = rng.uniform(1, 3, (2, 3)) * rng.choice((-1, 1), (2, 3)), rng.uniform(size=3)
        image = image + 20 * np.sin(2 * np.pi * (turns[0] * down + turns[1] * across + phase))
    pixels: npt.NDArray[np.uint8] = np.rint(image).astype(np.uint8)
    return pixels


# Text ------------------------------------------------------------------------------------------

# These give half a megabyte. 2,205 of the words occur, more than the 2,000 that the small language
# models know. So each row of their embeddings is looked up, that of unknown words by the rest.
SENTENCES = 5000
WORDS = 5000

# Probabilities of a word's four successors. There are no others: a network that knows the chain has
# a loss of 1.2 nats per word, one that knows the frequency of each word has 5.1, and one that knows
# nothing has ln 2000 = 7.6.
_SUCCESSORS = (0.5, 0.25, 0.125, 0.125)
# Words in a sentence, 20 on average: about as many as in the Penn Treebank.
_SHORTEST, _LONGEST = 5, 35


def write_tokens(
    directory: Path, sentences: int = SENTENCES, words: int = WORDS, seed: int = 0
) -> tuple[Path, ...]:
    """Write ptb.train.txt, ptb.valid.txt and ptb.test.txt into the directory; return their paths.

    The training text has `sentences` sentences, the other two have a tenth each, at least one. The
    text is a Markov chain of `words` words in which each is followed by one of four, so that a loss
    can fall. As in real text, few words are frequent and many are rare, so that in a short text
    many do not occur. The same arguments give the same bytes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = tuple(directory / text.LAYOUTS[0].format(name) for name in text.SPLITS.values())
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, words + 1)  # Zipf's law
    frequency /= frequency.sum()
    chain = rng.choice(words, size=(words, len(_SUCCESSORS)), p=frequency)
    others = max(1, sentences // 10)
    for path, count in zip(paths, (sentences, others, others)):
        path.write_bytes(_text(chain, frequency, count, rng))
    return paths


def _text(
    chain: npt.NDArray[np.int64],
    frequency: npt.NDArray[np.float64],
    sentences: int,
    rng: np.random.Generator,
) -> bytes:
    """Return lines of words. chain: [words, successors]. frequency: [words], that of the first
    words of sentences."""
    word = rng.choice(len(frequency), size=sentences, p=frequency)
    columns = []
    for _ in range(_LONGEST):
        columns.append(word)
        word = chain[word, rng.choice(len(_SUCCESSORS), size=sentences, p=_SUCCESSORS)]
    table = np.stack(columns, axis=1)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=sentences)
    # A blank at both ends of each line, as in the published files.
    lines = (
        " ".join(["", *(f"w{number}" for number in row[:length]), "\n"])
        for row, length in zip(table.tolist(), lengths)
    )
    return "".join(lines).encode("ascii")


# All of them -----------------------------------------------------------------------------------

# The file in a directory that marks it as a sample of the suite's own.
STAMP = ".written-by"


# Samples of CIFAR have 5,000 images for training, so that a shuffle has something to do.
WRITERS: dict[str, Callable[[Path], object]] = {
    "cifar10": partial(write_cifar, dataset="cifar10", records=5000),
    "cifar100": partial(write_cifar, dataset="cifar100", records=5000),
    "imagenet": write_imagenet,
    "ptb": write_tokens,
}


def write(dataset: str, root: Path) -> bool:
    """Write a data set's sample to root/dataset, whole or not at all. Return False if there is
    something already, which stays as it is: a sample, or a user's own files."""
    directory = root / dataset
    if directory.exists():
        return False
    unfinished = root / f".{dataset}.{os.getpid()}"
    try:
        WRITERS[dataset](unfinished)
        (unfinished / STAMP).touch()
        try:
            unfinished.rename(directory)
        except OSError:
            if not directory.exists():  # else another process was quicker
                raise
    finally:
        # This is left if the writing failed, or if another process was quicker.
        shutil.rmtree(unfinished, ignore_errors=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hvdperf.models.inputs.sample_sets",
        description="Write small but valid data sets, for users without the real ones.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="each is in DIR/NAME")
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help=f"of {', '.join(WRITERS)} (all that are not there)"
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(WRITERS):
        parser.error(f"no sample of {', '.join(sorted(unknown))}; known are {', '.join(WRITERS)}")
    try:
        for dataset in given.names or WRITERS:
            if write(dataset, given.directory):
                print(f"data: a sample of {dataset} in {given.directory / dataset}")
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.exit(main())
