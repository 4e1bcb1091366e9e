"""Other data of the same form: the files of a data set under each other's names."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from hvdperf.worker.dataset_id import files_of
from models.inputs.errors import DataError


def can_swap(directory: str) -> bool:
    """Return whether two files of a directory are equally large; "" stands for made-up data, which
    has no files."""
    return any(len(group) > 1 for group in _alike(directory))


def other_data(directory: str, into: Path) -> Path:
    """Fill `into` with links to the files of a directory, and return it.

    Files that are equally large, such as the parts of CIFAR-10, have swapped names. Raises
    DataError if there are no such files, and OSError if a link cannot be written.
    """
    if not can_swap(directory):
        raise DataError(
            f"{directory or 'made-up data'}: no two files are equally large, so none can take the "
            "other's place; plant other data into CIFAR-10"
        )
    for group in _alike(directory):
        for named, holding in zip(group, [*group[1:], group[0]], strict=True):
            link = into / named.relative_to(directory)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(holding.resolve())
    return into


def _alike(directory: str) -> list[list[Path]]:
    """Return the files of a directory in groups of the same size."""
    files = sorted(files_of(Path(directory))) if directory else []
    return [list(group) for _, group in groupby(sorted(files, key=_size), key=_size)]


def _size(path: Path) -> int:
    return path.stat().st_size
