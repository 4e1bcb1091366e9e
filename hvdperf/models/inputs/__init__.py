"""The training inputs by name. Importing this never imports TensorFlow; `open_split` does."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from hvdperf.models.registry import Form, hint


class DataError(ValueError):
    """A data set cannot be used. The message, one line, names the file, the fault and the
    remedy."""


def faulty(path: Path, fault: str, remedy: str) -> DataError:
    return DataError(f"{path}: {fault}; {remedy}")


def unreadable(path: Path, error: OSError) -> DataError:
    return faulty(path, f"unreadable ({error.strerror})", "check its permissions")


def or_sample(dataset: str) -> str:
    """Return the words on how to write the suite's own sample of a data set."""
    command = f"python -m hvdperf.models.inputs.sample_sets DIR {dataset}"
    return f"or write a small sample to DIR/{dataset} with {command}"


class UnknownInput(ValueError):
    """No input has that name."""


# The splits of a data set that are trained on, and validated with.
TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True)
class Files:
    """A data set that was found in a directory.

    paths: by split. counts: records of each split, or words of a text; {} before they are counted.
    layout: the form in which it was found, if the data set is published in several.
    """

    dataset: str
    paths: Mapping[str, tuple[Path, ...]]
    counts: Mapping[str, int] = field(default_factory=dict)
    layout: Enum | None = None

    @property
    def all(self) -> list[Path]:
        return [path for of_split in self.paths.values() for path in of_split]


def first_whole(directory: Path, candidates: Iterable[Files], remedy: str) -> Files:
    """Return the first of the candidates of which all files are there. remedy: what to put into a
    directory that has none of them. Raises DataError, which names a missing file."""
    check_directory(directory, remedy)
    incomplete, looked_for = None, dict[str, None]()
    for files in candidates:
        missing = [path for path in files.all if not os.path.isfile(path)]
        if not missing:
            return files
        looked_for[files.all[0].name] = None
        if incomplete is None and len(missing) < len(files.all):
            incomplete = missing[0]
    if incomplete is not None:
        fault = f"missing, though other files of {files.dataset} are there"
        raise faulty(incomplete, fault, "fetch it again")
    names = " or ".join(looked_for)
    raise faulty(directory, f"holds no {files.dataset} (looked for {names})", remedy)


def check_directory(directory: Path, remedy: str) -> None:
    if not os.path.isdir(directory):
        raise faulty(directory, "no such directory", remedy)


@dataclass(frozen=True)
class Request:
    """A wish for a dataset of batches.

    dataset: name of an input. directory: where it lies, if it reads files. size: height and width
    of an image in pixels, or length of a sequence in words. shard: (index, count). seed: of all
    that is random. classes: size of the vocabulary, or number of synthetic labels if not 0.
    symmetric: scale pixels to -1..1, as a generator's are, instead of standardising them by
    channel; ImageNet's always are. augment and shuffle have no effect on the synthetic input, which
    repeats one batch, and on a network's own data, which are as its `data` function yields them;
    augment has none on words. threads: the pipeline's own, which do the work.
    """

    dataset: str
    batch: int
    size: int
    directory: str | Path = ""
    shard: tuple[int, int] = (0, 1)
    seed: int = 0
    classes: int = 0
    form: Form = Form.IMAGES
    symmetric: bool = False
    augment: bool = True
    shuffle: bool = True
    threads: int = 1


def check_enough(path: Path, number: int, things: str, request: Request, more: str) -> None:
    """Raise DataError if one of the ranks would get none of `number` things that are dealt out in
    turn. things: their name, in the plural. more: what to use, if not fewer ranks."""
    _, ranks = request.shard
    if ranks > number:
        fault = f"{number} {things} cannot be shared by {ranks} ranks"
        raise faulty(path, fault, f"use {more} or fewer ranks")


@dataclass(frozen=True)
class Input:
    """An input that can be opened by name.

    classes: number of labels; 0 if the network gives the number of words. pipeline: the module of
    hvdperf.models with dataset(files, split, request) -> tf.data.Dataset. files: the module,
    without TensorFlow, with locate(directory, dataset); "" for an input that reads no files. forms:
    the kinds of samples that it has.
    """

    name: str
    classes: int
    pipeline: str = ""
    files: str = ""
    forms: tuple[Form, ...] = (Form.IMAGES,)

    @property
    def needs_data(self) -> bool:
        """Whether the input reads a data set from a directory."""
        return bool(self.files)


