"""CIFAR-10 and CIFAR-100 on disk: find the files, check them, read them. No TensorFlow here.

Both data sets are published in two layouts (https://www.cs.toronto.edu/~kriz/cifar.html):

- binary: records of label bytes (CIFAR-10: one; CIFAR-100: coarse, then fine) and 3072 pixel
  bytes, the red, the green and the blue plane, each 32 x 32, row by row;
- pickle: dictionaries of `data`, uint8 [n, 3072] in the same order of pixels, and `labels`
  (CIFAR-100: `coarse_labels` and `fine_labels`), written by Python 2.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvdperf.models import inputs
from hvdperf.models.inputs import Files, faulty, unreadable

PIXEL_BYTES = 3 * 32 * 32
COARSE_CLASSES = 20


class Layout(Enum):
    BINARY = "binary"
    PICKLE = "pickle"


@dataclass(frozen=True)
class Format:
    """The properties that every copy of a data set has.

    dataset: its name. limits: by label of a record, the number of its values, which begin at 0; the
    last label is trained on. names: by layout, the folder and the files that a published archive
    unpacks to; the last file is the one to validate with.
    """

    dataset: str
    limits: dict[str, int]
    names: dict[Layout, tuple[str, tuple[str, ...]]]

    @property
    def classes(self) -> int:
        return self.limits[list(self.limits)[-1]]

    @property
    def label_bytes(self) -> int:
        return len(self.limits)

    @property
    def record_bytes(self) -> int:
        """Length of a record in the binary layout, labels included."""
        return self.label_bytes + PIXEL_BYTES

    def paths(self, layout: Layout, folder: Path) -> dict[str, tuple[Path, ...]]:
        """Return the files in a folder, by split."""
        *train, test = (folder / name for name in self.names[layout][1])
        return {inputs.TRAIN: tuple(train), inputs.VALIDATION: (test,)}


_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
FORMATS: dict[str, Format] = {
    form.dataset: form
    for form in (
        Format(
            "cifar10",
            {"labels": 10},
            {
                Layout.BINARY: ("cifar-10-batches-bin", tuple(f"{b}.bin" for b in _BATCHES)),
                Layout.PICKLE: ("cifar-10-batches-py", _BATCHES),
            },
        ),
        Format(
            "cifar100",
            {"coarse_labels": COARSE_CLASSES, "fine_labels": 100},
            {
                Layout.BINARY: ("cifar-100-binary", ("train.bin", "test.bin")),
                Layout.PICKLE: ("cifar-100-python", ("train", "test")),
            },
        ),
    )
}


def locate(directory: str | Path, dataset: str) -> Files:
    """Find "cifar10" or "cifar100" in the directory, or in the folder its archive unpacks to.

    Every file is read once and checked. If both layouts are there, the binary one is taken.
    Raises DataError, in one line, for a directory without the whole data set and for a file
    that is empty, cut short, of another format or with a label out of range.
    """
    form, root = FORMATS[dataset], Path(directory)
    candidates = (
        Files(dataset, form.paths(layout, place), layout=layout)
        for layout, (folder, _) in form.names.items()
        for place in (root, root / folder)
    )
    folder, _ = form.names[Layout.BINARY]
    remedy = f"unpack {folder} there, {inputs.or_sample(dataset)}"
    files = inputs.first_whole(root, candidates, remedy)
    return replace(files, counts={split: len(rows(files, split)) for split in files.paths})


def rows(files: Files, split: str) -> npt.NDArray[np.uint8]:
    """Return the records of either layout as those of the binary one, uint8 [n, record_bytes], in
    file order. Raises DataError as `locate` does."""
    form = FORMATS[files.dataset]
    return np.concatenate([_rows(path, form, files.layout) for path in files.paths[split]])


class _Refused(ValueError):
    """A file is not one of CIFAR; the message says why."""


def _rows(path: Path, form: Format, layout: Enum | None) -> npt.NDArray[np.uint8]:
    """Return one file's records, uint8 [n, record_bytes] with n >= 1 and every label in range."""
    read = _read_binary if layout is Layout.BINARY else _read_pickle
    try:
        labels, pixels = read(path.read_bytes(), form)
        for column, (label, limit) in enumerate(form.limits.items()):
            wrong = np.flatnonzero((labels[:, column] < 0) | (labels[:, column] >= limit))
            if wrong.size:
                where, value = wrong[0], labels[wrong[0], column]
                raise _Refused(f"record {where} has {value} for {label}, not 0..{limit - 1}")
    except OSError as error:
        raise unreadable(path, error) from error
    except _Refused as error:
        remedy = f"is it really {form.dataset}? if so, fetch and unpack the archive again"
        raise faulty(path, str(error), remedy) from error
    return np.concatenate([labels.astype(np.uint8), pixels], axis=1)


def _read_binary(content: bytes, form: Format) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return labels [n, labels] and pixels [n, PIXEL_BYTES]."""
    if not content:
        raise _Refused("empty")
    if len(content) % form.record_bytes:
        size = form.record_bytes
        raise _Refused(f"{len(content)} bytes are not a whole number of {size}-byte records")
    table = np.frombuffer(content, np.uint8).reshape(-1, form.record_bytes)
    return table[:, : form.label_bytes], table[:, form.label_bytes :]


def _read_pickle(content: bytes, form: Format) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return labels [n, labels] and pixels [n, PIXEL_BYTES]. Nothing is unpickled, which could run
    anything: the pixels are the one long string of a file, and the numbers after the name of a
    label are that of each record."""
    numbers: dict[bytes, list[int]] = {}
    name = pixels = b""
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if isinstance(argument, (str, bytes)):
                name = argument.encode("latin-1") if isinstance(argument, str) else argument
                pixels = name if len(name) >= PIXEL_BYTES else pixels
            elif opcode.name in _NUMBERS and argument is not None:
                numbers.setdefault(name, []).append(argument)
        labels = np.array([numbers[label.encode()] for label in form.limits]).T
        values = np.frombuffer(pixels, np.uint8).reshape(len(labels), PIXEL_BYTES)
    except (ValueError, KeyError) as error:
        names = " and ".join(form.limits)
        raise _Refused(f"is truncated, or has no data with {names}") from error
    return labels, values


_NUMBERS = ("BININT", "BININT1", "BININT2")
