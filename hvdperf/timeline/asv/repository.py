"""Writes a git repository with one commit and one tag a release, from which asv takes its x-axis.

The date, author and content of a commit follow from releases.toml alone, so its hash is the same on
every machine, and results that name it can be shared. Releases are only appended. A changed release
would change every later hash, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.timeline import places
from hvdperf.timeline.git import Git
from hvdperf.timeline.releases.releases import Axis, Release, releases

BRANCH = "main"
# The author of every commit: no person, since commits are releases.
_AUTHOR = "hvdperf <hvdperf@localhost>"


def make_repositories() -> dict[Axis, dict[str, str]]:
    """Make the repositories of both packages' releases; return the commit of each version."""
    return {axis: write_repository(places.repository(axis), releases(axis)) for axis in Axis}


def write_repository(directory: Path, known: Sequence[Release]) -> dict[str, str]:
    """Make the repository at `directory` hold these releases, oldest first. Commits that are there
    already stay as they are. Return the hashes of the commits, by version.

    Raises UserError if git is missing, if the directory cannot be written, or if the commits that
    are there are not the first of these releases.
    """
    git = Git(directory, shown(directory))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{shown(directory)} cannot be made: {error.strerror}") from None
    if not (directory / "HEAD").exists():
        git.run("init", "--quiet", "--bare", f"--initial-branch={BRANCH}")
    # Import all commits every time: git keeps those that it has, and refuses different ones.
    words = ("fast-import", "--quiet", "--date-format=raw")
    done = git.tried(*words, given=_stream(known))
    if done.returncode != 0:
        raise UserError(
            f"{git.failed(words, done.stderr)}. The repository is append only, and was made from "
            "other releases than those of hvdperf/timeline/releases/releases.toml: remove "
            f"{shown(directory)}, and it will be written again"
        )
    tags = git.run("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags")
    commits = dict(line.split(" ") for line in tags.splitlines())
    return {release.version: commits[release.tag] for release in known}


def _stream(known: Sequence[Release]) -> str:
    """Return the releases as git fast-import reads them (git-fast-import(1))."""
    parts = [f"reset refs/heads/{BRANCH}\n"]
    for number, release in enumerate(known, start=1):
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
