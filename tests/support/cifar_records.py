"""The records of CIFAR as images and labels, and samples in both layouts."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs import Files, sample_sets
from hvdperf.models.inputs.cifar_files import FORMATS, Layout, rows


def records(files: Files, split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return (images uint8 [n, 32, 32, 3], labels int64 [n]) in the order of the files. CIFAR-100's
    labels are the fine ones."""
    table, labels = rows(files, split), FORMATS[files.dataset].label_bytes
    planes = table[:, labels:].reshape(-1, 3, 32, 32)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, table[:, labels - 1].astype(np.int64)


def write_cifar(
    directory: Path, dataset: str, layout: Layout = Layout.BINARY, records: int = 100, seed: int = 0
) -> tuple[Path, ...]:
    """Write a sample of a data set in a layout; return the paths of its files."""
    written, form = sample_sets.write_cifar(directory, dataset, records, seed), FORMATS[dataset]
    if layout is Layout.BINARY:
        return written
    paths = tuple(directory / name for name in form.names[layout][1])
    for binary, path in zip(written, paths, strict=True):
        table = np.frombuffer(binary.read_bytes(), np.uint8).reshape(-1, form.record_bytes)
        binary.unlink()
        content = {name: table[:, column].tolist() for column, name in enumerate(form.limits)}
        content["data"] = np.ascontiguousarray(table[:, form.label_bytes :])
        path.write_bytes(pickle.dumps(content, protocol=2))
    return paths
