"""A copy of the directory of a script, so that a run of it leaves no trace there.

Directories and small files are copied, so checkpoints and logs are written to the copy, and every
run begins with the same ones. Large files and installed environments are links. Hidden directories,
such as .git and .cache, are left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class TooLarge(ValueError):
    """A directory holds more than is copied for every run."""


# A larger file is data, or a checkpoint, and is linked.
LINKED = 16 << 20
# What is copied for a run, at most: bytes and files.
MOST_BYTES, MOST_FILES = 256 << 20, 20_000


def top_of(place: Path) -> Path:
    """Return the directory that a script in `place` belongs to: the top of its git repository, if
    it is in one, and not in a hidden directory there."""
    tops = (top for top in (place, *place.parents) if (top / ".git").exists())
    top = next(tops, place)
    hidden = any(part.startswith(".") for part in place.relative_to(top).parts)
    return place if hidden else top


def copy(source: Path, target: Path, without: Path | None = None) -> None:
    """Copy a directory for a run. without: a directory that is left out. Raises TooLarge, and
    OSError."""
    target.mkdir(parents=True, exist_ok=True)
    size: dict[str, int] = {}
    files = 0
    for path, relative in _entries(source, without):
        place = target / relative
        if path.is_symlink():
            place.symlink_to(os.readlink(path))
        elif path.is_dir() and (path / "pyvenv.cfg").exists():
            place.symlink_to(path)
        elif path.is_dir():
            place.mkdir()
        elif path.stat().st_size > LINKED:
            place.symlink_to(path)
        elif path.is_file():
            files += 1
            first = relative.parts[0]
            size[first] = size.get(first, 0) + path.stat().st_size
            if sum(size.values()) > MOST_BYTES or files > MOST_FILES:
                largest = max(size, key=lambda name: size[name])
                raise TooLarge(
                    f"{source} holds more than is copied for every run ({MOST_BYTES >> 20} MiB in "
                    f"files of up to {LINKED >> 20} MiB, {MOST_FILES} files), most of it in "
                    f"{largest}; start the script in a directory that holds the script alone, and "
                    "name its data by an absolute path"
                )
            shutil.copy2(path, place)


def _entries(source: Path, without: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield each file and directory, a directory before what it holds, with its path relative to
    the source."""
    waiting = [source]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            is_environment = (path / "pyvenv.cfg").exists()
            is_hidden = path.name.startswith(".") or path.name == "__pycache__"
            if path == without or (path.is_dir() and is_hidden and not is_environment):
                continue
            yield path, path.relative_to(source)
            if path.is_dir() and not path.is_symlink() and not is_environment:
                waiting.append(path)
