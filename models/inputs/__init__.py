"""The training inputs by name. Importing this never imports TensorFlow; `open_train` does."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class UnknownInput(ValueError):
    """No input has that name, or it lacks the directory it reads from."""


@dataclass(frozen=True)
class Input:
    """needs_data: whether it reads a data set from a directory. classes: how many labels it has."""

    name: str
    classes: int
    needs_data: bool


INPUTS: dict[str, Input] = {
    source.name: source
    for source in (
        Input("cifar10", 10, needs_data=True),
        Input("cifar100", 100, needs_data=True),
        Input("synthetic", 1000, needs_data=False),
    )
}


def find(name: str) -> Input:
    """The input of that name. Raises UnknownInput, naming the known ones and the closest."""
    if name in INPUTS:
        return INPUTS[name]
    close = difflib.get_close_matches(name, INPUTS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UnknownInput(f"unknown input {name!r}: {hint}known are {', '.join(INPUTS)}")


def open_train(
    name: str,
    data_dir: str | Path | None,
    *,
    shard: tuple[int, int],
    batch: int,
    image_size: int,
    seed: int,
    augment: bool = True,
    shuffle: bool = True,
    threads: int = 1,
) -> Any:
    """An endless tf.data.Dataset of (images float32 [batch, s, s, 3], labels int32 [batch]).

    shard is (index, count). augment and shuffle mean nothing to the synthetic input, which
    repeats one batch. Raises UnknownInput, and DataError if the files are not usable.
    """
    source = find(name)
    if not source.needs_data:
        from models.inputs import synthetic

        return synthetic.train_dataset(
            source.classes, shard=shard, batch=batch, image_size=image_size, seed=seed
        )
    if data_dir is None:
        raise UnknownInput(f"{name} needs the directory that holds its files")
    from models.inputs import cifar, cifar_files

    return cifar.train_dataset(
        cifar_files.locate(data_dir, name),
        shard=shard,
        batch=batch,
        image_size=image_size,
        seed=seed,
        augment=augment,
        shuffle=shuffle,
        threads=threads,
    )
