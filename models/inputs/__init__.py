"""The training inputs by name. Importing this never imports TensorFlow; `open_train` does."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.registry import Form


class UnknownInput(ValueError):
    """No input has that name, or it lacks the directory it reads from."""


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
    if data_dir is None:
        raise UnknownInput(f"{name} needs the directory that holds its files")
    files = locate(name, data_dir)
    if form is Form.WORDS:
        from models.inputs import tokens

        return tokens.train_dataset(
            files,
            shard=shard,
            batch=batch,
            length=size,
            vocabulary=classes,
            seed=seed,
            shuffle=shuffle,
            threads=threads,
        )
    common: dict[str, Any] = {
        "shard": shard,
        "batch": batch,
        "image_size": size,
        "seed": seed,
        "augment": augment,
        "shuffle": shuffle,
        "threads": threads,
    }
    if name == "imagenet":
        from models.inputs import imagenet

        return imagenet.train_dataset(files, **common)
    from models.inputs import cifar

    return cifar.train_dataset(files, symmetric=symmetric, **common)
