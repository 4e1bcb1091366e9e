"""Errors about a data set, in one line each."""

from __future__ import annotations

from pathlib import Path


class DataError(ValueError):
    """A data set cannot be used. The message, one line, names the file, the fault and the
    remedy."""


def faulty(path: Path, fault: str, remedy: str) -> DataError:
    return DataError(f"{path}: {fault}; {remedy}")


def unreadable(path: Path, error: OSError) -> DataError:
    return faulty(path, f"unreadable ({error.strerror})", "check its permissions")
