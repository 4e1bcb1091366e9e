"""The store of small documents: a JSON file each, in a folder for each series or machine, written
whole, and read whole or left out with a line that says why."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from hvdperf.errors import UserError, refusing
from hvdperf.files import write_record
from hvdperf.json_records import Unreadable
from hvdperf.paths import shown

Kind = TypeVar("Kind")
# The folder of all nights, in a directory of results and in the branch to which they are published.
NIGHTS = "nights"
# The page of all of them, and that of a series beside its nights.
INDEX = "index.html"
_LONGEST_REASON = 160
# The number of files, or of other things, that are named.
_NAMED = 5


def documents(root: Path) -> list[Path]:
    """Return the files of all documents below a folder of the store."""
    return sorted(root.glob("*/*.json"))


def write(path: Path, record: object) -> Path:
    """Write a document. Raises UserError if that is impossible."""
    with refusing(f"{shown(path)} cannot be written: ", OSError, then="; make room"):
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_record(path, record)


def read_all(paths: Iterable[Path], read: Callable[[Path], Kind]) -> tuple[list[Kind], list[str]]:
    """Return the documents of these files, and a line for each that is left out. read: reads one,
    or raises Unreadable."""
    found, left_out = [], []
    for path in paths:
        try:
            found.append(read(path))
        except Unreadable as error:
            reason = " ".join(str(error).split())[:_LONGEST_REASON]
            left_out.append(f"{shown(path)}: left out: {reason}")
    return found, left_out


def shortened(lines: Sequence[str], what: str = "files are left out") -> list[str]:
    """Return the first lines, by default of read_all, and how many more there are of what."""
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], *[f"and {more} more {what}"] * (more > 0)]


def named(told: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(told) - _NAMED
    return ", ".join(told[:_NAMED]) + (f", and {more} more" if more > 0 else "")


@contextmanager
def alone(lock: Path, busy: str = "") -> Iterator[None]:
    """Keep other processes out that ask for the same lock. busy: what is refused if another one
    holds it; "" to wait for its end. Raises UserError, also if the lock cannot be made."""
    with ExitStack() as opened:
        with refusing(f"{shown(lock)} cannot be made: ", OSError):
            lock.parent.mkdir(parents=True, exist_ok=True)
            stream = opened.enter_context(open(lock, "w"))
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise UserError(f"{shown(lock.parent)}: {busy}") from None
        yield
