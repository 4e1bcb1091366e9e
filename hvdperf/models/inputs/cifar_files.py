"""CIFAR-10 and CIFAR-100 on disk: find the files, check them, read them. No TensorFlow here.

Both data sets are published in two layouts (https://www.cs.toronto.edu/~kriz/cifar.html):

- binary: records of label bytes (CIFAR-10: one; CIFAR-100: coarse, then fine) and 3072 pixel
  bytes, the red, the green and the blue plane, each 32 x 32, row by row;
- pickle: dictionaries of `data`, uint8 [n, 3072] in the same order of pixels, and `labels`
  (CIFAR-100: `coarse_labels` and `fine_labels`), written by Python 2.
"""

from __future__ import annotations

import codecs
import io
import os
import pickle
import pickletools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs import DataError, faulty, or_sample, unreadable

PIXEL_BYTES = 3 * 32 * 32
COARSE_CLASSES = 20
# Files above this size are not read. The largest file of CIFAR has 155 MB.
MOST_BYTES = 256 << 20


class Layout(Enum):
    BINARY = "binary"
    PICKLE = "pickle"


class Split(Enum):
    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True)
class Names:
    """The folder and the files that a published archive unpacks to."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """The properties that every copy of a data set has.

    labels: names of the labels of a record; the last one is trained on. limits: for each label, the
    number of its values, which begin at 0. names: of the files in each layout.
    """

    dataset: str
    classes: int
    labels: tuple[str, ...]
    limits: tuple[int, ...]
    names: dict[Layout, Names]

    @property
    def record_bytes(self) -> int:
        return len(self.labels) + PIXEL_BYTES


FORMATS: dict[str, Format] = {
    "cifar10": Format(
        dataset="cifar10",
        classes=10,
        labels=("labels",),
        limits=(10,),
        names={
            Layout.BINARY: Names(
                "cifar-10-batches-bin",
                tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
                ("test_batch.bin",),
            ),
            Layout.PICKLE: Names(
                "cifar-10-batches-py",
                tuple(f"data_batch_{i}" for i in range(1, 6)),
                ("test_batch",),
            ),
        },
    ),
    "cifar100": Format(
        dataset="cifar100",
        classes=100,
        labels=("coarse_labels", "fine_labels"),
        limits=(COARSE_CLASSES, 100),
        names={
            Layout.BINARY: Names("cifar-100-binary", ("train.bin",), ("test.bin",)),
            Layout.PICKLE: Names("cifar-100-python", ("train",), ("test",)),
        },
    ),
}


@dataclass(frozen=True)
class CifarFiles:
    """A data set that was found and checked.

    record_bytes: length of a record in the binary layout, labels included, whichever layout the
    files have. train_records, test_records: number of records in all files of a split.
    """

    dataset: str
    layout: Layout
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    classes: int
    record_bytes: int
    train_records: int
    test_records: int

    @property
    def label_bytes(self) -> int:
        return self.record_bytes - PIXEL_BYTES

    def paths(self, split: Split) -> tuple[Path, ...]:
        return self.train if split is Split.TRAIN else self.test

    def number(self, split: Split) -> int:
        """Return how many records a split has."""
        return self.train_records if split is Split.TRAIN else self.test_records


def format_of(dataset: str) -> Format:
    """Return the format of "cifar10" or "cifar100". Raises DataError for any other name."""
    if dataset not in FORMATS:
        raise DataError(f"unknown data set {dataset!r}: known are {', '.join(FORMATS)}")
    return FORMATS[dataset]


def locate(data_dir: str | Path, dataset: str) -> CifarFiles:
    """Find "cifar10" or "cifar100" in data_dir, or in the folder its archive unpacks to.

    Every file is read once and checked. If both layouts are there, the binary one is taken.
    Raises DataError, in one line, for a directory without the whole data set and for a file
    that is empty, cut short, of another format or with a label out of range.
    """
    form = format_of(dataset)
    root = Path(data_dir)
    if not os.path.isdir(root):
        raise faulty(root, "no such directory", _make_samples(form))
    incomplete = None
    for layout, names in form.names.items():
        for folder in (root, root / names.folder):
            train = tuple(folder / name for name in names.train)
            test = tuple(folder / name for name in names.test)
            missing = [path for path in train + test if not os.path.isfile(path)]
            if not missing:
                return _checked(form, layout, train, test)
            if incomplete is None and len(missing) < len(train + test):
                incomplete = missing[0]
    if incomplete is not None:
        raise faulty(incomplete, f"missing, though other {dataset} files are there", _FETCH)
    looked_for = " or ".join(names.train[0] for names in form.names.values())
    raise faulty(root, f"holds no {dataset} (looked for {looked_for})", _make_samples(form))


def records(files: CifarFiles, split: Split) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return (images uint8 [n, 32, 32, 3], labels int64 [n]) in the order of the files.

    CIFAR-100's labels are the fine ones. Raises DataError as `locate` does.
    """
    table = rows(files, split)
    planes = table[:, files.label_bytes :].reshape(-1, 3, 32, 32)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, table[:, files.label_bytes - 1].astype(np.int64)


def rows(files: CifarFiles, split: Split) -> npt.NDArray[np.uint8]:
    """Return the records of either layout as those of the binary one, uint8 [n, record_bytes], in
    file order."""
    form = format_of(files.dataset)
    return np.concatenate([_rows(path, form, files.layout) for path in files.paths(split)])


_FETCH = "fetch and unpack the archive again"


def _make_samples(form: Format) -> str:
    return f"unpack {form.names[Layout.BINARY].folder} there, {or_sample(form.dataset)}"


