"""Publishes nights to a git repository: documents and pages are added, and never changed.

Several runners may publish at once. Each works in a clone of its own, adds its files on top of what
the others have pushed, and pushes; if somebody was faster, it begins again from their state. So
there is nothing to merge, and nothing is ever forced.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable
from hvdperf.nightly.index import write_index
from hvdperf.nightly.night import (
    ACCEPTED,
    BRANCH,
    NIGHTS,
    read_accepted,
    read_night,
    write_accepted,
)
from hvdperf.paths import shown

PAGES = "pages"
# How often a push is tried, and the longest pause before the next try in seconds.
TRIES, LONGEST_PAUSE_S = 20, 5.0
# Seconds that a command of git may take.
_DEADLINE_S = 600.0
# The number of added nights that are named.
_NAMED = 3
# What a hook of git that runs this command would hand on.
_OF_OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
_AUTHOR = ("-c", "user.name=hvdperf", "-c", "user.email=hvdperf@localhost")


@dataclass(frozen=True)
class Place:
    """Where nights are published. url: of the repository, as git takes it. clone: the directory for
    a clone of it."""

    url: str
    branch: str
    clone: Path


def place_of(url: str, results: Path, branch: str = BRANCH) -> Place:
    """Return the place of a repository. results: the results directory, which keeps the clone."""
    return Place(url, branch, results / NIGHTS / ".published")


def publish(place: Place, results: Path, say: Callable[[str], None]) -> list[str]:
    """Publish every ended night of a results directory that is not there yet, with the pages of its
    sessions. Return the nights that were added, such as `a100 2026-11-24`.

    Raises UserError if git fails, or if others are always faster.
    """
    with _alone(place):
        for attempt in range(TRIES):
            _fetch(place)
            added = list(_add(place.clone, results, say))
            write_index(
                place.clone / "index.html",
                place.clone / NIGHTS,
                place.clone / PAGES,
                place.clone / "asv",
                datetime.now(UTC).date(),
            )
            if not _commit(place, added) or _push(place):
                return added
            pause = random.uniform(0, min(LONGEST_PAUSE_S, 0.2 * 2**attempt))
            say(f"others published at the same time; trying again in {pause:.1f} s")
            time.sleep(pause)
    raise UserError(f"{without_secret(place.url)}: others were faster {TRIES} times; publish again")


def fetched(place: Place) -> Path:
    """Return the directory of the published nights, brought up to date. Raises UserError."""
    with _alone(place):
        _fetch(place)
    return place.clone / NIGHTS


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    """Wait for other processes that use the clone, and keep them out."""
    try:
        place.clone.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{shown(place.clone)} cannot be made: {error.strerror}") from None
    with open(place.clone.with_name(f"{place.clone.name}.lock"), "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _fetch(place: Place) -> None:
    """Make the clone equal to the branch of the repository; empty if there is no such branch."""
    # It completes what an interrupted one has left, and changes nothing that is whole.
    _git(place, "init", "-q", "-b", place.branch)
    # A git that was killed has left its locks, and no other process works here.
    for lock in (place.clone / ".git").rglob("*.lock"):
        lock.unlink()
    known = _git(place, "ls-remote", "--heads", place.url, f"refs/heads/{place.branch}")
    # What an interrupted publishing has left is in the results, too.
    if known.strip():
        _git(
            place, "fetch", "-q", "--no-tags", "--depth=1", place.url, f"refs/heads/{place.branch}"
        )
        _git(place, "reset", "-q", "--hard", "FETCH_HEAD")
    else:
        _run(place, "update-ref", "-d", "HEAD")  # fails where nothing was committed yet
        _git(place, "rm", "-rfq", "--cached", "--ignore-unmatch", ".")
    _git(place, "clean", "-fdqx")


def _add(clone: Path, results: Path, say: Callable[[str], None]) -> Iterator[str]:
    """Copy what is not in the clone yet."""
    for path in sorted((results / NIGHTS).glob("*/*.json")):
        try:
            night = read_night(path)
        except Unreadable as error:
            say(f"{shown(path)}: left out: {error}")
            continue
        to = clone / NIGHTS / path.parent.name / path.name
        if night.ended_at is None:
            continue
        if to.exists():
            if to.read_bytes() != path.read_bytes():
                say(
                    f"{shown(path)}: another night of {night.series} is published for this date; "
                    "give each machine a --series of its own"
                )
            continue
        _copy(path, to)
        for part in night.parts:
            page = results / "report" / f"{part.session}.html"
            if page.exists() and not (clone / PAGES / page.name).exists():
                _copy(page, clone / PAGES / page.name)
        yield f"{night.series} {night.night}"
    for path in sorted((results / NIGHTS).glob(f"*/{ACCEPTED}")):
        to = clone / NIGHTS / path.parent.name
        # Only a later date is news: another machine may have accepted more.
        if to.is_dir() and (date := read_accepted(path.parent)) > read_accepted(to):
            write_accepted(to, date)
            yield f"{path.parent.name} accepted up to {date}"


def _copy(path: Path, to: Path) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
    except OSError as error:
        raise UserError(f"{shown(to)} cannot be written: {error.strerror}") from None


def _commit(place: Place, added: Sequence[str]) -> bool:
    """Commit what is new; return whether anything is."""
    _git(place, "add", "-A", ".")
    if not _git(place, "status", "--porcelain").strip():
        return False
    _git(place, *_author(place), "commit", "-q", "-m", told(added) or "index")
    return True


def told(added: Sequence[str]) -> str:
    """Return the added nights in a few words."""
    return ", ".join(added) if len(added) <= _NAMED else f"{len(added)} nights"


def _author(place: Place) -> Sequence[str]:
    """Return options that name an author where git knows none."""
    known = _run(place, "config", "user.email")
    return () if known.returncode == 0 else _AUTHOR


def _push(place: Place) -> bool:
    """Push; return False if somebody else has pushed meanwhile. Raises UserError if it fails for
    another reason."""
    done = _run(place, "push", "-q", place.url, f"HEAD:refs/heads/{place.branch}")
    if done.returncode == 0:
        return True
    # git's words for a branch that has moved, from either side, or that is being moved.
    moved = ("non-fast-forward", "fetch first", "cannot lock ref", "failed to update ref")
    if any(word in done.stderr for word in moved):
        return False
    raise _failed(place, "push", done.stderr)


def _git(place: Place, *words: str) -> str:
    done = _run(place, *words)
    if done.returncode != 0:
        command = next(word for word in words if word.isalpha() or word == "ls-remote")
        raise _failed(place, command, done.stderr)
    return done.stdout


def _run(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    # Without a terminal git must not ask for a password, which nobody would answer.
    own = {name: value for name, value in os.environ.items() if name not in _OF_OTHERS}
    environment = {**own, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    # Named, because git would else look for a repository in the directories above.
    here = [f"--git-dir={place.clone / '.git'}", f"--work-tree={place.clone}"]
    try:
        return subprocess.run(
            ["git", *here, *words],
            cwd=place.clone,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment,
            timeout=_DEADLINE_S,
        )
    except FileNotFoundError:
        raise UserError("git is not installed: apt-get install git") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"git {words[0]} did not end in {_DEADLINE_S:.0f} s") from None


def without_secret(url: str) -> str:
    """Return an address without the name and password in it."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def _failed(place: Place, what: str, said: str) -> UserError:
    lines = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
    told = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
    return UserError(f"{without_secret(place.url)}: git {what}: {without_secret(told)}")
