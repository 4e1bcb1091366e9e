"""Revisions of the repository of a script, of which a copy is run."""

from __future__ import annotations

import tarfile
from pathlib import Path

from hvdperf.timeline.processes import Git
from hvdperf.worker.script.copies import top_of


def repository(place: Path) -> Git | None:
    """Return the git repository that a directory is in; None without one."""
    top = top_of(place)
    return Git(top / ".git", str(top), top) if (top / ".git").exists() else None


def is_revision(repository: Git, name: str) -> bool:
    """Return whether a repository has a revision of that name. Raises UserError without git."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return repository.tried(*words).returncode == 0


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
