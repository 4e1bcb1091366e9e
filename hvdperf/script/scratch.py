"""A copy of the directory in which a script is started, so that a run of it leaves no trace there.

Directories and small files are copied, so checkpoints and logs are written to the copy, and every
run begins with the same ones. Large files and installed environments are links.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.timeline.processes import Git

# A larger file is data, or a checkpoint, and is linked.
LINKED = 16 << 20
# What is copied for a run, at most: bytes and files.
MOST_BYTES, MOST_FILES = 256 << 20, 20_000
_IGNORED = frozenset({".git", "__pycache__", ".hg", ".svn"})


def repository(place: Path) -> Git | None:
    """Return the git repository that a directory is in; None without one."""
    for top in (place, *place.parents):
        if (top / ".git").exists():
            return Git(top / ".git", str(top), top)
    return None


def is_revision(repository: Git, name: str) -> bool:
    """Return whether a repository has a revision of that name. Raises UserError without git."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return repository.tried(*words).returncode == 0


def copy(source: Path, target: Path, without: Path) -> None:
    """Copy a directory for a run. without: a directory that is left out. Raises UserError if it
    holds more than is copied for every run."""
    size = Counter[str]()
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
            size[relative.parts[0]] += path.stat().st_size
            if size.total() > MOST_BYTES or files > MOST_FILES:
                largest = size.most_common(1)[0][0]
                raise UserError(
                    f"{source} holds more than is copied for every run ({MOST_BYTES >> 20} MiB in "
                    f"files of up to {LINKED >> 20} MiB, {MOST_FILES} files), most of it in "
                    f"{largest}; start the script in a directory that holds the script alone, and "
                    "name its data by an absolute path"
                )
            shutil.copy2(path, place)


def _entries(source: Path, without: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each file and directory, a directory before what it holds, with its path relative to
    the source."""
    waiting = [source]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.name in _IGNORED or path == without:
                continue
            yield path, path.relative_to(source)
            is_environment = (path / "pyvenv.cfg").exists()
            if path.is_dir() and not path.is_symlink() and not is_environment:
                waiting.append(path)


def put_revision(repository: Git, name: str, target: Path) -> None:
    """Replace the tracked files of a copy by those of a revision. target: the copy of the
    repository's work tree. Raises UserError."""
    for each in filter(None, repository.run("ls-files", "-z").split("\0")):
        (target / each).unlink(missing_ok=True)
    archive = target.with_suffix(".tar")
    repository.run("archive", f"--output={archive}", "--end-of-options", name)
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="tar")
    archive.unlink()