def _checked(
    form: Format, layout: Layout, train: tuple[Path, ...], test: tuple[Path, ...]
) -> CifarFiles:
    return CifarFiles(
        dataset=form.dataset,
        layout=layout,
        train=train,
        test=test,
        classes=form.classes,
        record_bytes=form.record_bytes,
        train_records=sum(len(_rows(path, form, layout)) for path in train),
        test_records=sum(len(_rows(path, form, layout)) for path in test),
    )


def _really(form: Format) -> str:
    return f"is it really {form.dataset}? if so, {_FETCH}"


def _content(path: Path, form: Format) -> bytes:
    """Return the bytes of a file. Raises DataError if the file cannot be read, is empty, or is
    larger than MOST_BYTES."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            fault = f"{size} bytes, but such a file has at most {MOST_BYTES}"
            raise faulty(path, fault, _really(form))
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if not content:
        raise faulty(path, "empty", _really(form))
    return content


def _rows(path: Path, form: Format, layout: Layout) -> npt.NDArray[np.uint8]:
    """Return one file's records, uint8 [n, record_bytes] with n >= 1 and every label in range."""
    content = _content(path, form)
    read = _binary_rows if layout is Layout.BINARY else _pickle_rows
    table = read(path, content, form)
    for column, (label, limit) in enumerate(zip(form.labels, form.limits)):
        wrong = np.flatnonzero(table[:, column] >= limit)
        if wrong.size:
            where, value = wrong[0], table[wrong[0], column]
            fault = f"record {where} has {value} for {label}, not 0..{limit - 1}"
            raise faulty(path, fault, _really(form))
    return table


def _binary_rows(path: Path, content: bytes, form: Format) -> npt.NDArray[np.uint8]:
    if len(content) % form.record_bytes:
        fault = f"{len(content)} bytes are not a whole number of {form.record_bytes}-byte records"
        raise faulty(path, fault, _really(form))
    return np.frombuffer(content, np.uint8).reshape(-1, form.record_bytes)


def _pickle_rows(path: Path, content: bytes, form: Format) -> npt.NDArray[np.uint8]:
    try:
        _check_memo(content)
        loaded = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        # Damaged bytes can make an unpickler raise almost anything, as its documentation warns.
        reason = str(error) if isinstance(error, _Refused) else "truncated, or not a pickle"
        raise faulty(path, f"cannot be unpickled ({reason})", _FETCH) from error
    if not isinstance(loaded, dict):
        raise faulty(path, "does not hold a dictionary", _FETCH)
    fields = {_text(key): value for key, value in loaded.items()}
    try:
        pixels = _pixels(fields.get("data"))
        labels = [_labels(fields.get(name), len(pixels)) for name in form.labels]
    except _Refused as error:
        raise faulty(path, str(error), _really(form)) from error
    return np.concatenate([np.stack(labels, axis=1), pixels], axis=1)


def _check_memo(content: bytes) -> None:
    """Raise ValueError for a pickle that is damaged, or that keeps an object under a number beyond
    its length: the unpickler would allocate gigabytes for it."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise ValueError(f"number {argument} of {len(content)}")


def _text(value: Any) -> Any:
    """Return bytes as text. Python 2's str is bytes here; fields may be named by either type."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _pixels(data: Any) -> npt.NDArray[np.uint8]:
    if not isinstance(data, _Array):
        raise _Refused("its data is not an array")
    pixels = data.values
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXEL_BYTES:
        raise _Refused(f"its data is {pixels.dtype} {list(pixels.shape)}, not uint8 [n, 3072]")
    if not len(pixels):
        raise _Refused("its data has no record")
    return pixels


def _labels(values: Any, count: int) -> npt.NDArray[np.uint8]:
    """Return the labels of all records, uint8 [count], from a list or an array."""
    if isinstance(values, _Array):
        values = values.values.tolist()
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise _Refused(f"it has no list of {count} labels")
    for record, value in enumerate(values):
        if not isinstance(value, int):
            raise _Refused(f"record {record} has a label that is not an integer")
        if not 0 <= value <= 255:
            raise _Refused(f"record {record} has a label outside 0..255")
    return np.array(values, np.uint8)


class _Refused(pickle.UnpicklingError):
    """The pickle is sound but holds something other than a CIFAR batch."""


class _Dtype:
    """A stand-in for numpy.dtype: damaged bytes make NumPy's own objects crash the process."""

    def __init__(self, code: Any, *_: Any) -> None:
        self._code = _text(code)
        self._order = "|"

    def __setstate__(self, state: Sequence[Any]) -> None:
        self._order = _text(state[1])

    def numpy(self) -> np.dtype[Any]:
        if not re.fullmatch("[ui][1248]", self._code) or self._order not in ("|", "<", ">", "="):
            raise _Refused(f"it holds an array of {self._code[:80]!r}")
        found: np.dtype[Any] = np.dtype(self._order + self._code)
        return found


class _Array:
    """A stand-in for numpy.ndarray and for the function that makes an empty array."""

    def __init__(self, *_: Any) -> None:
        self.values: npt.NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, by_column, raw = state
        flat = np.frombuffer(raw, dtype.numpy())
        self.values = flat.reshape(shape, order="F" if by_column else "C")


_CLASSES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    # Python 3 writes bytes for Python 2 to read by this function.
    ("_codecs", "encode"): codecs.encode,
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that loads arrays of integers and Python's own types, and refuses the rest."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise _Refused(f"it refers to {f'{module}.{name}'[:80]!r}")
        return _CLASSES[module, name]
