"""The training inputs by name. Importing this never imports TensorFlow; `open_train` does."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.registry import Form


class UnknownInput(ValueError):
    """No input has that name, or it lacks the directory it reads from, or has nothing of the kind
    that was asked for."""


@dataclass(frozen=True)
class Input:
    """needs_data: whether it reads a data set from a directory. classes: how many labels it has,
    0 where the network says how many words it knows. forms: what it can be asked for."""

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
    """The input of that name. Raises UnknownInput, naming the known ones and the closest."""
    if name in INPUTS:
        return INPUTS[name]
    close = difflib.get_close_matches(name, INPUTS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UnknownInput(f"unknown input {name!r}: {hint}known are {', '.join(INPUTS)}")


def locate(name: str, directory: str | Path) -> Any:
    """The files of a data set in a directory, checked as far as that takes no time.

    Raises UnknownInput, and DataError naming the file that is wrong.
    """
    find(name)
    if name == "imagenet":
        from models.inputs import imagenet_files

        return imagenet_files.locate(directory)
    if name == "ptb":
        from models.inputs import token_files

        return token_files.locate(directory)
    from models.inputs import cifar_files

    return cifar_files.locate(directory, name)


@dataclass(frozen=True)
class Extent:
    """How many samples a data set has to train on, and to validate with: images, or sequences of
    words. None where it has no end, or where only counting them one by one would tell."""

    train: int | None
    validation: int | None


def extent(name: str, files: Any, size: int) -> Extent:
    """How large a data set is, as far as that is known without reading it again; size: of a
    sequence, in words. files: what `locate` has found; None for the synthetic input, which has no
    end, and nothing to validate with.

    Of ImageNet's shards those above 32 MB are not counted (imagenet_files.VISITED_BYTES): they
    hold hundreds of records, and so enough for as many ranks.

    Raises UnknownInput, and DataError if the training text holds less than a sequence.
    """
    if not find(name).needs_data:
        return Extent(train=None, validation=0)
    if name == "imagenet":
        return Extent(files.train_records, files.validation_records)
    if name == "ptb":
        from models.inputs import token_files

        sequences = token_files.sequences(files, token_files.Split.TRAIN, size)
        return Extent(sequences, (files.valid_tokens - 1) // size)
    return Extent(files.train_records, files.test_records)


def train_samples(name: str, data_dir: str | Path | None, size: int) -> int | None:
    """How many training samples a data set has: images, or sequences of `size` words; None for the
    synthetic input, which has no end. Needs no TensorFlow.

    Raises UnknownInput, and DataError if the files are not usable or hold less than a sequence.
    """
    if not find(name).needs_data:
        return None
    files = locate(name, _directory(name, data_dir))
    if name == "imagenet":
        from models.inputs import imagenet_files

        known = files.train_records
        return imagenet_files.count(files.train) if known is None else int(known)
    if name == "ptb":
        from models.inputs import token_files

        return token_files.sequences(files, token_files.Split.TRAIN, size)
    return int(files.train_records)


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
    """An endless tf.data.Dataset of (images float32 [batch, size, size, 3], labels int32 [batch]),
    or of (words int32 [batch, size], next words int32 [batch, size]).

    shard is (index, count). symmetric: pixels in -1..1, as a generator's are, instead of
    standardised by channel. classes: how many words a vocabulary has. augment and shuffle mean
    nothing to the synthetic input, which repeats one batch, and augment nothing to words. Raises
    UnknownInput, and DataError if the files are not usable.
    """
    source = find(name)
    if not source.needs_data:
        from models.inputs import synthetic

        make = synthetic.images if form is Form.IMAGES else synthetic.words
        return make(classes or source.classes, shard=shard, batch=batch, size=size, seed=seed)
    module, what = _opened(source, data_dir, form, size, classes)
    if form is Form.IMAGES:
        what["augment"] = augment
    if name.startswith("cifar"):
        what["symmetric"] = symmetric  # ImageNet's pixels always are
    return module.train_dataset(
        **what, shard=shard, batch=batch, seed=seed, shuffle=shuffle, threads=threads
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
    """One pass over the validation records, prepared as those of `open_train` without augmentation:
    a tf.data.Dataset of (images float32 [b, size, size, 3], labels int32 [b]), or of (words int32
    [b, size], next words int32 [b, size]). b is `batch`, or less in the last one.

    shard is (index, count): each of so many ranks gets its part in file order, all together every
    record once. The parts, and so the numbers of batches, need not be equally large. Raises
    UnknownInput, also for the synthetic input, which has nothing to validate with, and DataError
    if the files are not usable, or too few for so many ranks.
    """
    source = find(name)
    if not source.needs_data:
        with_data = ", ".join(each.name for each in INPUTS.values() if each.needs_data)
        raise UnknownInput(f"{name} has nothing to validate with: use one of {with_data}")
    module, what = _opened(source, data_dir, form, size, classes)
    return module.validation_dataset(**what, shard=shard, batch=batch, threads=threads)


def explain(name: str, data_dir: str | Path | None, error: BaseException) -> str:
    """One line for what TensorFlow said about the input: the file, the record and what to do; "" if
    there is nothing to add, as where the error is not about the input.

    Only a shard of ImageNet may prove to be damaged as late as that: the other data sets are read
    whole when they are located.
    """
    if name != "imagenet" or data_dir is None:
        return ""
    from models.inputs import imagenet_faults

    return imagenet_faults.explain(data_dir, error)


def _opened(
    source: Input, data_dir: str | Path | None, form: Form, size: int, classes: int
) -> tuple[Any, dict[str, Any]]:
    """The module that makes datasets of a data set, and what it calls the files and the sizes."""
    if form not in source.forms:
        raise UnknownInput(f"{source.name} has no {form.value}")
    files = locate(source.name, _directory(source.name, data_dir))
    if form is Form.WORDS:
        from models.inputs import tokens

        return tokens, {"files": files, "length": size, "vocabulary": classes}
    what = {"files": files, "image_size": size}
    if source.name == "imagenet":
        from models.inputs import imagenet

        return imagenet, what
    from models.inputs import cifar

    return cifar, what


def _directory(name: str, data_dir: str | Path | None) -> str | Path:
    if data_dir is None:
        raise UnknownInput(f"{name} needs the directory that holds its files")
    return data_dir
