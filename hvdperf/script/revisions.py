"""Revisions of the repository of a script."""

from __future__ import annotations

from pathlib import Path

from hvdperf.timeline.processes import Git
from hvdperf.worker.script.tap._hvdperf_private import ARCHIVE, REPLACED, top_of


def repository(place: Path) -> Git | None:
    """Return the git repository that a directory is in; None without one."""
    top = top_of(place)
    return Git(top / ".git", str(top), top) if (top / ".git").exists() else None


def is_revision(repository: Git, name: str) -> bool:
    """Return whether a repository has a revision of that name. Raises UserError without git."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return repository.tried(*words).returncode == 0


def commit_of(repository: Git, revision: str = "") -> str:
    """Return the commit of a revision, or else of the work tree, and whether that has changes."""
    commit = repository.run(
        "rev-parse", "--verify", "--short", "--end-of-options", revision or "HEAD"
    ).strip()
    has_changes = not revision and repository.run("status", "--porcelain", "-uno")
    return f"{commit} with changes" if has_changes else commit


def changed_python(repository: Git, revision: str) -> list[str]:
    """Return the Python files in which the work tree differs from a revision."""
    names = repository.run("diff", "--name-only", "-z", "--end-of-options", revision, "--")
    return [name for name in names.split("\0") if name.endswith(".py")]


def keep_revision(repository: Git, name: str, directory: Path) -> None:
    """Write the files of a revision to a directory, and the names of those that are tracked now.
    Raises UserError."""
    (directory / REPLACED).write_text(repository.run("ls-files", "-z"))
    repository.run("archive", f"--output={directory / ARCHIVE}", "--end-of-options", name)