INPUTS: dict[str, Input] = {
    source.name: source
    for source in (
        Input("cifar10", 10, "inputs.cifar", "inputs.cifar_files"),
        Input("cifar100", 100, "inputs.cifar", "inputs.cifar_files"),
        Input("imagenet", 1001, "inputs.imagenet", "inputs.imagenet_files"),
        Input("ptb", 0, "inputs.text", "inputs.text", forms=(Form.WORDS,)),
        Input("synthetic", 1000, "inputs.pipeline", forms=(Form.IMAGES, Form.WORDS)),
    )
}


def find(name: str) -> Input:
    """Return the input of that name. Raises UnknownInput, which names the known ones and the
    closest."""
    if name in INPUTS:
        return INPUTS[name]
    raise UnknownInput(f"unknown input {name!r}: {hint(name, INPUTS)}")


def _module(name: str) -> Any:
    return importlib.import_module(f"hvdperf.models.{name}")


def locate(name: str, directory: str | Path) -> Files:
    """Return the files of a data set in a directory.

    All files are read and checked, except ImageNet's, which imagenet_files.check reads. Raises
    UnknownInput, and DataError that names the wrong file.
    """
    found: Files = _module(find(name).files).locate(directory, name)
    return found


@dataclass(frozen=True)
class Extent:
    """The number of samples of a data set, which are images or sequences of words.

    train: samples to train on; None if the input has no end. validation: samples to validate with.
    """

    train: int | None
    validation: int


def extent(name: str, files: Files | None, size: int) -> Extent:
    """Return the size of a data set without reading the data again.

    files: the result of `locate`, for ImageNet that of imagenet_files.check; None for the synthetic
    input, which has neither an end nor validation data. size: length of a sequence, in words.

    Raises UnknownInput, and DataError if the training text holds less than a sequence.
    """
    if files is None:
        return Extent(train=None, validation=0)
    source, train, validation = find(name), files.counts[TRAIN], files.counts[VALIDATION]
    if Form.WORDS in source.forms:
        train = _module(source.files).sequences(files, TRAIN, size)
        validation = (validation - 1) // size
    return Extent(train, validation)


def open_split(request: Request, split: str = TRAIN) -> Any:
    """Return a tf.data.Dataset of the batches of a split.

    They are (images float32 [b, size, size, 3], labels int32 [b]), or (words int32 [b, size], next
    words int32 [b, size]), or the samples that a network's own data function yields. The samples to
    train on have no end, b is `batch`, and the dimension is static. Those to validate with come
    once, in file order and not augmented, so that all shards together hold every record once; b is
    less in the last batch, and shards need not be equally large.

    Only an input that reads files has samples to validate with. Raises UnknownInput, and DataError
    if the files are not usable, or hold too few records for that many ranks.
    """
    source = find(request.dataset)
    files = locate(source.name, request.directory) if source.needs_data else None
    return _module(source.pipeline).dataset(files, split, request)


# What TensorFlow says of a damaged image, and of a damaged record.
_DAMAGED = re.compile("Invalid JPEG data|(corrupted|truncated) record at")


def explain(directory: str, error: BaseException) -> str:
    """Return one line on an error of TensorFlow that names neither the file nor the record that is
    damaged; "" for other errors.

    Only ImageNet may prove to be damaged that late: the other data sets are read whole when they
    are located.
    """
    found = _DAMAGED.search(str(error)) if directory else None
    if found is None:
        return ""
    command = f"python -m hvdperf.models.inputs.imagenet_files {directory} --decode"
    return f"{directory}: {found[0]}; {command} names the record"


# The identity of a data set ----------------------------------------------------------------------

# The hashed part of each file: its headers, and enough of the data after them.
BYTES_OF_A_FILE = 4096


def dataset_id(directory: Path, names: Sequence[str]) -> str:
    """Return an id of the files in a directory, such as `6 files, 18.4 MB, 0f3a5c7e9b1d2f48`: their
    number, their total size, and a hash of names, sizes and beginnings.

    names: the files that the data set consists of, relative to the directory; a missing file does
    not count. Raises OSError for a file that cannot be read.
    """
    known = hashlib.sha256()
    files = sorted(path for path in map(directory.joinpath, names) if path.is_file())
    total = 0
    for path in files:
        size = path.stat().st_size
        total += size
        with open(path, "rb") as stream:
            beginning = stream.read(BYTES_OF_A_FILE)
        known.update(os.fsencode(path.relative_to(directory)) + f"\0{size}\0".encode())
        known.update(hashlib.sha256(beginning).digest())
    return f"{len(files)} files, {total / 1e6:.1f} MB, {known.hexdigest()[:16]}"
