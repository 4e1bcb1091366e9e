"""Writes a git repository with one commit and one tag a release, from which asv takes its x-axis.

The date, author and content of a commit follow from releases.toml alone, so its hash is the same on
every machine, and results that name it can be shared. Releases are only appended. A changed release
would change every later hash, so it is refused.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.history.releases import Release
from hvdperf.paths import shown

BRANCH = "main"
# The author of every commit: no person, since commits are releases.
_AUTHOR = "hvdperf <hvdperf@localhost>"


def write_repository(directory: Path, releases: Sequence[Release]) -> dict[str, str]:
    """Make the repository at `directory` hold these releases, oldest first. Commits that are there
    already stay as they are. Return the hashes of the commits, by version.

    Raises UserError if git is missing, if the directory cannot be written, or if the commits that
    are there are not the first of these releases.
    """
    if shutil.which("git") is None:
        raise UserError("git is missing, which asv needs: apt-get install git")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{shown(directory)} cannot be made: {error.strerror}") from None
    if not (directory / "HEAD").exists():
        _git(directory, "init", "--quiet", "--bare", f"--initial-branch={BRANCH}")
    try:
        # Import all commits every time: git keeps those that it has, and refuses different ones.
        _git(directory, "fast-import", "--quiet", "--date-format=raw", given=_stream(releases))
    except UserError as error:
        raise UserError(
            f"{error}. The repository is append only, and was made from other releases than "
            f"those of hvdperf/history/releases.toml: remove {shown(directory)}, and it will be "
            "written again"
        ) from None
    commits = dict(
        line.split(" ")
        for line in _git(
            directory, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags"
        ).splitlines()
    )
    return {release.version: commits[release.tag] for release in releases}


def _stream(releases: Sequence[Release]) -> str:
    """Return the releases as git fast-import reads them (git-fast-import(1))."""
    parts = [f"reset refs/heads/{BRANCH}\n"]
    for number, release in enumerate(releases, start=1):
        at = int(datetime.combine(release.released, time(12), UTC).timestamp())
        content = f"{release.package.value}=={release.version}\n"
        message = f"{release.package.value} {release.version}\n"
        parts += [
            f"commit refs/heads/{BRANCH}\n",
            f"mark :{number}\n",
            f"author {_AUTHOR} {at} +0000\n",
            f"committer {_AUTHOR} {at} +0000\n",
            f"data {len(message)}\n{message}",
            f"from :{number - 1}\n" if number > 1 else "",
            f"M 100644 inline release.txt\ndata {len(content)}\n{content}",
            f"\nreset refs/tags/{release.tag}\nfrom :{number}\n\n",
        ]
    return "".join(parts)


def _git(directory: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(directory), *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["git gave no reason"]
        raise UserError(f"{shown(directory)}: git {arguments[0]} failed: {last[0]}")
    return done.stdout
