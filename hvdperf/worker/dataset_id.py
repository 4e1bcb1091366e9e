"""What tells one copy of a data set from another, without reading all of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

# Of each file: headers, and enough of what follows.
BYTES_OF_A_FILE = 4096


def dataset_id(directory: Path, names: Sequence[str] = ()) -> str:
    """Of the files in a directory: how many, their size, and a hash of names, sizes and beginnings,
    such as `6 files, 18.4 MB, 0f3a5c7e9b1d2f48`. names: of those that the data set consists of,
    below the directory, of which one that is not there does not count; all of them if there are
    none. Raises OSError for one that cannot be read."""
    known = hashlib.sha256()
    files = sorted(_named(directory, names) if names else _visible(directory))
    total = 0
    for path in files:
        size = path.stat().st_size
        total += size
        with open(path, "rb") as stream:
            beginning = stream.read(BYTES_OF_A_FILE)
        known.update(os.fsencode(path.relative_to(directory)) + f"\0{size}\0".encode())
        known.update(hashlib.sha256(beginning).digest())
    return f"{len(files)} files, {total / 1e6:.1f} MB, {known.hexdigest()[:16]}"


def _named(directory: Path, names: Sequence[str]) -> list[Path]:
    return [path for path in (directory / name for name in names) if path.is_file()]


def _visible(directory: Path) -> list[Path]:
    return [path for path in files_of(directory) if not path.name.startswith(".")]


def files_of(directory: Path) -> Iterator[Path]:
    """All below it, also where a folder of it is a link to elsewhere, each folder once."""
    been = set()
    for folder, folders, names in os.walk(directory, followlinks=True):
        place = os.path.realpath(folder)
        if place in been:
            folders.clear()
            continue
        been.add(place)
        yield from (path for path in (Path(folder, name) for name in names) if path.is_file())
