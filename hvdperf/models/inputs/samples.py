"""Write small but valid CIFAR files, in every published layout, that a network can learn from.

python -m hvdperf.models.inputs.samples DIR [--dataset cifar10] [--layout binary]
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs.cifar_files import (
    COARSE_CLASSES,
    FORMATS,
    PIXEL_BYTES,
    Format,
    Layout,
    format_of,
)
from hvdperf.models.inputs.errors import DataError, finish

# Standard deviation, in grey levels of each channel, of the colour of a whole image from that of
# its class. Neighbouring classes are 40 levels apart. So about one image in four looks like one of
# another class, and the loss of a network that has learned all there is does not reach 0.
TINT = 16.0

# CIFAR-10's training set has five files, CIFAR-100's has one: a hundred records either way.
RECORDS_PER_FILE = {"cifar10": 20, "cifar100": 100}


def write_cifar(
    directory: str | Path,
    dataset: str,
    layout: Layout,
    records_per_file: int | None = None,
    seed: int = 0,
) -> tuple[Path, ...]:
    """Write all training and test files of a data set into the directory; return their paths.

    A class has a colour of its own, under noise, so that a loss can fall, but not to 0. Each class
    is as frequent in a split as any other, give or take one record. The same arguments give the
    same bytes. The default is 20 records per file for "cifar10" and 100 for "cifar100".
    Raises DataError if one of the files exists already, or if a number is out of range.
    """
    form = format_of(dataset)
    count = RECORDS_PER_FILE[dataset] if records_per_file is None else records_per_file
    if count < 1 or seed < 0:
        raise DataError(
            f"{count} records a file, seed {seed}: at least one record, and no negative number"
        )
    names = form.names[layout]
    folder = Path(directory)
    paths = tuple(folder / name for name in names.train + names.test)
    for path in paths:
        if path.exists():
            raise DataError(f"{path}: exists already; choose an empty directory")
    folder.mkdir(parents=True, exist_ok=True)

    write = _write_binary if layout is Layout.BINARY else _write_pickle
    rng = np.random.default_rng(seed)
    train = _sample(form, count * len(names.train), rng)
    test = _sample(form, count * len(names.test), rng)
    tables = np.split(train, len(names.train)) + np.split(test, len(names.test))
    for path, table in zip(paths, tables):
        write(path, table, form)
    return paths


def _sample(form: Format, count: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return records of the binary layout, uint8 [count, record_bytes]."""
    fine = rng.permutation(np.arange(count) % form.classes)
    # Digits of the class to base 5, one per channel: 125 colours, 40 grey levels apart.
    digits = np.stack([fine % 5, fine // 5 % 5, fine // 25], axis=1)
    colours = np.repeat(
        48 + 40 * digits + rng.normal(0, TINT, (count, 3)), PIXEL_BYTES // 3, axis=1
    )
    pixels = np.clip(colours + rng.integers(-32, 33, size=(count, PIXEL_BYTES)), 0, 255)
    columns = [fine[:, None], pixels]
    if "coarse_labels" in form.labels:
        columns.insert(0, fine[:, None] * COARSE_CLASSES // form.classes)
    table: npt.NDArray[np.uint8] = np.concatenate(columns, axis=1).astype(np.uint8)
    return table


def _write_binary(path: Path, table: npt.NDArray[np.uint8], form: Format) -> None:
    path.write_bytes(table.tobytes())


def _write_pickle(path: Path, table: npt.NDArray[np.uint8], form: Format) -> None:
    content: dict[str, Any] = {"batch_label": path.name}
    for column, name in enumerate(form.labels):
        content[name] = table[:, column].tolist()
    content["data"] = np.ascontiguousarray(table[:, len(form.labels) :])
    content["filenames"] = [f"sample_{i:05d}.png" for i in range(len(table))]
    path.write_bytes(pickle.dumps(content, protocol=2))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hvdperf.models.inputs.samples", description="Write small valid CIFAR files."
    )
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--dataset", choices=tuple(FORMATS), default="cifar10")
    parser.add_argument(
        "--layout", choices=[layout.value for layout in Layout], default=Layout.BINARY.value
    )
    parser.add_argument(
        "--records-per-file", type=int, metavar="N", help="default: 100 training records in all"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)

    def write() -> str:
        paths = write_cifar(
            options.directory,
            options.dataset,
            Layout(options.layout),
            options.records_per_file,
            options.seed,
        )
        return f"{len(paths)} files of {options.dataset} in {options.directory}"

    return finish(write)


if __name__ == "__main__":
    sys.exit(main())
