"""The records of CIFAR as images and labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hvdperf.models.inputs import Files
from hvdperf.models.inputs.cifar_files import FORMATS, rows


def records(files: Files, split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return (images uint8 [n, 32, 32, 3], labels int64 [n]) in the order of the files. CIFAR-100's
    labels are the fine ones."""
    table, labels = rows(files, split), FORMATS[files.dataset].label_bytes
    planes = table[:, labels:].reshape(-1, 3, 32, 32)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, table[:, labels - 1].astype(np.int64)
