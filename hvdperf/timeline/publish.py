"""Publishes the store to a branch of a git repository: documents and pages are added, and never
changed; only the index and the pages of series are written anew.

Several runners may publish at once. Each works in a clone of its own, adds its files on top of what
the others have pushed, and pushes; if somebody was faster, it begins again from their state. So
there is nothing to merge, and nothing is ever forced. Pages follow in a commit of their own.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hvdperf.errors import UserError, refusing
from hvdperf.paths import shown
from hvdperf.timeline import store
from hvdperf.timeline.nights import night
from hvdperf.timeline.pages import write_index
from hvdperf.timeline.processes import Git, without_secret

PAGES = "pages"
# How often a push is tried, and the longest pause before the next try in seconds.
TRIES, LONGEST_PAUSE_S = 20, 5.0
# The number of added documents that are named.
_NAMED = 3
_AUTHOR = ("-c", "user.name=hvdperf", "-c", "user.email=hvdperf@localhost")
# git's words for a branch that has moved, from either side, or that is being moved.
_MOVED = ("non-fast-forward", "fetch first", "cannot lock ref", "failed to update ref")


@dataclass(frozen=True)
class Place:
    """Where documents are published. url: of the repository, as git takes it. results: the results
    directory, which keeps a clone of it."""

    url: str
    results: Path

    @property
    def clone(self) -> Path:
        return self.results / store.NIGHTS / ".published"

    @property
    def lock(self) -> Path:
        return self.clone.with_name(f"{self.clone.name}.lock")

    @property
    def git(self) -> Git:
        return Git(self.clone / ".git", without_secret(self.url), self.clone)


def publish(place: Place, say: Callable[[str], None]) -> list[str]:
    """Publish every ended night of a results directory that is not there yet, with the pages of its
    sessions. Return what was added, such as `a100 2026-11-24`.

    Raises UserError if git fails, or if others are always faster.
    """
    with store.alone(place.lock):
        for attempt in range(TRIES):
            _fetch(place)
            added = list(_add(place.clone, place.results, say))
            if not _commit(place.git, added) or _push(place):
                # Pages take a second or more for each series. If others push meanwhile, theirs have
                # these documents, too.
                clone, today = place.clone, datetime.now(UTC).date()
                write_index(clone / store.INDEX, clone, clone / PAGES, today)
                if _commit(place.git, ()):
                    _push(place)
                return added
            pause = random.uniform(0, min(LONGEST_PAUSE_S, 0.2 * 2**attempt))
            say(f"others published at the same time; trying again in {pause:.1f} s")
            time.sleep(pause)
    raise UserError(f"{without_secret(place.url)}: others were faster {TRIES} times; publish again")


def fetched(place: Place) -> Path:
    """Return the directory of the published nights, brought up to date. Raises UserError."""
    with store.alone(place.lock):
        _fetch(place)
    return place.clone / store.NIGHTS


def _fetch(place: Place) -> None:
    """Make the clone equal to the branch of the repository; empty if there is no such branch."""
    git, head = place.git, f"refs/heads/{night.BRANCH}"
    with refusing(f"{shown(place.clone)} cannot be made: ", OSError):
        place.clone.mkdir(exist_ok=True)
    # It completes what an interrupted one has left, and changes nothing that is whole.
    git.run("init", "-q", "-b", night.BRANCH)
    # A git that was killed has left its locks, and no other process works here.
    for lock in git.directory.rglob("*.lock"):
        lock.unlink()
    # What an interrupted publishing has left is in the results, too.
    if git.run("ls-remote", "--heads", place.url, head).strip():
        git.run("fetch", "-q", "--no-tags", "--depth=1", place.url, head)
        git.run("reset", "-q", "--hard", "FETCH_HEAD")
    else:
        git.tried("update-ref", "-d", "HEAD")  # fails where nothing was committed yet
        git.run("rm", "-rfq", "--cached", "--ignore-unmatch", ".")
    git.run("clean", "-fdqx")


def _add(clone: Path, results: Path, say: Callable[[str], None]) -> Iterator[str]:
    """Copy what is not in the clone yet, and yield its names."""
    nights, left_out = store.read_all(store.documents(results / store.NIGHTS), night.read_night)
    for line in left_out:
        say(line)
    for document in nights:
        if document.ended_at is None:
            continue
        folder, series = Path(store.NIGHTS), document.series
        place = night.path_of(folder, series, document.night, document.node)
        if (clone / place).exists():
            # Not by their bytes: that of an earlier format is the same document.
            if store.read_all([clone / place], night.read_night)[0] != [document]:
                other = f"another one of {series} is published as {place.stem}"
                say(f"{shown(results / place)}: {other}; give each machine a --series of its own")
            continue
        _copy(results / place, clone / place)
        for part in document.parts:
            page = results / "report" / f"{part.session}.html"
            if page.exists() and not (clone / PAGES / page.name).exists():
                _copy(page, clone / PAGES / page.name)
        yield f"{series} {place.stem}"
    for path in sorted((results / store.NIGHTS).glob(f"*/{night.ACCEPTED}")):
        to = clone / store.NIGHTS / path.parent.name
        known = night.read_accepted(to)
        news = [each for each in night.read_accepted(path.parent) if each not in known]
        if to.is_dir() and news:
            night.add_accepted(to, *news)
            yield f"{path.parent.name} accepted up to {night.accepted_until(news)}"


def _copy(path: Path, to: Path) -> None:
    with refusing(f"{shown(to)} cannot be written: ", OSError):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def _commit(git: Git, added: Sequence[str]) -> bool:
    """Commit what is new; return whether anything is."""
    git.run("add", "-A", ".")
    if not git.run("status", "--porcelain").strip():
        return False
    # An author where git knows none.
    author = () if git.tried("config", "user.email").returncode == 0 else _AUTHOR
    git.run(*author, "commit", "-q", "-m", added_in_words(added) or "index")
    return True


def added_in_words(added: Sequence[str]) -> str:
    """Return what was added in a few words."""
    return ", ".join(added) if len(added) <= _NAMED else f"{len(added)} documents"


def _push(place: Place) -> bool:
    """Push; return False if somebody else has pushed meanwhile. Raises UserError if it fails for
    another reason."""
    words = ("push", "-q", place.url, f"HEAD:refs/heads/{night.BRANCH}")
    done = place.git.tried(*words)
    if done.returncode != 0 and not any(word in done.stderr for word in _MOVED):
        raise place.git.failed(words, done.stderr)
    return done.returncode == 0
