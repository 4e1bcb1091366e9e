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
import pickle
import pickletools
import re
from collections.abc import Sequence
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
# Files above this size are not read. The largest file of CIFAR has 155 MB.
MOST_BYTES = 256 << 20


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


_FETCH = "fetch and unpack the archive again"


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


def _rows(path: Path, form: Format, layout: Enum | None) -> npt.NDArray[np.uint8]:
    """Return one file's records, uint8 [n, record_bytes] with n >= 1 and every label in range."""
    read = _binary_rows if layout is Layout.BINARY else _pickle_rows
    table = read(path, _content(path, form), form)
    for column, (label, limit) in enumerate(form.limits.items()):
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
        labels = [_labels(fields.get(name), len(pixels)) for name in form.limits]
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
