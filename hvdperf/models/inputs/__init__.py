"""The training inputs by name. Importing this never imports TensorFlow; `open_train` does."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdperf.models import registry
from hvdperf.models.registry import Form


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
    """No input has that name, or the input lacks the directory that it reads from, or it has
    nothing of the kind that was asked for."""


@dataclass(frozen=True)
class Input:
    """An input that can be opened by name.

    classes: number of labels; 0 if the network gives the number of words. needs_data: whether the
    input reads a data set from a directory. forms: the kinds of samples that it has.
    """

    name: str
    classes: int
    needs_data: bool
    forms: tuple[Form, ...] = (Form.IMAGES,)


INPUTS: dict[str, Input] = {
    source.name: source
    for source in (
        Input("cifar10", 10, needs_data=True),
        Input("cifar100", 100, needs_data=True),
        Input("imagenet", 1001, needs_data=True),
        Input("ptb", 0, needs_data=True, forms=(Form.WORDS,)),
        Input("synthetic", 1000, needs_data=False, forms=(Form.IMAGES, Form.WORDS)),
    )
}


def find(name: str) -> Input:
    """Return the input of that name. Raises UnknownInput, which names the known ones and the
    closest."""
    if name in INPUTS:
        return INPUTS[name]
    close = difflib.get_close_matches(name, INPUTS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UnknownInput(f"unknown input {name!r}: {hint}known are {', '.join(INPUTS)}")


def locate(name: str, directory: str | Path) -> Any:
    """Return the files of a data set in a directory.

    All files are read and checked, except ImageNet's, which imagenet_files.check reads. Raises
    UnknownInput, and DataError that names the wrong file.
    """
    find(name)
    if name == "imagenet":
        from hvdperf.models.inputs import imagenet_files

        return imagenet_files.locate(directory)
    if name == "ptb":
        from hvdperf.models.inputs import token_files

        return token_files.locate(directory)
    from hvdperf.models.inputs import cifar_files

    return cifar_files.locate(directory, name)


@dataclass(frozen=True)
class Extent:
    """The number of samples of a data set, which are images or sequences of words.

    train: samples to train on; None if the input has no end. validation: samples to validate with.
    """

    train: int | None
    validation: int


def extent(name: str, files: Any, size: int) -> Extent:
    """Return the size of a data set without reading the data again.

    files: the result of `locate`, for ImageNet that of imagenet_files.check; None for the synthetic
    input, which has neither an end nor validation data. size: length of a sequence, in words.

    Raises UnknownInput, and DataError if the training text holds less than a sequence.
    """
    if not find(name).needs_data:
        return Extent(train=None, validation=0)
    if name == "imagenet":
        return Extent(files.train_records, files.validation_records)
    if name == "ptb":
        from hvdperf.models.inputs import token_files

        sequences = token_files.sequences(files, token_files.Split.TRAIN, size)
        return Extent(sequences, (files.valid_tokens - 1) // size)
    return Extent(files.train_records, files.test_records)


def open_train(
    name: str,
    data_dir: str | Path | None,
    *,
    shard: tuple[int, int],
    batch: int,
    size: int,
    seed: int,
    classes: int = 0,
    form: Form = Form.IMAGES,
    symmetric: bool = False,
    augment: bool = True,
    shuffle: bool = True,
    threads: int = 1,
) -> Any:
    """Return an endless tf.data.Dataset of (images float32 [batch, size, size, 3], labels int32
    [batch]), or of (words int32 [batch, size], next words int32 [batch, size]).

    shard: (index, count). symmetric: scale pixels to -1..1, as a generator's are, instead of
    standardising them by channel. classes: size of the vocabulary, or number of synthetic labels if
    not 0. augment and shuffle have no effect on the synthetic input, which repeats one batch, and
    on a network's own data, which are as its `data` function yields them; augment has none on
    words.
    Raises UnknownInput, and DataError if the files are not usable.
    """
    source = find(name)
    if name in registry.NETWORKS:
        from hvdperf.models.inputs import own

        return own.train_dataset(name, size, shard=shard, batch=batch, seed=seed)
    if not source.needs_data:
        from hvdperf.models.inputs import pipeline

        make = pipeline.random_images if form is Form.IMAGES else pipeline.random_words
        return make(classes or source.classes, shard=shard, batch=batch, size=size, seed=seed)
    module, arguments = _module_of(source, data_dir, form, size, classes)
    if form is Form.IMAGES:
        arguments["augment"] = augment
    if name.startswith("cifar"):
        arguments["symmetric"] = symmetric  # ImageNet's pixels always are in -1..1
    return module.train_dataset(
        **arguments, shard=shard, batch=batch, seed=seed, shuffle=shuffle, threads=threads
    )


def open_validation(
    name: str,
    data_dir: str | Path | None,
    *,
    shard: tuple[int, int],
    batch: int,
    size: int,
    classes: int = 0,
    form: Form = Form.IMAGES,
    threads: int = 1,
) -> Any:
    """Return one pass over the validation records, prepared as those of `open_train` without
    augmentation: a tf.data.Dataset of (images float32 [b, size, size, 3], labels int32 [b]), or of
    (words int32 [b, size], next words int32 [b, size]). b is `batch`, or less in the last one.

    shard: (index, count). Each of the `count` ranks gets its part in file order, and all parts
    together hold every record once. The parts, and so the numbers of batches, need not be equally
    large. Raises UnknownInput, also for the synthetic input, which has nothing to validate with,
    and DataError if the files are not usable, or hold too few records for that many ranks.
    """
    source = find(name)
    if not source.needs_data:
        with_data = ", ".join(each.name for each in INPUTS.values() if each.needs_data)
        raise UnknownInput(f"{name} has nothing to validate with: use one of {with_data}")
    module, arguments = _module_of(source, data_dir, form, size, classes)
    return module.validation_dataset(**arguments, shard=shard, batch=batch, threads=threads)


def explain(name: str, data_dir: str | Path | None, error: BaseException) -> str:
    """Return one line that explains an error of TensorFlow about the input: the file, the record
    and what to do. Return "" if there is nothing to add, as for an error about something else.

    Only a shard of ImageNet may prove to be damaged that late: the other data sets are read whole
    when they are located.
    """
    of_tensorflow = hasattr(error, "error_code")
    if name != "imagenet" or data_dir is None or not of_tensorflow:
        return ""
    from hvdperf.models.inputs import imagenet

    return imagenet.explain(data_dir, error)


def _module_of(
    source: Input, data_dir: str | Path | None, form: Form, size: int, classes: int
) -> tuple[Any, dict[str, Any]]:
    """Return the module that makes datasets of a data set, and its arguments (files, sizes)."""
    if form not in source.forms:
        raise UnknownInput(f"{source.name} has no {form.value}")
    if data_dir is None:
        raise UnknownInput(f"{source.name} needs the directory that holds its files")
    files = locate(source.name, data_dir)
    if form is Form.WORDS:
        from hvdperf.models.inputs import tokens

        return tokens, {"files": files, "length": size, "vocabulary": classes}
    arguments: dict[str, Any] = {"files": files, "image_size": size}
    if source.name == "imagenet":
        from hvdperf.models.inputs import imagenet

        return imagenet, arguments
    from hvdperf.models.inputs import cifar

    return cifar, arguments
