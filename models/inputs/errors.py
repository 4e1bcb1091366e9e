"""Errors about a data set, in one line each."""

from __future__ import annotations

from pathlib import Path


class DataError(ValueError):
    """A data set that cannot be used: one line with the file, the fault and what to do."""


def faulty(path: Path, fault: str, remedy: str) -> DataError:
    return DataError(f"{path}: {fault}; {remedy}")


def unreadable(path: Path, error: OSError) -> DataError:
    return faulty(path, f"unreadable ({error.strerror})", "check its permissions")


def content_of(path: Path, most_bytes: int, remedy: str) -> bytes:
    """Return the bytes of a file. Raises DataError if the file cannot be read, is empty, or is
    larger than most_bytes."""
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise faulty(path, f"{size} bytes, but such a file has at most {most_bytes}", remedy)
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if not content:
        raise faulty(path, "empty", remedy)
    return content
