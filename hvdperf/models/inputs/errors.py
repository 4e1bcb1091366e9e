"""Errors about a data set, in one line each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


class DataError(ValueError):
    """A data set cannot be used. The message, one line, names the file, the fault and the
    remedy."""


def faulty(path: Path, fault: str, remedy: str) -> DataError:
    return DataError(f"{path}: {fault}; {remedy}")


def unreadable(path: Path, error: OSError) -> DataError:
    return faulty(path, f"unreadable ({error.strerror})", "check its permissions")


def finish(work: Callable[[], str]) -> int:
    """Do the work and print its result. Return the exit status: 0, or 2 after one line on stderr if
    the work failed."""
    try:
        print(work())
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
